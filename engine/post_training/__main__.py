"""Fits the constants of post-training and prints their errors."""

from __future__ import annotations

import datetime
from pathlib import Path

import hardware
from engine.post_training.fitting import write_calibration


def main() -> None:
    """Write the library's calibration "post_training" and print its errors."""
    path = Path(hardware.__file__).parent / "calibrations" / "post_training.json"
    document = write_calibration(path, datetime.date.today().isoformat())
    for each in document["errors"]:
        print(f"{each['described']}: {each['rows']} runs, median {each['median_absolute_percent']} %")
    for name, each in document["parameters"].items():
        print(f"{name}: {each['value']} {each.get('unit', '')} ({each.get('low')} to {each.get('high')})")


if __name__ == "__main__":
    main()

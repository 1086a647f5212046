"""Print the errors of fine-tuning runs: python -m engine.validation.fine_tuning."""

from __future__ import annotations

import pandas as pd

from engine.validation.fine_tuning.runs import error_medians, predict_fine_tuning


def main() -> int:
    """Print every run and the median errors; return 0."""
    found = predict_fine_tuning()
    with pd.option_context("display.width", 220, "display.max_columns", 40, "display.max_rows", 200):
        print(found.round(3).to_string(index=False))
        print(error_medians(found).round(1).to_string(index=False))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

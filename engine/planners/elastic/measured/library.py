"""The artifact's traces, which come with the planner; see `data/README.md`."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final

from engine.planners.elastic.measured.table import PARTS, MeasurementError, Measurements, read_measurements
from models.documents import did_you_mean, shown

__all__ = ["FOLDER", "measurement_names", "measurements", "measurements_of"]

FOLDER: Final = Path(__file__).parent / "data"
SOURCE: Final = "AlibabaPAI/reconfigurable-dl-scheduler @80e8524 (Apache-2.0), simulator/traces"


@lru_cache(maxsize=1)
def _register() -> Mapping[str, Mapping[str, str]]:
    with (FOLDER / "traces.csv").open(newline="", encoding="utf-8") as file:
        return {row["name"]: row for row in csv.DictReader(file)}


def measurement_names() -> list[str]:
    """Returns the names of all traces that come with the planner, in alphabetical order."""
    return sorted(_register())


@lru_cache(maxsize=32)
def measurements(name: str) -> Measurements:
    """Returns the trace of that name.

    Args:
        name: of a trace, which is that of the model card that it measures.

    Raises `MeasurementError` where there is none of that name.
    """
    if not isinstance(name, str) or name not in _register():
        known = measurement_names()
        hint = did_you_mean(str(name), known)
        raise MeasurementError(f"There are no measurements named {shown(name)}{hint}; there are {', '.join(known)}.")
    row = _register()[name]
    units = {part: row["parts"] for part in PARTS if row["parts"]}
    units |= {f"{part}+zero-offload": row["parts_zero_offload"] for part in PARTS if row["parts_zero_offload"]}
    found = read_measurements(FOLDER / row["file"], name=name, units=units, title=row["title"], card=row["card"])
    notes = (*found.notes, *((row["note"],) if row["note"] else ()))
    return Measurements(name, found.table, found.title, found.card, SOURCE, notes)


def measurements_of(name: str, measured: Measurements | str | None) -> Measurements | None:
    """Returns measurements that are given, or the trace of that name; where None is given, the trace of a card's name,
    or None where there is none.

    Args:
        name: of the card.
        measured: measurements, the name of a trace, or None.

    Raises `MeasurementError` for the name of a trace that there is not.
    """
    if measured is None:
        return measurements(name) if name in _register() else None
    return measurements(measured) if isinstance(measured, str) else measured

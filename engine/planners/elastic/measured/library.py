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
def _read_register() -> Mapping[str, Mapping[str, str]]:
    with (FOLDER / "traces.csv").open(newline="", encoding="utf-8") as file:
        return {row["name"]: row for row in csv.DictReader(file)}


def measurement_names() -> list[str]:
    """Returns the names of all traces that come with the planner, in alphabetical order."""
    return sorted(_read_register())


@lru_cache(maxsize=32)
def measurements(name: str) -> Measurements:
    """Returns the trace of a name.

    Args:
        name: of a trace, equal to the name of its model card.

    Raises `MeasurementError` for an unknown name.
    """
    if not isinstance(name, str) or name not in _read_register():
        known = measurement_names()
        hint = did_you_mean(str(name), known)
        raise MeasurementError(f"There are no measurements named {shown(name)}{hint}; there are {', '.join(known)}.")
    row = _read_register()[name]
    units = {part: row["parts"] for part in PARTS if row["parts"]}
    units |= {f"{part}+zero-offload": row["parts_zero_offload"] for part in PARTS if row["parts_zero_offload"]}
    found = read_measurements(FOLDER / row["file"], name=name, units=units, title=row["title"], card=row["card"])
    notes = (*found.notes, *((row["note"],) if row["note"] else ()))
    return Measurements(name, found.table, found.title, found.card, SOURCE, notes)


def measurements_of(name: str, measured: Measurements | str | None) -> Measurements | None:
    """Returns the given measurements, or the trace of the given name; for None the trace of the card's name, if it
    exists.

    Args:
        name: of the card.
        measured: measurements, the name of a trace, or None.

    Raises `MeasurementError` for an unknown trace.
    """
    if measured is None:
        return measurements(name) if name in _read_register() else None
    return measurements(measured) if isinstance(measured, str) else measured

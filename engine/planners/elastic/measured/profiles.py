"""Profiles: runs on one node with the parts of their iterations, from which the seven parameters are fitted."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final

import numpy as np
import pandas as pd

from engine.executions.arrays import Floats, Ints
from engine.planners.elastic.measured.csv_rows import MeasurementError, csv_rows, csv_text, number
from engine.planners.elastic.measured.library import FOLDER
from models.documents import did_you_mean, shown

__all__ = ["COLUMNS", "Profile", "joined_profile", "profile_names", "profile_of", "profile_table"]

COLUMNS: Final = (
    "gpus",
    "cpu_threads",
    "parameters_mi",
    "zero",
    "forward_factor",
    "backward_factor",
    "forward_ms",
    "overlap_sync_ms",
    "optimize_ms",
    "iteration_ms",
)
"""Columns of a profile: GPUs, CPU threads per GPU, parameters / 2^20, kind (0 plain, 1 ZeRO-Offload, 2 ZeRO-DP),
multipliers of forward and backward, and measured times [ms]."""

WHOLE: Final = ("gpus", "cpu_threads", "zero")
"""Columns of whole numbers."""

MOST_RUNS: Final = 500
"""Runs of a profile at most: sets of parameters are tried on all of them at once."""

LEAST: Final = {"gpus": 1.0, "cpu_threads": 1.0, "parameters_mi": 1e-9, "zero": 0.0, "backward_factor": 1.0}
"""Least value of a column; of others, which are times and multipliers, anything above 0."""


@dataclass(frozen=True)
class Profile:
    """Runs by column, [runs] each."""

    name: str
    table: pd.DataFrame
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.table)

    def floats(self, column: str) -> Floats:
        """Returns a column [runs].

        Args:
            column: one of `COLUMNS`.
        """
        return self._floats[column]

    def ints(self, column: str) -> Ints:
        """Returns a column of whole numbers [runs].

        Args:
            column: one of `WHOLE`.
        """
        return self._ints[column]

    @cached_property
    def _floats(self) -> dict[str, Floats]:
        """The columns as a fit reads them, some thousand times."""
        return {name: self.table[name].to_numpy(np.float64) for name in COLUMNS}

    @cached_property
    def _ints(self) -> dict[str, Ints]:
        return {name: self.table[name].to_numpy(np.int64) for name in WHOLE}

    def without(self, rows: set[int]) -> Profile:
        """Returns a profile without some of its runs.

        Args:
            rows: positions of those to leave out.
        """
        kept = [at for at in range(len(self.table)) if at not in rows]
        return Profile(self.name, self.table.iloc[kept].reset_index(drop=True), self.notes)


def profile_table(source: pd.DataFrame | str | os.PathLike[str], name: str = "profile") -> Profile:
    """Returns the profile in a table or CSV file with the columns of `COLUMNS`.

    Args:
        source: a table, the path of a file, or its text.
        name: what to call the profile.

    Raises `MeasurementError` naming row and field.
    """
    if isinstance(source, pd.DataFrame):
        source = source.to_csv(index=False) or "\n"
    text, where = csv_text(source)
    rows = [
        {column: _number_field(row, column, f"{where}, line {line}") for column in COLUMNS}
        for line, row in csv_rows(text, where, COLUMNS)
    ]
    return _build_profile(name, rows, where)


def _number_field(row: Mapping[str, str], column: str, where: str) -> float:
    value = number(row, column, where, low=LEAST.get(column, 1e-9))
    if column in WHOLE and value != int(value):
        raise MeasurementError(f"{where}: {column!r} is {shown(row[column])}; it must be a whole number.")
    if column == "zero" and value > 2:
        raise MeasurementError(f"{where}: 'zero' is {shown(row[column])}; it must be 0, 1 or 2.")
    return value


def joined_profile(config: str | os.PathLike[str], data: str | os.PathLike[str], name: str = "profile") -> Profile:
    """Returns the profile in the artifact's two files, which belong together row by row.

    Of runs with equal configurations only the last one counts, in the place of the first one, as in the artifact.

    Args:
        config: path or text of the file with configurations.
        data: path or text of the file with times, whole milliseconds, and digits of the strategy.
        name: what to call the profile.

    Raises `MeasurementError` naming row and field.
    """
    configs, times = csv_text(config), csv_text(data)
    first = list(csv_rows(*configs, ("gpus", "parameter_size", "num_cpu_threads", "zero_type")))
    second = list(csv_rows(*times, ("forward_time", "Tcc", "Topt", "iter_time", "strategy")))
    if len(first) != len(second):
        raise MeasurementError(
            f"{configs[1]} has {len(first)} rows and {times[1]} has {len(second)}; they belong together row by row."
        )
    runs: dict[tuple[str, ...], dict[str, float]] = {}
    for (line, setting), (other, row) in zip(first, second, strict=True):
        where, there = f"{configs[1]}, line {line}", f"{times[1]}, line {other}"
        digits = row["strategy"]
        if not digits.isascii() or not digits.isdecimal() or len(digits) < 2 or "0" in digits[:1]:
            raise MeasurementError(f"{there}: 'strategy' is {shown(digits)}; it must be digits such as 1100.")
        runs[tuple(setting.values())] = {
            "gpus": number(setting, "gpus", where, low=1),
            "cpu_threads": number(setting, "num_cpu_threads", where, low=1),
            "parameters_mi": number(setting, "parameter_size", where, low=1e-9),
            "zero": number(setting, "zero_type", where),
            "forward_factor": float(digits[0]),
            "backward_factor": float(digits[1]),
            "forward_ms": number(row, "forward_time", there, low=1e-9),
            "overlap_sync_ms": number(row, "Tcc", there, low=1e-9),
            "optimize_ms": number(row, "Topt", there, low=1e-9),
            "iteration_ms": number(row, "iter_time", there, low=1e-9),
        }
    return _build_profile(name, list(runs.values()), configs[1], len(first))


def _build_profile(name: str, rows: list[dict[str, Any]], where: str, read: int | None = None) -> Profile:
    if not 1 <= len(rows) <= MOST_RUNS:
        raise MeasurementError(
            f"{where} has {'more than ' + str(MOST_RUNS) if rows else 'no'} rows; a profile has a few."
        )
    table = pd.DataFrame(rows).astype(dict.fromkeys(WHOLE, np.int64))
    notes = []
    if read is not None and read > len(rows):
        notes.append(f"{read - len(rows)} of {read} runs have the configuration of a later one, and do not count.")
    typical = (table["forward_ms"] * table["gpus"]).median()
    notes += [
        f"Row {at + 1}: a forward time of {table['forward_ms'].iloc[at]:g} ms is far below the others."
        for at in np.flatnonzero((table["forward_ms"] * table["gpus"]) < typical / 5)
    ]
    return Profile(name, table, tuple(notes))


@lru_cache(maxsize=1)
def profile_names() -> tuple[str, ...]:
    """Returns the names of all profiles that come with the planner, in alphabetical order."""
    files = (file.name for file in FOLDER.glob("profile_*_config.csv"))
    return tuple(sorted(name.removeprefix("profile_").removesuffix("_config.csv") for name in files))


@lru_cache(maxsize=16)
def profile_of(name: str) -> Profile:
    """Returns the profile of a name.

    Args:
        name: of a profile that comes with the planner.

    Raises `MeasurementError` for an unknown name.
    """
    if name not in profile_names():
        hint = did_you_mean(name, profile_names())
        raise MeasurementError(
            f"There is no profile named {shown(name)}{hint}; there are {', '.join(profile_names())}."
        )
    return joined_profile(FOLDER / f"profile_{name}_config.csv", FOLDER / f"profile_{name}_data.csv", name)

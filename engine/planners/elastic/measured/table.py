"""Measured iterations: which plan took how long on which placement, and which could not run."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pandas as pd

from engine.planners.contract import PlanError
from engine.planners.elastic.measured.csv_rows import MeasurementError, csv_rows, csv_text, number
from engine.planners.elastic.placements import PlacementLike, gpus_on_nodes, placement_text
from engine.planners.elastic.plan_names import parse_plan
from models.documents import shown

__all__ = [
    "PARTS",
    "MeasurementError",
    "Measurements",
    "fastest_of_one_node",
    "measurements_text",
    "read_measurements",
]

PARTS: Final = ("forward", "overlap_sync", "optimize")
"""Parts of an iteration that a row may have: forward pass, backward with gradient exchange, optimizer."""

UNITS: Final = {"s": 1e3, "ms": 1.0}
"""Units of times, in milliseconds."""


@dataclass(frozen=True)
class Measurements:
    """Measured iterations.

    `table` has one row per measurement: `plan` by its one name, `exec_plan` as written, `placement`, `gpus`, `nodes`,
    `cpu_threads` per GPU (NaN where missing), `iteration_s` (NaN where the plan does not run or was not measured),
    `runnable`, and `forward_ms`, `overlap_sync_ms`, `optimize_ms` (NaN where missing). `notes` are remarks on the file.
    """

    name: str
    table: pd.DataFrame
    title: str = ""
    card: str = ""
    source: str = ""
    notes: tuple[str, ...] = ()

    def iteration_s(self, plan: str, placement: PlacementLike, cpu_threads: int | None = None) -> float:
        """Returns the measured iteration [s], the shortest of several; NaN without a measurement.

        Args:
            plan: in any accepted notation.
            placement: GPUs on each node.
            cpu_threads: per GPU; any where None. Rows without a number of threads match every number.
        """
        nodes = gpus_on_nodes(placement)
        name = parse_plan(plan, sum(nodes)).text
        rows = self.table[(self.table["plan"] == name) & (self.table["placement"] == placement_text(nodes))]
        if cpu_threads is not None:
            rows = rows[rows["cpu_threads"].isna() | (rows["cpu_threads"] == cpu_threads)]
        return float(rows["iteration_s"].min()) if len(rows) else math.nan


def fastest_of_one_node(found: Measurements) -> dict[int, tuple[str, float]]:
    """Returns (plan, iteration [s]) of the fastest measurement on one node, by its GPUs.

    Args:
        found: the measurements.
    """
    rows = found.table[found.table["runnable"] & (found.table["nodes"] == 1)]
    fastest = rows.sort_values("iteration_s", kind="stable").drop_duplicates("gpus")
    return {
        int(gpus): (str(plan), float(seconds))
        for gpus, plan, seconds in zip(fastest["gpus"], fastest["plan"], fastest["iteration_s"], strict=True)
    }


def read_measurements(
    source: str | os.PathLike[str],
    *,
    name: str | None = None,
    units: Mapping[str, str] | None = None,
    **about: str,
) -> Measurements:
    """Returns the measurements in a CSV file, in the artifact's columns or our own.

    Needed are `exec_plan`, `placement` and a time: `iter_time`, in seconds unless `units` say otherwise, or
    `iteration_s` or `iteration_ms`. `cpu_threads` may be there, and parts of the iteration: `forward`, `overlap_sync`,
    `optimize`, which have to have a unit, as a suffix `_s` or `_ms` or in `units`; parts without one are left out, and
    the notes say so, because such files mix seconds and milliseconds. Zero or nothing is no time: the plan does not
    run.

    Args:
        source: path of the file, or its text.
        name: what to call the measurements; the stem of the file where None.
        units: `s` or `ms` by column, such as `{"forward": "ms"}`; `{"forward+zero-offload": "s"}` for rows of a plan.
        about: `title`, `card` and `source` of the measurements.

    Raises `MeasurementError` naming row and field.
    """
    text, where = csv_text(source)
    given = dict(units or {})
    for column, unit in given.items():
        if unit not in UNITS:
            raise MeasurementError(f"The unit of {shown(column)} is {shown(unit)}; it must be s or ms.")
    rows: list[dict[str, Any]] = []
    unknown: set[str] = set()
    for line, row in csv_rows(text, where, ("exec_plan", "placement")):
        rows.append(_measurement_of_row(row, f"{where}, line {line}", given, unknown))
    if not rows:
        raise MeasurementError(f"{where} has no rows.")
    table = pd.DataFrame(rows)
    stem = "" if where == "the table" else Path(where).stem
    notes = _note_faults(table, unknown)
    return Measurements(name or stem or "measured", table, notes=notes, **about)


def _measurement_of_row(
    row: Mapping[str, str], where: str, units: Mapping[str, str], unknown: set[str]
) -> dict[str, Any]:
    try:
        nodes = gpus_on_nodes(row["placement"])
        plan = parse_plan(row["exec_plan"], sum(nodes))
    except PlanError as error:
        raise MeasurementError(f"{where}: {error}") from None
    kind = row["exec_plan"].split("+")[0]
    iteration = _time_in_ms(row, "iter_time", where, kind, {"iter_time": "s", **units}, unknown)
    if math.isnan(iteration):
        iteration = _time_in_ms(row, "iteration", where, kind, units, unknown)
    threads = number(row, "cpu_threads", where, absent=math.nan)
    return {
        "plan": plan.text,
        "exec_plan": row["exec_plan"],
        "placement": placement_text(nodes),
        "gpus": sum(nodes),
        "nodes": len(nodes),
        "cpu_threads": threads,
        "iteration_s": iteration / 1e3,
        "runnable": not math.isnan(iteration),
        **{f"{part}_ms": _time_in_ms(row, part, where, kind, units, unknown) for part in PARTS},
    }


def _time_in_ms(
    row: Mapping[str, str], name: str, where: str, kind: str, units: Mapping[str, str], unknown: set[str]
) -> float:
    """A time in milliseconds, NaN where it is zero, absent, or of unknown unit."""
    for column, unit in (
        (f"{name}_s", "s"),
        (f"{name}_ms", "ms"),
        (name, units.get(f"{name}+{kind}", units.get(name))),
    ):
        if column not in row:
            continue
        value = number(row, column, where, absent=0.0)
        if not unit:
            unknown.add(column)
            return math.nan
        return value * UNITS[unit] if value > 0 else math.nan
    return math.nan


def _note_faults(table: pd.DataFrame, unknown: set[str]) -> tuple[str, ...]:
    notes = []
    if count := int((~table["runnable"]).sum()):
        notes.append(
            f"{count} of {len(table)} rows have no time or zero: these plans do not run, or were not measured."
        )
    if unknown:
        notes.append(
            f"Left out: {', '.join(sorted(unknown))}, for which no unit is told; name the columns such as forward_ms."
        )
    twice = table.duplicated(["plan", "placement", "cpu_threads"], keep=False)
    if count := int(twice.sum()):
        notes.append(f"{count} rows measure the same plan on the same placement again; the shortest counts.")
    return tuple(notes)


def measurements_text(found: Measurements) -> str:
    """Returns measurements as the text of a CSV with units in the names of its columns; `read_measurements` reads it.

    Args:
        found: the measurements.
    """
    kept = ["exec_plan", "placement", "cpu_threads", "iteration_s", *(f"{part}_ms" for part in PARTS)]
    table = found.table[kept].dropna(axis="columns", how="all")
    if "iteration_s" not in table:
        table["iteration_s"] = math.nan
    return table.to_csv(index=False)

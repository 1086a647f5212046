"""One execution with all its figures, remembered: pages ask for the same few again and again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import pandas as pd

from dashboard.compat.caches import remembered
from engine import Exploration
from engine.columns import fields_of, statistics_of
from engine.exploration.result import first_row
from engine.launch.standing import SAME_RATE
from engine.store import StoreCondition

__all__ = ["Faster", "evaluated", "faster_than", "several"]

_MEMORY: Final = ("memory_tier1", "memory_tier2")
_ENDLESS: Final = 1e12
"""Capacity that no execution exceeds [GiB]."""


@remembered(entries=512)
def evaluated(_exploration: Exploration, key: str, execution: int) -> dict[str, Any]:
    """Returns one execution with all its statistics. key: of the exploration."""
    row = first_row(_exploration.evaluate_ids([execution]))
    if row["reason"] in _MEMORY:
        row |= _unbounded_statistics(_exploration, row)
    return row


class Faster(NamedTuple):
    """Number of executions that are faster than one, and the throughput of the best [samples/s]."""

    number: int
    best: float


@remembered(entries=64)
def faster_than(_exploration: Exploration, key: str, rate: float) -> Faster:
    """Returns the number of executions with a higher throughput, by one query of stored rows.

    key: of the exploration. rate: throughput of a feasible execution [samples/s].
    """
    best = _exploration.reductions.best("sample_rate")
    above = StoreCondition("sample_rate", ">", rate * (1 + SAME_RATE))
    return Faster(_exploration.rows.count([above]), rate if best is None else best[1])


def several(exploration: Exploration, executions: Sequence[int]) -> dict[int, Mapping[str, Any]]:
    """Returns executions that run by their ids, which takes hardly longer than one of them."""
    if not executions:
        return {}
    rows = exploration.evaluate_ids(executions).to_dict("records")
    return {int(row["id"]): {str(name): value for name, value in row.items()} for row in rows}


def _unbounded_statistics(exploration: Exploration, row: Mapping[Any, Any]) -> dict[str, float]:
    """The statistics that an execution would have if memory were no limit, to show by how much it does not fit."""
    system = exploration.scenario.system
    tiers = {
        name: memory.model_copy(update={"capacity_gib": _ENDLESS}) if memory.capacity_gib > 0 else memory
        for name, memory in (("mem1", system.mem1), ("mem2", system.mem2))
    }
    scenario = replace(exploration.scenario, system=system.model_copy(update=tiers))
    fields = pd.DataFrame([{column.name: row[column.name] for column in fields_of(scenario.cost_model)}])
    found = scenario.evaluate(fields).iloc[0]
    return {column.name: float(found[column.name]) for column in statistics_of(scenario.cost_model)}

"""One execution with all its figures, remembered: pages ask for the same few again and again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pandas as pd

from dashboard.compat.caches import remembered
from engine import Exploration, Scenario
from engine.columns import fields_of, statistics_of
from engine.exploration.result import first_row
from engine.launch.standing import SAME_RATE
from engine.recommendation import OUT_OF_MEMORY, without_capacity
from engine.store import StoreCondition

__all__ = ["Faster", "evaluated", "faster_than", "several"]


@remembered(entries=512)
def evaluated(_subject: Exploration | Scenario, key: str, execution: int) -> dict[str, Any]:
    """Returns one execution of an exploration or of a scenario with its id and all its statistics. key: of either."""
    scenario = _subject if isinstance(_subject, Scenario) else _subject.scenario
    row = {"id": execution} | first_row(scenario.evaluate(scenario.space.table([execution])))
    if row["reason"] in OUT_OF_MEMORY:
        row |= _unbounded_statistics(scenario, row)
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


def _unbounded_statistics(scenario: Scenario, row: Mapping[Any, Any]) -> dict[str, float]:
    """The statistics that an execution would have if memory were no limit, to show by how much it does not fit."""
    scenario = replace(scenario, system=without_capacity(scenario.system))
    fields = pd.DataFrame([{column.name: row[column.name] for column in fields_of(scenario.cost_model)}])
    found = scenario.evaluate(fields).iloc[0]
    return {column.name: float(found[column.name]) for column in statistics_of(scenario.cost_model)}

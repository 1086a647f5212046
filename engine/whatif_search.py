"""Optima of scenarios like one base scenario, and how the base's best execution fares in each if it is kept."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd

from engine.columns import fields_of
from engine.exploration import first_row
from engine.scenario import Scenario
from engine.search import best_of
from engine.whatif_parameters import changed
from engine.whatif_space import SPACES_KEPT, AnyReadySpace, layout_key, ready

__all__ = ["Best", "Point", "Searcher", "searcher_of", "transferred"]

NAN: Final = float("nan")


@dataclass(frozen=True, slots=True)
class Point:
    """The optimum at one point of a study.

    `values` are the changed parameters in their units. `rate` is the best sample rate [samples/s] and `kept` that of
    the base's best execution left as it is, each NaN where nothing runs. `execution` holds the 23 fields of the best.
    `problem` says why there is no such scenario, for example too few samples for so many processors.
    """

    values: Mapping[str, float]
    rate: float
    kept: float = NAN
    execution: Mapping[str, Any] | None = None
    feasible: int = 0
    efficiency: float = NAN
    problem: str = ""

    @property
    def degrees(self) -> tuple[int, int, int] | None:
        """Tensor, pipeline and data parallelism of the best."""
        e = self.execution
        return None if e is None else (int(e["tensor_par"]), int(e["pipeline_par"]), int(e["data_par"]))


@dataclass(frozen=True, slots=True)
class Best:
    """The optimum of a scenario, with the rate of the base's best execution kept [samples/s], or NaN."""

    id: int | None
    rate: float
    kept: float
    execution: Mapping[str, Any] | None
    feasible: int
    evaluated: int


_searchers: OrderedDict[str, Searcher] = OrderedDict()
_lock = threading.Lock()


def searcher_of(scenario: Scenario) -> Searcher:
    """The searcher of a base scenario, the latest few being kept."""
    with _lock:
        if scenario.key in _searchers:
            _searchers.move_to_end(scenario.key)
            return _searchers[scenario.key]
    made = Searcher(scenario)
    with _lock:
        _searchers[scenario.key] = made
        if len(_searchers) > SPACES_KEPT:
            _searchers.popitem(last=False)
    return made


class Searcher:
    """Optima of scenarios like one base scenario, and how the base's best execution fares in each."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.space = ready(scenario)
        self._executions: dict[int, dict[str, Any]] = {}
        if self.space is not None:
            found = self.space.best(scenario.system)
            self.base_id, self.base_feasible = found.id, found.feasible
        else:
            best = best_of(scenario)
            self.base_id, self.base_feasible = best.get("id"), best.feasible
        self.base: dict[str, Any] | None = None
        if self.base_id is not None:
            row = scenario.evaluate(scenario.space.table([self.base_id]))
            self.base = {"id": self.base_id} | first_row(row)

    def point(
        self, scenario: Scenario, changes: Mapping[str, float], shown: Mapping[str, float] | None = None
    ) -> Point:
        """The optimum after a change; `shown` are the values that the point is about."""
        values = dict(changes if shown is None else shown)
        try:
            found = self.at(changed(scenario, changes))
        except ValueError as problem:  # every refusal of models, hardware and engine is one
            return Point(values, NAN, problem=str(problem))
        return Point(values, found.rate, found.kept, found.execution, found.feasible)

    def at(self, scenario: Scenario) -> Best:
        """The optimum of a scenario."""
        same = self.space is not None and self.space.key == layout_key(scenario)
        space = self.space if same else ready(scenario)
        if space is None:
            best = best_of(scenario)
            id_, rate = best.get("id"), float(best.get("sample_rate", NAN))
            fields = fields_of(scenario.cost_model)
            execution = None if id_ is None else {column.name: best[column.name] for column in fields}
            return Best(id_, rate, self._kept_elsewhere(scenario), execution, best.feasible, best.evaluated)
        found = space.best(scenario.system, self.base_id if same else None)
        execution = None if found.id is None else self._execution(scenario, space, found.id)
        kept = found.kept if same else self._kept_elsewhere(scenario)
        return Best(found.id, found.rate, kept, execution, found.feasible, found.evaluated)

    def _execution(self, scenario: Scenario, space: AnyReadySpace, number: int) -> dict[str, Any]:
        if space is not self.space:
            return _fields(scenario, number)
        if number not in self._executions:
            self._executions[number] = _fields(self.scenario, number)
        return self._executions[number]

    def _kept_elsewhere(self, scenario: Scenario) -> float:
        """The rate of the base's best execution in another space; NaN where it does not run."""
        if self.base is None:
            return NAN
        found = scenario.evaluate(pd.DataFrame([transferred(self.base, scenario)]))
        return float(found["sample_rate"].iloc[0])


def _fields(scenario: Scenario, number: int) -> dict[str, Any]:
    row = scenario.space.table([number]).iloc[0]
    return {column.name: row[column.name] for column in fields_of(scenario.cost_model)}


def transferred(execution: Mapping[str, Any], scenario: Scenario) -> dict[str, Any]:
    """The same choices in another scenario: with its number of processors, and the batch that data parallelism then
    divides."""
    fields = {column.name: execution[column.name] for column in fields_of(scenario.cost_model)}
    model_parallel = int(fields["tensor_par"]) * int(fields["pipeline_par"]) * int(fields.get("context_par", 1))
    if int(fields["num_procs"]) != scenario.num_procs:
        fields["num_procs"] = scenario.num_procs
        fields["data_par"] = max(1, scenario.num_procs // model_parallel)
    if int(fields["batch_size"]) > scenario.max_batch_size or "batch_size" not in scenario.limits:
        data = int(fields["data_par"])
        fields["batch_size"] = scenario.max_batch_size // data * data
    return fields

"""Optima of scenarios like one base scenario, and how the base's best execution fares in each if it is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd

from engine.columns import fields_of
from engine.cost_models.registry import cost_model_of
from engine.executions.arrays import Ints
from engine.exploration.proven_optimum import best_of
from engine.scenarios.scenario import Scenario
from engine.space.space import Space, SpaceError
from engine.whatif.kept import Kept
from engine.whatif.parameters import changed
from engine.whatif.prepared_spaces import SPACES_KEPT, AnyReadySpace, layout_key, ready

__all__ = [
    "BestExecution",
    "Choice",
    "Point",
    "Searcher",
    "first_enumerated",
    "searchable",
    "searcher_of",
    "transfer_execution",
]

NAN: Final = float("nan")
INF: Final = float("inf")


Choice = Callable[[pd.DataFrame], int]
"""Picks one of several executions that tie exactly: returns its `id`, from their ids and fields, in order of id."""


def searchable(scenario: Scenario, largest: float) -> Scenario:
    """Return the scenario. Raises `engine.SpaceError` if its space has more executions than `largest`.

    The search of one point cannot be stopped, and numbers with many divisors make spaces that take hours.

    Args:
        scenario: scenario to search.
        largest: largest number of executions of its space [count].
    """
    total = scenario.space.total
    if total > largest:
        raise SpaceError(f"The space would have {total:,} executions; up to {largest:,.0f} are searched.")
    return scenario


def first_enumerated(executions: pd.DataFrame) -> int:
    """Return the first of executions that tie, as `engine.best` and `engine.explore` do.

    Args:
        executions: tied executions, in the order of the enumeration.
    """
    return int(executions["id"].iloc[0])


@dataclass(frozen=True, slots=True)
class Point:
    """The optimum at one point of a study.

    `values` are the changed parameters in their units. `rate` is the best sample rate [samples/s] and `kept` that of
    the base's best execution left as it is, each NaN where nothing runs. `execution` holds the 23 fields of the best.
    `problem` says why there is no such scenario, for example too few samples for so many processors. `remark`
    says why the figures are not of the execution that was asked for.
    """

    values: Mapping[str, float]
    rate: float
    kept: float = NAN
    execution: Mapping[str, Any] | None = None
    feasible: int = 0
    efficiency: float = NAN
    problem: str = ""
    remark: str = ""

    @property
    def degrees(self) -> tuple[int, int, int] | None:
        """Tensor, pipeline and data parallelism of the best."""
        e = self.execution
        return None if e is None else (int(e["tensor_par"]), int(e["pipeline_par"]), int(e["data_par"]))


@dataclass(frozen=True, slots=True)
class BestExecution:
    """The optimum of a scenario, with the rate of the base's best execution kept [samples/s], or NaN.

    `total`: executions in its space. `tied`: ids of all that are exactly as good, itself among them, ascending.
    """

    id: int | None
    rate: float
    kept: float
    execution: Mapping[str, Any] | None
    total: int
    feasible: int
    evaluated: int
    tied: Ints


_searchers: Kept[Searcher] = Kept(SPACES_KEPT)


def searcher_of(scenario: Scenario, choose: Choice = first_enumerated) -> Searcher:
    """Returns the searcher of a base scenario, the latest few being kept.

    Args:
        scenario: the base.
        choose: which of several executions that tie stands for the best.
    """
    return _searchers.get((scenario.key, choose), lambda: Searcher(scenario, choose))


class Searcher:
    """Optima of scenarios like one base scenario, and how the base's best execution fares in each.

    choose: which of several executions that tie stands for the best of the base.
    """

    def __init__(self, scenario: Scenario, choose: Choice = first_enumerated) -> None:
        self.scenario, self.choose = scenario, choose
        self.space = ready(scenario)
        self._executions: dict[tuple[int, tuple[int, ...]], dict[str, Any]] = {}
        if self.space is not None:
            found = self.space.best(scenario.system)
            self.base_feasible, self.base_tied = found.feasible, found.tied
        else:
            best = best_of(scenario)
            self.base_feasible, self.base_tied = best.feasible, best.tied
        self.base_id = self.chosen(scenario, self.base_tied)
        self.base: dict[str, Any] | None = None
        if self.base_id is not None:
            self.base = {"id": self.base_id} | self.row(scenario, self.base_id)

    def row(self, scenario: Scenario, number: int) -> dict[str, Any]:
        """Return the fields and statistics of an execution of a scenario; see `Scenario.row`."""
        return scenario.row(number, self._space(scenario))

    def point(
        self,
        scenario: Scenario,
        changes: Mapping[str, float],
        shown: Mapping[str, float] | None = None,
        largest: float = INF,
    ) -> Point:
        """Returns the optimum after a change; `shown` are the values that the point is about. largest: see
        `searchable`."""
        values = dict(changes if shown is None else shown)
        try:
            after = changed(scenario, changes)
            found = self.at(after if self._has(after) else searchable(after, largest))
        except ValueError as problem:  # every refusal of models, hardware and engine is one
            return Point(values, NAN, problem=str(problem))
        return Point(values, found.rate, found.kept, found.execution, found.feasible)

    def chosen(self, scenario: Scenario, tied: Ints) -> int | None:
        """Return the id of the execution that represents tied ones; None without any."""
        if self.choose is first_enumerated or len(tied) < 2:
            return int(tied[0]) if len(tied) else None
        fields = self._space(scenario).table(tied)
        fields.insert(0, "id", tied)
        return self.choose(fields)

    def execution(self, scenario: Scenario, number: int) -> dict[str, Any]:
        """Returns the fields of an execution of a scenario."""
        mine = self._has(scenario)
        known = number, tuple(network.size for network in scenario.system.networks)
        if mine and known in self._executions:
            return self._executions[known]
        fields = self._space(scenario).row(number)
        if mine:
            self._executions[known] = fields
        return fields

    def at(self, scenario: Scenario) -> BestExecution:
        """Returns the optimum of a scenario."""
        space = self._ready(scenario)
        if space is None:
            best = best_of(scenario)
            id_, rate = best.get("id"), float(best.get("sample_rate", NAN))
            fields = fields_of(scenario.cost_model)
            execution = None if id_ is None else {column.name: best[column.name] for column in fields}
            return BestExecution(
                id_,
                rate,
                self._kept_elsewhere(scenario),
                execution,
                best.total,
                best.feasible,
                best.evaluated,
                best.tied,
            )
        mine = space is self.space
        found = space.best(scenario.system, self.base_id if mine else None)
        execution = None if found.id is None else self.execution(scenario, found.id)
        kept = found.kept if mine else self._kept_elsewhere(scenario)
        return BestExecution(
            found.id, found.rate, kept, execution, space.space.total, found.feasible, found.evaluated, found.tied
        )

    def _has(self, scenario: Scenario) -> bool:
        """Return whether executions of a scenario have the same ids and fields as the prepared ones of the base."""
        return self.space is not None and self.space.key == layout_key(scenario)

    def _ready(self, scenario: Scenario) -> AnyReadySpace | None:
        return self.space if self._has(scenario) else ready(scenario)

    def _space(self, scenario: Scenario) -> Space:
        """Return the space of a scenario, reusing a prepared one if it is equal."""
        space = self._ready(scenario)
        return scenario.space if space is None else space.space.on(scenario.system)

    def _kept_elsewhere(self, scenario: Scenario) -> float:
        """The rate of the base's best execution in another space; NaN where it does not run."""
        if self.base is None:
            return NAN
        found = scenario.evaluate(pd.DataFrame([transfer_execution(self.base, scenario)]))
        return float(found["sample_rate"].iloc[0])


def transfer_execution(execution: Mapping[str, Any], scenario: Scenario) -> dict[str, Any]:
    """Returns the same choices in another scenario: with its number of processors, and the batch that data parallelism
    then divides.

    Args:
        execution: its fields by name.
        scenario: where it goes.
    """
    fields = {column.name: execution[column.name] for column in fields_of(scenario.cost_model)}
    model_parallel = int(fields["tensor_par"]) * int(fields["pipeline_par"]) * int(fields.get("context_par", 1))
    if int(fields["num_procs"]) != scenario.num_procs:
        fields["num_procs"] = scenario.num_procs
        fields["data_par"] = max(1, scenario.num_procs // model_parallel)
    if int(fields["batch_size"]) > scenario.max_batch_size or "batch_size" not in scenario.limits:
        data = int(fields["data_par"])
        fields["batch_size"] = scenario.max_batch_size // data * data
    return fields | cost_model_of(scenario).placed(scenario.system, fields)

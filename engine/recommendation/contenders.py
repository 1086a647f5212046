"""The executions among which one is recommended: of a stored exploration, or of a space that is searched."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from engine.columns import fields_of
from engine.cost_models.registry import cost_model_of
from engine.executions.arrays import Flags, Ints
from engine.executions.codes import OFFLOADS
from engine.executions.limits import capacity_factor
from engine.exploration.proven_optimum import Optimum, best_of, executions_above
from engine.exploration.result import Exploration
from engine.exploration.run import Cancel, Watch
from engine.scenarios.scenario import Scenario
from engine.store import StoreCondition
from engine.whatif.prepared_spaces import AnyReadySpace, made_ready
from hardware import GIB, System

__all__ = [
    "LAYOUT",
    "Contender",
    "Explored",
    "ProvenBest",
    "Searched",
    "Sought",
    "TooManyFoundError",
    "field_names",
    "has_offloading",
]

MEMORY: Final = ("proc_mem_tier1_cap_req", "proc_mem_tier2_cap_req")
FIGURES: Final = ("sample_rate", "total_time", *MEMORY)
LAYOUT: Final = ("tensor_par", "pipeline_par", "data_par", "context_par", "expert_par", "expert_tensor_par")
"""Fields that make up a layout: the ten best are of different ones, since hundreds that differ in a switch lie closer
together than any two layouts."""
_ROUNDING: Final = 1.0 + 1e-9
"""Factor on a capacity, so that rounding refuses nothing."""
_NO_CAPACITY: Final = 1.0 / GIB
"""Memory that nothing offloads to: one byte, since without any the system would lack the tier [GiB]."""


@dataclass(frozen=True, slots=True)
class Contender:
    """One of the best: `id`, its fields and figures, and why it is not the recommended one; empty where it is."""

    id: int
    execution: Mapping[str, Any]
    reason: str


@dataclass(frozen=True, slots=True)
class Sought:
    """Conditions on executions: at least `rate` [samples/s]; without offload if `plain`; at most so much of the two
    tiers of memory [bytes]."""

    rate: float
    plain: bool = False
    first: float = math.inf
    second: float = math.inf

    def among(self, found: pd.DataFrame) -> Flags:
        """Returns which executions are [rows].

        Args:
            found: with offloads and figures as columns.
        """
        fast, first, second = (found[name].to_numpy(np.float64) for name in ("sample_rate", *MEMORY))
        wanted: Flags = (fast >= self.rate) & (first <= self.first) & (second <= self.second)
        return wanted & ~has_offloading(found) if self.plain else wanted


def has_offloading(executions: Mapping[str, Any] | pd.DataFrame) -> Flags:
    """Return which executions keep data in host memory [rows].

    Args:
        executions: fields by name [rows]; absent fields count as off.
    """
    each = [np.asarray(executions[name], bool) for name in OFFLOADS if name in executions]
    return np.asarray(np.logical_or.reduce(each), bool)


class Explored:
    """Executions of an exploration, by its rows."""

    def __init__(self, exploration: Exploration, where: Sequence[StoreCondition] = ()) -> None:
        """Args:
        exploration: with stored rows.
        where: conditions that executions must meet.
        """
        self.scenario = exploration.scenario
        self._rows, self._where = exploration.rows, tuple(where)
        found = exploration.reductions.best()
        self.best_rate = None if found is None else float(found[1])
        if where and found is not None:
            first = self._rows.top(1, "sample_rate", where=list(where), names=["sample_rate"])[
                "sample_rate"
            ].to_pylist()
            self.best_rate = float(first[0]) if first else None

    def best_among(self, sought: Sought) -> float | None:
        """Return None: rows are looked through level by level, see `Searched.best_among`."""
        return None

    def find(self, sought: Sought) -> pd.DataFrame:
        """Returns executions: `id`, fields and figures [rows].

        Args:
            sought: which.
        """
        where = [*self._where, StoreCondition("sample_rate", ">=", sought.rate)]
        where += [StoreCondition(name, "=", False) for name in OFFLOADS if sought.plain]
        for name, most in zip(MEMORY, (sought.first, sought.second), strict=True):
            if math.isfinite(most):
                where.append(StoreCondition(name, "<=", most))
        names = ["id", *field_names(self.scenario), *FIGURES]
        found: pd.DataFrame = self._rows.table(names, where=where).to_pandas()
        for words in found.select_dtypes("category"):
            found[words] = found[words].to_numpy(object)
        return found


class ProvenBest(NamedTuple):
    """The fastest executions of a scenario, proven."""

    rate: float | None
    """Throughput [samples/s]; None if nothing runs."""
    tied: Ints
    """Ids of all executions of that throughput."""
    execution: Mapping[str, Any] | None = None
    """One of them with its fields and figures, if it is evaluated: the one to compare the recommended one with."""

    @classmethod
    def of(cls, optimum: Optimum) -> ProvenBest:
        """Return the best of a proven optimum."""
        return cls(optimum.get("sample_rate"), optimum.tied)


class TooManyFoundError(ValueError):
    """A search finds more executions than may be evaluated at once."""


class Searched:
    """Executions of a scenario, by a search that proves all others slower.

    Every condition but the rate limits memory, so the search runs on a system with that much of it: executions that do
    not fit there need neither bounds nor evaluation.
    """

    def __init__(
        self,
        scenario: Scenario,
        best: ProvenBest | None = None,
        prepared: AnyReadySpace | None = None,
        cancel: Cancel | None = None,
        most: int | None = None,
    ) -> None:
        """Search for the fastest executions, unless they are known.

        Args:
            scenario: the scenario.
            best: its fastest executions, if they are known.
            prepared: its space, if it is prepared.
            cancel: a function or event that asks to stop.
            most: executions that may be evaluated at once; any number if None.

        Raises `engine.ExplorationCancelled` on `cancel`, between two searches of a prepared space.
        """
        self.scenario = scenario
        self._cancel, self._most = cancel, most
        self._watch = Watch(0, None, cancel)
        if prepared is None and cost_model_of(scenario).searches_by_bounds:
            prepared = made_ready(scenario.space, "")
        self._prepared = prepared
        self._tied: dict[Sought, Ints] = {}
        self.best = self._search_best() if best is None else best
        self.best_rate = self.best.rate
        if self.best_rate is not None:
            self._tied[Sought(self.best_rate)] = self.best.tied

    def find(self, sought: Sought) -> pd.DataFrame:
        """Returns executions, see `Explored.find`.

        Args:
            sought: which.

        Raises `TooManyFoundError`, and `engine.ExplorationCancelled` on request.
        """
        space = self.scenario.space
        self._watch.tell(0, 0)
        ids = self._tied.get(sought)
        if ids is None:
            system = self._with_memory_of(sought)
            if self._prepared is not None:
                ids = self._prepared.above(system, sought.rate)
            else:
                ids = executions_above(self.scenario, sought.rate, system, self._cancel)["id"].to_numpy(np.int64)
        if self._most is not None and len(ids) > self._most:
            raise TooManyFoundError(
                f"{len(ids):,} executions are as fast; at most {self._most:,} are evaluated at once."
            )
        if sought.plain and len(ids):
            ids = ids[~has_offloading(space.fields(ids))]
        found = self.scenario.evaluate(space.table(ids))
        found = found[[*field_names(self.scenario), *FIGURES]].assign(id=np.asarray(ids))
        return found[sought.among(found)]

    def best_among(self, sought: Sought) -> float | None:
        """Return a throughput that no execution under conditions on memory exceeds, mostly that of the best of them
        [samples/s]; 0 if none runs, and None where all levels must be searched.

        Args:
            sought: the conditions; their rate does not count.
        """
        if self._prepared is None:
            return None
        self._watch.tell(0, 0)
        best = self._prepared.best(self._with_memory_of(sought), counted=False)
        if best.id is None:
            return 0.0
        self._tied[replace(sought, rate=best.rate)] = best.tied
        return best.rate

    def _search_best(self) -> ProvenBest:
        self._watch.tell(0, 0)
        if self._prepared is not None:
            found = self._prepared.best(self.scenario.system, counted=False)
            return ProvenBest(None if found.id is None else found.rate, found.tied)
        return ProvenBest.of(best_of(self.scenario, cancel=self._cancel))

    def _with_memory_of(self, sought: Sought) -> System:
        """Return the scenario's system with the memory that executions may take, without rounding it down."""
        system, factor = self.scenario.system, capacity_factor(self.scenario.limits)
        first, second = (most / GIB / factor * _ROUNDING for most in (sought.first, sought.second))
        second = _NO_CAPACITY if sought.plain else second
        return system.model_copy(
            update={
                name: memory.model_copy(update={"capacity_gib": min(memory.capacity_gib, most)})
                for name, memory, most in (("mem1", system.mem1, first), ("mem2", system.mem2, second))
            }
        )


def field_names(scenario: Scenario) -> list[str]:
    """Return the names of the fields of an execution.

    Args:
        scenario: scenario of the execution.
    """
    return [column.name for column in fields_of(scenario.cost_model)]

"""The executions among which one is recommended: of a stored exploration, or of a space that is searched."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from engine.columns import fields_of
from engine.executions.arrays import Flags
from engine.executions.codes import OFFLOADS
from engine.exploration.proven_optimum import best_of, executions_above
from engine.exploration.result import Exploration
from engine.exploration.run import Cancel
from engine.scenarios.scenario import Scenario
from engine.store import StoreCondition

__all__ = ["LAYOUT", "Contender", "Explored", "Searched", "Sought", "TooManyFoundError", "has_offloading"]

MEMORY: Final = ("proc_mem_tier1_cap_req", "proc_mem_tier2_cap_req")
FIGURES: Final = ("sample_rate", "total_time", *MEMORY)
LAYOUT: Final = ("tensor_par", "pipeline_par", "data_par", "context_par", "expert_par", "expert_tensor_par")
"""Fields that make up a layout: the ten best are of different ones, since hundreds that differ in a switch lie closer
together than any two layouts."""


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
        names = ["id", *_field_names(self.scenario), *FIGURES]
        found: pd.DataFrame = self._rows.table(names, where=where).to_pandas()
        for words in found.select_dtypes("category"):
            found[words] = found[words].to_numpy(object)
        return found


class TooManyFoundError(ValueError):
    """A search finds more executions than may be evaluated at once."""


class Searched:
    """Executions of a scenario, by a search that proves all others slower."""

    def __init__(self, scenario: Scenario, cancel: Cancel | None = None, most: int | None = None) -> None:
        """Args:
        scenario: to be searched.
        cancel: a function or event that asks to stop.
        most: executions that may be evaluated at once; any number if None.

        Raises `engine.ExplorationCancelled` on `cancel`.
        """
        self.scenario = scenario
        self._cancel, self._most = cancel, most
        self.optimum = best_of(scenario, cancel=cancel)
        self.best_rate: float | None = self.optimum.get("sample_rate")

    def find(self, sought: Sought) -> pd.DataFrame:
        """Returns executions, see `Explored.find`.

        Args:
            sought: which.

        Raises `TooManyFoundError`, and `engine.ExplorationCancelled` on request.
        """
        space = self.scenario.space
        ids = executions_above(self.scenario, sought.rate, self._cancel)["id"].to_numpy()
        if self._most is not None and len(ids) > self._most:
            raise TooManyFoundError(
                f"{len(ids):,} executions are as fast; at most {self._most:,} are evaluated at once."
            )
        if sought.plain and len(ids):
            ids = ids[~has_offloading(space.fields(ids))]
        found = self.scenario.evaluate(space.table(ids))
        found = found[[*_field_names(self.scenario), *FIGURES]].assign(id=np.asarray(ids))
        return found[sought.among(found)]


def _field_names(scenario: Scenario) -> list[str]:
    """Fields of an execution."""
    return [column.name for column in fields_of(scenario.cost_model)]

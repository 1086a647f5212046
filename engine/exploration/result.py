"""The result of exploring a space: counts, reductions, and every feasible execution."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, Protocol

import duckdb
import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from engine.columns import SHARES, by_name, statistics_of
from engine.executions.limits import capacity_factor
from engine.exploration.frontier import frontier
from engine.exploration.reductions import PRIMARY, Reductions
from engine.scenarios.scenario import Scenario
from engine.store import Rows
from engine.store.added_columns import AddedArrays
from engine.store.conditions import StoreCondition, source_of_table
from hardware import GIB

__all__ = ["ArrowRows", "Exploration", "first_row"]

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


class _RowSource(Protocol):
    def __call__(self) -> Rows: ...


class Exploration:
    """One scenario, evaluated over its whole space.

    `total`, `feasible`: numbers of executions. `infeasible_by_reason`: the others, by reason code. `timings`: seconds
    by phase. `rows`: every feasible execution, to be queried (see `engine.store.Rows`).
    """

    def __init__(
        self, scenario: Scenario, reductions: Reductions, timings: Mapping[str, float], rows: _RowSource
    ) -> None:
        self.scenario = scenario
        self.reductions = reductions
        self.timings = dict(timings)
        self.total = scenario.space.total
        self.feasible = int(reductions.feasible.sum())
        self.infeasible_by_reason = reductions.infeasible_by_reason()
        self._source = rows
        self._rows: Rows | None = None
        self._tables: dict[tuple[Callable[..., Any], str], pd.DataFrame] = {}
        """Tables of the reductions by cell and by pair: pages ask for each several times a click."""

    @property
    def key(self) -> str:
        """Content hash of the scenario."""
        return self.scenario.key

    @property
    def rows(self) -> Rows:
        """Every feasible execution with its headline figures."""
        if self._rows is None:
            self._rows = self._source()
        return self._rows

    @property
    def best(self) -> dict[str, Any] | None:
        """The execution with the highest sample rate, the first enumerated of equal ones: `id`, fields, statistics.

        None when nothing is feasible.
        """
        return None if self._best is None else dict(self._best)

    @cached_property
    def _best(self) -> dict[str, Any] | None:
        """`best`, evaluated once."""
        found = self.reductions.best()
        return None if found is None else {"id": found[0]} | self.scenario.row(found[0])

    @cached_property
    def may_fit(self) -> int:
        """Number of feasible executions that need more than a capacity, by no more than the limit `memory_excess`."""
        if capacity_factor(self.scenario.limits) == 1.0:
            return 0
        (first, own), (second, host) = self._capacities()
        over_first = self.rows.count([StoreCondition(first, ">", own)])
        return over_first + self.rows.count([StoreCondition(first, "<=", own), StoreCondition(second, ">", host)])

    def exceed_capacity(self, ids: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Return whether feasible executions need more than a capacity, which only `memory_excess` allows [ids]."""
        numbers = np.asarray(ids, np.int64)
        if not len(numbers) or not self.may_fit:
            return np.zeros(len(numbers), bool)
        found = self.evaluate_ids(numbers)
        over: npt.NDArray[np.bool_] = np.logical_or.reduce([found[name] > most for name, most in self._capacities()])
        return over

    def _capacities(self) -> list[tuple[str, float]]:
        """Return the statistic of each tier of memory, and the capacity of that tier [bytes]."""
        system = self.scenario.system
        tiers = (("proc_mem_tier1_cap_req", system.mem1), ("proc_mem_tier2_cap_req", system.mem2))
        return [(name, tier.capacity_gib * GIB) for name, tier in tiers]

    def top(self, k: int, by: str = PRIMARY) -> pd.DataFrame:
        """Returns the `k` best executions by a headline metric: `id`, fields, and all statistics."""
        return self.evaluate_ids(self.rows.top(k, by, names=["id"])["id"].to_numpy())

    def by_cell(self, metric: str = PRIMARY) -> pd.DataFrame:
        """Returns the best of a headline metric in every cell, and why a cell has none (see `Reductions.by_cell`)."""
        return self._table(Reductions.by_cell, metric)

    def by_pair(self, metric: str = PRIMARY) -> pd.DataFrame:
        """Returns the same of every pair of tensor and pipeline degrees, for all its cells together."""
        return self._table(Reductions.by_pair, metric)

    def _table(self, made: Callable[[Reductions, str], pd.DataFrame], metric: str) -> pd.DataFrame:
        """Return a table of the reductions; changes by the caller affect only a copy."""
        if (made, metric) not in self._tables:
            self._tables[made, metric] = made(self.reductions, metric)
        return self._tables[made, metric].copy(deep=False)  # pandas copies what is about to be changed

    def frontier(
        self,
        x: str,
        y: str,
        z: str | None = None,
        *,
        where: Sequence[StoreCondition] = (),
        better: Mapping[str, str] = _NOTHING,
    ) -> pd.DataFrame:
        """Returns the exact Pareto frontier over all feasible executions in two or three statistics or shares.

        Args:
            where: what executions have to meet.
            better: "higher" or "lower" for metrics of which the register does not say it; "lower" without.

        Returns `id` and the metrics, sorted along `x` from best to worst; of executions that agree in all of them the
        first enumerated.
        Raises ValueError for a metric that is neither a statistic nor a share, and `engine.store.NotEvaluatedError` for
        one that is not stored before `engine.exploration.unstored_statistics.add_columns` has added it.
        """
        names = [name for name in (x, y, z) if name is not None]
        known = {column.name for column in (*SHARES, *statistics_of(self.scenario.cost_model))}
        for name in names:
            by_name(name)
            if name not in known:
                some = ", ".join(self.reductions.metrics)
                raise ValueError(f"{name} is not a metric: any statistic is, such as {some}.")
        table = self.rows.table(["id", *names], where=where)
        axes = [table[name].to_numpy() for name in names]
        ways = [by_name(name).better or better.get(name, "lower") for name in names]
        # Rows come as they were stored; of equal ones the first enumerated is to stand for all.
        kept = frontier(axes, ways, table["id"].to_numpy())
        ids = table["id"].to_numpy()[kept]
        return pd.DataFrame({"id": ids} | {name: axis[kept] for name, axis in zip(names, axes, strict=True)})

    def evaluate_ids(self, ids: npt.ArrayLike) -> pd.DataFrame:
        """Return the executions by id, with `id`, the 23 fields, outcome and all 96 statistics, including infeasible
        ones.

        Raises `engine.space.space.SpaceError` for anything but whole numbers from 0 to `total` - 1.
        """
        scenario = self.scenario
        table = scenario.evaluate(scenario.space.table(ids))
        return pd.concat([pd.DataFrame({"id": np.asarray(ids, np.int64)}), table], axis=1)


def first_row(table: pd.DataFrame) -> dict[str, Any]:
    """Returns the first row of a table, by column name.

    Args:
        table: with at least one row.
    """
    return {str(name): value for name, value in table.iloc[0].to_dict().items()}


_IDLE: Final[deque[duckdb.DuckDBPyConnection]] = deque(maxlen=8)
"""Databases of explorations that are gone, for the next ones: opening one takes longer than most questions to it."""


class _ArrowDatabase:
    """Arrow table with the queries of a stored exploration, by its own in-memory database."""

    def __init__(self, table: pa.Table, added: AddedArrays) -> None:
        self._table, self._added = table, added

    @cached_property
    def _connection(self) -> duckdb.DuckDBPyConnection:
        """Database, opened for the first query; tables registered by a query are visible to its cursor only."""
        try:
            connection = _IDLE.pop()
        except IndexError:
            connection = duckdb.connect(":memory:", config={"enable_external_access": False})
        weakref.finalize(self, _IDLE.append, connection).atexit = False
        return connection

    @contextmanager
    def cursor(self, *active: set[duckdb.DuckDBPyConnection]) -> Iterator[duckdb.DuckDBPyConnection]:
        cursor = self._connection.cursor()
        cursor.register("arrow_rows", self._added.onto(self._table))
        for one in active:
            one.add(cursor)
        try:
            yield cursor
        finally:
            for one in active:
                one.discard(cursor)
            cursor.close()

    @contextmanager
    def room_to_sort(self) -> Iterator[None]:
        """Do nothing: memory is not limited here."""
        yield


class ArrowRows(Rows):
    """The rows of an exploration that is held in memory."""

    def __init__(self, table: pa.Table, cost_model: str) -> None:
        added = AddedArrays(table.num_rows)
        source = source_of_table("arrow_rows", cost_model, beside=False)
        super().__init__(_ArrowDatabase(table, added), source, set(), cost_model, added, "")  # type: ignore[arg-type]

"""The proven optimum of a space, without evaluating all of it.

Every row (see `engine.space.rows`) has a bound: its step without anything that offloading or a
longer gradient exchange can only add. Rows that share a block key and networks share one bound, so bounds cost a small
part of an exploration. Rows are evaluated from the best bound downwards until no bound is left that could beat what was
found; the rest is proven to be no better. Ties are evaluated too, so the result is the first enumerated of equal ones,
as in a full exploration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from engine.cost_models.contract import BoundSearch, Candidates, PreparedCells
from engine.cost_models.registry import cost_model_of
from engine.executions.arrays import Floats, Ints
from engine.executions.work_sizes import work_sizes
from engine.exploration.run import Cancel, Progress, Watch, slabs
from engine.scenarios.scenario import Scenario
from engine.space.rows import RowGroup, fitting, pairs_by_point
from engine.space.space import Space
from hardware import Calibration, System, SystemLike
from models import ModelLike
from models.documents import shown

__all__ = ["AboveSearch", "Optimum", "Search", "best", "best_of", "executions_above"]


SAFETY = 1.0 - 1e-9
"""Bounds and evaluations add the same terms in different orders; this covers the difference in rounding."""


SETTLED_TOGETHER = 1_024
"""Bounds that need no first look at the best of them once something is found: preparing anything at all takes longer
than evaluating so few."""


class Optimum(dict[str, Any]):
    """The best execution: `id`, the 23 fields, outcome and all statistics. Empty when nothing is feasible.

    `total`: executions in the space; `evaluated`: how many of those were evaluated, the others being proven no better
    or not to run. `tied`: ids of all executions that are exactly as good as the best, itself among
    them, ascending. `top`: the best executions [id, sample_rate], best first. `by_cell`: the best of every cell
    [tensor_par, pipeline_par, data_par, batch_size, sample_rate (NaN when nothing fits), id], None unless asked for.
    """

    def __init__(
        self,
        found: Mapping[str, Any],
        *,
        scenario: Scenario,
        feasible: int | None,
        evaluated: int,
        tied: Ints,
        top: pd.DataFrame,
        by_cell: pd.DataFrame | None,
    ) -> None:
        super().__init__(found)
        self.scenario = scenario
        self.total = scenario.space.total
        self.evaluated = evaluated
        self.tied = tied
        self.top = top
        self.by_cell = by_cell
        self._feasible = feasible

    @property
    def feasible(self) -> int:
        """Number of executions of the space that run. A proof needs no such count, so it is computed on first use; it
        takes as long as the search."""
        if self._feasible is None:
            self._feasible = _count_feasible(self.scenario)
        return self._feasible


def best(
    model: ModelLike,
    system: SystemLike,
    *,
    num_procs: int,
    max_batch_size: int,
    datatype: str,
    limits: Mapping[str, Any] | None = None,
    k: int = 1,
    by_cell: bool = False,
    cost_model: str | None = None,
    calibration: Calibration | None = None,
    progress: Callable[[Progress], None] | None = None,
    cancel: Cancel | None = None,
) -> Optimum:
    """Returns the execution with the highest sample rate, proven; equal to `explore(...).best`.

    Args:
        model, system, num_procs, max_batch_size, datatype, limits, cost_model, calibration: as for `engine.explore`.
        k: how many of the best executions to find.
        by_cell: whether to find the best of every cell too.
        progress: called now and then; executions proven no better count as done.
        cancel: an event, or a function that says whether to stop.

    Raises what `engine.explore` raises for its input, `engine.ExplorationCancelled` on `cancel`, and ValueError for a
    `k` below 1.
    """
    scenario = Scenario.of(
        model,
        system,
        num_procs=num_procs,
        max_batch_size=max_batch_size,
        datatype=datatype,
        limits=limits,
        cost_model=cost_model,
        calibration=calibration,
    )
    return best_of(scenario, k=k, by_cell=by_cell, progress=progress, cancel=cancel)


def best_of(
    scenario: Scenario,
    *,
    k: int = 1,
    by_cell: bool = False,
    progress: Callable[[Progress], None] | None = None,
    cancel: Cancel | None = None,
) -> Optimum:
    """Return the proven optimum of a scenario; see `best`.

    Args:
        scenario: the scenario to search.
        k: how many of the best to find [count].
        by_cell: whether to find the best of every cell.
        progress: called with the progress now and then.
        cancel: a function or event that asks to stop.
    """
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise ValueError(f"k is {shown(k)}; it must be a whole number of at least 1.")
    space = scenario.space
    search, watch = Search(space, k, by_cell), Watch(space.total, progress, cancel)
    cost_model = cost_model_of(space)
    by_bounds = cost_model.searches_by_bounds and not by_cell
    counted = progress is not None or not by_bounds
    watch.tell(0, 0)
    for numbers in slabs(space, work_sizes().points_searched if by_bounds else None):
        if by_bounds:
            search.look_over(cost_model.bound_search(space, numbers), space, counted=counted)
        else:
            prepared = cost_model.prepare(space, numbers, rows=False)
            search.feasible += prepared.feasible
            search.look(prepared, cost_model.candidates(prepared))
        last = numbers.stop == len(space.cells)
        watch.tell(space.total if last else int(space.first_ids[numbers.stop]), search.feasible, last=last)
    top, cells = search.result()
    found: dict[str, Any] = {}
    if len(top):
        first = int(top["id"].iloc[0])
        found = {"id": first} | cost_model.row(space, first, scenario.calibration)
    return Optimum(
        found,
        scenario=scenario,
        feasible=search.feasible if counted else None,
        evaluated=search.evaluated,
        tied=search.tied(),
        top=top,
        by_cell=cells,
    )


def _count_feasible(scenario: Scenario) -> int:
    """Count the executions of a scenario that run, where the cost model searches by bounds."""
    space, cost_model = scenario.space, cost_model_of(scenario.space)
    parts = slabs(space, work_sizes().points_searched)
    return sum(cost_model.bound_search(space, numbers).feasible(space) for numbers in parts)


def executions_above(
    scenario: Scenario, least: float, system: System | None = None, cancel: Cancel | None = None
) -> pd.DataFrame:
    """Return every execution of at least a throughput [id, sample_rate], fastest first; equal ones in the order of
    enumeration.

    Args:
        scenario: the scenario to search.
        least: throughput [samples/s].
        system: a system that differs from the scenario's in rates and capacities only, on which to search instead.
        cancel: a function or event that asks to stop.

    Raises `engine.ExplorationCancelled` on `cancel`.
    """
    space = scenario.space if system is None else scenario.space.on(system)
    search, watch = AboveSearch(space, least), Watch(space.total, None, cancel)
    cost_model = cost_model_of(space)
    for numbers in slabs(space, work_sizes().points_searched if cost_model.searches_by_bounds else None):
        watch.tell(0, 0)
        if cost_model.searches_by_bounds:
            search.look_over(cost_model.bound_search(space, numbers), space, counted=False)
        else:
            prepared = cost_model.prepare(space, numbers, rows=False)
            search.look(prepared, cost_model.candidates(prepared))
    return search.result()[0]


class Search:
    """The best executions found so far in the evaluated rows of a space."""

    def __init__(self, space: Space, k: int, by_cell: bool) -> None:
        self.space = space
        self.k = k
        self.per_cell = by_cell
        self.feasible = 0
        self.evaluated = 0
        self._ids: list[Ints] = [np.zeros(0, np.int64)]
        self._rates: list[Floats] = [np.zeros(0)]
        self._cell_rate = np.full(len(space.cells), -np.inf)
        self._cell_id = np.full(len(space.cells), -1)
        self._floor = -np.inf
        self.reach = -np.inf
        """Sample rate that no execution exceeds on the system or on a worse one [samples/s], kept if `watched`:
        executions that are not evaluated have a bound below the best, and such bounds hold on worse systems too."""
        self.watched = False

    def look(self, prepared: PreparedCells, rows: Candidates, hints: Ints | None = None) -> None:
        """Search the prepared cells. `hints` are positions among the candidates to try first."""
        if not len(rows.group):
            return
        rate = cost_model_of(self.space).bounds(prepared, rows)
        # A first look at the most promising rows gives floors that rule out nearly all others.
        first = _find_largest(rate, self._first_look)
        if hints is not None:
            first = np.union1d(first, hints)
        if self.per_cell:
            order = np.lexsort((-rate, rows.cell))
            starts = np.flatnonzero(np.diff(rows.cell[order], prepend=-1))
            first = np.union1d(first, order[starts])
        done = np.zeros(len(rate), bool)
        for _ in range(2):
            self._evaluate(prepared, rows.group[first], rows.place[first], rows.time[first])
            done[first] = True
            hopeful = rate >= self._floor * SAFETY
            if self.per_cell:
                hopeful |= rate >= self._cell_rate[prepared.cells.number[rows.cell]] * SAFETY
            first = np.flatnonzero(hopeful & ~done)
            if not len(first):
                break

    def look_over(
        self, by_bounds: BoundSearch, space: Space, known: Ints | None = None, *, counted: bool = True
    ) -> None:
        """Search cells on the system of `space`, and count feasible executions if `counted`.

        known: schedule points that were looked at already. Not for the best of every cell.
        """
        if counted:
            self.feasible += by_bounds.feasible(space)
        known = np.zeros(0, np.int64) if known is None else known
        if self._floor == -np.inf or by_bounds.few:
            first = np.setdiff1d(by_bounds.promising(space), known)
            if len(first):
                self.look(*by_bounds.prepare(space, first))
                known = np.concatenate((known, first))
        left = []
        for point, mode, rate in by_bounds.bounds(space, lambda: self._floor * SAFETY, known):
            hopeful = rate >= self._floor * SAFETY
            if not hopeful.any():
                continue
            point, mode, rate = point[hopeful], mode[hopeful], rate[hopeful]
            if self._floor > -np.inf and len(rate) <= SETTLED_TOGETHER:
                left.append((point, mode, rate))
                continue
            first = _find_largest(rate, self._first_look)
            self.look(*by_bounds.prepare(space, point[first], mode[first]))
            rest = np.ones(len(rate), bool)
            rest[first] = False
            left.append((point[rest], mode[rest], rate[rest]))
        if not left:
            return
        point, mode, rate = (np.concatenate(column) for column in zip(*left, strict=True))
        order = np.flatnonzero(rate >= self._floor * SAFETY)
        order = order[np.argsort(-rate[order], kind="stable")]
        together = work_sizes().bounds_followed
        for start in range(0, len(order), together):
            chosen = order[start : start + together]
            chosen = chosen[rate[chosen] >= self._floor * SAFETY]
            if not len(chosen):
                break
            self.look(*by_bounds.prepare(space, point[chosen], mode[chosen]))

    @property
    def _first_look(self) -> int:
        first = work_sizes().first_rows
        return first * max(1, self.k // first)

    def _evaluate(self, prepared: PreparedCells, owner: Ints, place: Ints, time: Ints) -> None:
        cost_model = cost_model_of(self.space)
        for number in np.unique(owner).tolist():
            here = owner == number
            for group in _select_rows(prepared, prepared.groups[number], place[here], time[here]):
                rows = cost_model.evaluate_rows(prepared, group, slice(None))
                if self.watched:
                    every = [variant.metrics["sample_rate"] for variant in rows.variants]
                    rises = cost_model.slower_on_worse(self.space)
                    reached = every if rises else [cost_model.reach(prepared, group, slice(None))]
                    self.reach = max(self.reach, *(float(each.max(initial=-np.inf)) for each in reached))
                for variant in rows.variants:
                    cell = rows.cell if variant.rows is None else rows.cell[variant.rows]
                    self._take(variant.ids, variant.metrics["sample_rate"], prepared.cells.number[cell])

    def _take(self, ids: Ints, rates: Floats, cells: Ints) -> None:
        self.evaluated += len(ids)
        if self.per_cell:
            self._seen_in_cells(ids, rates, cells)
        kept = rates >= self._floor
        if not kept.any():
            return
        self._ids.append(ids[kept])
        self._rates.append(rates[kept])
        all_rates = np.concatenate(self._rates)
        if len(all_rates) >= self.k:
            self._floor = float(np.partition(all_rates, len(all_rates) - self.k)[len(all_rates) - self.k])
            all_ids = np.concatenate(self._ids)
            kept = all_rates >= self._floor
            self._ids, self._rates = [all_ids[kept]], [all_rates[kept]]

    def _seen_in_cells(self, ids: Ints, rates: Floats, cells: Ints) -> None:
        """Keeps, per cell, the best rate and the first enumerated execution that has it."""
        order = np.lexsort((ids, -rates, cells))
        first = order[np.flatnonzero(np.diff(cells[order], prepend=-1))]
        cell, number, rate = cells[first], ids[first], rates[first]
        known = self._cell_rate[cell]
        better = (rate > known) | ((rate == known) & (number < self._cell_id[cell]))
        self._cell_rate[cell[better]], self._cell_id[cell[better]] = rate[better], number[better]

    def tied(self) -> Ints:
        """Return the ids of all executions that have exactly the best rate, ascending: tied ones are evaluated and
        kept."""
        ids, rates = np.concatenate(self._ids), np.concatenate(self._rates)
        return np.unique(ids[rates == rates.max()]) if len(ids) else ids

    def result(self) -> tuple[pd.DataFrame, pd.DataFrame | None]:
        """Returns (the k best, the best of every cell or None)."""
        ids, rates = np.concatenate(self._ids), np.concatenate(self._rates)
        order = np.lexsort((ids, -rates))[: self.k]
        top = pd.DataFrame({"id": ids[order], "sample_rate": rates[order]})
        if not self.per_cell:
            return top, None
        cells = self.space.cells
        return top, pd.DataFrame(
            {
                "tensor_par": [cell.tensor_par for cell in cells],
                "pipeline_par": [cell.pipeline_par for cell in cells],
                "data_par": [cell.data_par for cell in cells],
                "batch_size": [cell.batch_size for cell in cells],
                "sample_rate": np.where(self._cell_id < 0, np.nan, self._cell_rate),
                "id": self._cell_id,
            }
        )


class AboveSearch(Search):
    """Every execution of at least a throughput [samples/s]."""

    def __init__(self, space: Space, least: float) -> None:
        super().__init__(space, k=space.total, by_cell=False)
        self._floor = least

    @property
    def ids(self) -> Ints:
        """Ids of the executions that were found, fastest first."""
        return self.result()[0]["id"].to_numpy(np.int64)

    @property
    def _first_look(self) -> int:
        return work_sizes().first_rows

    def _take(self, ids: Ints, rates: Floats, cells: Ints) -> None:
        self.evaluated += len(ids)
        kept = rates >= self._floor
        self._ids.append(ids[kept])
        self._rates.append(rates[kept])


def _find_largest(values: Floats, count: int) -> npt.NDArray[np.intp]:
    """Return the positions of the `count` largest values, in no order."""
    if len(values) <= count:
        return np.arange(len(values))
    return np.argpartition(values, len(values) - count)[len(values) - count :]


def _select_rows(prepared: PreparedCells, group: RowGroup, place: Ints, time: Ints) -> list[RowGroup]:
    """Return the group restricted to the rows of these places and block times, in chunks."""
    wanted, which = np.unique(place, return_inverse=True)
    chosen = np.zeros((len(prepared.modes.time_modes["training"]), len(wanted)), bool)
    chosen[time, which] = True
    rows = fitting(prepared.points, prepared.modes, prepared.fits, group.point[wanted]) & chosen[prepared.modes.time]
    position, mode = pairs_by_point(rows)
    at, together = wanted[position], work_sizes().rows_evaluated
    return [
        replace(group, place=at[start : start + together], mode=mode[start : start + together])
        for start in range(0, len(at), together)
    ]

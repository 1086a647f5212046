"""The proven optimum of a space, without evaluating all of it.

Every row (see `engine.plan`) has a bound: its step without anything that offloading or a longer gradient exchange can
only add. Rows that share a block key and networks share one bound, so bounds cost a small part of an exploration.
Rows are evaluated from the best bound downwards until no bound is left that could beat what was found; the rest is
proven to be no better. Ties are evaluated too, so the result is the first enumerated of equal ones, as in a full
exploration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from engine.arrays import take
from engine.batch import pipeline_part
from engine.data_parallel import block_exchange
from engine.evaluate import evaluate
from engine.exploration import first_row
from engine.explore import slabs
from engine.inputs import ModelLike, SystemLike
from engine.plan import Group, Plan, fitting, prepare
from engine.scenario import Scenario
from engine.space import Space
from engine.steps import ROWS_PER_CHUNK, evaluate_rows

__all__ = ["Optimum", "best", "best_of"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

SAFETY = 1.0 - 1e-9
"""Bounds and evaluations add the same terms in different orders; this covers the difference in rounding."""

FIRST_LOOK = 48
"""Rows evaluated before bounds are compared with anything."""


class Optimum(dict[str, Any]):
    """The best execution: `id`, the 23 fields, outcome and all statistics. Empty when nothing is feasible.

    `total`, `feasible`: executions in the space and how many run; `evaluated`: how many of those were evaluated, the
    others being proven no better. `top`: the best executions [id, sample_rate], best first. `by_cell`: the best of
    every cell [tensor_par, pipeline_par, data_par, batch_size, sample_rate (NaN when nothing fits), id], None unless
    asked for.
    """

    def __init__(
        self,
        found: Mapping[str, Any],
        *,
        scenario: Scenario,
        feasible: int,
        evaluated: int,
        top: pd.DataFrame,
        by_cell: pd.DataFrame | None,
    ) -> None:
        super().__init__(found)
        self.scenario = scenario
        self.total = scenario.space.total
        self.feasible = feasible
        self.evaluated = evaluated
        self.top = top
        self.by_cell = by_cell


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
) -> Optimum:
    """The execution with the highest sample rate, proven; equal to `explore(...).best`.

    Args:
        model, system, num_procs, max_batch_size, datatype, limits: as for `engine.explore`.
        k: how many of the best executions to find.
        by_cell: whether to find the best of every cell too.

    Raises what `engine.explore` raises for its input, and ValueError for a `k` below 1.
    """
    scenario = Scenario.of(
        model, system, num_procs=num_procs, max_batch_size=max_batch_size, datatype=datatype, limits=limits
    )
    return best_of(scenario, k=k, by_cell=by_cell)


def best_of(scenario: Scenario, *, k: int = 1, by_cell: bool = False) -> Optimum:
    """The proven optimum of a scenario; see `best`."""
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise ValueError(f"k is {k!r}; it must be a whole number of at least 1.")
    space = scenario.space
    search = _Search(space, k, by_cell)
    for numbers in slabs(space):
        search.look(prepare(space, numbers, rows=False))
    top, cells = search.result()
    found: dict[str, Any] = {}
    if len(top):
        first = int(top["id"].iloc[0])
        found = {"id": first} | first_row(evaluate(scenario.model, scenario.system, space.table([first])))
    return Optimum(
        found, scenario=scenario, feasible=search.feasible, evaluated=search.evaluated, top=top, by_cell=cells
    )


class _Search:
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

    def look(self, plan: Plan) -> None:
        """Finds what the plan's cells have to offer."""
        self.feasible += plan.feasible
        bounds = [_bounds(plan, group) for group in plan.groups]
        if not bounds:
            return
        owner = np.repeat(np.arange(len(bounds)), [len(bound.rate) for bound in bounds])
        place = np.concatenate([bound.place for bound in bounds])
        time = np.concatenate([bound.time for bound in bounds])
        rate = np.concatenate([bound.rate for bound in bounds])
        cell = np.concatenate([bound.cell for bound in bounds])
        # A first look at the most promising rows gives floors that rule out nearly all others.
        first = np.argsort(-rate, kind="stable")[: FIRST_LOOK * max(1, self.k // FIRST_LOOK)]
        if self.per_cell:
            order = np.lexsort((-rate, cell))
            starts = np.flatnonzero(np.diff(cell[order], prepend=-1))
            first = np.union1d(first, order[starts])
        done = np.zeros(len(rate), bool)
        for _ in range(2):
            self._evaluate(plan, owner[first], place[first], time[first])
            done[first] = True
            hopeful = rate >= self._floor * SAFETY
            if self.per_cell:
                hopeful |= rate >= self._cell_rate[plan.cells.number[cell]] * SAFETY
            first = np.flatnonzero(hopeful & ~done)
            if not len(first):
                break

    def _evaluate(self, plan: Plan, owner: Ints, place: Ints, time: Ints) -> None:
        for number in np.unique(owner).tolist():
            here = owner == number
            for group in _rows(plan, plan.groups[number], place[here], time[here]):
                rows = evaluate_rows(plan, group, slice(None))
                for variant in rows.variants:
                    cell = rows.cell if variant.rows is None else rows.cell[variant.rows]
                    self._take(variant.ids, variant.metrics["sample_rate"], plan.cells.number[cell])

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

    def result(self) -> tuple[pd.DataFrame, pd.DataFrame | None]:
        """(the k best, the best of every cell or None)."""
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


class _Bound:
    """Bounds of a group: rows of one place and block time share `rate`, an upper bound of their sample rates."""

    def __init__(self, place: Ints, time: Ints, cell: Ints, rate: Floats) -> None:
        self.place, self.time, self.cell, self.rate = place, time, cell, rate


def _bounds(plan: Plan, group: Group) -> _Bound:
    modes = plan.modes
    times = len(modes.time_modes["training"])
    # Which block times a place needs: those of a mode that it has and that fits.
    rows = fitting(plan.sites, modes, plan.fits, group.site)
    possible = np.array([rows[modes.time == time].any(axis=0) for time in range(times)])
    place, time = np.nonzero(np.ascontiguousarray(possible.T))
    result = np.empty(len(place))
    for start in range(0, len(place), ROWS_PER_CHUNK):
        part = slice(start, start + ROWS_PER_CHUNK)
        result[part] = _bound_rates(plan, group, place[part], time[part])
    return _Bound(place, time, plan.sites.cell[group.site[place]], result)


def _bound_rates(plan: Plan, group: Group, place: npt.NDArray[np.intp], time: npt.NDArray[np.intp]) -> Floats:
    site = group.site[place]
    b = take(plan.block, group.block[place] + time)
    s = take(plan.sites.stages, site)
    training = plan.modes.time_modes["training"][time]
    overlapped = plan.modes.time_modes["tensor_par_overlap"][time] != 0
    attention = plan.modes.time_modes["attention_type"][time]
    # The cheaper of a sharded and an unsharded optimizer.
    kinds = plan.modes.optimizer_modes
    kind = np.zeros(len(site), np.int64)
    for number in range(len(kinds["training"])):
        agrees = (kinds["training"][number] == training) & (kinds["attention_type"][number] == attention)
        kind[agrees & (kinds["overlapped"][number] == overlapped)] = number
    optimizer = np.minimum(*(plan.optimizer.time[start[site] + kind] for start in plan.optimizer_of))
    pipe = pipeline_part(
        plan.rate, s, b, optimizer, pipeline_net=np.asarray(group.pipeline_net), training=training, moved=None
    )
    cell = plan.sites.cell[site]
    total = pipe.total
    if group.exchanges:
        members = plan.cells.data_par[cell].astype(np.float64)
        exchange = np.full(len(site), np.inf)
        for data_net in group.data_nets:
            for sharded in (np.asarray(False), np.asarray(True)):
                seconds = block_exchange(plan.rate.networks, np.asarray(data_net), b.weights, members, sharded)
                exchange = np.minimum(exchange, seconds)
        total = total + np.where(training, exchange, 0.0)
    return plan.cells.batch_size[cell] / total


def _rows(plan: Plan, group: Group, place: Ints, time: Ints) -> list[Group]:
    """The group cut down to the rows of these places and block times, in chunks."""
    wanted, which = np.unique(place, return_inverse=True)
    chosen = np.zeros((len(plan.modes.time_modes["training"]), len(wanted)), bool)
    chosen[time, which] = True
    rows = fitting(plan.sites, plan.modes, plan.fits, group.site[wanted]) & chosen[plan.modes.time]
    position, mode = np.nonzero(np.ascontiguousarray(rows.T))
    at = wanted[position]
    return [
        replace(group, place=at[start : start + ROWS_PER_CHUNK], mode=mode[start : start + ROWS_PER_CHUNK])
        for start in range(0, len(at), ROWS_PER_CHUNK)
    ]

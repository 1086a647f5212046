"""Calculon's cells as a search for the best execution wants them: bounds first, and memory where they leave something.

A bound of every schedule point costs one row of arithmetic. What memory the modes of a schedule point need, and a bound
of each of its block times, are asked about only where that bound is high enough.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from engine.cost_models.calculon.bounds import CalculonCandidates, bounds, candidates, point_bounds
from engine.cost_models.calculon.physics.block import BlockTable, block_times
from engine.cost_models.calculon.physics.optimizer import OptimizerTable, optimizer_times
from engine.cost_models.calculon.physics.rates import SystemRates, rates
from engine.cost_models.calculon.physics.step_parts import step_block
from engine.cost_models.calculon.rows.prepared_rows import PreparedRows, RowTable, prepared_rows_of, row_table_of
from engine.cost_models.calculon.rows.rejection import listed
from engine.cost_models.calculon.space import CalculonSpace
from engine.cost_models.point_order import most_promising_first
from engine.executions.arrays import Flags, Floats, Ints
from engine.executions.work_sizes import work_sizes
from engine.space.rejection import executions_at
from engine.space.schedule_points import mode_counts
from hardware import System

__all__ = ["CalculonBoundSearch"]


FEW_POINTS = 256
"""Spaces of up to this many schedule points are evaluated whole: choosing among so few takes longer than bounding their
modes."""
MASKS_KEPT = 64
"""Capacities of which it is remembered what fits of few schedule points; some 10 MiB."""
POINTS_TOGETHER = 1024
"""Schedule points whose memory is computed together: a few MiB."""
NEEDS_KEPT = 64 * 2**20
"""Largest cached table of memory requirements [bytes]; larger ones are recomputed per capacity."""
COUNTS_KEPT = 1024
"""Capacities of which it is remembered how many executions run."""


@dataclass(slots=True)
class _Rated:
    """Figures of blocks and of optimizers at the rates of a system; bounds of all schedule points on first use."""

    system: System
    rate: SystemRates
    blocks: BlockTable
    optimizers: OptimizerTable
    hopes: Floats | None = None


@dataclass(slots=True)
class _Part:
    """Schedule points, prepared on a system, with their candidates."""

    system: System
    points: Ints
    prepared: PreparedRows
    rows: CalculonCandidates


@dataclass(slots=True)
class _Masked:
    """Executions that fit between two capacities, the number of feasible ones, and their candidates."""

    fits: Flags
    feasible: int
    rows: CalculonCandidates


class CalculonBoundSearch:
    """Cells of a space, for systems that differ in rates and capacities only. Ids are the ids of the space."""

    def __init__(self, space: CalculonSpace, numbers: range) -> None:
        self.row_table = row_table_of(space, numbers)
        self._last_rated: _Rated | None = None
        self._last_part: _Part | None = None
        self.few = len(self.row_table.points.cell) <= FEW_POINTS
        self._masks: OrderedDict[tuple[float, float], _Masked] = OrderedDict()
        self._needs: list[tuple[RowTable, tuple[Floats, Floats]]] | None = None
        self._counts: OrderedDict[tuple[float, float], int] = OrderedDict()

    def feasible(self, space: CalculonSpace) -> int:
        """Returns how many executions run on the space's system [executions].

        Args:
            space: the space, of the same layout, at its system's rates and capacities.
        """
        rate = rates(space.system, space.datatype)
        capacities = (rate.capacity, rate.second_capacity)
        if capacities not in self._counts:
            count = mode_counts(self.row_table.modes)
            self._counts[capacities] = sum(
                int(executions_at(_fits_in_memory(part, needs, rate), count, part.cells, part.points).sum())
                for part, needs in self._needs or self._every_need(space)
            )
            while len(self._counts) > COUNTS_KEPT:
                self._counts.popitem(last=False)
        return self._counts[capacities]

    def promising(self, space: CalculonSpace) -> Ints:
        """Return some schedule points with the highest bounds, unordered, to be evaluated whole first; all points if
        there are `few`.

        Args:
            space: the space, of the same layout, at its system's rates and capacities.
        """
        if self.few:
            return np.arange(len(self.row_table.points.cell))
        hopes = self._hopes(self._rated(space))
        return np.argsort(-hopes)[: min(work_sizes().first_points, np.count_nonzero(hopes > -np.inf))]

    def bounds(
        self, space: CalculonSpace, least: Callable[[], float] = lambda: -np.inf, known: Ints | None = None
    ) -> Iterator[tuple[Ints, Ints, Floats]]:
        """Yield schedule points, block times, and upper bounds of the sample rate of their executions [samples/s], up
        to rounding.

        Yields all points with an execution that fits, in parts, the most promising first.

        Args:
            space: the space, of the same layout, at its system's rates and capacities.
            least: called before each part; schedule points that cannot reach this rate [samples/s] are omitted from
                then on.
            known: schedule points to omit, already fully evaluated; None for no such points.
        """
        if known is not None and len(known) == len(self.row_table.points.cell):
            return
        rated = self._rated(space)
        hopes = self._hopes(rated).copy()
        if known is not None:
            hopes[known] = -np.inf
        width = self.row_table.keyed.width
        for here in most_promising_first(hopes, least, first=work_sizes().first_points, most=POINTS_TOGETHER):
            part = self._part(rated, np.sort(here))
            if not len(part.rows.group):
                continue
            # The best of what the networks leave.
            point = _points_of(part)
            best = np.full(len(part.points) * width, -np.inf)
            np.maximum.at(best, point * width + part.rows.time, bounds(part.prepared, part.rows))
            pair = np.flatnonzero(best > -np.inf)
            yield part.points[pair // width], pair % width, best[pair]

    def prepare(
        self, space: CalculonSpace, point: Ints, mode: Ints | None = None
    ) -> tuple[PreparedRows, CalculonCandidates]:
        """Returns prepared rows of these schedule points, and their candidates.

        Args:
            space: the space, of the same layout, at its system's rates and capacities.
            point: positions of schedule points, in any order [listed points].
            mode: block time that is wanted of each of them [listed points]; all where None.
        """
        rated, part = self._rated(space), self._last_part
        if self.few:
            part = self._whole(rated)
        elif part is None or part.system is not space.system or not np.isin(point, part.points).all():
            part = self._part(rated, np.unique(point))
        if mode is None and len(point) == len(part.points):
            return part.prepared, part.rows
        wanted = np.zeros((len(part.points), self.row_table.keyed.width), bool)
        wanted[np.searchsorted(part.points, point), slice(None) if mode is None else mode] = True
        chosen = np.flatnonzero(wanted[_points_of(part), part.rows.time])
        return part.prepared, part.rows.at(chosen)

    def point_of(self, execution: int) -> Ints:
        """Return the schedule point of an execution, as an array of one; empty for an execution of other cells or a
        rejected point.

        Args:
            execution: number of the execution in the space.
        """
        space, points, cells = self.row_table.space, self.row_table.points, self.row_table.cells
        rest = execution - points.first
        position, assignment = np.divmod(rest, points.stride)
        modes_of = np.array([len(table) for table in space.modes])[points.kind]
        assignments = np.array([space.cells[number].assignments for number in cells.number.tolist()], np.int64)
        return np.flatnonzero((rest >= 0) & (position < modes_of) & (assignment < assignments[points.cell]))

    def _rated(self, space: CalculonSpace) -> _Rated:
        if self._last_rated is None or self._last_rated.system is not space.system:
            rate, table = rates(space.system, space.datatype), self.row_table
            blocks, optimizers = block_times(table.work, rate), optimizer_times(table.optimizer, rate)
            self._last_rated = _Rated(space.system, rate, blocks, optimizers)
        return self._last_rated

    def _hopes(self, rated: _Rated) -> Floats:
        """Bounds of all schedule points."""
        if rated.hopes is None:
            blocks = step_block(rated.blocks)
            rated.hopes = point_bounds(self.row_table, rated.rate, blocks, rated.optimizers.time)
        return rated.hopes

    def _part(self, rated: _Rated, points: Ints) -> _Part:
        table = self.row_table.at(points)
        needs = table.needs(rated.blocks, rated.optimizers)
        fits = _fits_in_memory(table, needs, rated.rate)
        prepared = prepared_rows_of(table, rated.rate, rated.blocks, rated.optimizers, needs, fits)
        self._last_part = _Part(rated.system, points, prepared, candidates(prepared, fits))
        return self._last_part

    def _whole(self, rated: _Rated) -> _Part:
        """All schedule points. Their needs know no rate, so that another rate leaves what fits as it is."""
        table, capacities = self.row_table, (rated.rate.capacity, rated.rate.second_capacity)
        last, points = self._last_part, np.arange(len(table.points.cell))
        if last is not None and last.system is rated.system and len(last.points) == len(points):
            return last
        if self._needs is None:
            self._needs = [(table, table.needs(rated.blocks, rated.optimizers))]
        ((_, needs),) = self._needs
        known = self._masks.get(capacities)
        fits = _fits_in_memory(table, needs, rated.rate) if known is None else known.fits
        prepared = prepared_rows_of(
            table, rated.rate, rated.blocks, rated.optimizers, needs, fits, None if known is None else known.feasible
        )
        if known is None:
            known = self._masks[capacities] = _Masked(fits, prepared.feasible, candidates(prepared, fits))
            while len(self._masks) > MASKS_KEPT:
                self._masks.popitem(last=False)
        self._last_part = _Part(rated.system, points, prepared, known.rows)
        return self._last_part

    def _every_need(self, space: CalculonSpace) -> Iterator[tuple[RowTable, tuple[Floats, Floats]]]:
        """Yield the memory requirements of everything, some schedule points at a time; cached unless too large."""
        rated, points = self._rated(space), len(self.row_table.points.cell)
        size = 2 * np.dtype(np.float64).itemsize * points * len(self.row_table.modes.memory_modes["training"])
        kept: list[tuple[RowTable, tuple[Floats, Floats]]] = []
        for start in range(0, points, POINTS_TOGETHER):
            table = self.row_table.at(np.arange(start, min(start + POINTS_TOGETHER, points)))
            needs = table.needs(rated.blocks, rated.optimizers)
            if size <= NEEDS_KEPT:
                kept.append((table, needs))
            yield table, needs
        if size <= NEEDS_KEPT:
            self._needs = kept


def _fits_in_memory(table: RowTable, needs: tuple[Floats, Floats], rate: SystemRates) -> Flags:
    """Return True where memory suffices [memory modes, points]."""
    found = listed(table.space, table.cells, table.points, table.modes)
    return found & (needs[0] <= rate.capacity) & (needs[1] <= rate.second_capacity)


def _points_of(part: _Part) -> Ints:
    """Return the schedule point of each candidate of a part."""
    groups = part.prepared.groups
    starts = np.cumsum([0, *(len(group.point) for group in groups)])
    found: Ints = np.concatenate([group.point for group in groups])[starts[part.rows.group] + part.rows.place]
    return found

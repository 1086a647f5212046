"""Calibrated cells as a search for the best execution wants them: little is kept, and most is never computed.

Five sieves, each finer and dearer than the one before, and each for what the last one left:

1. a bound of a schedule point: the fastest of its blocks through the pipeline, without gathers of weights, waiting and
updates; 2. the same with the least of gathers and updates; 3. which of its search modes anything fits for, which only
capacities decide; 4. that bound of each of these search modes (`engine.cost_models.calibrated.point_bounds`);
5. prepared rows of the few schedule points that remain (`engine.cost_models.calibrated.rows.prepared_rows`), with the
bounds of `engine.cost_models.calibrated.bounds`.

Memory is dearer to look at than bounds, so it is looked at where bounds leave something. Who counts what runs has
looked at all of it: what fits is remembered then, and comes before all bounds.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.cost_models.calibrated.bounds import CalibratedCandidates, calibrated_candidates
from engine.cost_models.calibrated.physics.inputs import Floats
from engine.cost_models.calibrated.physics.step import BlockLevel
from engine.cost_models.calibrated.point_bounds import (
    PointBounds,
    blocks_together,
    least_update,
    quickest_gathers,
    rates_of,
)
from engine.cost_models.calibrated.rows.memory_groups import alike_in_memory
from engine.cost_models.calibrated.rows.memory_requirements import (
    MemoryCheck,
    refused,
    stages_of,
)
from engine.cost_models.calibrated.rows.prepared_rows import CalibratedRows, block_shapes, prepare_row_table
from engine.cost_models.calibrated.rows.row_tables import row_table_of
from engine.cost_models.calibrated.rows.schedule_points import BLOCK_FIELDS, GRAINS, point_table_of
from engine.cost_models.calibrated.space import CalibratedSpace
from engine.cost_models.point_order import most_promising_first
from engine.executions.arrays import Flags, Ints, distinct
from engine.executions.work_sizes import work_sizes
from engine.space.schedule_points import executions_of, mode_counts, step_modes
from engine.space.space import Modes

__all__ = ["CalibratedBoundSearch"]


SEARCH_FIELDS = (*BLOCK_FIELDS, "fully_sharded")
"""Fields that distinguish search modes: block modes, with or without gathering weights block by block."""
TOGETHER = ("pipeline_par", "pipeline_interleaving", "stage_layout")
"""Fields that order schedule points while their memory is computed."""
LOOKED_THROUGH = 8
"""Times as many, the most promising by their pipelines alone, that those are chosen from."""
FIRST_PIPELINES = 2048
"""Pipelines of the schedule points that are evaluated whole first."""
ROOM_KEPT = 32 * 2**20
"""Largest cached table of memory requirements [bytes]; larger ones are recomputed per capacity."""


@dataclass(slots=True)
class _Fitting:
    """Executions that fit at two capacities: groups of search modes with a fitting mode, as bits [points, bytes], and
    the number of feasible executions. Schedule points with equal bits and block shapes are alike: one point of each
    class, and the class of every schedule point."""

    bits: npt.NDArray[np.uint8]
    feasible: int
    one_of: Ints
    alike: Ints


@dataclass(slots=True)
class _Asked:
    """Schedule points of a kind of cell whose memory is checked together: `here` are their positions among all
    requested points; `listed` is True for pairs that run if memory suffices [memory modes, points]."""

    kind: int
    here: Ints
    listed: Flags
    room: MemoryCheck


@dataclass(slots=True)
class _Sieve:
    """Bounds on a space's system: their blocks, `hopes` of every schedule point by its pipeline alone, and the finer
    bounds of some schedule points [samples/s]."""

    space: CalibratedSpace
    level: BlockLevel
    hopes: Floats
    of_steps: Callable[[Ints], Floats]


@dataclass(slots=True)
class _SearchModes:
    """Modes of a space as a search distinguishes them.

    `search` and `block` are fields of the search modes and of their block modes; `search_of` [time modes] and
    `block_of` [search modes] are their positions. `groups` counts sets of search modes with the same memory modes:
    `group_of` [search modes] is the group of each, `partners` are the memory modes by kind of cell and group, and
    `listed` [kinds of cells, groups] is True for groups with memory modes. `count` are executions [kinds of cells,
    memory modes].
    """

    search: dict[str, npt.NDArray[Any]]
    search_of: Ints
    block: dict[str, npt.NDArray[Any]]
    block_of: Ints
    group_of: Ints
    groups: int
    partners: list[list[Ints]]
    listed: Flags
    count: Ints


@lru_cache(maxsize=16)
def _search_modes(kinds: tuple[Modes, ...]) -> _SearchModes:
    """The search modes of the modes of each kind of cell, which many spaces share."""
    modes = step_modes(kinds, GRAINS)
    first, search_of = distinct(*(modes.time_modes[name] for name in SEARCH_FIELDS))
    search = {name: modes.time_modes[name][first] for name in SEARCH_FIELDS}
    # Blocks are the same whether their weights are gathered or not.
    block, block_of = distinct(*(search[name] for name in BLOCK_FIELDS))
    count = mode_counts(modes)
    exists = np.maximum(modes.position[0], modes.position[1]) >= 0
    partners = np.zeros((len(exists), count.shape[1], len(first)), bool)
    kind, mode = np.nonzero(exists)
    partners[kind, modes.memory[mode], search_of[modes.time[mode]]] = True
    columns = np.packbits(partners.reshape(-1, len(first)).T, axis=1)
    groups: dict[bytes, int] = {}
    group_of = np.array([groups.setdefault(column.tobytes(), len(groups)) for column in columns], np.int64)
    _, one_of = np.unique(group_of, return_index=True)
    return _SearchModes(
        search,
        search_of,
        {name: search[name][block] for name in BLOCK_FIELDS},
        block_of,
        group_of,
        len(groups),
        [[np.flatnonzero(column) for column in table[:, one_of].T] for table in partners],
        np.asarray(partners[:, :, one_of].any(axis=1)),
        count,
    )


class CalibratedBoundSearch:
    """Cells of a calibrated space, for systems that differ in rates and capacities only. Ids are the ids of the
    space."""

    few = False

    def __init__(self, space: CalibratedSpace, numbers: range) -> None:
        self.point_table = point_table_of(space, numbers)
        self._modes = _search_modes(space.modes)
        self._shapes, self._shape_of = block_shapes(self.point_table.point, self.point_table.modes)
        self._alike: tuple[Ints, Ints] | None = None
        self._fitting: OrderedDict[tuple[float, float], _Fitting] = OrderedDict()
        self._kept: list[_Asked] | None = None
        self._sieve: _Sieve | None = None
        self.size = len(self.point_table.points.cell)

    def feasible(self, space: CalibratedSpace) -> int:
        """Returns how many executions run on the space's system [executions].

        Args:
            space: the space, of the same layout, at its system's rates and capacities.
        """
        return self._fits(space).feasible

    def promising(self, space: CalibratedSpace) -> Ints:
        """Return some schedule points with the highest bounds, unordered, to be evaluated whole first.

        Args:
            space: the space, of the same layout, at its system's rates and capacities.
        """
        sieve = self._sieve_of(space)
        looked = _largest_positions(sieve.hopes, LOOKED_THROUGH * work_sizes().first_points)
        looked = looked[sieve.hopes[looked] > -np.inf]
        finer = sieve.of_steps(looked)
        # What follows need not compute these again.
        sieve.hopes[looked] = np.minimum(sieve.hopes[looked], finer)
        most = FIRST_PIPELINES // len(self.point_table.modes.time_modes["launch"])
        return looked[_largest_positions(finer, max(1, min(most, work_sizes().first_points)))]

    def bounds(
        self, space: CalibratedSpace, least: Callable[[], float] = lambda: -np.inf, known: Ints | None = None
    ) -> Iterator[tuple[Ints, Ints, Floats]]:
        """Yield schedule points, search modes, and upper bounds of the sample rate of their executions [samples/s], up
        to rounding.

        Yields all points with an execution that fits, in parts, the most promising first.

        Args:
            space: the space, of the same layout, at its system's rates and capacities.
            least: called before each part; schedule points that cannot reach this rate [samples/s] are omitted from
                then on.
            known: schedule points to omit, already fully evaluated; None for no such points.
        """
        sieve, self._sieve = self._sieve_of(space), None
        hopes, fitting = sieve.hopes, self._fitting.get(_tier_capacities(space))
        if known is not None:
            hopes[known] = -np.inf
        first = work_sizes().first_points
        most = max(1, work_sizes().modes_bounded // max(1, len(self._modes.search["launch"])))
        for here in most_promising_first(
            hopes, least, first=first, most=most, looked=LOOKED_THROUGH * first, finer_of=sieve.of_steps
        ):
            groups = self._unpacked(self._bits(space, here) if fitting is None else fitting.bits[here])
            fits = groups.any(axis=0)
            if fits.any():
                yield self._of_modes(space, groups[:, fits], sieve.level, here[fits])

    def _sieve_of(self, space: CalibratedSpace) -> _Sieve:
        """Bounds of all schedule points on the space's system; kept until they are used."""
        if self._sieve is not None and self._sieve.space is space:
            return self._sieve
        fitting = self._fitting.get(_tier_capacities(space))
        level = blocks_together(space, space.parameters, self._shapes, self._modes.block)
        if fitting is None:
            # As if there were memory for everything.
            one_of, alike = distinct(self._shape_of, self.point_table.points.kind)
            possible = np.ascontiguousarray(self._modes.listed[self.point_table.points.kind[one_of]].T)
        else:
            one_of, alike = fitting.one_of, fitting.alike
            possible = self._unpacked(fitting.bits[one_of])
        bounds = PointBounds(
            space,
            level,
            search=self._modes.search,
            block_of=self._modes.block_of,
            group_of=self._modes.group_of,
            possible=possible,
            shape=self._shape_of[one_of],
            update_modes=self.point_table.modes.optimizer_modes,
        )

        def by_points(bound: Callable[[dict[str, Ints], Ints], Floats], points: Ints) -> Floats:
            together = work_sizes().points_bounded
            every = [
                bound(self._points(here), alike[here])
                for here in np.split(points, range(together, len(points), together))
            ]
            return np.concatenate(every)

        hopes = by_points(bounds.of_pipelines, np.arange(self.size))
        self._sieve = _Sieve(space, level, hopes, lambda points: by_points(bounds.of_steps, points))
        return self._sieve

    def _of_modes(
        self, space: CalibratedSpace, groups: Flags, level: BlockLevel, here: Ints
    ) -> tuple[Ints, Ints, Floats]:
        """Schedule points among these, search modes that anything fits for, and their bounds."""
        possible, point = groups[self._modes.group_of], self._points(here)
        row = self._modes.block_of[:, None] * len(self._shapes["tensor_par"]) + self._shape_of[here]
        sharded = self._modes.search["fully_sharded"]
        update = least_update(space, point, self.point_table.modes.optimizer_modes, sharded)
        modes = {**self._modes.search, **quickest_gathers(self.point_table.modes.optimizer_modes, len(sharded))}
        rate = rates_of(space, point, modes, level.take(row), update)
        mode, place = np.nonzero(possible)
        return here[place], mode, rate[mode, place]

    def _points(self, here: Ints) -> dict[str, Ints]:
        """Fields of some schedule points by name."""
        return {name: array[here] for name, array in self.point_table.point.items()}

    def _unpacked(self, bits: npt.NDArray[np.uint8]) -> Flags:
        """Return which groups of search modes have a fitting mode [groups, points]."""
        return np.ascontiguousarray(np.unpackbits(bits, axis=1, count=self._modes.groups).T).astype(bool)

    def prepare(
        self, space: CalibratedSpace, point: Ints, mode: Ints | None = None
    ) -> tuple[CalibratedRows, CalibratedCandidates]:
        """Returns prepared rows of these schedule points, and their candidates.

        Args:
            space: the space, of the same layout, at its system's rates and capacities.
            point: positions of schedule points, in any order [listed points].
            mode: search mode that is wanted of each of them [listed points]; all where None.
        """
        kept, place = np.unique(point, return_inverse=True)
        wanted = None
        if mode is not None:
            chosen = np.zeros((len(kept), len(self._modes.search["launch"])), bool)
            chosen[place, mode] = True
            wanted = chosen[:, self._modes.search_of]
        prepared = prepare_row_table(space, row_table_of(space, self.point_table.at(kept)), rows=False, wanted=wanted)
        return prepared, calibrated_candidates(prepared)

    def point_of(self, execution: int) -> Ints:
        """Returns the schedule point that an execution belongs to, as an array of one; empty where it is of other
        cells.

        Args:
            execution: number of the execution in the space.
        """
        points = self.point_table.points
        rest = execution - points.first
        position, other = np.divmod(rest, points.stride)
        executions = self._modes.count.sum(axis=1)[points.kind]
        return np.flatnonzero((rest >= 0) & (other == 0) & (position < executions))

    def _fits(self, space: CalibratedSpace) -> _Fitting:
        capacities = _tier_capacities(space)
        found = self._fitting.get(capacities)
        if found is None:
            found = self._fitting[capacities] = self._fit(space, capacities)
            most = work_sizes().bytes_of_fits
            while len(self._fitting) > 1 and sum(each.bits.nbytes for each in self._fitting.values()) > most:
                self._fitting.popitem(last=False)
        return found

    def _fit(self, space: CalibratedSpace, capacities: tuple[float, float]) -> _Fitting:
        needing, needs_as = self.alike_in_memory(space)
        bits, standing_for = self._no_bits(needing), np.bincount(needs_as, minlength=len(needing))
        feasible = 0
        for asked in self._asked(space):
            fits = self._fits_of(asked, capacities, bits)
            counts = executions_of(self._modes.count[asked.kind], fits)
            feasible += int((counts * standing_for[asked.here]).sum())
        bits = bits[needs_as]
        one_of, alike = distinct(self._shape_of, *bits.T)
        return _Fitting(bits, feasible, one_of, alike)

    def _bits(self, space: CalibratedSpace, points: Ints) -> npt.NDArray[np.uint8]:
        """Groups of search modes that anything fits for with these schedule points, as bits [points, bytes]."""
        bits, modes, kinds = self._no_bits(points), self.point_table.modes, self.point_table.points.kind[points]
        order = np.lexsort([self.point_table.point[name][points] for name in TOGETHER])
        together = work_sizes().points_fitted
        for start in range(0, len(order), together):
            here = order[start : start + together]
            point = self._points(points[here])
            fits = ~np.logical_or.reduce(list(refused(space, modes, point).values()))
            for chosen, room in MemoryCheck.of(stages_of(space, point, modes)).fitting(modes, _tier_capacities(space)):
                fits[chosen] &= room
            for kind in np.unique(kinds[here]).tolist():
                alike = np.flatnonzero(kinds[here] == kind)
                bits[here[alike]] = self._packed(fits[:, alike], kind)
        return bits

    def _no_bits(self, points: Ints) -> npt.NDArray[np.uint8]:
        return np.zeros((len(points), -(-self._modes.groups // 8)), np.uint8)

    def _fits_of(self, asked: _Asked, capacities: tuple[float, float], bits: npt.NDArray[np.uint8]) -> Flags:
        """Return which requested pairs fit in memory [memory modes, points]; fills in the bits of these schedule
        points."""
        fits = asked.listed.copy()
        for chosen, room in asked.room.fitting(self.point_table.modes, capacities):
            fits[chosen] &= room
        bits[asked.here] = self._packed(fits, asked.kind)
        return fits

    def _packed(self, fits: Flags, kind: int) -> npt.NDArray[np.uint8]:
        """Groups of search modes of a kind of cell that anything fits for, as bits [points, bytes]."""
        possible = np.array([fits[partners].any(axis=0) for partners in self._modes.partners[kind]])
        return np.packbits(possible, axis=0).T

    def alike_in_memory(self, space: CalibratedSpace) -> tuple[Ints, Ints]:
        """Returns one of each schedule points whose executions need the same memory, mode by mode, and which of them
        each schedule point is like.

        Args:
            space: the space, of the same layout.
        """
        if self._alike is None:
            self._alike = alike_in_memory(space, self.point_table)
        return self._alike

    def _asked(self, space: CalibratedSpace) -> Iterable[_Asked]:
        """All schedule points that differ in memory, some at a time. Where capacities changed once they may again, so
        what others need as well is kept then, if it is not too much."""
        needing, _ = self.alike_in_memory(space)
        if self._kept is not None or not self._fitting:
            return self._kept or self._asked_anew(space, needing)
        kept: list[_Asked] = []
        for each in (listed := self._asked_anew(space, needing)):
            kept.append(each)
            if sum(one.room.nbytes + one.listed.nbytes for one in kept) > ROOM_KEPT:
                return chain(kept, listed)
        self._kept = kept
        return kept

    def _asked_anew(self, space: CalibratedSpace, points: Ints) -> Iterator[_Asked]:
        modes, kinds = self.point_table.modes, self.point_table.points.kind[points]
        for kind in np.unique(kinds).tolist():
            every, listed = np.flatnonzero(kinds == kind), self._modes.count[kind] > 0
            # Points of one layout together: others then need not look at what unlike chunks keep.
            every = every[np.lexsort([self.point_table.point[name][points[every]] for name in TOGETHER])]
            together = work_sizes().points_fitted
            for start in range(0, len(every), together):
                here = every[start : start + together]
                point = self._points(points[here])
                broken = np.logical_or.reduce(list(refused(space, modes, point).values()))
                room = MemoryCheck.of(stages_of(space, point, modes))
                yield _Asked(kind, here, listed[:, None] & ~broken, room)


def _largest_positions(values: Floats, count: int) -> Ints:
    """Positions of the `count` largest values, in no order."""
    return np.argpartition(-values, count)[:count] if len(values) > count else np.arange(len(values))


def _tier_capacities(space: CalibratedSpace) -> tuple[float, float]:
    """Capacities of both tiers [bytes]."""
    # In no memory at all nothing fits either.
    if not space.connected:
        return 0.0, 0.0
    return space.capacities

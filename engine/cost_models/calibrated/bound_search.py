"""Calibrated cells as a search for the best execution wants them: little is kept, and most is never computed.

Four sieves, each finer and dearer than the one before, and each for what the last one left:

1. which (schedule point, block mode) anything fits for, which only capacities decide, and which is remembered;
2. a bound of a schedule point: the fastest of its blocks through the pipeline, without gathers of weights, waiting and
updates; 3. the same bound of each of its block modes;
4. prepared rows of the few schedule points that remain (`engine.cost_models.calibrated.rows.prepared_rows`), with the
bounds of `engine.cost_models.calibrated.bounds`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.cost_models.calibrated.bounds import CalibratedCandidates, calibrated_candidates
from engine.cost_models.calibrated.case_building import model_shapes
from engine.cost_models.calibrated.fields import FULLY_SHARDED
from engine.cost_models.calibrated.physics.head import Ends
from engine.cost_models.calibrated.physics.inputs import Floats
from engine.cost_models.calibrated.physics.memory import in_flight
from engine.cost_models.calibrated.physics.parameters import Parameters
from engine.cost_models.calibrated.physics.residence import kept_blocks
from engine.cost_models.calibrated.physics.schedules import INTERLEAVED, PAIRED, refusals
from engine.cost_models.calibrated.physics.sharding import exposed_exchange
from engine.cost_models.calibrated.physics.stages import fewest_held, fullest_stages
from engine.cost_models.calibrated.physics.step import (
    BlockLevel,
    Update,
    running_seconds,
    straggling,
    update_level,
    whole_step,
)
from engine.cost_models.calibrated.rows.memory_requirements import (
    GIB,
    refused,
    requirements_by_way,
    stages_of,
)
from engine.cost_models.calibrated.rows.prepared_rows import (
    TABLE_CHUNK,
    CalibratedRows,
    block_shapes,
    blocks_at,
    prepare_row_table,
)
from engine.cost_models.calibrated.rows.row_tables import row_table_of
from engine.cost_models.calibrated.rows.schedule_points import BLOCK_FIELDS, PointTable, case_at, point_table_of
from engine.cost_models.calibrated.space import CalibratedSpace
from engine.executions.arrays import Flags, Ints, distinct
from engine.space.schedule_points import executions_of, mode_counts

__all__ = ["CalibratedBoundSearch"]


SEARCH_FIELDS = (*BLOCK_FIELDS, "fully_sharded")
"""What tells search modes apart: block modes, with weights gathered block by block or not."""
POINTS_AT_ONCE = 1024
"""Schedule points whose memory is looked at together: a few MiB, which stay in cache."""
BOUNDS_AT_ONCE = 262_144
"""(schedule point, block mode) pairs whose bounds are computed together."""
FIRST_BOUNDS = 64
"""Schedule points whose bounds are computed first."""
FITTING_KEPT = 32 * 2**20
"""Bytes of remembered fits, beyond those of the latest capacities."""


@dataclass(slots=True)
class _Fitting:
    """What fits at two capacities: groups of block modes that anything fits for, as bits [points, bytes]; executions
    that run. Schedule points alike in that and in the shape of their blocks: one of each, and which of them a schedule
    point is like."""

    bits: npt.NDArray[np.uint8]
    feasible: int
    one_of: Ints
    alike: Ints


class CalibratedBoundSearch:
    """Cells of a calibrated space, for systems that differ in rates and capacities only. Ids are those of the space."""

    def __init__(self, space: CalibratedSpace, numbers: range) -> None:
        self.point_table = point_table_of(space, numbers)
        modes, points = self.point_table.modes, self.point_table.points
        first, self._search_of = distinct(*(modes.time_modes[name] for name in SEARCH_FIELDS))
        self._search_modes = {name: modes.time_modes[name][first] for name in SEARCH_FIELDS}
        # Blocks are the same whether their weights are gathered or not.
        block, self._block_of = distinct(*(self._search_modes[name] for name in BLOCK_FIELDS))
        self._block_modes = {name: self._search_modes[name][block] for name in BLOCK_FIELDS}
        self._count = mode_counts(space, modes)
        exists = np.maximum(modes.position[0], modes.position[1]) >= 0
        # Which memory modes and block modes go together in some mode, per kind of cell; many block modes with the same.
        partners = np.zeros((len(exists), self._count.shape[1], len(first)), bool)
        kind, mode = np.nonzero(exists)
        partners[kind, modes.memory[mode], self._search_of[modes.time[mode]]] = True
        columns = np.packbits(partners.reshape(-1, len(first)).T, axis=1)
        groups: dict[bytes, int] = {}
        self._group_of = np.array([groups.setdefault(column.tobytes(), len(groups)) for column in columns], np.int64)
        _, one_of = np.unique(self._group_of, return_index=True)
        self._partners = [[np.flatnonzero(column) for column in table[:, one_of].T] for table in partners]
        # What fits depends on how activations are exchanged, so a group has one way to do that.
        self._exchanges, self._exchange_of = np.unique(
            self._search_modes["tensor_par_comm_type"][one_of], return_inverse=True
        )
        self._shapes, self._shape_of = block_shapes(self.point_table.point)
        self._needing, self._needs_as = _alike_in_memory(space, self.point_table)
        self._fitting: OrderedDict[tuple[float, float], _Fitting] = OrderedDict()
        self._paired = bool(np.isin(points.schedule, PAIRED).any())
        self.size = len(points.cell)

    def feasible(self, space: CalibratedSpace) -> int:
        """Returns how many executions run on the space's system [executions].

        Args:
            space: the space, of the same layout, at its system's rates and capacities.
        """
        return self._fits(space).feasible

    def bounds(
        self, space: CalibratedSpace, least: Callable[[], float] = lambda: -np.inf
    ) -> Iterator[tuple[Ints, Ints, Floats]]:
        """Yields schedule points, block modes, and the sample rate that none of their executions exceeds [samples/s],
        up to rounding.

        It yields all of those that anything fits for, in parts, the most promising schedule points first.

        Args:
            space: the space, of the same layout, at its system's rates and capacities.
            least: is asked before each part; schedule points that cannot reach this rate [samples/s] are left out from
                there on.
        """
        p, width, count = space.parameters, len(self._search_modes["launch"]), len(self._shapes["tensor_par"])
        fitting = self._fits(space)
        level = _together(space, p, self._shapes, self._block_modes)
        hopes = self._hopes(space, fitting, level)
        order = np.argsort(-hopes, kind="stable")[: np.count_nonzero(hopes > -np.inf)]
        modes = self._search_modes | {"pipeline_overlap": np.ones(width, bool)}
        # The first part is small, for what it leads to rules out most of the others.
        starts = [0, *range(FIRST_BOUNDS, len(order), max(1, BOUNDS_AT_ONCE // max(1, width)))]
        for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
            here = order[start:end]
            here = here[hopes[here] >= least()]
            if not len(here):
                break
            possible = self._possible(fitting, here)[self._group_of]
            point = {name: array[here] for name, array in self.point_table.point.items()}
            row = self._block_of[:, None] * count + self._shape_of[here]
            rate = _rates(space, point, modes, level.take(row), p, self._least_update(space, point))
            mode, place = np.nonzero(possible)
            yield here[place], mode, rate[mode, place]

    def _hopes(self, space: CalibratedSpace, fitting: _Fitting, level: BlockLevel) -> Floats:
        """The sample rate that no execution of a schedule point exceeds [samples/s], minus infinity where nothing fits
        [points]: each part of a block as fast as in the fastest of the block modes that exchange activations in the
        same way."""
        p, shape = space.parameters, self._shape_of[fitting.one_of]
        possible = self._possible(fitting, fitting.one_of)
        kinds = [np.flatnonzero(self._exchange_of == kind) for kind in range(len(self._exchanges))]
        there = np.array([possible[groups].any(axis=0) for groups in kinds])
        by_group = np.argsort(self._group_of, kind="stable")
        starts = np.flatnonzero(np.diff(self._group_of[by_group], prepend=-1))

        def fastest(values: Floats) -> Floats:
            """The least of what the modes of each kind have [kinds x alike points]; 0 where nothing fits."""
            of_modes = values.reshape(len(self._block_modes["launch"]), -1)[self._block_of[by_group]]
            found = np.where(possible, np.minimum.reduceat(of_modes, starts, axis=0)[:, shape], np.inf)
            return np.where(there, [found[groups].min(axis=0) for groups in kinds], 0.0).ravel()

        best = BlockLevel(
            {
                kind: replace(
                    block,
                    forward=fastest(block.forward),
                    paired=fastest(block.paired) if self._paired else np.zeros(()),
                )
                for kind, block in level.kinds.items()
            },
            Ends(*map(fastest, level.ends)),
        )
        modes = {"tensor_par_comm_type": self._exchanges, "pipeline_overlap": np.ones(len(kinds), bool)}
        hopes = np.empty(self.size)
        step = max(1, BOUNDS_AT_ONCE // len(kinds))
        for start in range(0, self.size, step):
            here = slice(start, start + step)
            like = fitting.alike[here]
            point = {name: array[here] for name, array in self.point_table.point.items()}
            rate = _rates(space, point, modes, best.take(np.arange(len(kinds))[:, None] * len(shape) + like), p)
            hopes[here] = np.where(there[:, like], rate, -np.inf).max(axis=0)
        return hopes

    def _least_update(self, space: CalibratedSpace, point: dict[str, Ints]) -> Update:
        """The least of what any update of a schedule point takes, by search mode: with weights sharded or not [modes,
        points] [s]."""
        found = self.point_table.modes.optimizer_modes
        update = update_level(case_at(space, point, found), space.parameters)
        shape, sharded = (len(found["launch"]), len(point["tensor_par"])), self._search_modes["fully_sharded"]

        def least(values: Floats) -> Floats:
            every = np.broadcast_to(values, shape)
            of_either = [
                every[here].min(axis=0, initial=np.inf)
                for here in (found["zero_stage"] != FULLY_SHARDED, found["zero_stage"] == FULLY_SHARDED)
            ]
            return np.array(of_either)[sharded.astype(np.intp)]

        return Update(least(update.exchange), least(update.tied), least(update.optimizer))

    def _possible(self, fitting: _Fitting, points: Ints) -> Flags:
        """Which groups of block modes anything fits for [groups, points]."""
        bits = np.unpackbits(fitting.bits[points], axis=1, count=len(self._exchange_of))
        return np.ascontiguousarray(bits.T).astype(bool)

    def prepare(
        self, space: CalibratedSpace, point: Ints, mode: Ints | None = None
    ) -> tuple[CalibratedRows, CalibratedCandidates]:
        """Returns prepared rows of these schedule points, and their candidates.

        Args:
            space: the space, of the same layout, at its system's rates and capacities.
            point: positions of schedule points, in any order [listed points].
            mode: block mode that is wanted of each of them [listed points]; all where None.
        """
        kept, place = np.unique(point, return_inverse=True)
        wanted = None
        if mode is not None:
            chosen = np.zeros((len(kept), len(self._search_modes["launch"])), bool)
            chosen[place, mode] = True
            wanted = chosen[:, self._search_of]
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
        modes_of = np.array([(table >= 0).sum(axis=1) for table in self.point_table.modes.position]).sum(axis=0)
        return np.flatnonzero((rest >= 0) & (other == 0) & (position < modes_of[points.kind]))

    def _fits(self, space: CalibratedSpace) -> _Fitting:
        # In no memory at all nothing fits either.
        capacities = (
            (space.system.mem1.capacity_gib * GIB, space.system.mem2.capacity_gib * GIB)
            if space.connected
            else (0.0, 0.0)
        )
        found = self._fitting.get(capacities)
        if found is None:
            found = self._fitting[capacities] = self._fit(space, capacities)
            while len(self._fitting) > 1 and sum(each.bits.nbytes for each in self._fitting.values()) > FITTING_KEPT:
                self._fitting.popitem(last=False)
        return found

    def _fit(self, space: CalibratedSpace, capacities: tuple[float, float]) -> _Fitting:
        modes, kinds = self.point_table.modes, self.point_table.points.kind[self._needing]
        bits = np.zeros((len(kinds), -(-len(self._partners[0]) // 8)), np.uint8)
        standing_for, feasible = np.bincount(self._needs_as, minlength=len(kinds)), 0
        for kind in np.unique(kinds).tolist():
            every, listed = np.flatnonzero(kinds == kind), self._count[kind] > 0
            for start in range(0, len(every), POINTS_AT_ONCE):
                here = every[start : start + POINTS_AT_ONCE]
                point = {name: array[self._needing[here]] for name, array in self.point_table.point.items()}
                broken = refused(space, modes, point).values()
                fits = listed[:, None] & ~np.logical_or.reduce(list(broken))
                for chosen, stage, first, second in requirements_by_way(stages_of(space, point, modes), modes):
                    fits[chosen] &= ((first <= capacities[0]) & (second <= capacities[1]))[stage]
                feasible += int((executions_of(self._count[kind], fits) * standing_for[here]).sum())
                possible = np.array([fits[partners].any(axis=0) for partners in self._partners[kind]])
                bits[here] = np.packbits(possible, axis=0).T
        bits = bits[self._needs_as]
        one_of, alike = distinct(self._shape_of, *bits.T)
        return _Fitting(bits, feasible, one_of, alike)


def _alike_in_memory(space: CalibratedSpace, point_table: PointTable) -> tuple[Ints, Ints]:
    """One of each schedule points whose executions need the same memory, mode by mode, and which of them each schedule
    point is like."""
    case = case_at(space, point_table.point, {})
    held = [
        np.broadcast_to(values, len(point_table.points.kind))
        for stage in fullest_stages(case)
        for values in (stage.dense, stage.experts, in_flight(case, stage.position), *kept_blocks(case, stage))
    ]
    # So does whether stages have enough blocks to offload some.
    names = ("pipeline_par", "pipeline_interleaving", "schedule", "stage_layout")
    fewest = fewest_held(model_shapes(space.model), *(point_table.point[name] for name in names))
    held.append(fewest.astype(np.float64))
    # Whether a schedule runs depends on how many microbatches there are.
    held += [np.broadcast_to(flags, len(point_table.points.kind)) for flags in _refusals(point_table)]
    numbered = [np.unique(values, return_inverse=True)[1] for values in held]
    told = ("batch_size", "pipeline_interleaving", "stage_layout")
    others = (values for name, values in point_table.point.items() if name not in told)
    return distinct(point_table.points.kind, *others, *numbered)


def _refusals(point_table: PointTable) -> list[Flags]:
    """Where the schedule of a schedule point does not run, rule by rule; nothing where all run anyway."""
    point = point_table.point
    if not np.any(point["schedule"] > INTERLEAVED):
        return []
    microbatches = point_table.points.microbatches
    rules = refusals(point["schedule"], point["pipeline_par"], microbatches, point["pipeline_interleaving"])
    return list(rules.values())


def _together(
    space: CalibratedSpace, p: Parameters, shapes: dict[str, Ints], modes: dict[str, npt.NDArray[Any]]
) -> BlockLevel:
    """Blocks with forward and backward as one, of all pairs of modes and shapes, mode by mode."""
    width, parts = len(modes["launch"]), []
    step = max(1, TABLE_CHUNK // max(1, width))
    for start in range(0, max(1, len(shapes["tensor_par"])), step):
        part = {name: array[start : start + step] for name, array in shapes.items()}
        parts.append(blocks_at(space, p, part, modes).together())

    def joined(values: Iterable[Floats]) -> Floats:
        return np.concatenate([value.reshape(width, -1) for value in values], axis=1).ravel()

    kinds = {
        kind: replace(
            block,
            forward=joined([part.kinds[kind].forward for part in parts]),
            paired=joined([part.kinds[kind].paired for part in parts]),
        )
        for kind, block in parts[0].kinds.items()
    }
    return BlockLevel(kinds, Ends(*map(joined, zip(*(part.ends for part in parts), strict=True))))


def _rates(
    space: CalibratedSpace,
    point: dict[str, Ints],
    modes: dict[str, npt.NDArray[Any]],
    level: BlockLevel,
    p: Parameters,
    update: Update | None = None,
) -> Floats:
    """Sample rates of pipelines of these blocks, with this update, if nothing else took any time [samples/s] [modes,
    points]."""
    case = case_at(space, point, modes)
    running = running_seconds(case, level, p, split=False)
    share = straggling(case, p)
    if update is None:
        return point["batch_size"] / whole_step(running, share, p).seconds
    # As in `bounds`: a longer pipeline hides less of an exchange than it takes longer.
    window = running / (case.microbatches * point["pipeline_interleaving"])
    shown = exposed_exchange(update.exchange, np.ones(()), window, p)
    return point["batch_size"] / whole_step(running, share, p, update.optimizer, update.tied, exchange=shown).seconds

"""Preparing a calibrated space for evaluation: rejection by memory, and the figures that rows share.

Each figure is computed once, in one of three tables by its inputs: blocks on (degrees and microbatch, block
mode), the pipeline on (schedule point, time mode), the update on (schedule point, update mode). Memory is checked
first, on (schedule point, memory mode); the pipeline is computed only where something fits. Rows then gather from the
tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.cost_models.calibrated.fields import FULLY_SHARDED
from engine.cost_models.calibrated.physics.communication.sharding import exchange_passes
from engine.cost_models.calibrated.physics.inputs import Case, Floats
from engine.cost_models.calibrated.physics.layers.head import end_shares
from engine.cost_models.calibrated.physics.memory import activation_bytes, block_weight_bytes
from engine.cost_models.calibrated.physics.parameters import Parameters
from engine.cost_models.calibrated.physics.pipeline.stage_times import (
    BlockLevel,
    OffloadedFlow,
    block_level,
    offloaded_flow,
    pipeline_flow,
)
from engine.cost_models.calibrated.physics.step import Update, pipeline_level, running_seconds, straggling, update_level
from engine.cost_models.calibrated.rows.memory_requirements import refused
from engine.cost_models.calibrated.rows.row_tables import CalibratedRowTable, calibrated_row_table
from engine.cost_models.calibrated.rows.schedule_points import BLOCK_FIELDS, case_at
from engine.cost_models.calibrated.space import CalibratedSpace
from engine.cost_models.calibrated.step_figures import FlowPart, flow_part
from engine.cost_models.calibrated.table_evaluation import link_rate, perfect_seconds
from engine.executions import reasons
from engine.executions.arrays import Flags, Ints, distinct, take
from engine.executions.work_sizes import work_sizes
from engine.space.rejection import MemoryRequirements, Rejected, executions_at
from engine.space.rows import RowGroup, fitting, pairs_by_point
from engine.space.schedule_points import CellColumns, SchedulePoints, StepModes, mode_counts

__all__ = ["CalibratedRows", "block_shapes", "blocks_at", "prepare_calibrated", "prepare_row_table"]


WAYS = 4
"""Ways to offload block by block: nothing, weights, activations, both."""


@dataclass(slots=True)
class _Levels:
    """Block figures, and the block figures and fields of each pipeline: mode and place [pipelines].

    `kept` are the activations of a block of every size [bytes], for pipelines that offload them, and `held` its
    weights, of every schedule point without sharding and then of every schedule point with it [bytes].
    """

    blocks: BlockLevel
    kept: tuple[Floats, ...] | None
    held: tuple[Floats, ...] | None
    block_row: Ints
    mode: Ints
    place: Ints


@dataclass(slots=True)
class CalibratedRows:
    """Prepared cells: tables of shared figures, and the rows to evaluate.

    There is a pipeline for each (schedule point, time mode) with an execution that fits; `flow_row` [points, time
    modes] is its position (-1 without one), `running` [s] its time. `once` are the updates [points x update modes].
    `fits` [memory modes, schedule points] is True where memory suffices. Rows ascend by schedule point, so tables that
    rows
    gather from have schedule points first. `passes` is from `exchange_passes` [points].
    """

    space: CalibratedSpace
    parameters: Parameters
    row_table: CalibratedRowTable
    levels: _Levels
    running: Floats
    flow: tuple[FlowPart, OffloadedFlow | None] | None
    flow_row: Ints
    once: Update
    straggling: Floats
    passes: Floats
    perfect: Floats
    rate: float
    fits: Flags
    groups: list[RowGroup]
    rejected: Rejected
    feasible: int

    @property
    def cells(self) -> CellColumns:
        """The cells of the prepared rows."""
        return self.row_table.cells

    @property
    def points(self) -> SchedulePoints:
        """The schedule points of the prepared rows."""
        return self.row_table.points

    @property
    def modes(self) -> StepModes:
        """The modes of the prepared rows."""
        return self.row_table.modes

    def memory_requirements(self) -> MemoryRequirements:
        """Returns the memory that everything in the cells needs [bytes]."""
        # No memory helps where the networks reach no further.
        reached = self.space.connected
        first, second = (capacity if reached else -np.inf for capacity in self.space.capacities)
        rules = refused(self.space, self.modes, self.row_table.point).values()
        allowed = np.ascontiguousarray(~np.logical_or.reduce(list(rules)).T)
        return MemoryRequirements((self.row_table.first_tier, self.row_table.second_tier), (first, second), allowed)

    def pipelines(self, rows: Ints, offloaded: Ints) -> tuple[FlowPart, OffloadedFlow | None]:
        """Returns the figures of these pipelines [rows] [s], and what offloading adds to them, None where nothing is
        offloaded.

        Args:
            rows: positions of the pipelines [rows].
            offloaded: 1 for weights, 2 for activations, 3 for both, 0 for neither [rows].
        """
        if self.flow is not None:
            part, added = self.flow
            which = rows
        else:
            wanted, which = np.unique(rows, return_inverse=True)
            part, added = _flow_table(self.space, self.parameters, self.row_table, self.levels, wanted)
        more = None if added is None else take(added, offloaded * (len(added.forward) // WAYS) + which)
        return take(part, which), more


def prepare_calibrated(space: CalibratedSpace, numbers: range, *, rows: bool = True) -> CalibratedRows:
    """Reject executions of these cells of the space that cannot run, and prepare the others for evaluation.

    Args:
        space: the space of executions.
        numbers: numbers of the cells in the space.
        rows: whether the groups list their rows; otherwise callers choose them, and pipelines are computed on request.
    """
    return prepare_row_table(space, calibrated_row_table(space, numbers), rows=rows)


def prepare_row_table(
    space: CalibratedSpace, row_table: CalibratedRowTable, *, rows: bool = True, wanted: Flags | None = None
) -> CalibratedRows:
    """Returns the prepared rows of a row table at the rates and capacities of the space's system.

    Args:
        space: the space of executions.
        row_table: rows of some cells of the space, before any rate is known.
        rows: as for `prepare_calibrated`.
        wanted: pipelines [points, time modes] apart from which none are prepared; all where None.
    """
    p, cells, points, modes = space.parameters, row_table.cells, row_table.points, row_table.modes
    rejected = Rejected.nothing(len(cells.number))
    fits = _reject_pairs(space, row_table, rejected)
    levels, flow_row = _pipeline_levels(space, p, row_table, fits, wanted)
    every = np.arange(len(levels.mode))
    flow = None
    if rows:
        flow = _flow_table(space, p, row_table, levels, every)
        running = flow[0].running
    else:
        running = np.zeros(len(every))
        for chunk in _table_slices(len(every)):
            running[chunk] = running_seconds(*_flow_case(space, row_table, levels, every[chunk]), p)
    group = _whole_group(space, points)
    if rows:
        group.place, group.mode = pairs_by_point(fitting(points, modes, fits, group.point))
    once = update_level(case_at(space, row_table.point, modes.optimizer_modes), p)
    return CalibratedRows(
        space=space,
        parameters=p,
        row_table=row_table,
        levels=levels,
        running=running,
        flow=flow,
        flow_row=flow_row,
        once=_points_first(once, (len(modes.optimizer_modes["launch"]), len(points.cell))),
        straggling=np.broadcast_to(straggling(case_at(space, row_table.point, {}), p), row_table.batch.shape),
        passes=np.broadcast_to(exchange_passes(case_at(space, row_table.point, {})), row_table.batch.shape),
        perfect=perfect_seconds(space.model, space.system, space.datatype, training=space.trains)
        * row_table.batch
        / space.num_procs,
        rate=link_rate(space.system, p),
        fits=fits,
        groups=[group],
        rejected=rejected,
        feasible=int(executions_at(fits, mode_counts(modes), cells, points).sum()),
    )


def _points_first(table: Any, shape: tuple[int, int]) -> Any:
    """A dataclass of arrays [modes, points] with every one broadcast to that and laid out flat, schedule points
    first."""
    return type(table)(*(np.broadcast_to(getattr(table, item.name), shape).T.ravel() for item in fields(table)))


def _in_shape(table: Any, shape: tuple[int, ...]) -> Any:
    """A dataclass of arrays with every one broadcast to `shape` and laid out flat."""
    return type(table)(
        *(np.ascontiguousarray(np.broadcast_to(getattr(table, item.name), shape)).ravel() for item in fields(table))
    )


def _reject_pairs(space: CalibratedSpace, row_table: CalibratedRowTable, rejected: Rejected) -> Flags:
    """Return which (memory mode, schedule point) pairs run; counts the others."""
    cells, points, modes, needs = row_table.cells, row_table.points, row_table.modes, row_table.needs
    count = mode_counts(modes)
    fits: Flags = (count > 0).T[:, points.kind]
    # Where the networks reach no further, no memory would help.
    apart = np.broadcast_to(not space.connected, fits.shape)
    rules = refused(space, modes, row_table.point)
    capacity = space.capacities
    possible = fits & ~np.logical_or.reduce([apart, *rules.values()])
    checks = [("network_too_small", apart), *rules.items()]
    checks += [(code, needs[tier] > capacity[tier]) for tier, code in enumerate(("memory_tier1", "memory_tier2"))]
    for code, failing in checks:
        over = fits & failing
        if not over.any():
            continue
        fits &= ~over
        failed = executions_at(over, count, cells, points)
        np.add.at(rejected.counts[:, reasons.number_of(code)], points.cell, failed)
    rejected.nearest_miss(points.cell, possible, fits, tuple(zip(needs, capacity, strict=True)))
    return fits


def _pipeline_levels(
    space: CalibratedSpace, p: Parameters, row_table: CalibratedRowTable, fits: Flags, wanted: Flags | None
) -> tuple[_Levels, Ints]:
    """Return the pipelines of all wanted (schedule point, time mode) pairs with an execution that fits, and the
    pipeline of each pair."""
    points, modes = row_table.points, row_table.modes
    exists = np.maximum(modes.position[0], modes.position[1]) >= 0
    possible = np.zeros((len(points.cell), len(modes.time_modes["launch"])), bool)
    asked = np.ones(possible.shape[1], bool)
    if wanted is not None:
        asked &= wanted.any(axis=0)
    for kind in np.unique(points.kind).tolist():
        here = np.flatnonzero(points.kind == kind)
        fitting = fits[:, here]
        listed = np.flatnonzero(exists[kind] & asked[modes.time])
        listed = listed[np.argsort(modes.time[listed], kind="stable")]
        times, starts = np.unique(modes.time[listed], return_index=True)
        # A pipeline is computed if any memory mode that shares its time fits.
        for time, members in zip(times.tolist(), np.split(listed, starts[1:]), strict=True):
            possible[here, time] = fitting[modes.memory[members]].any(axis=0)
    if wanted is not None:
        possible &= wanted
    place, mode = np.nonzero(possible)
    row = np.full(possible.shape, -1)
    row[place, mode] = np.arange(len(mode))
    # Blocks differ by fewer fields than time modes do: each distinct block is computed once, and pipelines refer to it.
    first, block_of = distinct(*(modes.time_modes[name] for name in BLOCK_FIELDS))
    kinds = {name: modes.time_modes[name][first] for name in BLOCK_FIELDS}
    shapes, shape_of = block_shapes(row_table.point, modes)
    level = blocks_at(space, p, shapes, kinds)
    kept = held = None
    # Without a second tier nothing is offloaded, and these bytes are never read.
    if space.system.mem2.capacity_gib > 0:
        found = activation_bytes(case_at(space, shapes, kinds))
        kept = _laid_out(found.kept, (len(first), len(shapes["tensor_par"])))
        sharding = {"fully_sharded": np.array([False, True])}
        held = _laid_out(block_weight_bytes(case_at(space, row_table.point, sharding)), (2, len(points.cell)))
    rows = block_of[:, None] * len(shapes["tensor_par"]) + shape_of[None, :]
    return _Levels(level, kept, held, rows, mode, place), row


def _laid_out(figures: tuple[Floats, ...], shape: tuple[int, int]) -> tuple[Floats, ...]:
    """Return arrays broadcast to [modes, others] and laid out flat, mode by mode."""
    return tuple(np.broadcast_to(each, shape).ravel() for each in figures)


def _flow_case(
    space: CalibratedSpace, row_table: CalibratedRowTable, levels: _Levels, rows: Ints
) -> tuple[Case, BlockLevel]:
    """The case of these pipelines, and the figures of their blocks."""
    mode, place = levels.mode[rows], levels.place[rows]
    tm = row_table.modes.time_modes
    values = {name: array[place] for name, array in row_table.point.items()}
    values |= {name: array[mode] for name, array in tm.items() if name not in ("fully_sharded", "training")}
    sharded = tm["fully_sharded"][mode]
    values |= {"zero_stage": np.where(sharded, FULLY_SHARDED, 0), "data_par_overlap": sharded}
    return case_at(space, values, {}), levels.blocks.take(levels.block_row[mode, place])


def _table_slices(rows: int) -> list[slice]:
    """Return slices of a table's rows, each small enough for the cache."""
    together = work_sizes().rows_tabulated
    return [slice(start, start + together) for start in range(0, rows, together)]


def _flow_table(
    space: CalibratedSpace, p: Parameters, row_table: CalibratedRowTable, levels: _Levels, rows: Ints
) -> tuple[FlowPart, OffloadedFlow | None]:
    """Return the figures of these pipelines [rows], and the additions of each way to offload [ways x rows].

    Way by way, so that figures computed together are written together.
    """
    rate = link_rate(space.system, p)
    part = FlowPart(*(np.empty(len(rows)) for _ in fields(FlowPart)))
    ways = OffloadedFlow(*(np.zeros((WAYS, len(rows))) for _ in fields(OffloadedFlow))) if rate else None
    used = [row_table.modes.offloaded[name].any() for name in ("weight_offload", "activations_offload")]
    for chunk in _table_slices(len(rows)):
        here = rows[chunk]
        case, level = _flow_case(space, row_table, levels, here)
        flow = pipeline_flow(case, level, p)
        _store_part(part, chunk, flow_part(pipeline_level(case, level, p, flow), end_shares(case)))
        if ways is None or levels.kept is None or levels.held is None:
            continue
        mode, place = levels.mode[here], levels.place[here]
        none = (np.zeros(()),) * len(levels.kept)
        kept = _take_each(levels.kept, levels.block_row[mode, place])
        sharded = row_table.modes.time_modes["fully_sharded"][mode]
        held = _take_each(levels.held, sharded * len(row_table.points.cell) + place)
        ways.slowest[0, chunk] = flow.slowest
        for way in range(1, WAYS):
            weights, activations = bool(way & 1), bool(way & 2)
            if (weights and not used[0]) or (activations and not used[1]):
                continue
            moved = {"weights": held if weights else none, "activations": kept if activations else none}
            _store_part(ways, (way, chunk), offloaded_flow(case, level, flow, **moved, rate=rate))
    return part, None if ways is None else OffloadedFlow(*(getattr(ways, item.name).ravel() for item in fields(ways)))


def _take_each(figures: tuple[Floats, ...], index: Ints) -> tuple[Floats, ...]:
    return tuple(each.take(index) for each in figures)


def _store_part(table: Any, where: Any, part: Any) -> None:
    """Store a dataclass of arrays in one of larger arrays."""
    for item in fields(table):
        getattr(table, item.name)[where] = getattr(part, item.name)


def block_shapes(point: Mapping[str, Ints], modes: StepModes) -> tuple[dict[str, Ints], Ints]:
    """Returns the fields of the shapes of blocks [shapes], and the shape of each schedule point [points].

    A shape is a distinct (degrees, microbatch, whether there is a pipeline); where some blocks of a chunk are
    recomputed, also the stages and chunks that have them.

    Args:
        point: fields of the schedule points by name, each [points].
        modes: modes of the space.
    """
    staged = point["pipeline_par"] > 1
    names = ("tensor_par", "context_par", "expert_par", "expert_tensor_par", "microbatch_size")
    cut = ("pipeline_par", "pipeline_interleaving") if np.any(modes.time_modes["recompute_blocks"]) else ()
    first, shape_of = distinct(*(point[name] for name in (*names, *cut)), staged)
    values = {name: point[name][first] for name in names}
    one = np.ones_like(values["tensor_par"])
    values |= {"pipeline_par": 1 + staged[first], "data_par": one, "batch_size": one, "pipeline_interleaving": one}
    return values | {name: point[name][first] for name in cut}, shape_of


def blocks_at(
    space: CalibratedSpace, p: Parameters, shapes: Mapping[str, Ints], modes: Mapping[str, npt.NDArray[Any]]
) -> BlockLevel:
    """Returns the block figures of all pairs of these block modes and shapes, mode by mode [modes x shapes] [s].

    What depends on a shape alone, such as linear layers, is computed once for all modes.

    Args:
        space: the space of executions.
        p: parameters of a calibration.
        shapes: fields of the shapes of blocks by name, each [shapes].
        modes: fields of the block modes by name, each [modes].
    """
    level = block_level(case_at(space, shapes, modes), p)
    shape = (len(modes["launch"]), len(shapes["tensor_par"]))
    return BlockLevel(
        {kind: _in_shape(block, shape) for kind, block in level.kinds.items()},
        type(level.ends)(*(np.broadcast_to(end, shape).ravel() for end in level.ends)),
    )


def _whole_group(space: CalibratedSpace, points: SchedulePoints) -> RowGroup:
    """Return all schedule points as one group: the cost model does not choose among networks."""
    nets = next((table[0] for table in space.assignments if len(table)), np.zeros(3, np.int64))
    everywhere = np.arange(len(points.cell))
    return RowGroup(
        tensor_net=int(nets[0]),
        pipeline_net=int(nets[1]),
        data_nets=(int(nets[2]),),
        exchanges=True,
        point=everywhere,
        block=np.zeros(len(everywhere), np.int64),
        assignment={int(nets[2]): np.zeros(len(everywhere), np.int64)},
        place=np.zeros(0, np.intp),
        mode=np.zeros(0, np.intp),
    )

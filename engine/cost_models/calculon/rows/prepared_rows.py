"""Preparing a space for evaluation: rejection before any arithmetic, and the remaining rows.

Rejection follows the inputs of each check:

- networks: the cell and the assignment only;
- offload and divisibility: the cell and the mode;
- memory: the *schedule points* (cell, interleaving, microbatch) and the *memory modes* (modes without the fields that
  memory does not depend on: gradient overlap, ring or pipe), by broadcasting over blocks of figures that exist once.

The remaining executions are grouped by network assignment into *groups* of rows (schedule point, tensor and pipeline
network) x (memory mode, overlap); every row covers all its gradient exchanges (data network, overlapped or not).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.cost_models.calculon.physics.batch import block_flops, kept_activations
from engine.cost_models.calculon.physics.block import BlockTable, BlockWork, block_times, block_work
from engine.cost_models.calculon.physics.block_keys import BlockKeys
from engine.cost_models.calculon.physics.optimizer import OptimizerTable, OptimizerWork, optimizer_times, optimizer_work
from engine.cost_models.calculon.physics.pipeline import PipelineShape, stages
from engine.cost_models.calculon.physics.rates import SystemRates, network_rates, rates
from engine.cost_models.calculon.physics.step_parts import StepBlock, StepOptimizer, step_block, step_optimizer
from engine.cost_models.calculon.rows.mode_fields import GRAINS, TIME_FIELDS
from engine.cost_models.calculon.rows.rejection import (
    Assignments,
    KeyedBlocks,
    few_blocks,
    memory_requirements,
    reject_by_memory,
    reject_by_network,
    reject_by_shape,
)
from engine.executions.arrays import Flags, Floats, Ints, distinct, take
from engine.executions.rules import offloads
from engine.executions.table import DATATYPES
from engine.space.rejection import MemoryRequirements, Rejected, executions_at
from engine.space.rows import RowGroup, fitting, pairs_by_point
from engine.space.schedule_points import (
    CellColumns,
    SchedulePoints,
    StepModes,
    cell_columns,
    mode_counts,
    points_of,
    step_modes,
)
from engine.space.space import Space

__all__ = ["PreparedRows", "RowGroup", "RowTable", "fitting", "prepare_calculon", "prepared_rows_of", "row_table_of"]


@dataclass(slots=True)
class RowTable:
    """Row table of cells: the part of their preparation that depends neither on rates nor on capacities.

    It does depend on how many networks there are, how large they are, and whether there is a second memory tier.
    `groups` list no rows. `optimizer_of[sharded]` [points] is the start of a schedule point's figures in `optimizer`.
    """

    space: Space
    cells: CellColumns
    points: SchedulePoints
    stages: PipelineShape
    modes: StepModes
    keyed: KeyedBlocks
    work: BlockWork
    optimizer: OptimizerWork
    optimizer_of: tuple[Ints, Ints]
    groups: list[RowGroup]
    rejected: Rejected

    def at(self, chosen: Ints) -> RowTable:
        """Returns the table of these schedule points alone.

        Args:
            chosen: positions of the schedule points, ascending [points].
        """
        place_of = np.full(len(self.points.cell), -1)
        place_of[chosen] = np.arange(len(chosen))
        whole, sharded = self.optimizer_of
        return replace(
            self,
            points=take(self.points, chosen),
            stages=take(self.stages, chosen),
            optimizer_of=(whole[chosen], sharded[chosen]),
            groups=[_group_at(group, place_of) for group in self.groups],
        )

    def needs(self, blocks: BlockTable, optimizers: OptimizerTable) -> tuple[Floats, Floats]:
        """Returns the memory of both tiers that every (memory mode, schedule point) needs [bytes]
        [memory modes, points].

        Args:
            blocks: figures of the distinct blocks, each [keys].
            optimizers: the optimizer's step on them, each [keys].
        """
        return memory_requirements(
            self.space, self.stages, self.points, self.keyed, blocks, optimizers, self.optimizer_of
        )


def _group_at(group: RowGroup, place_of: Ints) -> RowGroup:
    """Return the group at the remaining schedule points. `place_of` has their new positions, -1 for removed ones."""
    left = np.flatnonzero(place_of[group.point] >= 0)
    return replace(
        group,
        point=place_of[group.point[left]],
        block=group.block[left],
        assignment={net: positions[left] for net, positions in group.assignment.items()},
    )


@dataclass(slots=True)
class PreparedRows:
    """Cells made ready: figures that exist once, and the groups of rows to evaluate.

    `block`, `useful` and `kept` (activations or checkpoints that would be offloaded) are per block key, `optimizer*`
    per optimizer key; `optimizer_of[sharded]` [points] is where a schedule point's optimizer figures start.
    `first_tier` and `second_tier` [memory modes, points] are the memory needed [bytes], `fits` whether there is that
    much.
    """

    space: Space
    rate: SystemRates
    cells: CellColumns
    points: SchedulePoints
    stages: PipelineShape
    modes: StepModes
    block: StepBlock
    useful: Floats
    kept: Floats
    optimizer: StepOptimizer
    optimizer_flops: Floats
    optimizer_state: Floats
    optimizer_of: tuple[Ints, Ints]
    first_tier: Floats
    second_tier: Floats
    fits: Flags
    groups: list[RowGroup]
    rejected: Rejected
    feasible: int

    def memory_requirements(self) -> MemoryRequirements:
        """Returns the memory that everything in the cells needs."""
        capacities = float(self.rate.capacity), float(self.rate.second_capacity)
        few = few_blocks(self.space, self.cells)[self.points.cell]
        allowed = ~(few[:, None] & offloads(self.modes.memory_modes))
        return MemoryRequirements((self.first_tier.T, self.second_tier.T), capacities, allowed)


def prepare_calculon(space: Space, cell_numbers: range, *, rows: bool = True) -> PreparedRows:
    """Rejects what cannot run among these cells of the space, and prepares the rest for evaluation.

    Args:
        space: the space.
        cell_numbers: which of its cells.
        rows: whether the groups list their rows; callers that choose them do without.
    """
    rate = rates(space.system, space.datatype)
    row_table = row_table_of(space, cell_numbers)
    blocks, optimizers = block_times(row_table.work, rate), optimizer_times(row_table.optimizer, rate)
    cells, points, modes = row_table.cells, row_table.points, row_table.modes
    needs = row_table.needs(blocks, optimizers)
    fits = reject_by_memory(space, rate, cells, points, modes, needs, row_table.rejected)
    if rows:
        for group in row_table.groups:
            group.place, group.mode = pairs_by_point(fitting(points, modes, fits, group.point))
    return prepared_rows_of(row_table, rate, blocks, optimizers, needs, fits)


def prepared_rows_of(
    row_table: RowTable,
    rate: SystemRates,
    blocks: BlockTable,
    optimizers: OptimizerTable,
    needs: tuple[Floats, Floats],
    fits: Flags,
    feasible: int | None = None,
) -> PreparedRows:
    """Return the prepared rows of a row table at the rates of a system.

    Args:
        row_table: row table of the cells.
        rate: rates of the system.
        blocks: figures of the distinct blocks, each [keys].
        optimizers: the optimizer's step on them, each [keys].
        needs: memory of both tiers [memory modes, schedule points] [bytes].
        fits: pairs that fit in memory [memory modes, schedule points].
        feasible: number of feasible executions; None to count them.
    """
    if feasible is None:
        count = mode_counts(row_table.modes)
        feasible = int(executions_at(fits, count, row_table.cells, row_table.points).sum())
    return PreparedRows(
        space=row_table.space,
        rate=rate,
        cells=row_table.cells,
        points=row_table.points,
        stages=row_table.stages,
        modes=row_table.modes,
        block=step_block(blocks),
        useful=block_flops(blocks),
        kept=kept_activations(blocks, row_table.keyed.keys.activation_recompute),
        optimizer=step_optimizer(optimizers),
        optimizer_flops=optimizers.flops,
        optimizer_state=optimizers.state,
        optimizer_of=row_table.optimizer_of,
        first_tier=needs[0],
        second_tier=needs[1],
        fits=fits,
        groups=row_table.groups,
        rejected=row_table.rejected,
        feasible=feasible,
    )


def row_table_of(space: Space, cell_numbers: range) -> RowTable:
    """Rejects by network and shape what cannot run among these cells, and lays out the rest.

    Args:
        space: the space.
        cell_numbers: which of its cells.
    """
    modes = step_modes(space.modes, GRAINS)
    cells = cell_columns(space, cell_numbers)
    rejected = Rejected.nothing(len(cells.number))
    assignments = reject_by_network(space, network_rates(space.system), cells, rejected)
    alive = reject_by_shape(space, cells, modes, rejected)
    points, pairs = points_of(space, cells, alive)
    keyed = _block_keys(space, cells, assignments, points, pairs, modes)
    width = DATATYPES[space.datatype]
    optimizer, optimizer_of = _build_optimizer_work(space, cells, points, modes, width)
    return RowTable(
        space=space,
        cells=cells,
        points=points,
        stages=_pipeline_stages(space, cells, points),
        modes=modes,
        keyed=keyed,
        work=block_work(space.model, keyed.keys, width),
        optimizer=optimizer,
        optimizer_of=optimizer_of,
        groups=_group_points(assignments, points, keyed),
        rejected=rejected,
    )


def _pipeline_stages(space: Space, cells: CellColumns, points: SchedulePoints) -> PipelineShape:
    """Return the distribution of blocks and microbatches over the stages at every schedule point."""
    return stages(
        space.num_blocks,
        cells.pipeline_par[points.cell].astype(np.float64),
        points.interleaving.astype(np.float64),
        points.microbatches.astype(np.float64),
    )


def _block_keys(
    space: Space,
    cells: CellColumns,
    assignments: Assignments,
    points: SchedulePoints,
    pairs: tuple[Ints, Ints],
    modes: StepModes,
) -> KeyedBlocks:
    used = np.zeros((len(cells.number), space.tiers), bool)
    used[assignments.cell, assignments.nets[:, 0]] = True
    needed = np.zeros((len(pairs[0]), space.tiers), bool)
    np.logical_or.at(needed, points.pair, used[points.cell])
    pair, tier = np.nonzero(needed)
    row_of = np.full(needed.shape, -1)
    row_of[pair, tier] = np.arange(len(pair))
    width = len(modes.time_modes["training"])

    def spread(values: Ints) -> Ints:
        return np.repeat(values, width)

    def tiled(name: str) -> npt.NDArray[Any]:
        return np.tile(modes.time_modes[name], len(pair))

    keys = BlockKeys(
        tensor_par=spread(pairs[0][pair]),
        tensor_par_net=spread(tier),
        microbatch_size=spread(pairs[1][pair]),
        **{name: tiled(name) for name in TIME_FIELDS},
    )
    return KeyedBlocks(keys, row_of, width)


def _build_optimizer_work(
    space: Space, cells: CellColumns, points: SchedulePoints, modes: StepModes, width: int
) -> tuple[OptimizerWork, tuple[Ints, Ints]]:
    """Return optimizer work at [tensor degree and sharding, optimizer modes], and the start of each schedule point's
    figures, unsharded and sharded [points]."""
    tensor_par, data_par = cells.tensor_par[points.cell], cells.data_par[points.cell]
    one = np.ones_like(data_par)
    first, which = distinct(np.concatenate((tensor_par, tensor_par)), np.concatenate((one, data_par)))
    tensor = np.concatenate((tensor_par, tensor_par))[first]
    sharding = np.concatenate((one, data_par))[first]
    kinds = len(modes.optimizer_modes["training"])
    tiled = {name: np.tile(values, len(first)) for name, values in modes.optimizer_modes.items()}
    work = optimizer_work(
        space.model,
        tensor_par=np.repeat(tensor, kinds),
        sharding=np.repeat(sharding, kinds),
        element_bytes=width,
        **tiled,
    )
    return work, (which[: len(one)] * kinds, which[len(one) :] * kinds)


def _group_points(assignments: Assignments, points: SchedulePoints, keyed: KeyedBlocks) -> list[RowGroup]:
    """The schedule points grouped by networks, without rows yet."""
    possible: dict[tuple[int, int, int], dict[int, int]] = {}
    listed = zip(assignments.cell.tolist(), assignments.nets.tolist(), assignments.position.tolist(), strict=True)
    for cell, (tensor, pipeline, data), position in listed:
        possible.setdefault((cell, tensor, pipeline), {})[data] = position
    shared: dict[tuple[int, int, tuple[int, ...], bool], dict[int, dict[int, int]]] = {}
    exchanges = dict(zip(assignments.cell.tolist(), assignments.exchanges.tolist(), strict=True))
    for (cell, tensor, pipeline), positions in possible.items():
        shared.setdefault((tensor, pipeline, tuple(positions), exchanges[cell]), {})[cell] = positions
    groups = []
    for (tensor, pipeline, data_nets, exchanging), members in shared.items():
        point = np.flatnonzero(np.isin(points.cell, list(members)))
        if not len(point):
            continue
        groups.append(
            RowGroup(
                tensor_net=tensor,
                pipeline_net=pipeline,
                data_nets=data_nets,
                exchanges=exchanging,
                point=point,
                block=keyed.row_of[points.pair[point], tensor] * keyed.width,
                assignment={
                    net: np.array([members[cell][net] for cell in points.cell[point].tolist()], np.int64)
                    for net in data_nets
                },
                place=np.zeros(0, np.intp),
                mode=np.zeros(0, np.intp),
            )
        )
    return groups

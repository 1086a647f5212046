"""Preparing a space for evaluation: what is rejected before any arithmetic, and the rows that are left.

Rejection follows what each check depends on:

- networks: the cell and the assignment only;
- offload and divisibility: the cell and the mode;
- memory: the *sites* (cell, interleaving, microbatch) and the *memory modes* (modes without what memory does not
  depend on: gradient overlap, ring or pipe), by broadcasting over blocks of figures that each exist once.

What is left is grouped by network assignment into *groups* of rows (site, tensor and pipeline network) x (memory
mode, overlap); every row stands for all its gradient exchanges (data network, overlapped or not).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.cost_models.calculon.batch import StepBlock, StepOptimizer, step_block, step_optimizer
from engine.cost_models.calculon.block import BlockTable, BlockWork, block_times, block_work
from engine.cost_models.calculon.block_keys import BlockKeys
from engine.cost_models.calculon.grains import GRAINS, TIME_FIELDS
from engine.cost_models.calculon.optimizer import OptimizerTable, OptimizerWork, optimizer_times, optimizer_work
from engine.cost_models.calculon.pipeline import Stages, stages
from engine.cost_models.calculon.rates import Rates, network_rates, rates
from engine.cost_models.calculon.rejection import (
    Assignments,
    KeyedBlocks,
    memory_needs,
    reject_by_memory,
    reject_by_network,
    reject_by_shape,
)
from engine.executions.arrays import Flags, Floats, Ints, distinct
from engine.executions.codes import FULL
from engine.executions.table import DATATYPES
from engine.space.rejection import MemoryNeeds, Rejected, executions_at
from engine.space.rows import Group, fitting
from engine.space.schedule_points import (
    CellColumns,
    Sites,
    StepModes,
    cell_columns,
    mode_counts,
    sites_of,
    step_modes,
)
from engine.space.space import Space

__all__ = ["Group", "Layout", "Plan", "fitting", "lay_out", "plan_of", "prepare_exact"]


@dataclass(slots=True)
class Layout:
    """Cells laid out: what of a plan depends neither on rates nor on capacities.

    It does depend on how many networks there are, how large they are, and whether there is a second memory tier.
    `groups` list no rows. `optimizer_of[sharded]` [sites] is where a site's optimizer figures start in `optimizer`.
    """

    space: Space
    cells: CellColumns
    sites: Sites
    stages: Stages
    modes: StepModes
    keyed: KeyedBlocks
    work: BlockWork
    optimizer: OptimizerWork
    optimizer_of: tuple[Ints, Ints]
    groups: list[Group]
    rejected: Rejected


@dataclass(slots=True)
class Plan:
    """Cells made ready: figures that exist once, and the groups of rows to evaluate.

    `block`, `useful` and `kept` (activations or checkpoints that would be offloaded) are per block key, `optimizer*`
    per optimizer key; `optimizer_of[sharded]` [sites] is where a site's optimizer figures start. `first_tier` and
    `second_tier` [memory modes, sites] are the memory needed [bytes], `fits` whether there is that much.
    """

    space: Space
    rate: Rates
    cells: CellColumns
    sites: Sites
    stages: Stages
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
    groups: list[Group]
    rejected: Rejected
    feasible: int

    def memory_needs(self) -> MemoryNeeds:
        """The memory that everything in the cells needs."""
        blocks = -(-self.space.model.num_blocks // self.cells.pipeline_par)
        capacities = float(self.rate.capacity), float(self.rate.second_capacity)
        return MemoryNeeds((self.first_tier.T, self.second_tier.T), capacities, blocks)


def prepare_exact(space: Space, cell_numbers: range, *, rows: bool = True) -> Plan:
    """Rejects what cannot run among these cells of the space, and prepares the rest for evaluation.

    Without `rows` the groups list no rows: for callers that choose them.
    """
    rate = rates(space.system, space.datatype)
    layout = lay_out(space, cell_numbers)
    blocks, optimizers = block_times(layout.work, rate), optimizer_times(layout.optimizer, rate)
    cells, sites, modes = layout.cells, layout.sites, layout.modes
    needs = memory_needs(layout.stages, sites, modes, layout.keyed, blocks, optimizers, layout.optimizer_of)
    fits = reject_by_memory(space, rate, cells, sites, modes, needs, layout.rejected)
    if rows:
        for group in layout.groups:
            found = fitting(sites, modes, fits, group.site)
            group.place, group.mode = np.nonzero(np.ascontiguousarray(found.T))
    return plan_of(layout, rate, blocks, optimizers, needs, fits)


def plan_of(
    layout: Layout,
    rate: Rates,
    blocks: BlockTable,
    optimizers: OptimizerTable,
    needs: tuple[Floats, Floats],
    fits: Flags,
    feasible: int | None = None,
) -> Plan:
    """The plan of a layout at the rates of a system: from its figures, the memory needed, and what fits.

    `feasible` executions are counted unless they are known already.
    """
    if feasible is None:
        count = mode_counts(layout.space, layout.modes)
        feasible = int(executions_at(fits, count, layout.cells, layout.sites).sum())
    return Plan(
        space=layout.space,
        rate=rate,
        cells=layout.cells,
        sites=layout.sites,
        stages=layout.stages,
        modes=layout.modes,
        block=step_block(blocks),
        useful=blocks.fw_flops + blocks.agrad_flops + blocks.wgrad_flops,
        kept=np.where(layout.keyed.keys.activation_recompute == FULL, blocks.act_checkpoint, blocks.act_storage),
        optimizer=step_optimizer(optimizers),
        optimizer_flops=optimizers.flops,
        optimizer_state=optimizers.state,
        optimizer_of=layout.optimizer_of,
        first_tier=needs[0],
        second_tier=needs[1],
        fits=fits,
        groups=layout.groups,
        rejected=layout.rejected,
        feasible=feasible,
    )


def lay_out(space: Space, cell_numbers: range) -> Layout:
    """Rejects by network and shape what cannot run among these cells, and lays out the rest."""
    modes = step_modes(space.modes, GRAINS)
    cells = cell_columns(space, cell_numbers)
    rejected = Rejected.nothing(len(cells.number))
    assignments = reject_by_network(space, network_rates(space.system), cells, rejected)
    alive = reject_by_shape(space, cells, modes, rejected)
    sites, pairs = sites_of(space, cells, alive)
    keyed = _block_keys(space, cells, assignments, sites, pairs, modes)
    width = DATATYPES[space.datatype]
    optimizer, optimizer_of = _optimizers(space, cells, sites, modes, width)
    return Layout(
        space=space,
        cells=cells,
        sites=sites,
        stages=_stages(space, cells, sites),
        modes=modes,
        keyed=keyed,
        work=block_work(space.model, keyed.keys, width),
        optimizer=optimizer,
        optimizer_of=optimizer_of,
        groups=_groups(assignments, sites, keyed),
        rejected=rejected,
    )


def _stages(space: Space, cells: CellColumns, sites: Sites) -> Stages:
    """How blocks and microbatches fall on the stages of every schedule point."""
    return stages(
        space.num_blocks,
        cells.pipeline_par[sites.cell].astype(np.float64),
        sites.interleaving.astype(np.float64),
        sites.microbatches.astype(np.float64),
    )


def _block_keys(
    space: Space,
    cells: CellColumns,
    assignments: Assignments,
    sites: Sites,
    pairs: tuple[Ints, Ints],
    modes: StepModes,
) -> KeyedBlocks:
    used = np.zeros((len(cells.number), space.tiers), bool)
    used[assignments.cell, assignments.nets[:, 0]] = True
    needed = np.zeros((len(pairs[0]), space.tiers), bool)
    np.logical_or.at(needed, sites.pair, used[sites.cell])
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


def _optimizers(
    space: Space, cells: CellColumns, sites: Sites, modes: StepModes, width: int
) -> tuple[OptimizerWork, tuple[Ints, Ints]]:
    """Optimizer work at [tensor degree and sharding, optimizer modes], and where each site's start, unsharded and
    sharded [sites]."""
    tensor_par, data_par = cells.tensor_par[sites.cell], cells.data_par[sites.cell]
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


def _groups(assignments: Assignments, sites: Sites, keyed: KeyedBlocks) -> list[Group]:
    """The sites grouped by networks, without rows yet."""
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
        site = np.flatnonzero(np.isin(sites.cell, list(members)))
        if not len(site):
            continue
        groups.append(
            Group(
                tensor_net=tensor,
                pipeline_net=pipeline,
                data_nets=data_nets,
                exchanges=exchanging,
                site=site,
                block=keyed.row_of[sites.pair[site], tensor] * keyed.width,
                assignment={
                    net: np.array([members[cell][net] for cell in sites.cell[site].tolist()], np.int64)
                    for net in data_nets
                },
                place=np.zeros(0, np.intp),
                mode=np.zeros(0, np.intp),
            )
        )
    return groups

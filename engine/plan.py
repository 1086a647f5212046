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

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from engine import reasons
from engine.arrays import take
from engine.batch import StepBlock, StepOptimizer, step_block, step_optimizer
from engine.block import BlockKeys, BlockTable, OptimizerTable, block_table, distinct, optimizer_table
from engine.evaluate import block_sizes
from engine.execution import DATATYPES
from engine.feasibility import network_reasons
from engine.memory import BlockSizes, memory_use, tiers
from engine.pipeline import Stages, stages
from engine.rates import Rates, rates
from engine.space import MODE_FIELDS, Modes, Space, mode_kind

__all__ = ["Group", "Plan", "Rejected", "fitting", "prepare"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

FULL = 0  # activation_recompute
NO_OVERLAP = 0  # tensor_par_overlap

TIME_FIELDS = (
    "activation_recompute", "tensor_par_comm_type", "seq_par_ag_redo", "tensor_par_overlap", "fused_activation",
    "attention_type", "training",
)  # fmt: skip


@dataclass(slots=True)
class Sites:
    """(cell, interleaving, microbatch) combinations, each an array [sites].

    `cell` counts within the plan's cells. `first` is the id of the site's first mode at the first assignment,
    `stride` the distance of ids from one mode to the next. `pair` says which (tensor parallel, microbatch) it is.
    """

    cell: Ints
    kind: Ints
    interleaving: Ints
    microbatch_size: Ints
    first: Ints
    stride: Ints
    pair: Ints
    stages: Stages


@dataclass(slots=True)
class CellColumns:
    """The plan's cells, each an array [cells]. `possible` counts network assignments that fit, `kind` the mode list."""

    number: Ints
    tensor_par: Ints
    pipeline_par: Ints
    data_par: Ints
    batch_size: Ints
    kind: Ints
    possible: Ints


@dataclass(slots=True)
class StepModes:
    """Modes without the overlap of the gradient exchange, over all kinds of cells, each field an array [modes].

    `position[overlapped]` [4 kinds, modes] is the mode's place in the list of a kind of cell, -1 where the kind has no
    such mode. `time` says which block times a mode uses, `optimizer` which optimizer figures, `memory` which memory
    mode it belongs to.
    """

    fields: Mapping[str, npt.NDArray[Any]]
    position: tuple[Ints, Ints]
    time: Ints
    optimizer: Ints
    memory: Ints
    time_modes: Mapping[str, npt.NDArray[Any]]
    optimizer_modes: Mapping[str, npt.NDArray[Any]]
    memory_modes: Mapping[str, npt.NDArray[Any]]


@dataclass(slots=True)
class Group:
    """Rows that share their networks: those of tensor and pipeline parallelism, and the possible ones of the exchange.

    `site` [places] are the sites here, `block` [places] where a site's block figures start (add a mode's `time`),
    `assignment[data network]` [places] the position of the assignment in its cell's list. `place` and `mode` [rows]
    are the rows: what fits in memory.
    """

    tensor_net: int
    pipeline_net: int
    data_nets: tuple[int, ...]
    exchanges: bool
    site: Ints
    block: Ints
    assignment: Mapping[int, Ints]
    place: npt.NDArray[np.intp]
    mode: npt.NDArray[np.intp]


@dataclass(slots=True)
class Rejected:
    """What was rejected, with proof: executions per cell and reason number [cells, reasons + 1], and the smallest
    excess over the capacity of either memory tier among a cell's executions [cells] ([bytes], inf without any)."""

    counts: Ints
    excess: tuple[Floats, Floats]


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


OPTIMIZER_FIELDS = ("attention_type", "overlapped", "training")
MEMORY_FIELDS = (
    "activation_recompute", "tensor_par_comm_type", "seq_par_ag_redo", "overlapped", "fused_activation",
    "attention_type", "training", "optimizer_sharding", "weight_offload", "activations_offload", "optimizer_offload",
)  # fmt: skip


@lru_cache(maxsize=64)
def step_modes(kinds: tuple[Modes, ...]) -> StepModes:
    """The modes of all kinds of cells, each once, without the overlap of the gradient exchange."""
    lists = [table.fields for table in kinds]
    joined = {name: np.concatenate([table[name] for table in lists]) for name in MODE_FIELDS}
    kind = np.repeat(np.arange(len(lists)), [len(table["training"]) for table in lists])
    place = np.concatenate([np.arange(len(table["training"])) for table in lists])
    joined["overlapped"] = joined["tensor_par_overlap"] != NO_OVERLAP
    names = [name for name in MODE_FIELDS if name != "data_par_overlap"]
    first, which = distinct(*(joined[name] for name in names))
    position = (np.full((len(lists), len(first)), -1), np.full((len(lists), len(first)), -1))
    for overlapped in (False, True):
        chosen = joined["data_par_overlap"] == overlapped
        position[overlapped][kind[chosen], which[chosen]] = place[chosen]
    fields = {name: joined[name][first] for name in (*names, "overlapped")}

    def part(part_names: tuple[str, ...]) -> tuple[dict[str, npt.NDArray[Any]], Ints]:
        part_first, part_of = distinct(*(fields[name] for name in part_names))
        return {name: fields[name][part_first] for name in part_names}, part_of

    time_modes, time = part(TIME_FIELDS)
    optimizer_modes, optimizer = part(OPTIMIZER_FIELDS)
    memory_modes, memory = part(MEMORY_FIELDS)
    return StepModes(fields, position, time, optimizer, memory, time_modes, optimizer_modes, memory_modes)


def prepare(space: Space, cell_numbers: range, *, rows: bool = True) -> Plan:
    """Rejects what cannot run among these cells of the space, and prepares the rest for evaluation.

    Without `rows` the groups list no rows: for callers that choose them.
    """
    rate, model = rates(space.system, space.datatype), space.model
    width = DATATYPES[space.datatype]
    modes = step_modes(space.modes)
    cells = _cell_columns(space, cell_numbers)
    rejected = Rejected(
        np.zeros((len(cells.number), len(reasons.REASONS) + 1), np.int64),
        (np.full(len(cells.number), np.inf), np.full(len(cells.number), np.inf)),
    )
    assignments = _reject_by_network(space, rate, cells, rejected)
    alive = _reject_by_shape(space, cells, modes, rejected)
    sites, pairs = _sites(space, cells, alive)
    keyed = _block_keys(space, cells, assignments, sites, pairs, modes)
    blocks = block_table(model, rate, keyed.keys, width)
    optimizers, optimizer_of = _optimizers(space, rate, cells, sites, modes, width)
    first, second, fits = _fit(space, rate, cells, sites, modes, keyed, blocks, optimizers, optimizer_of, rejected)
    count = _mode_counts(space, modes)
    feasible = int(_executions(fits, _mode_counts(space, modes), cells, sites).sum())
    return Plan(
        space=space,
        rate=rate,
        cells=cells,
        sites=sites,
        modes=modes,
        block=step_block(blocks),
        useful=blocks.fw_flops + blocks.agrad_flops + blocks.wgrad_flops,
        kept=np.where(keyed.keys.activation_recompute == FULL, blocks.act_checkpoint, blocks.act_storage),
        optimizer=step_optimizer(optimizers),
        optimizer_flops=optimizers.flops,
        optimizer_state=optimizers.state,
        optimizer_of=optimizer_of,
        first_tier=first,
        second_tier=second,
        fits=fits,
        groups=_groups(assignments, sites, modes, keyed, fits if rows else None),
        rejected=rejected,
        feasible=feasible,
    )


def _cell_columns(space: Space, numbers: range) -> CellColumns:
    cells = [space.cells[number] for number in numbers]

    def column(values: list[int]) -> Ints:
        return np.array(values, np.int64)

    return CellColumns(
        number=np.arange(numbers.start, numbers.stop),
        tensor_par=column([cell.tensor_par for cell in cells]),
        pipeline_par=column([cell.pipeline_par for cell in cells]),
        data_par=column([cell.data_par for cell in cells]),
        batch_size=column([cell.batch_size for cell in cells]),
        kind=column([mode_kind(cell) for cell in cells]),
        possible=np.zeros(len(cells), np.int64),
    )


@dataclass(slots=True)
class _Assignments:
    """Network assignments that fit, each an array [assignments]: cell, tiers, and position in the cell's list."""

    cell: Ints
    nets: Ints
    position: Ints
    exchanges: Flags


def _choices(space: Space, cells: CellColumns) -> Ints:
    """Executions per cell and network assignment [cells]."""
    return np.array(
        [
            len(space.cells[number].interleavings) * len(space.cells[number].microbatches)
            for number in cells.number.tolist()
        ],
        np.int64,
    )


def _reject_by_network(space: Space, rate: Rates, cells: CellColumns, rejected: Rejected) -> _Assignments:
    tables = [space.assignments[space.cells[number].kind] for number in cells.number.tolist()]
    cell = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
    nets = np.concatenate(tables) if tables else np.zeros((0, 3), np.int64)
    position = np.concatenate([np.arange(len(table)) for table in tables]) if tables else np.zeros(0, np.int64)
    degrees = (cells.tensor_par[cell], cells.pipeline_par[cell], cells.data_par[cell])
    found = network_reasons(rate.networks, degrees, (nets[:, 0], nets[:, 1], nets[:, 2]))
    modes = np.array([len(table) for table in space.modes], np.int64)
    each = _choices(space, cells) * modes[cells.kind]
    np.add.at(rejected.counts, (cell, found), each[cell] * (found != reasons.FITS))
    fit = found == reasons.FITS
    cells.possible[:] = np.bincount(cell[fit], minlength=len(tables))
    return _Assignments(cell[fit], nets[fit], position[fit], (cells.data_par > 1)[cell[fit]])


def _offloads(fields: Mapping[str, npt.NDArray[Any]]) -> Flags:
    result: Flags = fields["weight_offload"] | fields["activations_offload"] | fields["optimizer_offload"]
    return result


def _few_blocks(space: Space, cells: CellColumns) -> Flags:
    """Cells whose stages have too few blocks to offload [cells]."""
    few: Flags = -(-space.model.num_blocks // cells.pipeline_par) < 3
    return few


def _reject_by_shape(space: Space, cells: CellColumns, modes: StepModes, rejected: Rejected) -> Flags:
    """Rejects offload on short stages and feedforward sizes that the tensor degree does not divide; cells left."""
    each = _choices(space, cells) * cells.possible
    offloading = np.array([int(_offloads(table.fields).sum()) for table in space.modes], np.int64)
    everything = np.array([len(table) for table in space.modes], np.int64)
    short = np.where(_few_blocks(space, cells), offloading[cells.kind], 0)
    rejected.counts[:, reasons.number_of("offload_needs_three_blocks")] += each * short
    indivisible = space.model.feedforward % cells.tensor_par != 0
    rejected.counts[:, reasons.number_of("feedforward_not_divisible")] += np.where(
        indivisible, each * (everything[cells.kind] - short), 0
    )
    return (cells.possible > 0) & ~indivisible


def _sites(space: Space, cells: CellColumns, alive: Flags) -> tuple[Sites, tuple[Ints, Ints]]:
    """Sites of the cells left, and their distinct (tensor parallel, microbatch) pairs."""
    parts: dict[str, list[Ints]] = {
        name: [np.zeros(0, np.int64)] for name in ("cell", "interleaving", "microbatch", "first", "stride")
    }
    for here in np.flatnonzero(alive).tolist():
        number = int(cells.number[here])
        cell = space.cells[number]
        microbatches = len(cell.microbatches)
        stride = microbatches * cell.assignments
        block = stride * len(space.modes[mode_kind(cell)])
        v, m = np.divmod(np.arange(len(cell.interleavings) * microbatches), microbatches)
        parts["cell"].append(np.full(len(v), here))
        parts["interleaving"].append(np.array(cell.interleavings)[v])
        parts["microbatch"].append(np.array(cell.microbatches)[m])
        parts["first"].append(space.first_ids[number] + v * block + m * cell.assignments)
        parts["stride"].append(np.full(len(v), stride))
    joined = {name: np.concatenate(part) for name, part in parts.items()}
    cell_of, microbatch, interleaving = joined["cell"], joined["microbatch"], joined["interleaving"]
    tensor_par = cells.tensor_par[cell_of]
    first_pair, pair = distinct(tensor_par, microbatch)
    microbatches_per_step = cells.batch_size[cell_of] // cells.data_par[cell_of] // microbatch
    sites = Sites(
        cell=cell_of,
        kind=cells.kind[cell_of],
        interleaving=interleaving,
        microbatch_size=microbatch,
        first=joined["first"],
        stride=joined["stride"],
        pair=pair,
        stages=stages(
            space.model.num_blocks,
            cells.pipeline_par[cell_of].astype(np.float64),
            interleaving.astype(np.float64),
            microbatches_per_step.astype(np.float64),
        ),
    )
    return sites, (tensor_par[first_pair], microbatch[first_pair])


@dataclass(slots=True)
class _Keyed:
    """Block keys of the plan, laid out as [pairs with a network, time modes]; `row_of` [pairs, tiers] is -1 where a
    pair never uses a tier."""

    keys: BlockKeys
    row_of: Ints
    width: int


def _block_keys(
    space: Space, cells: CellColumns, assignments: _Assignments, sites: Sites, pairs: tuple[Ints, Ints], modes: StepModes
) -> _Keyed:
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
    return _Keyed(keys, row_of, width)


def _optimizers(
    space: Space, rate: Rates, cells: CellColumns, sites: Sites, modes: StepModes, width: int
) -> tuple[OptimizerTable, tuple[Ints, Ints]]:
    """Optimizer figures at [tensor degree and sharding, optimizer modes], and where each site's start, unsharded and
    sharded [sites]."""
    tensor_par, data_par = cells.tensor_par[sites.cell], cells.data_par[sites.cell]
    one = np.ones_like(data_par)
    first, which = distinct(np.concatenate((tensor_par, tensor_par)), np.concatenate((one, data_par)))
    tensor = np.concatenate((tensor_par, tensor_par))[first]
    sharding = np.concatenate((one, data_par))[first]
    kinds = len(modes.optimizer_modes["training"])
    tiled = {name: np.tile(values, len(first)) for name, values in modes.optimizer_modes.items()}
    table = optimizer_table(
        space.model,
        rate,
        tensor_par=np.repeat(tensor, kinds),
        sharding=np.repeat(sharding, kinds),
        element_bytes=width,
        **tiled,
    )
    return table, (which[: len(one)] * kinds, which[len(one) :] * kinds)


def _mode_counts(space: Space, modes: StepModes) -> Ints:
    """How many modes of a kind of cell share a memory mode [4 kinds, memory modes]."""
    count = np.zeros((len(space.modes), len(modes.memory_modes["training"])), np.int64)
    for position in modes.position:
        kind, mode = np.nonzero(position >= 0)
        np.add.at(count, (kind, modes.memory[mode]), 1)
    return count


def _fit(
    space: Space,
    rate: Rates,
    cells: CellColumns,
    sites: Sites,
    modes: StepModes,
    keyed: _Keyed,
    blocks: BlockTable,
    optimizers: OptimizerTable,
    optimizer_of: tuple[Ints, Ints],
    rejected: Rejected,
) -> tuple[Floats, Floats, Flags]:
    """Memory of every (site, memory mode) and whether it fits; counts what does not."""
    mm = modes.memory_modes
    count = _mode_counts(space, modes)
    shape = (len(mm["training"]), len(sites.cell))
    first_tier, second_tier = np.empty(shape), np.empty(shape)
    over = (np.empty(shape, bool), np.empty(shape, bool))
    fits = (count > 0).T[:, sites.kind]
    fits &= ~(_offloads(mm)[:, None] & _few_blocks(space, cells)[sites.cell])
    least = (np.full(shape[1], np.inf), np.full(shape[1], np.inf))
    held = block_sizes(blocks, None)
    # Any network tells the same sizes: take the first that the pair uses.
    block_row = keyed.row_of.max(axis=1, initial=0)[sites.pair] * keyed.width
    names = MEMORY_FIELDS[: MEMORY_FIELDS.index("optimizer_sharding") + 1]
    kind_first, kind_of = distinct(*(mm[name] for name in names))
    # One kind after the other, so that its few modes stay in cache.
    for kind, position in enumerate(kind_first.tolist()):
        here = np.flatnonzero(kind_of == kind)
        choice = {name: mm[name][position] for name in names}
        sizes = _sizes_at(held, block_row + _matching(modes.time_modes, choice))
        at = optimizer_of[int(choice["optimizer_sharding"])] + _matching(modes.optimizer_modes, choice)
        sizes.weight_grads, sizes.optimizer = optimizers.weight_grads[at], optimizers.state[at]
        full = np.asarray(choice["activation_recompute"] == FULL)
        use = memory_use(sites.stages, sizes, full, np.asarray(choice["training"]))
        flags = [mm[name][here][:, None] for name in ("weight_offload", "activations_offload", "optimizer_offload")]
        left = fits[here]
        needs = tiers(use, full, *flags)
        for tier, (need, capacity) in enumerate(zip(needs, (rate.capacity, rate.second_capacity), strict=True)):
            beyond = left & (need > capacity)
            left &= ~beyond
            over[tier][here] = beyond
            if beyond.any():
                np.minimum(least[tier], np.where(beyond, need, np.inf).min(axis=0), out=least[tier])
        fits[here] = left
        first_tier[here], second_tier[here] = needs
    for tier, (code, capacity) in enumerate((("memory_tier1", rate.capacity), ("memory_tier2", rate.second_capacity))):
        failing = _executions(over[tier], count, cells, sites)
        np.add.at(rejected.counts[:, reasons.number_of(code)], sites.cell, failing)
        np.minimum.at(rejected.excess[tier], sites.cell, least[tier] - capacity)
    return first_tier, second_tier, fits


def _executions(chosen: Flags, count: Ints, cells: CellColumns, sites: Sites) -> Ints:
    """How many executions the chosen (memory mode, site) pairs stand for, per site [sites]."""
    result = np.zeros(len(sites.cell), np.int64)
    for kind in np.unique(sites.kind).tolist():
        here = np.flatnonzero(sites.kind == kind)
        # Small counts: exact in float64, for which matrix products are fast.
        result[here] = (count[kind].astype(np.float64) @ chosen[:, here]).astype(np.int64)
    return result * cells.possible[sites.cell]


def _sizes_at(held: BlockSizes, index: Ints) -> BlockSizes:
    """Sizes of the keys at `index`; those of the optimizer are still missing."""
    kept = {item.name: getattr(held, item.name) for item in fields(held)}
    return BlockSizes(**{name: values[index] if len(values) else values for name, values in kept.items()})


def _matching(table: Mapping[str, npt.NDArray[Any]], choice: Mapping[str, Any]) -> int:
    """The first row of a table of modes that agrees with `choice` in every field that both have."""
    agrees = np.ones(len(next(iter(table.values()))), bool)
    for name, values in table.items():
        if name in choice:
            agrees &= values == choice[name]
        elif name == "tensor_par_overlap":
            agrees &= (values != NO_OVERLAP) == choice["overlapped"]
    return int(np.argmax(agrees))


def fitting(sites: Sites, modes: StepModes, fits: Flags, site: Ints) -> Flags:
    """Which modes the chosen sites have and memory allows [modes, chosen sites]."""
    exists = np.maximum(modes.position[0], modes.position[1]).T >= 0
    result: Flags = fits[:, site][modes.memory] & exists[:, sites.kind[site]]
    return result


def _groups(
    assignments: _Assignments, sites: Sites, modes: StepModes, keyed: _Keyed, fits: Flags | None
) -> list[Group]:
    """The rows that fit, grouped by networks."""
    possible: dict[tuple[int, int, int], dict[int, int]] = {}
    listed = zip(
        assignments.cell.tolist(), assignments.nets.tolist(), assignments.position.tolist(), strict=True
    )
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
        place = mode = np.zeros(0, np.intp)
        if fits is not None:
            rows = fitting(sites, modes, fits, site)
            place, mode = np.nonzero(np.ascontiguousarray(rows.T))
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
                place=place,
                mode=mode,
            )
        )
    return groups

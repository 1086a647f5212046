"""Rejecting executions before any time is computed: by network, by shape, by memory.

Each check runs once per combination of its inputs: networks on (cell, assignment), offload and divisibility on (cell,
mode), memory on (schedule point, memory mode). Counts are the executions of each rejected (cell, ...).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.cost_models.calculon.feasibility import network_reasons
from engine.cost_models.calculon.physics.block import BlockTable
from engine.cost_models.calculon.physics.block_keys import BlockKeys
from engine.cost_models.calculon.physics.memory import BlockSizes, MemoryByKind, memory_use, tiers
from engine.cost_models.calculon.physics.optimizer import OptimizerTable
from engine.cost_models.calculon.physics.pipeline import PipelineShape
from engine.cost_models.calculon.physics.rates import NetworkRates, SystemRates
from engine.cost_models.calculon.rows.mode_fields import GRAINS, MEMORY_FIELDS
from engine.cost_models.calculon.table_evaluation import block_sizes
from engine.executions import reasons
from engine.executions.arrays import Flags, Floats, Ints, distinct
from engine.executions.codes import FULL, NO_OVERLAP, OFFLOADS
from engine.executions.rules import most_blocks, offloads, too_few_to_offload, undivided
from engine.space.rejection import Rejected, executions_at
from engine.space.schedule_points import (
    CellColumns,
    SchedulePoints,
    StepModes,
    mode_counts,
    step_modes,
)
from engine.space.space import Modes, Space

__all__ = [
    "Assignments",
    "KeyedBlocks",
    "few_blocks",
    "listed",
    "memory_requirements",
    "reject_by_memory",
    "reject_by_network",
    "reject_by_shape",
]


SIZES_TOGETHER = 2048
"""(kind of memory mode, schedule point) pairs whose sizes are computed together."""


@dataclass(slots=True)
class Assignments:
    """Network assignments that fit, each an array [assignments]: cell, tiers, and position in the cell's list."""

    cell: Ints
    nets: Ints
    position: Ints
    exchanges: Flags


def _count_choices(space: Space, cells: CellColumns) -> Ints:
    """Executions per cell and network assignment [cells]."""
    return np.array(
        [
            len(space.cells[number].interleavings) * len(space.cells[number].microbatches)
            for number in cells.number.tolist()
        ],
        np.int64,
    )


def reject_by_network(space: Space, networks: NetworkRates, cells: CellColumns, rejected: Rejected) -> Assignments:
    """Rejects network assignments that do not fit, and returns the others; records how many each cell has left.

    Args:
        space: the space.
        networks: the tiers of the system.
        cells: columns of the cells, each [cells]; the remaining assignments of each cell are recorded there.
        rejected: counts of rejected executions; changed in place.
    """
    tables = [space.assignments[space.cells[number].kind] for number in cells.number.tolist()]
    cell = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
    nets = np.concatenate(tables) if tables else np.zeros((0, 3), np.int64)
    position = np.concatenate([np.arange(len(table)) for table in tables]) if tables else np.zeros(0, np.int64)
    degrees = (cells.tensor_par[cell], cells.pipeline_par[cell], cells.data_par[cell])
    found = network_reasons(networks, degrees, (nets[:, 0], nets[:, 1], nets[:, 2]))
    modes = np.array([len(table) for table in space.modes], np.int64)
    each = _count_choices(space, cells) * modes[cells.kind]
    np.add.at(rejected.counts, (cell, found), each[cell] * (found != reasons.FITS))
    fit = found == reasons.FITS
    cells.possible[:] = np.bincount(cell[fit], minlength=len(tables))
    return Assignments(cell[fit], nets[fit], position[fit], (cells.data_par > 1)[cell[fit]])


def few_blocks(space: Space, cells: CellColumns) -> Flags:
    """Return which cells have stages of too few blocks to offload [cells].

    Args:
        space: the space.
        cells: columns of the cells, each [cells].
    """
    few: Flags = too_few_to_offload(most_blocks(space.num_blocks, cells.pipeline_par))
    return few


def reject_by_shape(space: Space, cells: CellColumns, modes: StepModes, rejected: Rejected) -> Flags:
    """Rejects offloading from short stages, and feedforward sizes that the tensor degree does not divide.

    Return which cells have executions left [cells].

    Args:
        space: the space.
        cells: columns of the cells, each [cells].
        modes: modes of the space.
        rejected: counts of rejected executions; changed in place.
    """
    each = _count_choices(space, cells) * cells.possible
    offloading = np.array([int(offloads(table.fields).sum()) for table in space.modes], np.int64)
    everything = np.array([len(table) for table in space.modes], np.int64)
    short = np.where(few_blocks(space, cells), offloading[cells.kind], 0)
    rejected.counts[:, reasons.number_of("offload_needs_three_blocks")] += each * short
    code = "feedforward_not_divisible"
    indivisible = undivided(cells.tensor_par, feedforward=space.model.feedforward)[code]
    rejected.counts[:, reasons.number_of(code)] += np.where(indivisible, each * (everything[cells.kind] - short), 0)
    alive: Flags = (cells.possible > 0) & ~indivisible
    return alive


@dataclass(slots=True)
class KeyedBlocks:
    """Block keys of the prepared rows, laid out as [pairs with a network, time modes]; `row_of` [pairs, tiers] is -1
    where a pair never uses a tier."""

    keys: BlockKeys
    row_of: Ints
    width: int


@dataclass(frozen=True, slots=True)
class _MemoryKinds:
    """Kinds of memory modes, equal except for offloading: `kind_of` [memory modes]. Of each kind, fields by name, and
    the positions of its block and optimizer figures within a schedule point's [kinds]."""

    kind_of: Ints
    fields: dict[str, npt.NDArray[Any]]
    time: Ints
    optimizer: Ints


@lru_cache(maxsize=64)
def _memory_kinds(kinds: tuple[Modes, ...]) -> _MemoryKinds:
    """The kinds of memory modes of the modes of each kind of cell, which many spaces share."""
    modes = step_modes(kinds, GRAINS)
    mm = modes.memory_modes
    names = MEMORY_FIELDS[: MEMORY_FIELDS.index("optimizer_sharding") + 1]
    first, kind_of = distinct(*(mm[name] for name in names))
    choices = [{name: mm[name][position] for name in names} for position in first.tolist()]
    return _MemoryKinds(
        kind_of,
        {name: mm[name][first] for name in names},
        np.array([find_matching_mode(modes.time_modes, choice) for choice in choices], np.int64),
        np.array([find_matching_mode(modes.optimizer_modes, choice) for choice in choices], np.int64),
    )


def memory_requirements(
    space: Space,
    stages: PipelineShape,
    points: SchedulePoints,
    keyed: KeyedBlocks,
    blocks: BlockTable,
    optimizers: OptimizerTable,
    optimizer_of: tuple[Ints, Ints],
) -> tuple[Floats, Floats]:
    """Returns the memory of both tiers that every (memory mode, schedule point) needs [bytes] [memory modes, points];
    no rate and no capacity matters to it.

    Args:
        space: the space.
        stages: how blocks and microbatches fall on pipelines [points].
        points: schedule points of the cells.
        keyed: the block keys of the rows.
        blocks: figures of these blocks, each [keys].
        optimizers: the optimizer's step on blocks, each [keys].
        optimizer_of: where the whole and the sharded optimizer of each point begin [points].
    """
    mm, kinds = step_modes(space.modes, GRAINS).memory_modes, _memory_kinds(space.modes)
    shape = (len(mm["training"]), len(points.cell))
    first_tier, second_tier = np.empty(shape), np.empty(shape)
    if not first_tier.size:
        return first_tier, second_tier
    held = block_sizes(blocks, None)
    # Any network tells the same sizes: take the first that the pair uses.
    block_row = keyed.row_of.max(axis=1, initial=0)[points.pair] * keyed.width
    # Of many schedule points one kind after the other, so that its few modes stay in cache; of few, kinds together.
    together = max(1, SIZES_TOGETHER // max(1, shape[1]))
    for start in range(0, len(kinds.time), together):
        part = slice(start, start + together)
        here = np.flatnonzero((kinds.kind_of >= start) & (kinds.kind_of < start + together))
        choice = {name: values[part, None] for name, values in kinds.fields.items()}
        sizes = _sizes_at(held, block_row + kinds.time[part, None])
        at = np.where(choice["optimizer_sharding"], *optimizer_of[::-1]) + kinds.optimizer[part, None]
        sizes.weight_grads, sizes.optimizer = optimizers.weight_grads[at], optimizers.state[at]
        full = choice["activation_recompute"] == FULL
        use = memory_use(stages, sizes, full, choice["training"])
        if len(at) > 1:
            kind = kinds.kind_of[here] - start
            use, full = _rows_at(use, kind), full[kind]
        flags = [mm[name][here][:, None] for name in OFFLOADS]
        first_tier[here], second_tier[here] = tiers(use, full, *flags)
    return first_tier, second_tier


def _rows_at(use: MemoryByKind, kind: Ints) -> MemoryByKind:
    """Memory by kind of mode [kinds, points] at each mode [modes, points]."""
    every = (getattr(use, item.name) for item in fields(use))
    return MemoryByKind(*(values[kind] for values in every))


def listed(space: Space, cells: CellColumns, points: SchedulePoints, modes: StepModes) -> Flags:
    """Return which (memory mode, schedule point) pairs are in the space and not ruled out by short stages, before any
    check of memory.

    Args:
        space: the space.
        cells: columns of the cells, each [cells].
        points: schedule points of the cells.
        modes: modes of the space.
    """
    mm = modes.memory_modes
    found: Flags = (mode_counts(modes) > 0).T[:, points.kind]
    short: Flags = offloads(mm)[:, None] & few_blocks(space, cells)[points.cell]
    return found & ~short


def reject_by_memory(
    space: Space,
    rate: SystemRates,
    cells: CellColumns,
    points: SchedulePoints,
    modes: StepModes,
    needs: tuple[Floats, Floats],
    rejected: Rejected,
) -> Flags:
    """Return which (memory mode, schedule point) pairs fit in memory [memory modes, points], and count the others.

    Args:
        space: the space.
        rate: rates and capacities of the system.
        cells: columns of the cells, each [cells].
        points: schedule points of the cells.
        modes: modes of the space.
        needs: memory of both tiers [memory modes, points] [bytes].
        rejected: counts of rejected executions; changed in place.
    """
    count = mode_counts(modes)
    every = listed(space, cells, points, modes)
    fits = every.copy()
    tiers_of = tuple(zip(needs, (rate.capacity, rate.second_capacity), strict=True))
    for code, (need, capacity) in zip(("memory_tier1", "memory_tier2"), tiers_of, strict=True):
        over = fits & (need > capacity)
        if not over.any():
            continue
        fits &= ~over
        failing = executions_at(over, count, cells, points)
        np.add.at(rejected.counts[:, reasons.number_of(code)], points.cell, failing)
    rejected.nearest_miss(points.cell, every, fits, tiers_of)
    return fits


def _sizes_at(held: BlockSizes, index: Ints) -> BlockSizes:
    """Return the sizes of the keys at `index`; the sizes of the optimizer are filled in later."""
    kept = {item.name: getattr(held, item.name) for item in fields(held)}
    return BlockSizes(**{name: values[index] if len(values) else values for name, values in kept.items()})


def find_matching_mode(table: Mapping[str, npt.NDArray[Any]], choice: Mapping[str, Any]) -> int:
    """Returns the first row of a table of modes that agrees with `choice` in every field that both have.

    Args:
        table: fields of modes, each [modes].
        choice: values of some fields.
    """
    agrees = np.ones(len(next(iter(table.values()))), bool)
    for name, values in table.items():
        if name in choice:
            agrees &= values == choice[name]
        elif name == "tensor_par_overlap":
            agrees &= (values != NO_OVERLAP) == choice["overlapped"]
    return int(np.argmax(agrees))

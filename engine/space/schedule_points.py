"""Schedule points and modes: the two axes of a space's rows, so that figures of one axis are computed once.

A *schedule point* is a (cell, interleaving, microbatch) combination, where a schedule and a stage layout go with the
interleaving. *Modes* come in four grains: all fields of a step, and the fields that determine block times, the
optimizer, and memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from engine.executions.arrays import Flags, Floats, Ints, distinct
from engine.executions.codes import NO_OVERLAP, OFFLOADS
from engine.space.space import Modes, Space

__all__ = [
    "CellColumns",
    "Grains",
    "SchedulePoints",
    "StepModes",
    "cell_columns",
    "executions_of",
    "mode_counts",
    "points_of",
    "step_modes",
]


@dataclass(slots=True)
class SchedulePoints:
    """(cell, interleaving, microbatch) combinations, each an array [points].

    `cell` counts within the prepared cells. `schedule` and `layout` are positions among the words of `schedule` and
    `stage_layout`, 0 where the cost model knows one. `first` is the id of the schedule point's first mode at the first
    assignment, `stride` the distance of ids from one mode to the next. `pair` says which (tensor parallel, microbatch)
    it is, `microbatches` how many a replica has in a step.
    """

    cell: Ints
    kind: Ints
    interleaving: Ints
    schedule: Ints
    layout: Ints
    microbatch_size: Ints
    first: Ints
    stride: Ints
    pair: Ints
    microbatches: Ints


@dataclass(slots=True)
class CellColumns:
    """The prepared cells, each an array [cells]. `possible` counts network assignments that fit, `kind` the mode
    list."""

    number: Ints
    tensor_par: Ints
    pipeline_par: Ints
    data_par: Ints
    batch_size: Ints
    kind: Ints
    possible: Ints
    context_par: Ints
    expert_par: Ints
    expert_tensor_par: Ints


@dataclass(slots=True)
class StepModes:
    """Modes without the overlap of the gradient exchange, over all kinds of cells, each field an array [modes].

    `position[overlapped]` [4 kinds, modes] is the mode's place in the list of a kind of cell, -1 where the kind has no
    such mode. `time` says which block times a mode uses, `optimizer` which optimizer figures, `memory` which memory
    mode it belongs to. `offloaded` holds 1 or 0 per mode.
    """

    fields: Mapping[str, npt.NDArray[Any]]
    position: tuple[Ints, Ints]
    time: Ints
    optimizer: Ints
    memory: Ints
    time_modes: Mapping[str, npt.NDArray[Any]]
    optimizer_modes: Mapping[str, npt.NDArray[Any]]
    memory_modes: Mapping[str, npt.NDArray[Any]]
    offloaded: Mapping[str, Floats]


class Grains(NamedTuple):
    """Fields that distinguish modes in each grain: all, and the ones that determine times, optimizer and memory."""

    every: tuple[str, ...]
    time: tuple[str, ...]
    optimizer: tuple[str, ...]
    memory: tuple[str, ...]


@lru_cache(maxsize=64)
def step_modes(kinds: tuple[Modes, ...], grains: Grains) -> StepModes:
    """Returns the modes of all kinds of cells, each once, without the overlap of the gradient exchange.

    Args:
        kinds: the modes of each kind of cell.
        grains: which fields tell modes apart where times, the optimizer or memory are computed.
    """
    lists = [table.fields for table in kinds]
    joined = {name: np.concatenate([table[name] for table in lists]) for name in grains.every}
    kind = np.repeat(np.arange(len(lists)), [len(table["training"]) for table in lists])
    place = np.concatenate([np.arange(len(table["training"])) for table in lists])
    joined["overlapped"] = joined["tensor_par_overlap"] != NO_OVERLAP
    names = [name for name in grains.every if name != "data_par_overlap"]
    first, which = distinct(*(joined[name] for name in names))
    position = (np.full((len(lists), len(first)), -1), np.full((len(lists), len(first)), -1))
    for overlapped in (False, True):
        chosen = joined["data_par_overlap"] == overlapped
        position[overlapped][kind[chosen], which[chosen]] = place[chosen]
    fields = {name: joined[name][first] for name in (*names, "overlapped")}

    def part(part_names: tuple[str, ...]) -> tuple[dict[str, npt.NDArray[Any]], Ints]:
        part_first, part_of = distinct(*(fields[name] for name in part_names))
        return {name: fields[name][part_first] for name in part_names}, part_of

    time_modes, time = part(grains.time)
    optimizer_modes, optimizer = part(grains.optimizer)
    memory_modes, memory = part(grains.memory)
    # As numbers: multiplying by a flag costs twice as much as by a number.
    offloaded = {name: fields[name].astype(np.float64) for name in OFFLOADS}
    return StepModes(fields, position, time, optimizer, memory, time_modes, optimizer_modes, memory_modes, offloaded)


def cell_columns(space: Space, numbers: range) -> CellColumns:
    """Returns the cells with these numbers; none has a possible assignment yet.

    Args:
        space: the space.
        numbers: which of its cells.
    """
    cells = [space.cells[number] for number in numbers]

    def column(values: list[int]) -> Ints:
        return np.array(values, np.int64)

    return CellColumns(
        number=np.arange(numbers.start, numbers.stop),
        tensor_par=column([cell.tensor_par for cell in cells]),
        pipeline_par=column([cell.pipeline_par for cell in cells]),
        data_par=column([cell.data_par for cell in cells]),
        batch_size=column([cell.batch_size for cell in cells]),
        kind=column([space.mode_kind(cell) for cell in cells]),
        possible=np.zeros(len(cells), np.int64),
        context_par=column([cell.context_par for cell in cells]),
        expert_par=column([cell.expert_par for cell in cells]),
        expert_tensor_par=column([cell.expert_tensor_par for cell in cells]),
    )


def points_of(space: Space, cells: CellColumns, alive: Flags) -> tuple[SchedulePoints, tuple[Ints, Ints]]:
    """Returns the schedule points of the cells left, and their distinct (tensor parallel, microbatch) pairs.

    Args:
        space: the space.
        cells: columns of the cells, each [cells].
        alive: which cells are left [cells].
    """
    left = np.flatnonzero(alive)
    listed = [space.cells[number] for number in cells.number[left].tolist()]

    def column(values: Iterable[int]) -> Ints:
        return np.fromiter(values, np.int64)

    def flat(lists: Iterable[Sequence[int]]) -> Ints:
        return column(chain.from_iterable(lists))

    chunks = column(len(cell.interleavings) for cell in listed)
    microbatches = column(len(cell.microbatches) for cell in listed)
    assignments = column(cell.assignments for cell in listed)
    strides = microbatches * assignments
    blocks = strides * column(len(space.modes[space.mode_kind(cell)]) for cell in listed)
    here = np.repeat(np.arange(len(listed)), chunks * microbatches)
    v, m = np.divmod(np.arange(len(here)) - _list_starts(chunks * microbatches)[here], microbatches[here])
    chunk, microbatch_of = _list_starts(chunks)[here] + v, _list_starts(microbatches)[here] + m
    none = [(0,) * len(cell.interleavings) for cell in listed]
    joined = {
        "cell": left[here],
        "interleaving": flat(cell.interleavings for cell in listed)[chunk],
        "schedule": flat(cell.schedules or zero for cell, zero in zip(listed, none, strict=True))[chunk],
        "layout": flat(cell.layouts or zero for cell, zero in zip(listed, none, strict=True))[chunk],
        "microbatch": flat(cell.microbatches for cell in listed)[microbatch_of],
        "first": space.first_ids[cells.number[left]][here] + v * blocks[here] + m * assignments[here],
        "stride": strides[here],
    }
    cell_of, microbatch, interleaving = joined["cell"], joined["microbatch"], joined["interleaving"]
    tensor_par = cells.tensor_par[cell_of]
    first_pair, pair = distinct(tensor_par, microbatch)
    microbatches_per_step = cells.batch_size[cell_of] // cells.data_par[cell_of] // microbatch
    points = SchedulePoints(
        cell=cell_of,
        kind=cells.kind[cell_of],
        interleaving=interleaving,
        schedule=joined["schedule"],
        layout=joined["layout"],
        microbatch_size=microbatch,
        first=joined["first"],
        stride=joined["stride"],
        pair=pair,
        microbatches=microbatches_per_step,
    )
    return points, (tensor_par[first_pair], microbatch[first_pair])


def _list_starts(counts: Ints) -> Ints:
    """Return the start of each of several consecutive lists of these lengths."""
    found: Ints = np.cumsum(counts) - counts
    return found


def mode_counts(modes: StepModes) -> Ints:
    """Counts the modes of each kind of cell that share a memory mode [kinds of cells, memory modes].

    Args:
        modes: of a space, each once.
    """
    count = np.zeros((len(modes.position[0]), len(modes.memory_modes["training"])), np.int64)
    for position in modes.position:
        kind, mode = np.nonzero(position >= 0)
        np.add.at(count, (kind, modes.memory[mode]), 1)
    return count


def executions_of(count: Ints, chosen: Flags) -> Ints:
    """Return the number of executions of the chosen pairs of memory modes and schedule points, per schedule point
    [points].

    Args:
        count: executions that each memory mode stands for [memory modes].
        chosen: which pairs [memory modes, points].
    """
    result = np.zeros(chosen.shape[1], np.int64)
    # There are few different counts, and adding up flags is fast. A matrix product would occupy further processors.
    small = np.uint16 if len(chosen) < 2**16 else np.int64
    for number in np.unique(count[count > 0]).tolist():
        flags = chosen[count == number].view(np.uint8)
        result += number * np.add.reduce(flags, axis=0, dtype=small).astype(np.int64)
    return result

"""Cells and modes that are left of a space where a framework runs the executions.

A cell's choices stay a rectangle, so that ids decode by arithmetic: where a framework runs other modes at some of its
points, the cell is divided, and each part has the modes that run at all of its points.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from typing import Final

import numpy as np

from engine.columns import called
from engine.executions.arrays import Flags, Ints, distinct
from engine.executions.frameworks.contract import FrameworkRules, LaunchSubject, PointFlags, flags_of
from engine.executions.limits import LimitError
from engine.space.space import Cell, Modes

__all__ = ["MOST_POINTS", "cells_of_framework"]

MOST_POINTS: Final = 2**22
"""Most points of cells that a framework's rules are applied to [points]: some 700 MB. Source: stated by us."""


def cells_of_framework(
    cells: Sequence[Cell], modes: tuple[Modes, ...], rules: FrameworkRules, subject: LaunchSubject
) -> tuple[tuple[Cell, ...], tuple[Modes, ...]]:
    """Return the cells with the executions that a framework runs, and their lists of modes, found by `Cell.mode_list`.

    Args:
        cells: of the whole space.
        modes: by kind of cell.
        rules: of the framework.
        subject: the model.

    Raises `LimitError` for far too many points.
    """
    if not cells:
        return (), modes
    if sum(len(cell.interleavings) * len(cell.microbatches) for cell in cells) > MOST_POINTS:
        raise LimitError(
            f"The limits allow over {MOST_POINTS:,} combinations of parallel degrees, batches and schedules, too many "
            f"to find those that {rules.title} runs; allow fewer values of {called('batch_size')}, "
            f"{called('schedule')} or {called('stage_layout')}."
        )
    points, owner = _list_points(cells)
    broken = rules.points(points, subject).values()
    refused = np.logical_or.reduce([np.broadcast_to(each, owner.shape) for each in broken])
    flags = flags_of(points, subject)
    kind = np.array([cell.kind for cell in cells], np.int64)[owner]
    first, which = distinct(kind, *flags)
    lists: list[Modes] = []
    numbers: dict[int, int] = {}
    of_class = np.full(len(first), -1)
    for position, row in enumerate(first.tolist()):
        table = modes[int(kind[row])]
        if not len(table):
            continue
        here = PointFlags(*(np.asarray(flag[row]) for flag in flags))
        left_out = rules.modes(table.fields, here, subject).values()
        runs = ~np.logical_or.reduce([np.broadcast_to(each, len(table)) for each in left_out])
        chosen = _chosen_modes(table, runs.tobytes())
        if not len(chosen):
            continue
        number = numbers.setdefault(id(chosen), len(lists))
        if number == len(lists):
            lists.append(chosen)
        of_class[position] = number
    mode_list = np.where(refused, -1, of_class[which])
    starts = np.searchsorted(owner, np.arange(len(cells)))
    least, most = np.minimum.reduceat(mode_list, starts), np.maximum.reduceat(mode_list, starts)
    ends = [*starts[1:].tolist(), len(owner)]
    left: list[Cell] = []
    for cell, start, end, low, high in zip(cells, starts.tolist(), ends, least.tolist(), most.tolist(), strict=True):
        if low == high >= 0:
            left.append(replace(cell, mode_list=low))
        elif high >= 0:
            left += _divide(cell, mode_list[start:end].reshape(len(cell.interleavings), -1))
    return tuple(left), tuple(lists)


def _list_points(cells: Sequence[Cell]) -> tuple[dict[str, Ints], Ints]:
    """Return the fields of every point by name [points], and its cell [points]."""
    chunks, sizes = ([len(getattr(cell, name)) for cell in cells] for name in ("interleavings", "microbatches"))
    owner = np.repeat(np.arange(len(cells)), np.array(chunks) * np.array(sizes))

    def of_cells(name: str) -> Ints:
        found: Ints = np.array([getattr(cell, name) for cell in cells], np.int64)[owner]
        return found

    def of_chunks(name: str) -> Ints:
        listed = chain.from_iterable(
            np.repeat(np.array(getattr(cell, name) or (0,) * count, np.int64), len(cell.microbatches)).tolist()
            for cell, count in zip(cells, chunks, strict=True)
        )
        return np.fromiter(listed, np.int64, len(owner))

    names = ("tensor_par", "pipeline_par", "data_par", "context_par", "expert_par", "expert_tensor_par", "batch_size")
    microbatches: Iterable[int] = chain.from_iterable(
        cell.microbatches * count for cell, count in zip(cells, chunks, strict=True)
    )
    return {
        **{name: of_cells(name) for name in names},
        "pipeline_interleaving": of_chunks("interleavings"),
        "schedule": of_chunks("schedules"),
        "stage_layout": of_chunks("layouts"),
        "microbatch_size": np.fromiter(microbatches, np.int64, len(owner)),
    }, owner


def _divide(cell: Cell, mode_list: Ints) -> list[Cell]:
    """Return the parts of a cell, each with one list of modes [chunks, microbatches]; -1 where nothing runs."""
    parts: dict[tuple[int, tuple[int, ...]], list[int]] = {}
    for chunk, row in enumerate(mode_list):
        for number in np.unique(row[row >= 0]).tolist():
            parts.setdefault((number, tuple(np.flatnonzero(row == number).tolist())), []).append(chunk)

    def take(values: tuple[int, ...], which: Iterable[int]) -> tuple[int, ...]:
        return tuple(values[each] for each in which) if values else ()

    return [
        replace(
            cell,
            mode_list=number,
            interleavings=take(cell.interleavings, chunks),
            schedules=take(cell.schedules, chunks),
            layouts=take(cell.layouts, chunks),
            microbatches=take(cell.microbatches, microbatches),
        )
        for (number, microbatches), chunks in parts.items()
    ]


@lru_cache(maxsize=512)
def _chosen_modes(modes: Modes, chosen: bytes) -> Modes:
    """Return some of these modes, the same object for the same ones: figures of modes are cached by it."""
    flags: Flags = np.frombuffer(chosen, bool)
    return Modes({name: values[flags] for name, values in modes.fields.items()})

"""Blocks of each pipeline stage by kind, and the stages that can be the slowest or the fullest.

The blocks of a plain model are of up to four kinds: a dense feed-forward layer or experts, attention to everything or
within a window. Their order is data of the model: leading dense blocks, experts in every n-th, full attention in every
n-th; or a pattern that lists the kinds and their runs.
Stages are cut from that order, so the blocks of a stage are counted, never averaged.

`layouts` has the number of blocks of a chunk. With interleaving, chunk c of stage i is the (c p + i)-th of p v
(Narayanan et al., arXiv:2104.04473, section 2.2). In the shape of a V, stage i has the chunks i and 2 p - 1 - i of 2 p,
so that the first has both ends of the model (Qi et al., arXiv:2405.15362). In both directions, stage i has the chunks i
and p - 1 - i of p, each for half of the microbatches, so that it counts as having half of either (DualPipe,
arXiv:2412.19437).

Sources: Megatron-LM, Narayanan et al. 2021, Qi et al. 2024 and DeepSeek-V3, as cited.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from engine.columns.stage_layouts import BALANCED, EVEN
from engine.cost_models.calibrated.physics.case_cache import once_per_case
from engine.cost_models.calibrated.physics.inputs import Case, Floats, ModelShapes
from engine.cost_models.calibrated.physics.pipeline.layouts import (
    PLAIN_KINDS,
    UNWEIGHED,
    BlockPattern,
    LayoutWork,
    alike,
    counted,
    kinds_of_chunks,
    last_kind,
    pattern_of,
    patterns_of,
    work_of,
    works_of,
)
from engine.cost_models.calibrated.physics.pipeline.pace import pace
from engine.cost_models.calibrated.physics.pipeline.schedules import (
    COMBINED,
    DUALPIPE,
    INTERLEAVED,
    SCHEDULES,
    V_SHAPED,
)
from engine.executions.arrays import Ints
from engine.executions.rules import fewest_blocks

__all__ = [
    "BOTH",
    "ENDS",
    "LOOP",
    "TURN",
    "BlockKind",
    "StageBlocks",
    "blocks_by_kind",
    "blocks_of_stages",
    "fewest_held",
    "fullest_stages",
    "kinds_of",
    "layout_of",
    "pace_of",
    "placement_of",
    "slowest_stages",
]


class BlockKind(NamedTuple):
    """A kind of block: whether its feed-forward half is a layer of experts, whether its attention has a window, its
    position among the kinds of its model, and its position among the different sizes of their weights."""

    experts: bool
    windowed: bool
    position: int
    size: int


PLAIN: tuple[BlockKind, ...] = (
    BlockKind(False, False, 0, 0),
    BlockKind(False, True, 1, 0),
    BlockKind(True, False, 2, 1),
    BlockKind(True, True, 3, 1),
)
"""The kinds of block of a model without a pattern; figures by kind are in this order."""
assert len(PLAIN) == PLAIN_KINDS


def kinds_of(model: ModelShapes) -> tuple[BlockKind, ...]:
    """Return the kinds of block of a model; figures by kind are in this order.

    Args:
        model: shapes of the models, numbers or arrays [rows].
    """
    if model.pattern is None:
        return PLAIN
    return tuple(
        BlockKind(any(layer.routing() for layer in block.layers), False, place, place)
        for place, block in enumerate(model.pattern.blocks)
    )


ENDS = 2
"""Number of stages at the beginning of `slowest_stages` and `fullest_stages` that are ends of the pipeline [stages]:
the first and the last. Source: the order in which this module lists them."""


LOOP, TURN, BOTH = range(3)
"""Placements of a stage's chunks in the model: every p-th; there and back; from either end."""
PLACEMENTS = np.array([LOOP] * len(SCHEDULES), np.float64)
PLACEMENTS[[*V_SHAPED]], PLACEMENTS[DUALPIPE] = TURN, BOTH
"""Placement of the chunks by a schedule's position in `schedules.SCHEDULES`."""


class StageBlocks(NamedTuple):
    """Stage of every row: its position from 0, its blocks by kind and the blocks of all stages before it; arrays [rows]
    or plain numbers.

    For a row without this stage, it has no blocks.
    """

    position: Floats
    blocks: tuple[Floats, ...]
    before: tuple[Floats, ...]

    def by_size(self, sizes: tuple[tuple[int, ...], ...]) -> tuple[Floats, ...]:
        """Return the blocks of every size of weights [rows] [blocks].

        Args:
            sizes: kinds with equal weights, of `BlockPattern.sizes`.
        """
        return tuple(sum((self.blocks[kind] for kind in kinds[1:]), start=self.blocks[kinds[0]]) for kinds in sizes)


def blocks_by_kind(model: ModelShapes) -> tuple[Floats, ...]:
    """Returns how many blocks of every kind the whole model has, in the order of `kinds_of` [rows] [blocks].

    Args:
        model: shapes of the models, numbers or arrays [rows].
    """
    patterns, which = patterns_of(model)
    found = [
        counted(each, np.array([each.blocks]))[:, 0] + (each.predictions * last_kind(each) if each.predictions else 0)
        for each in patterns
    ]
    table = np.array(found, np.float64).reshape(len(found), -1 if found else PLAIN_KINDS)
    return tuple(table[:, kind].take(which.astype(np.intp)) for kind in range(table.shape[1]))


def fewest_held(model: ModelShapes, stages: Ints, chunks: Ints, schedule: Ints, layout: Ints) -> Ints:
    """Returns how many blocks the stage holds that has fewest [rows] [blocks].

    Args:
        model: shapes of one model.
        stages, chunks: stages of the pipeline and chunks of each [rows].
        schedule: positions in `schedules.SCHEDULES` [rows].
        layout: positions among the words of the field `stage_layout` that divide the blocks [rows].
    """
    found = fewest_blocks(int(model.num_blocks), stages)
    if not np.any(layout):
        return np.asarray(found)
    work, pattern = work_of(model), pattern_of(model)
    placement = np.asarray(PLACEMENTS[np.asarray(schedule, np.intp)])
    keys, which, shape = alike(
        stages.astype(np.float64), chunks.astype(np.float64), placement, layout.astype(np.float64)
    )
    least = [
        fewest_blocks(pattern.blocks, key[0])
        if key[-1] == EVEN
        else int(blocks_of_stages(pattern, *key, work).sum(axis=0).min())
        for key in keys
    ]
    return np.asarray(least).take(which).reshape(shape)


@once_per_case
def slowest_stages(case: Case) -> tuple[StageBlocks, ...]:
    """Return stages of which one is the slowest, for any times of the kinds of blocks.

    They are the first, the last, and the stages between them that no other exceeds in every kind of block.

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
    """
    return _build_stages(case, _slowest_positions)


@once_per_case
def pace_of(case: Case) -> Floats:
    """Returns the time of a microbatch in the steady state of an interleaved pipeline, as a multiple of what its
    busiest stage does for it [rows] [dimensionless]; a plain number where no layout makes stages wait for each other.

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
    """
    layout, cut = case.layout, layout_of(case)
    unlike = (cut != EVEN) | (case.model.prediction_layers > 0) | np.bool_(case.model.pattern is not None)
    # Stages wait for each other only where chunks of an interleaved pipeline differ.
    if not np.any(unlike & (layout.pipeline_interleaving > 1)):
        return np.ones(())
    (works, work), (patterns, pattern) = works_of(case.model), patterns_of(case.model)
    keys, which, shape = alike(layout.pipeline_par, layout.pipeline_interleaving, layout.schedule, cut, work, pattern)
    found = [
        pace(patterns[order], stages, chunks, number_of_layout, works[weight], schedule == COMBINED)
        if (number_of_layout != EVEN or patterns[order].predictions or patterns[order].runs)
        and stages > 1
        and chunks > 1
        and schedule in (INTERLEAVED, COMBINED)
        else 1.0
        for stages, chunks, schedule, number_of_layout, weight, order in keys
    ]
    return np.asarray(found).take(which).reshape(shape)


@once_per_case
def fullest_stages(case: Case) -> tuple[StageBlocks, ...]:
    """Return stages of which one is the fullest, for any sizes of the kinds of blocks.

    They are the first, the last, and the stages between them with more of some kind than every stage before, which
    keeps more microbatches.

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
    """
    return _build_stages(case, _fullest_positions)


@lru_cache(maxsize=4096)
def blocks_of_stages(
    pattern: BlockPattern,
    stages: int,
    chunks: int,
    placement: int = LOOP,
    layout: int = EVEN,
    work: LayoutWork = UNWEIGHED,
) -> npt.NDArray[Any]:
    """Returns how many blocks of every kind every stage has [kinds, stages] [blocks].

    Of stages in both directions it is as many as a microbatch finds there on average.

    Args:
        pattern: where each kind of block stands in the model.
        stages: stages of the pipeline.
        chunks: chunks of each stage.
        placement: how chunks are placed on stages: `LOOP`, `TURN` or `BOTH`.
        layout: position among the words of the field `stage_layout`.
        work: what blocks and head do, which the balanced layout reads.

    Raises `engine.executions.layer_splits.LayerSplitError` where the layout does not divide these blocks.
    """
    every = kinds_of_chunks(pattern, stages, chunks, layout, work).reshape(-1, chunks, stages)
    found: npt.NDArray[Any] = every.sum(axis=1)
    if placement == TURN:
        found = every[:, 0] + every[:, 1, ::-1]
    elif placement == BOTH:
        found = (found + found[:, ::-1]) / 2.0
    found.setflags(write=False)
    return found


@lru_cache(maxsize=4096)
def _slowest_positions(
    pattern: BlockPattern, stages: int, chunks: int, placement: int, layout: int, work: LayoutWork
) -> tuple[int, ...]:
    blocks = blocks_of_stages(pattern, stages, chunks, placement, layout, work)
    if layout == EVEN:
        return _maximal_positions(blocks, stages, of_first=False)
    return _not_covered(blocks)


@lru_cache(maxsize=4096)
def _fullest_positions(
    pattern: BlockPattern, stages: int, chunks: int, placement: int, layout: int, work: LayoutWork
) -> tuple[int, ...]:
    blocks = blocks_of_stages(pattern, stages, chunks, placement, layout, work)
    held = np.array([blocks[list(kinds)].sum(axis=0) for kinds in pattern.sizes])
    if (layout != EVEN or pattern.predictions or pattern.runs) and chunks > 1 and placement == LOOP:
        # Which chunk has them matters, too: a stage keeps the first ones longest.
        each = kinds_of_chunks(pattern, stages, chunks, layout, work).reshape(-1, chunks, stages)
        held = np.concatenate([held, *(each[list(kinds)].sum(axis=0) for kinds in pattern.sizes)])
    return _maximal_positions(held, stages, of_first=True)


def _maximal_positions(blocks: npt.NDArray[Any], stages: int, *, of_first: bool) -> tuple[int, ...]:
    """Return the first stage, the last, and the stages between with more of some kind than each stage kept before them.

    of_first: whether the first stage counts among those before: it keeps most, but does not wait on both sides.
    """
    _, positions = np.unique(blocks, axis=1, return_index=True)
    kept = [0] if of_first else []
    for position in sorted(positions.tolist()) if of_first else positions[np.argsort(-blocks.sum(axis=0)[positions])]:
        # What stands first among equals may be an end; the next one like it may not be.
        alike = np.flatnonzero((blocks == blocks[:, [position]]).all(axis=0))
        inner = alike[(alike > 0) & (alike < stages - 1)]
        if len(inner) and not any((blocks[:, other] >= blocks[:, position]).all() for other in kept):
            kept.append(int(inner[0]))
    return 0, stages - 1, *sorted(set(kept) - {0})


def _not_covered(blocks: npt.NDArray[Any]) -> tuple[int, ...]:
    """Return the first stage, the last, and the stages between that can have the longest path, for any times of the
    kinds of blocks.

    A path of 1F1B is no longer than the path through a later stage with as much or more of every kind, if no stage
        between the two has more than the earlier: the work of the stages between replaces the shorter wait.
    """
    inner, stages = [], blocks.shape[1]
    for stage in range(stages - 2, 0, -1):
        for later in range(stage + 1, stages - 1):
            if (blocks[:, later] >= blocks[:, stage]).all():
                break
            if (blocks[:, later] > blocks[:, stage]).any():
                inner.append(stage)
                break
        else:
            inner.append(stage)
    return 0, stages - 1, *sorted(inner)


@once_per_case
def placement_of(case: Case) -> Floats:
    """Returns where every row's schedule places its chunks [rows]; a plain number where no row has another than `LOOP`.

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
    """
    schedule = case.layout.schedule
    found = np.asarray(PLACEMENTS[np.asarray(schedule, np.intp)])
    return found if found.any() else np.zeros(())


@once_per_case
def layout_of(case: Case) -> Floats:
    """Returns the stage layout of every row [rows]; a plain number where all are even.

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
    """
    found = np.asarray(case.layout.stage_layout)
    return found if found.any() else np.zeros(())


def _build_stages(
    case: Case, choose: Callable[[BlockPattern, int, int, int, int, LayoutWork], tuple[int, ...]]
) -> tuple[StageBlocks, ...]:
    layout, cut = case.layout, layout_of(case)
    # What blocks and head do matters to one layout only.
    works, work = works_of(case.model) if np.any(cut == BALANCED) else ((UNWEIGHED,), np.zeros(()))
    patterns, pattern = patterns_of(case.model)
    keys, which, shape = alike(
        layout.pipeline_par, layout.pipeline_interleaving, placement_of(case), cut, work, pattern
    )
    chosen, blocks = [], []
    for stages, chunks, placement, number_of_layout, weight, order in keys:
        each = patterns[order], stages, chunks, placement, number_of_layout, works[weight]
        chosen.append(choose(*each))
        blocks.append(blocks_of_stages(*each))
    found = []
    for number in range(max(map(len, chosen), default=2)):
        held = np.zeros((len(blocks[0]) if blocks else PLAIN_KINDS, len(keys)))
        position, before = np.zeros(len(keys)), np.zeros_like(held)
        for row, (positions, counts) in enumerate(zip(chosen, blocks, strict=True)):
            if number < len(positions):
                position[row], held[:, row] = positions[number], counts[:, positions[number]]
                before[:, row] = counts[:, : positions[number]].sum(axis=1)
        # A kind that no row has stays a plain number: nothing is multiplied for it.
        by_kind, earlier = (
            tuple(kind.take(which).reshape(shape) if kind.any() else np.zeros(()) for kind in counted)
            for counted in (held, before)
        )
        found.append(StageBlocks(position.take(which).reshape(shape), by_kind, earlier))
    return tuple(found)

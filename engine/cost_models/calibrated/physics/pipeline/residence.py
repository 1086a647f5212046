"""Chunks that an interleaved pipeline with unlike chunks keeps at its peak.

After its first forwards a stage does one forward and one backward in turn, so the chunks kept are always the difference
of two positions of its order. Chunks alternate: forwards of a chunk come in groups of as many as there are stages,
first chunk first, backwards in reverse. The peak is where the chunks kept have most blocks.

Source: the order of interleaved 1F1B, Narayanan et al. 2021 (arXiv:2104.04473, section 2.2), and of Megatron Core's
`combined_1f1b`.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from engine.columns.stage_layouts import BALANCED, EVEN
from engine.cost_models.calibrated.physics.inputs import Case, Floats
from engine.cost_models.calibrated.physics.pipeline.layouts import (
    UNWEIGHED,
    BlockPattern,
    LayoutWork,
    alike,
    kinds_of_chunks,
    patterns_of,
    sizes_of,
    works_of,
)
from engine.cost_models.calibrated.physics.pipeline.schedules import COMBINED, INTERLEAVED, among
from engine.cost_models.calibrated.physics.pipeline.stages import StageBlocks, layout_of
from engine.executions.arrays import Flags

__all__ = ["has_unlike_chunks", "kept_blocks"]

GROUPS = 3
"""Groups of microbatches after which a step repeats [groups]. Source: the order; a pass and the filling before it."""


def has_unlike_chunks(case: Case) -> Flags:
    """Returns where an interleaved schedule runs a stage layout other than even, or prediction layers [rows]; a plain
    truth where none does.

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
    """
    layout, cut = case.layout, layout_of(case)
    unlike = (cut != EVEN) | (case.model.prediction_layers > 0) | np.bool_(case.model.pattern is not None)
    found = unlike & among(layout.schedule, (INTERLEAVED, COMBINED)) & (layout.pipeline_interleaving > 1)
    return np.asarray(found if np.any(found) else False)


def kept_blocks(case: Case, stage: StageBlocks) -> tuple[Floats, ...]:
    """Returns blocks of every size of which a stage keeps activations at its peak, each as often as it keeps a
    microbatch of it [rows] [blocks]; 0 where chunks are alike.

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        stage: one of the stages that may be the fullest.
    """
    layout, where = case.layout, has_unlike_chunks(case)
    sizes = sizes_of(case.model)
    if not where.any():
        return (np.zeros(()),) * len(sizes)
    patterns, pattern = patterns_of(case.model)
    layouts = layout_of(case)
    works, work = works_of(case.model) if np.any(layouts == BALANCED) else ((UNWEIGHED,), np.zeros(()))
    told = (
        stage.position,
        layout.pipeline_par,
        layout.pipeline_interleaving,
        case.microbatches,
        layout.schedule,
        layouts,
    )
    # Rows whose chunks are alike are all one.
    apart = [np.where(where, column, 0.0) for column in told]
    keys, which, shape = alike(where.astype(np.float64), *apart, work, pattern)
    found = np.zeros((len(sizes), len(keys)))
    for row, (here, position, stages, chunks, micro, schedule, number, weight, order) in enumerate(keys):
        if here:
            # The order repeats after some groups; a last one that is not whole stays.
            few = min(micro, GROUPS * stages + micro % stages)
            cut = patterns[order], works[weight], stages, chunks, number
            found[:, row] = _peak_blocks(*cut, position, few, schedule == COMBINED)
    return tuple(each.take(which).reshape(shape) for each in found)


@lru_cache(maxsize=16_384)
def _peak_blocks(
    pattern: BlockPattern,
    work: LayoutWork,
    stages: int,
    chunks: int,
    layout: int,
    position: int,
    microbatches: int,
    paired: bool,
) -> tuple[float, ...]:
    """Return the blocks of every size that one stage keeps at its peak."""
    kinds = kinds_of_chunks(pattern, stages, chunks, layout, work).reshape(-1, chunks, stages)[:, :, position]
    total = microbatches * chunks
    forwards, backwards = _count_chunks(stages, chunks, microbatches)
    ahead = min(total, (chunks - 1) * stages + 2 * (stages - 1 - position) + 1 + paired)
    # Chunks kept after so many forwards and backwards, for every step between the first backward and the last forward.
    kept = forwards[:, ahead:] - backwards[:, : total + 1 - ahead]
    peak = int((kinds.sum(axis=0) @ kept).argmax())
    numbers = kinds @ kept[:, peak]
    return tuple(float(numbers[list(each)].sum()) for each in pattern.sizes)


@lru_cache(maxsize=1024)
def _count_chunks(stages: int, chunks: int, microbatches: int) -> tuple[Floats, Floats]:
    """Return how often each chunk is among the first forwards and backwards [chunks, forwards + 1]."""
    first = np.arange(0, microbatches, stages)
    groups = np.minimum(stages, microbatches - first)
    chunk = np.concatenate([np.repeat(np.arange(chunks), number) for number in groups])
    there = (chunk == np.arange(chunks)[:, None]).cumsum(axis=1)
    there = np.concatenate([np.zeros((chunks, 1), there.dtype), there], axis=1)
    return there, there[::-1]

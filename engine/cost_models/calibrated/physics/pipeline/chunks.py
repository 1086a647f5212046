"""Times of every stage of the model for a microbatch, one chunk of one rank each.

Source: the calibration study on 1,147 measured rows, as for `stage_times`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from engine.columns.stage_layouts import EVEN
from engine.cost_models.calibrated.physics.inputs import Case, Floats
from engine.cost_models.calibrated.physics.layers.head import end_shares
from engine.cost_models.calibrated.physics.layers.rates import sustained_rates
from engine.cost_models.calibrated.physics.memory import stage_memory
from engine.cost_models.calibrated.physics.parameters import Parameters
from engine.cost_models.calibrated.physics.pipeline.layouts import (
    BlockPattern,
    LayoutWork,
    blocks_of_chunks,
    kinds_of_chunks,
    last_kind,
    pattern_of,
    work_of,
)
from engine.cost_models.calibrated.physics.pipeline.schedules import ONE_F_ONE_B
from engine.cost_models.calibrated.physics.pipeline.stage_times import block_level, pipeline_flow, separation_time
from engine.cost_models.calibrated.physics.pipeline.stages import ENDS, StageBlocks, kinds_of
from engine.cost_models.calibrated.physics.pipeline.unequal_stages import message_time

__all__ = [
    "PASSES",
    "StageBytes",
    "StageWork",
    "chunk_seconds",
    "message_seconds",
    "stage_bytes",
    "stage_work",
]

PASSES = 4
"""Number of passes in `StageWork` [count]: forward, gradients of inputs, gradients of weights, and an overlapped
forward and backward. Source: the actions of a replay."""


class StageWork(NamedTuple):
    """Work of every stage of the model for a microbatch, part by part: blocks of every kind as `kinds_of` orders them,
    the embedding, the head, and prediction layers with their blocks and their passes of the head.

    `numbers` [parts, stages of the model] counts them; `seconds` [parts, passes, stages of the model] [s] is the time
    of all of a part forward, for gradients of inputs, for gradients of weights, and for an overlapped forward and
    backward.
    """

    numbers: Floats
    seconds: Floats


def _order_of(case: Case) -> tuple[BlockPattern, LayoutWork]:
    """Return the order of the blocks of one row's model, and the work of a block and of the head."""
    return pattern_of(case.model), work_of(case.model)


def stage_work(case: Case, p: Parameters, ranks: int, chunks: int, layout: int) -> StageWork:
    """Return the work of every stage of the model, cut into other stages than the row's.

    The times of a block are the row's, for any number of stages.

    Args:
        case: shapes, layout, software and accelerators of one row.
        p: parameters of a calibration.
        ranks: ranks of the pipeline.
        chunks: chunks of each rank.
        layout: position among the words of the field `stage_layout`.

    Raises `engine.executions.layer_splits.LayerSplitError` if the layout does not divide the model's blocks.
    """
    pattern, work = _order_of(case)
    plain = replace(case, model=replace(case.model, prediction_layers=np.zeros(())))
    everything = kinds_of_chunks(pattern, ranks, chunks, layout, work)
    further = everything.sum(axis=0) - np.array(blocks_of_chunks(pattern, ranks, chunks, layout, work))
    # Prediction layers are counted apart from the blocks of their stage.
    predicting = last_kind(pattern)[:, None] * further
    held = (everything - predicting).astype(np.float64)
    level, without = block_level(case, p), block_level(plain, p) if pattern.predictions else None
    flow = pipeline_flow(case, level, p)
    kinds = kinds_of(case.model)
    parts, slots = len(kinds) + 3, ranks * chunks
    numbers, seconds = np.zeros((parts, slots)), np.zeros((parts, PASSES, slots))
    numbers[: len(kinds)], numbers[-1] = held, predicting.sum(axis=0)
    for position, kind in enumerate(kinds):
        if kind in level.kinds:
            block, gathers = level.kinds[kind], flow.gathers[kind]
            # The floor of launches of a backward pass that is not separated is that of both passes together.
            backward = block.backward + separation_time(case, block) - block.weight_gradient
            # F, B, W and a pair of a block, each with the weight gathers that fall into it.
            passes = (
                block.forward + gathers.forward,
                backward + gathers.backward - gathers.weights,
                block.weight_gradient + gathers.weights,
                block.paired + gathers.paired,
            )
            each = np.array([float(np.ravel(one)[0]) for one in passes])
            seconds[position] = each[:, None] * held[position]
            seconds[-1] += each[:, None] * predicting[position]
    # The ends of the model have three products of one size: F, B, W a third each, where all three run.
    first, own = (float(np.ravel(each)[0]) for each in end_shares(case))
    share = np.array([first, 1.0 - first - own, own, 1.0])
    head = level.ends.head if without is None else without.ends.head
    for position, place, end in ((-3, 0, level.ends.embedding), (-2, -1, head)):
        numbers[position, place] = 1.0
        seconds[position, :, place] = share * float(np.ravel(end + flow.embedding_gather)[0])
    seconds[-1, :, -1] += share * float(np.ravel(level.ends.head - head)[0])
    return StageWork(numbers, seconds)


class StageBytes(NamedTuple):
    """Memory of a processor with one stage of the model alone, arrays [stages of the model] [bytes].

    `kept` are the activations of one microbatch, `weights` with gradients, `optimizer` its state, `working` the working
    memory of the current block, `temporaries` with logits. `block_weights` and `gradients` are the parts of `weights`
    that can be offloaded, `resident` and `resident_kept` the weights and activations of blocks that stay in the first
    tier.
    """

    kept: Floats
    weights: Floats
    optimizer: Floats
    working: Floats
    temporaries: Floats
    gradients: Floats
    block_weights: Floats
    resident: Floats
    resident_kept: Floats
    blocks: Floats


def stage_bytes(case: Case, ranks: int, chunks: int, layout: int) -> StageBytes:
    """Returns what every stage of the model keeps if it were cut into other stages than a row's.

    Args:
        case: shapes, layout, software and accelerators of one row.
        ranks: ranks of the pipeline.
        chunks: chunks of each rank.
        layout: position among the words of the field `stage_layout`.

    Raises `engine.executions.layer_splits.LayerSplitError` where the layout does not divide the model's blocks.
    """
    pattern, work = _order_of(case)
    held, slots = kinds_of_chunks(pattern, ranks, chunks, layout, work).astype(np.float64), ranks * chunks
    # One microbatch in a loop of as many ranks as stages: each keeps just that one, and the ends hold what is theirs.
    alone = {
        "pipeline_par": float(slots),
        "pipeline_interleaving": 1.0,
        "schedule": float(ONE_F_ONE_B),
        "stage_layout": float(EVEN),
    }
    one = replace(
        case.layout,
        **{name: np.asarray(value) for name, value in alone.items()},
        batch_size=case.layout.data_par * case.layout.microbatch_size,
    )
    like = replace(case, layout=one)
    # With all microbatches of a loop in flight, what comes back is a whole block, not what one of them left out.
    busy = replace(case, layout=replace(one, batch_size=one.batch_size * slots))
    found = np.zeros((len(StageBytes._fields), slots))
    for slot in range(slots):
        blocks = tuple(np.asarray(each) for each in held[:, slot])
        number = 0 if slot == 0 else 1 if slot == slots - 1 else ENDS
        memory = stage_memory(like, StageBlocks(np.asarray(float(slot)), blocks, blocks), number)
        working = stage_memory(busy, StageBlocks(np.asarray(0.0), blocks, blocks), number).working
        parts = (
            memory.activations,
            memory.weights + memory.gradients,
            memory.optimizer,
            working,
            memory.logits + memory.temporaries,
            memory.gradients,
            memory.block_weights,
            (1.0 - memory.movable) * memory.block_weights,
            (1.0 - memory.movable_kept) * memory.activations,
            held[:, slot].sum(),
        )
        found[:, slot] = [float(np.ravel(each)[0]) for each in parts]
    return StageBytes(*found)


def message_seconds(case: Case, p: Parameters) -> float:
    """Returns the seconds of one message of activations between neighbouring stages of a row [s]; 0 without a pipeline.

    Args:
        case: shapes, layout, software and accelerators of one row.
        p: parameters of a calibration.
    """
    rates = sustained_rates(case.accelerator, case.software.age_years, p)
    return float(np.ravel(message_time(case, rates, p))[0])


def chunk_seconds(case: Case, p: Parameters) -> Floats:
    """Returns what every stage of the model takes for a microbatch, as a share of a chunk of the stage whose path is
    the longest [stages of the model] [dimensionless].

    Args:
        case: shapes, layout, software and accelerators of one row.
        p: parameters of a calibration.
    """
    layout = case.layout
    ranks, chunks, number = (
        int(np.ravel(each)[0]) for each in (layout.pipeline_par, layout.pipeline_interleaving, layout.stage_layout)
    )
    seconds = stage_work(case, p, ranks, chunks, number).seconds[:, : PASSES - 1].sum(axis=(0, 1))
    flow = pipeline_flow(case, block_level(case, p), p)
    slowest = flow.of_slowest([load.whole for load in flow.loads]) - flow.of_slowest(flow.waits)
    return np.asarray(seconds * chunks / float(np.ravel(slowest)[0]))

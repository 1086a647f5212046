"""One training step: blocks into stages, stages into the pipeline, and what comes once per step."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from engine.calibrated.block import BlockTimes, dense_block, expert_block
from engine.calibrated.collectives import collective
from engine.calibrated.head import ends
from engine.calibrated.inputs import Case, Floats
from engine.calibrated.launch import launch_time
from engine.calibrated.parameters import Parameters
from engine.calibrated.pipeline import blocks_per_stage, message_time, pipeline_time
from engine.calibrated.rates import sustained_rates
from engine.calibrated.sharding import EMBEDDING_GATHERS, data_tiers, gradient_exchange, layer_gathers, tied_exchange
from engine.calibrated.weights import (
    attention_weights,
    dense_weights,
    embedding_weights,
    expert_weights,
    router_weights,
    shared_weights,
)  # fmt: skip

__all__ = ["StepTimes", "step_times"]

OPTIMIZER_BYTES = 38.0
"""Bytes per owned parameter of an Adam step in mixed precision: gradient, master, two moments in and out, weight out."""
LOCAL_BYTES = 6.0
"""Bytes per local parameter for zeroing and scaling gradients."""
OPTIMIZER_LAUNCHES = 50.0


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Seconds of one step [s], arrays [rows]; the parts after `step` are on the critical path's slowest stage.

    `bubble` is pipeline fill and drain, `straggler` the spread between processors, `fixed` the constant per step.
    """

    step: Floats
    linear: Floats
    attention: Floats
    elementwise: Floats
    recompute: Floats
    launch: Floats
    ends: Floats
    tensor_exposed: Floats
    context_exposed: Floats
    expert_exposed: Floats
    gather_exposed: Floats
    pipeline_exposed: Floats
    bubble: Floats
    data_exposed: Floats
    tied: Floats
    optimizer: Floats
    straggler: Floats
    fixed: Floats


def step_times(case: Case, p: Parameters) -> StepTimes:
    """Seconds of one step of every row, with its parts [s]."""
    model, layout, software, t = case.model, case.layout, case.software, case.layout.tensor_par
    rates = sustained_rates(case.accelerator, case.software.age_years, p)
    routed = np.broadcast_to(model.experts > 0, np.shape(case.processors))
    dense = dense_block(case, rates, p)
    sparse = _sparse(case, p, routed, dense)

    attention, vocabulary = attention_weights(model) / t, embedding_weights(model) / t
    dense_part = attention + dense_weights(model) / t
    sparse_part = attention + shared_weights(model) / t + router_weights(model)
    expert_part = np.where(routed, expert_weights(model) / (layout.expert_par * layout.expert_tensor_par), 0.0)

    gathers_dense = layer_gathers(case, rates, p, dense_part, dense.forward, dense.backward)
    gathers_sparse = layer_gathers(case, rates, p, sparse_part + expert_part, sparse.forward, sparse.backward)

    stages = blocks_per_stage(case)
    plain_blocks = np.where(routed, model.dense_blocks, model.num_blocks)
    plain = np.minimum(plain_blocks, stages.first), np.where(routed, 0.0, stages.middle), np.where(routed, 0.0, stages.last)
    plain = tuple(np.where(layout.pipeline_par == 1, plain_blocks, value) for value in plain)
    both = ends(case, rates, p)
    message = message_time(case, rates, p)
    blocking = (layout.pipeline_interleaving == 1) & (software.overlap_pipeline == 0)
    # Stages between others wait for messages on both sides, the first and the last on one.
    waits = np.where(blocking, software.messages * message, 0.0)
    tiers = data_tiers(case, rates, layout.data_par * layout.context_par)
    embedding_gather = np.where(
        layout.fully_sharded > 0,
        EMBEDDING_GATHERS * collective(software.gather_bytes * vocabulary, tiers, p, passes=1.0),
        0.0,
    )
    one = layout.pipeline_par == 1
    per_dense = dense.forward + dense.backward + gathers_dense.forward + gathers_dense.backward
    per_sparse = sparse.forward + sparse.backward + gathers_sparse.forward + gathers_sparse.backward
    edges = (
        both.embedding + np.where(one, both.head, 0.0) + embedding_gather,
        np.zeros(()),
        both.head + np.where(one, both.embedding, 0.0) + embedding_gather,
    )
    times = [
        p_i * per_dense + (n_i - p_i) * per_sparse + edge + wait
        for n_i, p_i, edge, wait in zip(stages, plain, edges, (waits / 2.0, waits, waits / 2.0), strict=True)
    ]
    slowest = np.maximum(np.maximum(times[0], times[2]), np.where(layout.pipeline_par > 2, times[1], 0.0))
    total = (
        plain_blocks * per_dense
        + (model.num_blocks - plain_blocks) * per_sparse
        + both.embedding
        + both.head
        + embedding_gather
        + waits * np.maximum(layout.pipeline_par - 1.0, 0.0)
    )
    total = np.maximum(total, slowest)
    running = pipeline_time(case, slowest, total, message)

    first = times[0] >= slowest
    middle = ~first & (layout.pipeline_par > 2) & (times[1] >= slowest)
    n_max = np.where(first, stages.first, np.where(middle, stages.middle, stages.last))
    p_max = np.where(first, plain[0], np.where(middle, plain[1], plain[2]))
    edge_max = np.where(first, edges[0], np.where(middle, edges[1], edges[2]))
    # The exchange is as large as on the stage with most parameters; every stage waits for it.
    most = np.maximum(np.where(layout.pipeline_par > 2, stages.middle, stages.first), stages.first)
    held = most * np.where(routed, sparse_part, dense_part)
    held = held + np.where(routed, np.minimum(plain_blocks, most) * (dense_part - sparse_part), 0.0)
    held = held + vocabulary * np.where(one & (model.tied_embeddings == 0), 2.0, 1.0)
    held_experts = np.where(routed, np.maximum(most - np.where(one, plain_blocks, 0.0), 0.0) * expert_part, 0.0)
    window = slowest / layout.pipeline_interleaving
    data = gradient_exchange(case, rates, p, held, held_experts, window)

    straggler = (running + data) * p.straggler * np.log2(np.maximum(case.processors / 8.0, 1.0))
    replicas = layout.data_par * layout.context_par
    sharded = layout.zero_stage >= 1
    owned = held / np.where(sharded, replicas, 1.0)
    owned = owned + held_experts / np.where(sharded, np.maximum(replicas * t / (layout.expert_par * layout.expert_tensor_par), 1.0), 1.0)
    local = np.where(layout.fully_sharded > 0, 0.0, held + held_experts)
    host = launch_time(case, p)
    optimizer = (OPTIMIZER_BYTES * owned + LOCAL_BYTES * local) / rates.memory + OPTIMIZER_LAUNCHES * host
    tied = tied_exchange(case, rates, p, vocabulary)
    step = running + data + straggler + optimizer + tied + p.step_constant

    def on_path(name: str) -> Floats:
        return case.microbatches * (p_max * getattr(dense, name) + (n_max - p_max) * getattr(sparse, name))

    gathered = p_max * (gathers_dense.forward + gathers_dense.backward)
    gathered = gathered + (n_max - p_max) * (gathers_sparse.forward + gathers_sparse.backward)
    parts = (
        step,
        *(on_path(name) for name in ("linear", "attention", "elementwise", "recompute", "launch")),
        case.microbatches * (edge_max - np.where(edge_max > 0, embedding_gather, 0.0)),
        *(on_path(name) for name in ("tensor_exposed", "context_exposed", "expert_exposed")),
        case.microbatches * (gathered + np.where(edge_max > 0, embedding_gather, 0.0)),
        case.microbatches * waits + (layout.pipeline_par - 1.0) * 2.0 * message,
        (total - slowest) / layout.pipeline_interleaving,
        data,
        tied,
        optimizer,
        straggler,
        np.full_like(step, p.step_constant),
    )
    return StepTimes(*np.broadcast_arrays(*parts))


def _sparse(case: Case, p: Parameters, routed: Floats, dense: BlockTimes) -> BlockTimes:
    """Expert blocks where there are experts, the dense block elsewhere."""
    rows = np.flatnonzero(routed)
    if len(rows) == 0 or (routed.ndim == 0 and not routed):
        return dense
    if routed.all():
        return expert_block(case, sustained_rates(case.accelerator, case.software.age_years, p), p)
    part = case.take(rows)
    found = expert_block(part, sustained_rates(part.accelerator, part.software.age_years, p), p)
    merged = []
    for field in fields(BlockTimes):
        values = np.array(np.broadcast_to(getattr(dense, field.name), routed.shape))
        values[rows] = getattr(found, field.name)
        merged.append(values)
    return BlockTimes(*merged)

"""Memory of one processor that serves: weights, KV cache, activations, reserve.

The stage that needs most counts. Every request holds the cache of its full length, so that none is ever
preempted; the cache of a windowed layer ends at its window. Activations cover a full chunk of prompt tokens and the
batch. All parts are linear in the batch, which gives the largest batch that fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.cost_models.calibrated import Accelerators, ModelShapes
from engine.executions.arrays import Floats
from engine.serving.assumptions import Assumptions
from engine.serving.deployments import LAUNCHES, Deployments
from engine.serving.shapes import ServingStage, cached_elements, held_weights, key_value_heads

__all__ = ["ServingMemoryUse", "kv_bytes_per_token", "memory_use"]

WIDE = 2.0
"""Bytes per element of embedding, LM head, router and activations. Source: stated by us."""
LOGIT = 4.0
"""Bytes per logit [bytes]: engines sample in 32 bits. Source: stated by us."""


@dataclass(frozen=True, slots=True)
class ServingMemoryUse:
    """Bytes on the processor that holds most, arrays [rows]; the four parts add up to `total` [bytes].

    `largest_batch` is how many requests a replica could hold.
    """

    total: Floats
    weights: Floats
    kv_cache: Floats
    activations: Floats
    reserve: Floats
    largest_batch: Floats


def kv_bytes_per_token(model: ModelShapes, blocks: int, kv_bits: Floats) -> Floats:
    """Returns the bytes that one token adds to the KV cache in all blocks, stored once [bytes].

    Args:
        model: sizes of a block.
        blocks: of the whole model.
        kv_bits: of an element in the cache [bits] [rows].
    """
    return blocks * cached_elements(model, model.key_value_heads) * kv_bits / 8.0


def memory_use(
    model: ModelShapes,
    accelerator: Accelerators,
    d: Deployments,
    layout: Sequence[ServingStage],
    weight_bytes: Floats,
    a: Assumptions,
) -> ServingMemoryUse:
    """Returns the memory of deployments with one number of stages and one launch mode [bytes].

    Args:
        model: sizes of a block.
        accelerator: capacity of its memory [bytes].
        d: deployments with one number of stages and one launch mode [rows].
        layout: stages of the pipeline, equal ones together.
        weight_bytes: of an element of a linear layer [bytes] [rows].
        a: share kept free, memory of captured graphs, and tokens of a prefill pass.
    """
    held = held_weights(model, d.tensor_par, d.expert_par)
    per_token = cached_elements(model, key_value_heads(model, d.tensor_par)) * d.kv_bits / 8.0
    length = d.prompt + d.output
    # A windowed layer caches no more tokens than its window.
    windowed = np.minimum(length, np.where(model.window > 0, model.window, length))
    captured = d.launch == LAUNCHES.index("graphs")
    reserve = a.reserve_share * accelerator.capacity + np.where(captured, a.graph_memory, 0.0)
    sparse = weight_bytes * (held.experts + held.shared) + WIDE * held.router
    tied = np.any(model.tied_embeddings > 0)
    found: list[tuple[Floats, Floats, tuple[Floats, Floats]]] = []
    for stage in layout:
        # A stage with both ends holds a tied matrix once.
        vocabularies = 1.0 if stage.embedding and stage.head and tied else float(stage.embedding) + float(stage.head)
        weights = (stage.full + stage.windowed) * weight_bytes * held.attention
        weights = weights + stage.dense * weight_bytes * held.dense + stage.sparse * sparse
        weights = weights + vocabularies * WIDE * held.vocabulary
        kv = per_token * (stage.full * length + stage.windowed * windowed)
        token = _token_bytes(model, d, dense=stage.dense > 0, sparse=stage.sparse > 0)
        logits = LOGIT * model.vocabulary / d.tensor_par * stage.head
        found.append((weights, kv, (token * float(a.prefill_chunk), token / d.pipeline_par + logits)))
    # weights + B (cache per request + activations of a token) + activations of a prefill chunk.
    totals = np.stack([w + d.batch * kv + work[0] + d.batch * work[1] for w, kv, work in found])
    fullest = np.argmax(totals, axis=0)

    def of_fullest(values: list[Floats]) -> Floats:
        stacked = np.stack(np.broadcast_arrays(*values, totals[0])[:-1])
        return np.asarray(np.take_along_axis(stacked, fullest[None], axis=0)[0])

    free = accelerator.capacity - reserve
    # The largest B for which that fits, on the stage that needs most.
    batches = [(free - w - work[0]) / (kv + work[1]) for w, kv, work in found]
    parts = (
        of_fullest([w for w, _, _ in found]),
        of_fullest([d.batch * kv for _, kv, _ in found]),
        of_fullest([work[0] + d.batch * work[1] for _, _, work in found]),
        np.broadcast_to(reserve, totals[0].shape),
    )
    largest = np.maximum(np.floor(np.min(np.stack(np.broadcast_arrays(*batches)), axis=0)), 0.0)
    return ServingMemoryUse(parts[0] + parts[1] + parts[2] + parts[3], *parts, largest)


def _token_bytes(model: ModelShapes, d: Deployments, *, dense: bool, sparse: bool) -> Floats:
    """Working memory per token of a pass [bytes]: residual and normed input, twice; projections; the widest MLP."""
    t = d.tensor_par
    attention = (model.attn_heads * (model.attn_size + model.value_size)) / t
    attention = attention + key_value_heads(model, t) * (model.attn_size + model.value_size)
    branches = 2.0 + model.gated
    # The widest MLP: up, gate and activation.
    feed = branches * model.feedforward / t if dense else np.zeros(())
    if sparse:
        # Each of k copies of a token has its input, its output and the branches of the expert.
        visited = model.experts_per_token * (2.0 * model.hidden + branches * model.expert_feedforward / d.slices)
        # Of the experts that a token visits, this rank has its share.
        share = d.expert_replicas / d.expert_par
        routed = visited * share + branches * model.shared_experts * model.expert_feedforward / t
        feed = np.maximum(feed, routed)
    return WIDE * (4.0 * model.hidden + attention + feed)

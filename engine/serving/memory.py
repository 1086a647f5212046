"""Memory of one processor that serves: weights, KV cache, activations, reserve.

The stage that needs most counts. Every request holds the cache of its full length, so that none is ever
preempted; the cache of a windowed layer ends at its window. Activations cover a full chunk of prompt tokens and the
batch. All parts are linear in the batch, which gives the largest batch that fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from engine.cost_models.calibrated import Accelerators, ModelShapes
from engine.executions.arrays import Floats
from engine.serving.assumptions import Assumptions
from engine.serving.deployments import LAUNCHES, Deployments
from engine.serving.shapes import ServingStage, cached_elements, held_weights, key_value_heads
from models import LayerPattern
from models.layers import LayerKind

__all__ = ["ServingMemoryUse", "kv_bytes_per_token", "memory_use"]

WIDE = 2.0
"""Bytes per element of embedding, LM head, router and activations. Source: stated by us."""
STATE = 4.0
"""Bytes per element of a recurrent state [bytes]. Source: vLLM and SGLang keep states in 32 bits unless
`mamba_ssm_cache_dtype` says otherwise."""
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


class KindMemory(NamedTuple):
    """Bytes of one kind of block on a processor [bytes]: weights, what a sequence keeps, and working memory per token
    of a pass."""

    weights: Floats
    sequence: Floats
    token: Floats


def pattern_memory(
    model: ModelShapes, d: Deployments, weight_bytes: Floats, attention_bytes: Floats, length: Floats
) -> list[KindMemory]:
    """Returns the memory of every kind of block of a pattern [rows] [bytes].

    Ranks of a tensor-parallel group divide heads and states among them; compressed caches and index keys are repeated
    on each.

    Args:
        model: sizes of a model with a pattern.
        d: deployments [rows].
        weight_bytes: of an element of a linear layer [bytes] [rows].
        attention_bytes: of an element of the products of layers that mix tokens [bytes] [rows].
        length: tokens that a sequence ends with [rows].
    """
    assert model.pattern is not None
    t, hidden, found = d.tensor_par, model.pattern.hidden, []
    for block in model.pattern.blocks:
        weights = kept = widths = feed = np.zeros(())
        for layer in block.layers:
            narrow = attention_bytes if layer.activation() is None else weight_bytes
            for product in layer.products(hidden):
                if product.held > 1:
                    weights = weights + weight_bytes * product.parameters / np.maximum(d.expert_par, t)
                else:
                    bytes_each = WIDE if product.negligible else narrow
                    weights = weights + bytes_each * product.local_weights(t)
            state = layer.sequence_state(hidden)
            fixed = sum(
                number * (STATE if name == "recurrent" else WIDE) for name, number in state.per_sequence.items()
            )
            kept = kept + state.count_grown(length, t) * d.kv_bits / 8.0 + fixed / t
            acted = layer.activation()
            if acted is None:
                widths = widths + sum((each.local_outputs(t) for each in layer.products(hidden)), start=np.zeros(()))
            else:
                feed = np.maximum(feed, _branch_elements(layer, hidden, d))
        found.append(KindMemory(weights, kept, WIDE * (4.0 * hidden + widths + feed)))
    return found


def _branch_elements(layer: LayerKind, hidden: int, d: Deployments) -> Floats:
    """Return the elements of branches and results of a feed-forward layer per token [elements]."""
    acted, routing = layer.activation(), layer.routing()
    assert acted is not None
    branches = 3.0 if acted.gated else 2.0
    if routing is None:
        return branches * acted.width / d.tensor_par
    # Each of k copies of a token has its input, its output and the branches of the expert; this rank has its share.
    visited = routing.top_k * (2.0 * hidden + branches * routing.width / d.slices) * d.expert_replicas / d.expert_par
    return np.asarray(visited + branches * routing.shared_width / d.tensor_par)


def pattern_bytes_per_token(pattern: LayerPattern, kv_bits: Floats) -> Floats:
    """Returns the bytes that one token adds to the cache of a model with a pattern, stored once [bytes]; tokens inside
    windows are not among them.

    Args:
        pattern: of the blocks.
        kv_bits: of an element in the cache [bits] [rows].
    """
    grown = sum(
        count * sum(layer.sequence_state(pattern.hidden).per_token.values())
        for block, count in pattern.counted_blocks()
        for layer in block.mixers
    )
    return np.asarray(grown * kv_bits / 8.0)


def kv_bytes_per_token(model: ModelShapes, blocks: int, kv_bits: Floats) -> Floats:
    """Returns the bytes that one token adds to the KV cache in all blocks, stored once [bytes].

    Args:
        model: sizes of a block.
        blocks: of the whole model.
        kv_bits: of an element in the cache [bits] [rows].
    """
    if model.pattern is not None:
        return pattern_bytes_per_token(model.pattern, kv_bits)
    return blocks * cached_elements(model, model.key_value_heads) * kv_bits / 8.0


def memory_use(
    model: ModelShapes,
    accelerator: Accelerators,
    d: Deployments,
    layout: Sequence[ServingStage],
    weight_bytes: Floats,
    attention_bytes: Floats,
    a: Assumptions,
    adapters: Sequence[Floats] = (),
    draft: tuple[Floats, Floats] | None = None,
) -> ServingMemoryUse:
    """Returns the memory of deployments with one number of stages and one launch mode [bytes].

    Args:
        model: sizes of a block.
        accelerator: capacity of its memory [bytes].
        d: deployments with one number of stages and one launch mode [rows].
        layout: stages of the pipeline, equal ones together.
        weight_bytes: of an element of a linear layer [bytes] [rows].
        attention_bytes: of an element of the projections around attention [bytes] [rows].
        a: share kept free, memory of captured graphs, and tokens of a prefill pass.
        adapters: weights of all adapters by part of a block [bytes] [rows]; none by default.
        draft: weights, and cache of a request, of a draft model on the last stage [bytes] [rows]; None without one.
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
    kinds = None if model.pattern is None else pattern_memory(model, d, weight_bytes, attention_bytes, length)
    found: list[tuple[Floats, Floats, tuple[Floats, Floats]]] = []
    for stage in layout:
        # A stage with both ends holds a tied matrix once.
        vocabularies = 1.0 if stage.embedding and stage.head and tied else float(stage.embedding) + float(stage.head)
        weights: Floats = np.zeros(())
        if kinds is None:
            full, near, plain, routed = stage.parts
            weights = (full + near) * attention_bytes * held.attention
            weights = weights + plain * weight_bytes * held.dense + routed * sparse
            kv = per_token * (full * length + near * windowed)
            token = _token_bytes(model, d, dense=plain > 0, sparse=routed > 0)
        else:
            there = [(number, kind) for number, kind in zip(stage.parts, kinds, strict=True) if number]
            weights = sum((number * kind.weights for number, kind in there), start=weights)
            kv = sum((number * kind.sequence for number, kind in there), start=np.zeros(()))
            token = np.max(np.stack(np.broadcast_arrays(*(kind.token for _, kind in there))), axis=0)
        weights = weights + vocabularies * WIDE * held.vocabulary
        if adapters:
            weights = weights + sum((n * each for n, each in zip(stage.parts, adapters, strict=True)), np.zeros(()))
        if draft is not None and stage.head:
            weights, kv = weights + draft[0], kv + draft[1]
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

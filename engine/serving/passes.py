"""Seconds of one pass of tokens through one block and the ends of the model, on one processor.

A pass is a chunk of one prompt (prefill), or one token of every request of a microbatch (decode). Linear layers come
from the calibrated block, with the time of serving's products (`engine.serving.products`); attention is the fused
kernel on a prompt, and a read of the KV cache in decode; element-wise operations come from the forward pass in
training.

Three layers differ from training: the router, which training leaves out; the experts, whose rows are the tokens of all
replicas that share them, in one launch over those visited; and the projection of keys and values where a group has more
ranks than there are such heads. Frameworks repeat the heads there, and serving does; the calibration was fitted
without.

Decode attention of latent models multiplies queries into the compressed cache ("absorbed"): as many weights and
operations around it as expanding would take for one token.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from engine.cost_models.calibrated import (
    EMBEDDING_FORWARD,
    LOGIT_FORWARD,
    PERMUTE_BYTES,
    Case,
    LinearLayer,
    MatrixUnit,
    Parameters,
    SustainedRates,
    activation,
    active_width,
    attention_core,
    attention_layers,
    block_launches,
    casts,
    collective,
    exchange,
    expert_launches,
    expert_layers,
    feedforward_layers,
    head_layer,
    inner_sum,
    kernel_rate,
    launch_time,
    layer_cases,
    local_products,
    mixing_time,
    network_tiers,
    norms,
    scan_bandwidth,
    tensor_exchange,
)
from engine.executions.arrays import Floats
from engine.serving.deployments import Deployments
from engine.serving.products import product, products
from engine.serving.shapes import cached_elements, key_value_heads
from models.layers import LayerKind

__all__ = ["Blocks", "Pass", "PassWork", "block_times"]

CONTEXT_TILE = 128.0
"""Tokens of the prompt that one block of the fused kernel handles [tokens]. Source: as for the 128 queries per block in
the calibrated attention core."""
MATRIX_ROWS = 16.0
"""Least rows of a tensor-core operation: query heads that share a key head are padded to it. Source: the shape m16n8k16
of PTX's `mma` on 16-bit factors."""
WIDE_BYTES = 2.0
"""Bytes per weight of router and LM head, for every precision of the linear layers. Source: stated by us."""


@dataclass(frozen=True, slots=True)
class PassWork:
    """Seconds by kind [s], arrays [rows]."""

    linear: Floats
    attention: Floats
    elementwise: Floats
    tensor: Floats
    experts: Floats
    ends: Floats

    @classmethod
    def of(cls, **parts: Floats) -> PassWork:
        """Returns the work of the parts given; the others are 0."""
        return cls(**{field.name: parts.get(field.name, np.zeros(())) for field in fields(cls)})

    def plus(self, other: PassWork, times: float = 1.0) -> PassWork:
        """Returns this and `times` the other."""
        return PassWork(*(getattr(self, f.name) + times * getattr(other, f.name) for f in fields(self)))

    @property
    def total(self) -> Floats:
        """All parts [s]."""
        return self.linear + self.attention + self.elementwise + self.tensor + self.experts + self.ends


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass: tokens in the linear layers, requests that need logits, and the context of attention.

    `prompt` is the whole prompt [tokens] of a prefill, whose attention is spread over `chunks` passes; `context` the
    tokens [tokens] that each request of a decode pass attends to.
    """

    tokens: Floats
    requests: Floats
    prompt: Floats | None = None
    chunks: Floats | float = 1.0
    context: Floats | None = None


@dataclass(frozen=True, slots=True)
class Blocks:
    """Work of every part of a block and of the ends [s], and host time that the launches of each part take [s]; parts
    in the order of the model's `engine.serving.shapes.BlockPattern`."""

    parts: tuple[PassWork, ...]
    launches: tuple[Floats, ...]
    embedding: PassWork
    head: PassWork


def block_times(
    case: Case, d: Deployments, work: Pass, rates: SustainedRates, p: Parameters, weight_bytes: Floats
) -> Blocks:
    """Returns the work of every part of a block of every row [s].

    `case` has one "sequence" per token of the pass (microbatch_size = tokens, seq_size = 1), so that its token counts
    equal the pass's.

    Args:
        case: one "sequence" per token of the pass (microbatch_size = tokens, seq_size = 1) [rows].
        d: deployments [rows].
        work: tokens, requests and attention of the pass [rows].
        rates: sustained rates [FLOP/s], [bytes/s] [rows].
        p: parameters of the calibrated cost model.
        weight_bytes: of an element of a linear layer [bytes] [rows].
    """
    model = case.model
    unit = MatrixUnit(rates.linear_of(case.layout), rates.memory, case.accelerator.multiprocessors, p)
    wide = unit._replace(rate=rates.matrix16)
    reduce = tensor_exchange(case, rates, p)
    ends = (
        PassWork.of(ends=EMBEDDING_FORWARD * work.tokens * model.hidden / rates.memory + reduce),
        PassWork.of(ends=_head_seconds(case, work.requests, wide, rates, p)),
    )
    host = launch_time(case, p)
    launches = block_launches(case)[0]
    if model.pattern is not None:
        kinds = [
            _pattern_work(case, d, work, place, (unit, wide), weight_bytes, rates, p, reduce)
            for place in range(len(model.pattern.blocks))
        ]
        return Blocks(tuple(one for one, _ in kinds), tuple(number * host for _, number in kinds), *ends)
    around = PassWork.of(
        linear=_projection_seconds(case, unit, weight_bytes), elementwise=norms(case, rates, p).forward, tensor=reduce
    )
    routed = bool(np.any(model.experts > 0))
    windowed = bool(np.any(model.window > 0))
    full = around.plus(PassWork.of(attention=_attention_seconds(case, d, work, rates, p, np.asarray(np.inf))))
    dense = _dense_work(case, unit, weight_bytes, rates, p, reduce)
    near = full
    if windowed:
        near = around.plus(PassWork.of(attention=_attention_seconds(case, d, work, rates, p, model.window)))
    sparse = _expert_work(case, d, unit, wide, weight_bytes, rates, p, reduce) if routed else dense
    none = np.zeros(())
    floors = none, none, launches * host, (launches + expert_launches(case)[0]) * host
    return Blocks((full, near, dense, sparse), floors, *ends)


def _pattern_work(
    case: Case,
    d: Deployments,
    work: Pass,
    place: int,
    units: tuple[MatrixUnit, MatrixUnit],
    weight_bytes: Floats,
    rates: SustainedRates,
    p: Parameters,
    reduce: Floats,
) -> tuple[PassWork, Floats]:
    """Return the work of one kind of block of a pattern [s], and its kernels."""
    pattern = case.model.pattern
    assert pattern is not None
    layers, sublayers = layer_cases(case)[place], float(pattern.blocks[place].sublayers)
    unit, wide = units
    attentions = [view for layer, view in layers if layer.softmax() is not None]
    found = PassWork.of(
        elementwise=norms(case, rates, p, sublayers, attentions).forward,
        tensor=(sublayers - sum(layer.activation() is not None for layer, _ in layers)) * reduce,
    )
    kernels = block_launches(case)[0] * sublayers / 2.0
    for layer, view in layers:
        softmax = layer.softmax()
        if layer.routing() is not None:
            found = found.plus(_expert_work(view, d, unit, wide, weight_bytes, rates, p, reduce))
            kernels = kernels + expert_launches(view)[0]
        elif layer.activation() is not None:
            found = found.plus(_dense_work(view, unit, weight_bytes, rates, p, reduce))
        else:
            linear = products(local_products(layer, case).values(), unit, weight_bytes)
            if softmax is not None:
                window = np.asarray(np.inf if softmax.window is None else float(softmax.window))
                core = _attention_seconds(view, d, work, rates, p, window)
            else:
                core, more = _mixing_seconds(layer, view, d, work, rates, p)
                kernels = kernels + more
            summed = inner_sum(layer, view, rates, p)
            found = found.plus(PassWork.of(linear=linear, attention=core, tensor=summed))
    return found, kernels


def _mixing_seconds(
    layer: LayerKind, case: Case, d: Deployments, work: Pass, rates: SustainedRates, p: Parameters
) -> tuple[Floats, Floats]:
    """Return the seconds between the products of a layer that states its work itself [s], and its kernels."""
    hidden, cached, share = int(np.ravel(case.model.hidden)[0]), np.zeros(()), 1.0
    if work.prompt is not None:
        each = layer.mixing(hidden, work.prompt, causal=True)  # type: ignore[arg-type]  # formulas broadcast
        tokens, share = work.requests * work.prompt / work.chunks, scan_bandwidth(layer)
    else:
        assert work.context is not None
        each = layer.decoding(hidden, work.context)  # type: ignore[arg-type]
        tokens = work.requests
        # Caches that grow are read besides; compressed and shared ones are whole on every rank.
        read = layer.count_cache_reads(hidden, work.context) * d.kv_bits / 8.0  # type: ignore[arg-type]
        cached = tokens * read / rates.memory
    return mixing_time(each, tokens, case, rates, p, share) + cached, np.asarray(float(each.kernels))


def _projection_seconds(case: Case, unit: MatrixUnit, weight_bytes: Floats) -> Floats:
    """Linear layers around the attention core [s], with the heads of keys and values that are repeated."""
    return products(attention_layers(case).values(), unit, weight_bytes)


def _attention_seconds(
    case: Case, d: Deployments, work: Pass, rates: SustainedRates, p: Parameters, window: Floats
) -> Floats:
    """Attention between projections of one block [s]; `window` is infinite where it sees everything."""
    if work.prompt is not None:
        # Whole tiles of the prompt, or a token more could make the kernel faster by filling its last wave.
        seen = np.ceil(work.prompt / CONTEXT_TILE) * CONTEXT_TILE
        bounded = bool(np.isfinite(window).all())
        shapes, layout = replace(case.model, seq_size=seen), replace(case.layout, microbatch_size=work.requests)
        prompts = replace(case, model=shapes, layout=layout)
        return attention_core(prompts, rates, p, windowed=bounded).forward / work.chunks
    model, t = case.model, case.layout.tensor_par
    assert work.context is not None
    # Decode reads the cache of every request once: bound by memory, or by products padded to tensor-core tiles.
    positions = work.requests * np.minimum(work.context, window)
    heads = key_value_heads(model, t)
    read = positions * cached_elements(model, heads) * d.kv_bits / 8.0 / rates.memory
    latent = model.latent > 0
    # Grouped queries share a tile; latent attention has all heads on one compressed key.
    rows = np.where(latent, model.attn_heads / t, heads * np.maximum(model.attn_heads / t / heads, MATRIX_ROWS))
    # Latent: rank + rope columns for scores, rank for values (DeepSeek-V2, section 2.1, weights absorbed).
    widths = np.where(latent, 2.0 * model.key_value_rank + model.rope_size, model.attn_size + model.value_size)
    computed = 2.0 * positions * np.maximum(rows, MATRIX_ROWS) * widths / kernel_rate(case, p)
    # The kernel over parts of the context, and the one that joins the parts.
    return np.maximum(read, computed) + 2.0 * p.kernel_start


def _dense_work(
    case: Case, unit: MatrixUnit, weight_bytes: Floats, rates: SustainedRates, p: Parameters, reduce: Floats
) -> PassWork:
    """A plain or gated MLP."""
    width = case.model.feedforward
    linear = products(feedforward_layers(case).values(), unit, weight_bytes)
    acted = activation(case, width / case.layout.tensor_par, case.tokens, rates, p)
    return PassWork.of(linear=linear, elementwise=acted.forward + casts(case, width, rates).forward, tensor=reduce)


def _expert_work(
    case: Case,
    d: Deployments,
    unit: MatrixUnit,
    wide: MatrixUnit,
    weight_bytes: Floats,
    rates: SustainedRates,
    p: Parameters,
    reduce: Floats,
) -> PassWork:
    """A mixture of experts.

    Routing is uniform: of E experts with k per token, N tokens visit E (1 - (1 - k/E)^N) distinct ones, whose weights
    are read. Up to EP = TP all ranks of a replica have all its tokens and add their results up; beyond, tokens are
    exchanged between replicas, and what the group shares is gathered again.
    """
    model, t, tokens = case.model, case.layout.tensor_par, case.tokens
    group = tokens * d.expert_replicas
    # Share of the experts that N tokens visit: 1 - (1 - k/E)^N.
    visited = 1.0 - (1.0 - model.experts_per_token / model.experts) ** group
    touched = model.experts / d.expert_par * visited
    # Tokens of a visited expert: N k / (E visited share).
    each = group * model.experts_per_token / model.experts / visited
    layers = dict(expert_layers(case))
    for name in ("experts_up", "experts_down"):
        layers[name] = replace(layers[name], m=each, count=touched)
    router = product(LinearLayer(tokens, model.experts, model.hidden), wide, WIDE_BYTES)
    active = active_width(case)
    routed = group * model.experts_per_token / d.expert_par
    traffic = activation(case, active / t, tokens, rates, p).forward + casts(case, active, rates).forward
    traffic = traffic + PERMUTE_BYTES * routed * model.hidden / rates.memory
    exchanged = d.expert_par > t
    sent = replace(case, layout=replace(case.layout, sequence_par=np.ones(())))
    # Dispatch and combine, for ranks that hold experts of other replicas.
    moved = np.where(exchanged, 2.0 * exchange(sent, rates, p), 0.0)
    return PassWork.of(
        linear=products(layers.values(), unit, weight_bytes, router),
        elementwise=traffic,
        tensor=np.where(exchanged, reduce / 2.0, reduce),
        experts=moved,
    )


def _head_seconds(case: Case, requests: Floats, unit: MatrixUnit, rates: SustainedRates, p: Parameters) -> Floats:
    """LM head, softmax, and gathering of the logits over the tensor-parallel group [s]."""
    model, t = case.model, case.layout.tensor_par
    logits = product(replace(head_layer(case), m=requests), unit, WIDE_BYTES)
    # Every rank has V / t logits of a request; sampling needs all of them.
    gathered = collective(
        2.0 * requests * model.vocabulary, network_tiers(t, 1.0, case.accelerator, rates), p, passes=1.0
    )
    return logits + LOGIT_FORWARD * requests * model.vocabulary / t / rates.memory + gathered

"""Seconds of one pass of tokens through one block and the ends of the model, on one processor.

A pass is a chunk of one prompt (prefill), or one token of every request of a microbatch (decode). Projections, MLP and
experts are products; attention is the fused kernel on a prompt, and a read of the KV cache in decode; what is
element-wise is that of the forward pass in training.

Decode attention of latent models multiplies queries into the compressed cache ("absorbed"): as many weights and
operations around it as expanding would take for one token.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from engine.calibrated.attention import attention_core, kernel_rate
from engine.calibrated.collectives import collective, network_tiers
from engine.calibrated.elementwise import activation, casts, norms
from engine.calibrated.experts import PERMUTE_BYTES, exchange
from engine.calibrated.head import EMBEDDING_FORWARD, LOGIT_FORWARD
from engine.calibrated.inputs import Case, Floats
from engine.calibrated.launch import block_launches, expert_launches, launch_time
from engine.calibrated.parameters import Parameters
from engine.calibrated.rates import Rates
from engine.inference.deployments import Deployments
from engine.inference.products import Unit, product
from engine.inference.shapes import cached_elements, key_value_heads

__all__ = ["Blocks", "Pass", "Work", "block_times"]

CONTEXT_TILE = 128.0
MATRIX_ROWS = 16.0
"""Least rows of a tensor-core operation: query heads that share a key head are padded to it."""


@dataclass(frozen=True, slots=True)
class Work:
    """Seconds by kind [s], arrays [rows]."""

    linear: Floats
    attention: Floats
    elementwise: Floats
    tensor: Floats
    experts: Floats
    ends: Floats

    @classmethod
    def of(cls, **parts: Floats) -> Work:
        """Work of the parts given; the others are 0."""
        return cls(**{field.name: parts.get(field.name, np.zeros(())) for field in fields(cls)})

    def plus(self, other: Work, times: float = 1.0) -> Work:
        """This and `times` the other."""
        return Work(*(getattr(self, f.name) + times * getattr(other, f.name) for f in fields(self)))

    @property
    def total(self) -> Floats:
        """All parts [s]."""
        return self.linear + self.attention + self.elementwise + self.tensor + self.experts + self.ends


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass: tokens in the linear layers, requests that need logits, and what attention sees.

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
    """Work of the halves of a block and of the ends [s], and host time that their launches take [s]."""

    full: Work
    windowed: Work
    dense: Work
    sparse: Work
    embedding: Work
    head: Work
    dense_launch: Floats
    sparse_launch: Floats


def block_times(case: Case, d: Deployments, work: Pass, rates: Rates, p: Parameters, weight_bytes: Floats) -> Blocks:
    """Work of every half of a block of every row [s].

    `case` has one "sequence" per token of the pass (microbatch_size = tokens, seq_size = 1), so that its token counts
    are those of the pass.
    """
    model, t = case.model, case.layout.tensor_par
    unit = Unit(rates.linear(case.layout.linear_bits), rates.memory, case.accelerator.multiprocessors, p)
    wide = Unit(rates.matrix16, rates.memory, case.accelerator.multiprocessors, p)
    reduce = collective(2.0 * work.tokens * model.hidden, network_tiers(t, 1.0, case.accelerator, rates), p, passes=2.0)
    around = Work.of(
        linear=_projections(case, work.tokens, unit, weight_bytes), elementwise=norms(case, rates, p).forward,
        tensor=reduce,
    )  # fmt: skip
    host = launch_time(case, p)
    launches = block_launches(case)[0]
    routed = bool(np.any(model.experts > 0))
    windowed = bool(np.any(model.window > 0))
    full = around.plus(Work.of(attention=_core(case, d, work, rates, p, np.asarray(np.inf))))
    dense = _dense(case, work.tokens, unit, weight_bytes, rates, p, reduce)
    return Blocks(
        full,
        around.plus(Work.of(attention=_core(case, d, work, rates, p, model.window))) if windowed else full,
        dense,
        _experts(case, d, work.tokens, unit, wide, weight_bytes, rates, p, reduce) if routed else dense,
        Work.of(ends=EMBEDDING_FORWARD * work.tokens * model.hidden / rates.memory + reduce),
        Work.of(ends=_head(case, work.requests, wide, rates, p)),
        launches * host,
        (launches + expert_launches(case)[0]) * host,
    )


def _projections(case: Case, tokens: Floats, unit: Unit, weight_bytes: Floats) -> Floats:
    """Linear layers around the attention core [s]."""
    model, t = case.model, case.layout.tensor_par
    out = product(tokens, model.hidden, model.attn_heads * model.value_size / t, unit, weight_bytes)
    if not np.any(model.latent > 0):
        heads = key_value_heads(model, t)
        columns = model.attn_heads * model.attn_size / t + heads * (model.attn_size + model.value_size)
        return product(tokens, columns, model.hidden, unit, weight_bytes) + out
    queries = model.attn_heads * model.attn_size / t
    if np.any(model.query_rank > 0):
        query = product(tokens, model.query_rank, model.hidden, unit, weight_bytes)
        query = query + product(tokens, queries, model.query_rank, unit, weight_bytes)
    else:
        query = product(tokens, queries, model.hidden, unit, weight_bytes)
    expanded = model.attn_heads * (model.attn_size - model.rope_size + model.value_size) / t
    key = product(tokens, model.key_value_rank + model.rope_size, model.hidden, unit, weight_bytes)
    return query + key + product(tokens, expanded, model.key_value_rank, unit, weight_bytes) + out


def _core(case: Case, d: Deployments, work: Pass, rates: Rates, p: Parameters, window: Floats) -> Floats:
    """Attention between projections of one block [s]; `window` is infinite where it sees everything."""
    if work.prompt is not None:
        # Whole tiles of the prompt, or a token more could make the kernel faster by filling its last wave.
        seen = np.ceil(work.prompt / CONTEXT_TILE) * CONTEXT_TILE
        bounded = np.isfinite(window)
        shapes = replace(
            case.model, seq_size=seen, window=np.where(bounded, window, 0.0), window_share=np.where(bounded, 1.0, 0.0)
        )
        layout = replace(case.layout, microbatch_size=work.requests)
        return attention_core(replace(case, model=shapes, layout=layout), rates, p).forward / work.chunks
    model, t = case.model, case.layout.tensor_par
    assert work.context is not None
    positions = work.requests * np.minimum(work.context, window)
    heads = key_value_heads(model, t)
    read = positions * cached_elements(model, heads) * d.kv_bits / 8.0 / rates.memory
    latent = model.latent > 0
    rows = np.where(latent, model.attn_heads / t, heads * np.maximum(model.attn_heads / t / heads, MATRIX_ROWS))
    widths = np.where(
        latent, 2.0 * model.key_value_rank + model.rope_size, model.attn_size + model.value_size
    )
    computed = 2.0 * positions * np.maximum(rows, MATRIX_ROWS) * widths / kernel_rate(case, p)
    # The kernel over parts of the context, and the one that joins the parts.
    return np.maximum(read, computed) + 2.0 * p.kernel_start


def _dense(
    case: Case, tokens: Floats, unit: Unit, weight_bytes: Floats, rates: Rates, p: Parameters, reduce: Floats
) -> Work:
    """A plain or gated MLP."""
    model, t = case.model, case.layout.tensor_par
    width = np.maximum(model.feedforward, 1.0) / t
    up = product(tokens, (1.0 + model.gated) * width, model.hidden, unit, weight_bytes)
    down = product(tokens, model.hidden, width, unit, weight_bytes)
    traffic = activation(case, width, tokens, rates, p).forward + casts(case, model.feedforward, rates).forward
    return Work.of(linear=up + down, elementwise=traffic, tensor=reduce)


def _experts(
    case: Case, d: Deployments, tokens: Floats, unit: Unit, wide: Unit, weight_bytes: Floats, rates: Rates,
    p: Parameters, reduce: Floats,
) -> Work:  # fmt: skip
    """A mixture of experts.

    Routing is uniform: of E experts with k per token, N tokens visit E (1 - (1 - k/E)^N) distinct ones, whose weights
    are read. Up to EP = TP all ranks of a replica have all its tokens and add their results up; beyond, tokens are
    exchanged between replicas, and what the group shares is gathered again.
    """
    model, t = case.model, case.layout.tensor_par
    gates, width = 1.0 + model.gated, np.maximum(model.expert_feedforward, 1.0)
    group = tokens * d.expert_replicas
    visited = 1.0 - (1.0 - model.experts_per_token / model.experts) ** group
    touched = model.experts / d.expert_par * visited
    each = group * model.experts_per_token / model.experts / visited
    part = width / d.slices
    products = product(tokens, model.experts, model.hidden, wide, 2.0)
    products = products + product(each, gates * part, model.hidden, unit, weight_bytes, count=touched)
    products = products + product(each, model.hidden, part, unit, weight_bytes, count=touched)
    shared = model.shared_experts * width / t
    if np.any(shared > 0):
        products = products + product(tokens, gates * shared, model.hidden, unit, weight_bytes)
        products = products + product(tokens, model.hidden, shared, unit, weight_bytes)
    active = (model.experts_per_token + model.shared_experts) * width
    routed = group * model.experts_per_token / d.expert_par
    traffic = activation(case, active / t, tokens, rates, p).forward + casts(case, active, rates).forward
    traffic = traffic + PERMUTE_BYTES * routed * model.hidden / rates.memory
    exchanged = d.expert_par > t
    sent = replace(case, layout=replace(case.layout, sequence_par=np.ones(())))
    moved = np.where(exchanged, 2.0 * exchange(sent, rates, p), 0.0)
    return Work.of(
        linear=products, elementwise=traffic, tensor=np.where(exchanged, reduce / 2.0, reduce), experts=moved
    )


def _head(case: Case, requests: Floats, unit: Unit, rates: Rates, p: Parameters) -> Floats:
    """LM head, softmax, and gathering of the logits over the tensor-parallel group [s]."""
    model, t = case.model, case.layout.tensor_par
    logits = product(requests, model.vocabulary / t, model.hidden, unit, 2.0)
    gathered = collective(
        2.0 * requests * model.vocabulary, network_tiers(t, 1.0, case.accelerator, rates), p, passes=1.0
    )
    return logits + LOGIT_FORWARD * requests * model.vocabulary / t / rates.memory + gathered

"""Seconds of one pass of tokens through one block and the ends of the model, on one processor.

A pass has one token of every request of a microbatch (decode), prompts or chunks of a prompt (prefill), or both.
Kernels take the times of serving's measured ones (`engine.serving.kernels`); element-wise operations come from the
forward pass in training.

Four layers differ from training: the router, which training leaves out; the experts, whose rows are the tokens of all
replicas that share them, in one launch over those visited; the projection of keys and values where a group has more
ranks than there are such heads, which engines repeat; and the all-reduces, which engines run in kernels of their own.

Decode attention of latent models multiplies queries into the compressed cache ("absorbed"): as many weights and
operations around it as expanding would take for one token.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import reduce as fold

import numpy as np

from engine.cost_models.calibrated import (
    EMBEDDING_FORWARD,
    EXPERTS_FORWARD,
    LOGIT_FORWARD,
    Case,
    LinearLayer,
    Parameters,
    SustainedRates,
    activation,
    attention_layers,
    block_launches,
    collective,
    exchange,
    expert_layers,
    feedforward_layers,
    head_layer,
    inner_sum,
    launch_time,
    layer_cases,
    local_products,
    mixing_time,
    network_tiers,
    norms,
    scan_bandwidth,
    sent_case,
    tensor_exchange,
)
from engine.executions.arrays import Floats
from engine.serving.deployments import Deployments
from engine.serving.kernels import (
    ExpertWork,
    attend_context,
    attend_latent_context,
    attend_latent_prompt,
    attend_prompt,
    multiply,
    reduce_messages,
    run_experts,
)
from engine.serving.rates import PassRates, ProductUnit
from engine.serving.shapes import key_value_heads
from models.layers import LayerKind

__all__ = ["Blocks", "Pass", "PassSetting", "PassWork", "block_times"]


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
    """Contents of one pass, arrays [rows]: requests that decode a token each, with `context` tokens to attend to
    [tokens]; and `prompts` of `prompt` tokens, of which the cache has `cached`, or one of `chunks` chunks of each."""

    requests: Floats
    context: Floats
    prompts: Floats | float = 0.0
    prompt: Floats | float = 0.0
    chunks: Floats | float = 1.0
    cached: Floats | float = 0.0
    queries: float = 1.0
    """Tokens of each request that decodes: its last, and drafts to be checked."""

    @property
    def computed(self) -> Floats | float:
        """Tokens of a prompt that are computed."""
        return self.prompt - self.cached

    @property
    def tokens(self) -> Floats:
        """Rows of the linear layers."""
        return np.asarray(self.queries * self.requests + self.prompts * self.computed / self.chunks)

    @property
    def decodes(self) -> bool:
        """True if some row has requests that decode."""
        return bool(np.any(self.requests > 0))

    @property
    def has_prompts(self) -> bool:
        """True if prompts are part of the pass."""
        return bool(np.any(np.asarray(self.prompts) > 0))


@dataclass(frozen=True, slots=True)
class PassSetting:
    """All that a pass is computed from. `case` has one "sequence" per token of the pass (microbatch_size = tokens,
    seq_size = 1), so that its token counts equal the pass's.

    `sustained` are rates of training, for networks and for traffic between kernels; `rates` of serving's kernels.
    """

    case: Case
    d: Deployments
    work: Pass
    sustained: SustainedRates
    p: Parameters
    rates: PassRates

    def viewing(self, case: Case) -> PassSetting:
        """Returns the same pass through a layer of other sizes."""
        return replace(self, case=case)


@dataclass(frozen=True, slots=True)
class Blocks:
    """Work of every part of a block and of the ends [s], and host time that the launches of each part take [s]; parts
    in the order of the model's `engine.serving.shapes.BlockPattern`."""

    parts: tuple[PassWork, ...]
    launches: tuple[Floats, ...]
    embedding: PassWork
    head: PassWork


def block_times(setting: PassSetting) -> Blocks:
    """Returns the work of every part of a block of every row [s].

    Args:
        setting: model, layout, pass and rates [rows].
    """
    case, work, p = setting.case, setting.work, setting.p
    model = case.model
    reduce = _reduce_seconds(setting)
    ends = (
        PassWork.of(ends=EMBEDDING_FORWARD * work.tokens * model.hidden / setting.sustained.memory + reduce),
        PassWork.of(ends=_head_seconds(setting)),
    )
    host = launch_time(case, p)
    if model.pattern is not None:
        kinds = [_pattern_work(setting, place, reduce) for place in range(len(model.pattern.blocks))]
        return Blocks(tuple(one for one, _ in kinds), tuple(number * host for _, number in kinds), *ends)
    launches = block_launches(case)[0]
    around = PassWork.of(
        linear=_products(attention_layers(case).values(), setting.rates.attention),
        elementwise=norms(case, setting.sustained, p).forward,
        tensor=reduce,
    )
    routed = bool(np.any(model.experts > 0))
    full = around.plus(PassWork.of(attention=_attention_seconds(setting, None)))
    dense = _dense_work(setting, reduce)
    near = full
    if np.any(model.window > 0):
        near = around.plus(PassWork.of(attention=_attention_seconds(setting, model.window)))
    sparse = _expert_work(setting, reduce) if routed else dense
    none = np.zeros(())
    floors = none, none, launches * host, (launches + EXPERTS_FORWARD) * host
    return Blocks((full, near, dense, sparse), floors, *ends)


def _pattern_work(setting: PassSetting, place: int, reduce: Floats) -> tuple[PassWork, Floats]:
    """Return the work of one kind of block of a pattern [s], and its kernels."""
    case, p, rates = setting.case, setting.p, setting.sustained
    pattern = case.model.pattern
    assert pattern is not None
    layers, sublayers = layer_cases(case)[place], float(pattern.blocks[place].sublayers)
    attentions = [view for layer, view in layers if layer.softmax() is not None]
    found = PassWork.of(
        elementwise=norms(case, rates, p, sublayers, attentions).forward,
        tensor=(sublayers - sum(layer.activation() is not None for layer, _ in layers)) * reduce,
    )
    kernels = block_launches(case)[0] * sublayers / 2.0
    for layer, view in layers:
        there = setting.viewing(view)
        if layer.routing() is not None:
            found = found.plus(_expert_work(there, reduce, layer))
            kernels = kernels + EXPERTS_FORWARD
        elif layer.activation() is not None:
            found = found.plus(_dense_work(there, reduce))
        else:
            linear = _products(local_products(layer, case).values(), setting.rates.attention)
            softmax = layer.softmax()
            if softmax is not None:
                window = None if softmax.window is None else np.asarray(float(softmax.window))
                core = _attention_seconds(there, window)
            else:
                core, more = _mixing_seconds(there, layer)
                kernels = kernels + more
            summed = inner_sum(layer, view, rates, p)
            found = found.plus(PassWork.of(linear=linear, attention=core, tensor=summed))
    return found, kernels


def _mixing_seconds(setting: PassSetting, layer: LayerKind) -> tuple[Floats, Floats]:
    """Return the seconds between the products of a layer that states its work itself [s], and its kernels."""
    case, work, rates, p = setting.case, setting.work, setting.sustained, setting.p
    hidden, seconds = int(np.ravel(case.model.hidden)[0]), np.zeros(())
    kernels = 0
    if work.has_prompts:
        each = layer.mixing(hidden, work.prompt, causal=True)  # type: ignore[arg-type]  # formulas broadcast
        tokens = np.asarray(work.prompts * work.computed / work.chunks)
        seconds = mixing_time(each, tokens, case, rates, p, scan_bandwidth(layer))
        kernels = each.kernels
    if work.decodes:
        each = layer.decoding(hidden, work.context)  # type: ignore[arg-type]
        t, unit = case.layout.tensor_par, setting.rates.wide.device
        read = layer.count_cache_reads(hidden, work.context, t) * setting.d.kv_bits / 8.0  # type: ignore[arg-type]
        if np.any(read > 0):
            # Attention to chosen tokens: kernels of decode attention, one more for each choice.
            decode = setting.rates.decode
            memory = work.requests * (read + each.local_moved(t)) / (decode.memory * unit.memory)
            compute = work.queries * work.requests * each.local_matrix(t) / (decode.matrix * unit.matrix)
            seconds = seconds + np.maximum(memory, compute) + each.kernels * decode.start
        else:
            seconds = seconds + mixing_time(each, np.asarray(work.queries * work.requests), case, rates, p)
        kernels = max(kernels, each.kernels)
    return seconds, np.asarray(float(kernels))


def _products(layers: Iterable[LinearLayer], unit: ProductUnit) -> Floats:
    """Return the seconds of the products of layers that run one after the other [s]."""
    # A chip's block without products takes none: 0 as start.
    return fold(np.add, (_product(layer, unit) for layer in layers), np.zeros(()))


def _product(layer: LinearLayer, unit: ProductUnit) -> Floats:
    return multiply(layer.m, layer.n, layer.k, unit.weight_bytes, unit.device, unit.rates)


def _attention_seconds(setting: PassSetting, window: Floats | None) -> Floats:
    """Attention between projections of one block [s], of requests that decode and of prompts; None sees everything."""
    case, work, rates = setting.case, setting.work, setting.rates
    model, t, cache = case.model, case.layout.tensor_par, setting.d.kv_bits / 8.0
    heads, key_heads, widths = model.attn_heads / t, key_value_heads(model, t), (model.attn_size, model.value_size)
    device, latent = rates.wide.device, bool(np.any(model.latent > 0))
    seconds: Floats = np.zeros(())
    if work.decodes:
        context = work.context if window is None else np.minimum(work.context, window)
        # Drafts read the cache once, as more heads do.
        rows = work.queries * heads
        if latent:
            ranks = model.key_value_rank, model.rope_size
            found = attend_latent_context(work.requests, context, rows, *ranks, cache, device, rates.latent_decode)
        else:
            found = attend_context(work.requests, context, rows, key_heads, widths, cache, device, rates.decode)
        seconds = np.where(work.requests > 0, found, 0.0)
    if work.has_prompts:
        prompt, prompts, cached = (np.asarray(each) for each in (work.prompt, work.prompts, work.cached))
        computed = np.asarray(work.computed)
        scores = _causal_pairs(prompt, window) - _causal_pairs(cached, window)
        # Keys and values of cached tokens are read, too.
        kept = cached if window is None else np.minimum(cached, window)
        if latent:
            read = prompts * kept * cache * (model.key_value_rank + model.rope_size)
            found = attend_latent_prompt(prompts, computed, scores, heads, widths, device, rates.latent_prefill)
            kernel = rates.latent_prefill
        else:
            read = prompts * kept * cache * key_heads * (widths[0] + widths[1])
            found = attend_prompt(prompts, computed, scores, heads, key_heads, widths, cache, device, rates.prefill)
            kernel = rates.prefill
        found = found + read / (kernel.memory * device.memory)
        start = kernel.start
        seconds = seconds + start + (found - start) / work.chunks
    return seconds


def _causal_pairs(tokens: Floats, window: Floats | None) -> Floats:
    """Return the pairs of tokens that a causal mask and a window leave."""
    # w s - w^2 / 2, and s^2 / 2 without a window.
    seen = tokens if window is None else np.minimum(window, tokens)
    return np.asarray(seen * tokens - 0.5 * seen * seen)


def _dense_work(setting: PassSetting, reduce: Floats) -> PassWork:
    """A plain or gated MLP."""
    case = setting.case
    linear = _products(feedforward_layers(case).values(), setting.rates.feedforward)
    width = case.model.feedforward / case.layout.tensor_par
    acted = activation(case, width, case.tokens, setting.sustained, setting.p)
    return PassWork.of(linear=linear, elementwise=acted.forward, tensor=reduce)


def _expert_work(setting: PassSetting, reduce: Floats, layer: LayerKind | None = None) -> PassWork:
    """A mixture of experts; `layer` of a pattern, whose experts may work on a latent.

    Routing is uneven as in the measured launches: of E experts with k per token, N tokens visit E (1 - (1 - k/E)^N)
    distinct ones, whose weights are read. Up to EP = TP all ranks of a replica have all its tokens and add their
    results up; beyond, tokens are exchanged between replicas, and what the group shares is gathered again.
    """
    case, d, rates = setting.case, setting.d, setting.rates
    model, t, tokens = case.model, case.layout.tensor_par, case.tokens
    there = case if layer is None else sent_case(layer, case)
    # Parts of experts that tensor parallelism slices, and the matrices of one: up, down and gate.
    work = ExpertWork(
        tokens * d.expert_replicas,
        model.experts,
        model.experts_per_token,
        d.expert_par,
        there.model.hidden,
        model.expert_feedforward / d.slices,
        2.0 + model.gated,
    )
    routed = run_experts(work, rates.expert_bytes, rates.expert_device, rates.experts)
    router = _product(LinearLayer(tokens, model.experts, model.hidden), rates.wide)
    linear = routed + router
    elementwise = np.asarray(setting.p.kernel_start)
    if layer is not None:
        # Products of the whole layer: shared experts, and those to a latent width and back.
        hidden = int(np.ravel(model.hidden)[0])
        whole = {product.name for product in layer.products(hidden) if product.held == 1}
        shared = [each for name, each in local_products(layer, case).items() if name in whole]
    else:
        shared = [each for name, each in expert_layers(case).items() if name.startswith("shared")]
    linear = linear + _products(shared, rates.feedforward)
    if np.any(model.shared_experts > 0):
        width = model.shared_experts * model.expert_feedforward / t
        elementwise = elementwise + activation(case, width, tokens, setting.sustained, setting.p).forward
    exchanged = d.expert_par > t
    sent = replace(there, layout=replace(there.layout, sequence_par=np.ones(())))
    # Dispatch and combine, for ranks that hold experts of other replicas.
    moved = np.where(exchanged, 2.0 * exchange(sent, setting.sustained, setting.p), 0.0)
    return PassWork.of(
        linear=linear,
        elementwise=elementwise,
        tensor=np.where(exchanged, reduce / 2.0, reduce),
        experts=moved,
    )


def _reduce_seconds(setting: PassSetting) -> Floats:
    """Return the seconds of one all-reduce of the tensor-parallel group over the tokens of the pass [s]: an engine's
    own kernels inside a domain where they were measured, else a collective."""
    case, rates = setting.case, setting.rates
    t, accelerator = case.layout.tensor_par, case.accelerator
    found = tensor_exchange(case, setting.sustained, setting.p)
    if rates.all_reduce is None:
        return found
    size = 2.0 * case.tokens * case.model.hidden
    own = reduce_messages(size, t, accelerator.network_bandwidths[0], rates.all_reduce)
    return np.where(t <= accelerator.domain, np.minimum(own, found), found)


def _head_seconds(setting: PassSetting) -> Floats:
    """LM head, softmax, and gathering of the logits over the tensor-parallel group [s]."""
    case, rates = setting.case, setting.sustained
    requests = np.asarray(setting.work.queries * setting.work.requests + setting.work.prompts)
    model, t = case.model, case.layout.tensor_par
    logits = _product(replace(head_layer(case), m=requests), setting.rates.wide)
    # Every rank has V / t logits of a request; sampling needs all of them.
    gathered = collective(
        2.0 * requests * model.vocabulary, network_tiers(t, 1.0, case.accelerator, rates), setting.p, passes=1.0
    )
    return logits + LOGIT_FORWARD * requests * model.vocabulary / t / rates.memory + gathered

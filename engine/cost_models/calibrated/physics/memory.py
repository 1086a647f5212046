"""Memory of one processor: weights, gradients, optimizer state, activations, logits, temporaries; per stage.

The fullest stage determines the peak: the first keeps the activations of most microbatches, the last holds the logits,
and one between them may hold more blocks, or larger ones. Counts of bytes assume mixed-precision training with Adam:
weights in 16 bits, gradients, master weights and two moments in 32 bits.

Source: activations, Korthikanti et al. 2022 (unfused attention) and the tensors that Megatron's and PyTorch's fused
kernels keep; microbatches in flight, Narayanan et al. 2021 (arXiv:2104.04473).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from engine.cost_models.calibrated.physics.inputs import ATTENTION_KERNELS, RECOMPUTES, Case, Floats
from engine.cost_models.calibrated.physics.layers.views import layer_cases
from engine.cost_models.calibrated.physics.pipeline.layouts import sizes_of
from engine.cost_models.calibrated.physics.pipeline.residence import has_unlike_chunks, kept_blocks
from engine.cost_models.calibrated.physics.pipeline.schedules import activations_in_flight
from engine.cost_models.calibrated.physics.pipeline.stages import ENDS, StageBlocks, fullest_stages
from engine.cost_models.calibrated.physics.weights import LocalWeights, heads, held_on, local_weights, replicas_of
from models import LayerPattern

__all__ = [
    "LOGIT",
    "Activations",
    "ProcessorMemory",
    "StageMemory",
    "activation_bytes",
    "block_weight_bytes",
    "in_flight",
    "memory_use",
    "of_largest",
    "stage_memories",
    "stage_memory",
]

WEIGHT = 2.0
"""Bytes of a 16-bit weight [bytes]. Source: mixed-precision training, Micikevicius et al. 2018."""
GRADIENT = 4.0
"""Bytes of an accumulated 32-bit gradient [bytes]. Source: Megatron's main gradients."""
MASTER = 4.0
"""Bytes of a 32-bit master weight [bytes]. Source: mixed-precision training, Micikevicius et al. 2018."""
MOMENTS = 2.0
"""Moments of Adam per parameter [dimensionless]. Source: Kingma and Ba 2015."""
SHARDED_WEIGHT = 4.0
"""Bytes per parameter of PyTorch's fully sharded training, whose 32-bit weights are the master copy [bytes]. Source:
the 16 bytes per parameter of weight, gradient and moments in 32 bits."""
GATHERED_BLOCKS = 2.0
"""Blocks whose gathered weights are held at once [blocks]. Source: the calibration study on 1,147 measured rows, peak
memory of torchtitan."""
LOGIT = 8.0
"""Bytes per logit [bytes]: 2 of the logits, 4 of a copy that becomes softmax and gradient in place, 2 of the 16-bit
gradient. Source: Megatron-LM, `cross_entropy.py`; peak memory of SimuMax's runs in the calibration study on 1,147
measured rows."""
LOGIT_PYTORCH = 14.0
"""The same where PyTorch keeps further 32-bit copies [bytes]. Source: as for `LOGIT`, chosen on eight runs of
torchtitan."""
OPERATOR_SHARES = (0.5, 0.6, 0.5)
"""Shares of the activations of norms, attention and feed-forward that torchtitan's per-operator checkpointing stores
[dimensionless]. Source: the calibration study on 1,147 measured rows, peak memory of torchtitan."""
RESIDENT_BLOCKS = 2.0
"""Blocks of offloaded data that stay in the first memory tier [blocks]: the one in use and the one in transit. Source:
Calculon 0.1.0, its rule for offloading."""


@dataclass(frozen=True, slots=True)
class ProcessorMemory:
    """Bytes on the processor that holds most, arrays [rows]; the parts add up to `peak` [bytes]."""

    peak: Floats
    weights: Floats
    gradients: Floats
    optimizer: Floats
    activations: Floats
    logits: Floats
    temporaries: Floats


@dataclass(frozen=True, slots=True)
class Activations:
    """Bytes that one microbatch leaves in a block of every size [bytes]: kept for the backward pass, and all of them at
    work."""

    kept: tuple[Floats, ...]
    working: tuple[Floats, ...]


class KeptParts(NamedTuple):
    """Activations of one block and microbatch by the layer that they belong to [bytes]: norms; mixers, of which the
    backward pass can make `expanded` again; the feed-forward half. `widths` are the outputs of the projections
    [elements per token], `branches` the inputs of the activation [elements per token]."""

    norms: Floats
    mixers: Floats
    expanded: Floats
    feedforward: Floats
    widths: Floats
    branches: Floats


def activation_bytes(case: Case) -> Activations:
    """Returns the activations of one block and microbatch on one processor [rows] [bytes].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
    """
    if case.model.pattern is not None:
        parts = pattern_kept(case, case.model.pattern)
    else:
        # Inputs and outputs of two norms in 16 bits: 4 x 2 T h, divided by t under sequence parallelism.
        norm = 8.0 * case.split_tokens * case.model.hidden
        attention, expanded, widths = attention_kept(case)
        branches = np.where(case.model.gated > 0, 2.0, 1.0) * case.model.feedforward
        # What products and activation functions keep, in the datatype that they keep it in.
        halves = dense_kept(case), experts_kept(case)
        parts = tuple(KeptParts(norm, attention, expanded, half, widths, branches) for half in halves)
    found = [_kept_by_recomputation(case, each) for each in parts]
    return Activations(tuple(kept for kept, _ in found), tuple(everything for _, everything in found))


def attention_kept(case: Case) -> tuple[Floats, Floats, Floats]:
    """Return the activations of attention, those among them that can be made again from latents [rows] [bytes], and
    the outputs of its projections [rows] [elements per token].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
    """
    model, t, tokens = case.model, case.layout.tensor_par, case.tokens
    latent = model.latent > 0
    keys = case.key_value_heads
    widths = (model.attn_heads + keys) * model.attn_size + (keys + model.attn_heads) * model.value_size
    # 16-bit queries, keys, values and outputs, and one 32-bit log-sum-exp per head and token.
    attention = 2.0 * tokens * widths / t + 4.0 * tokens * model.attn_heads / t
    ranks = model.query_rank + model.key_value_rank + model.rope_size + 2.0 * model.key_value_rank
    # Values are a view of the expanded latent, keys a copy of its other part.
    up = 2.0 * tokens * (model.attn_size - model.rope_size) * model.attn_heads / t
    attention = attention + np.where(latent, 2.0 * tokens * ranks + up, 0.0)
    # Queries, keys and values, which are made again from the latents; those and the output of attention stay
    # (DeepSeek-V3, arXiv:2412.19437, section 3.2.3).
    expanded = 2.0 * tokens * (2.0 * model.attn_size + model.value_size) * model.attn_heads / t + up
    return attention, np.where(latent, expanded, 0.0), widths


def dense_kept(case: Case) -> Floats:
    """Return the activations of a dense feed-forward layer [rows] [bytes].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
    """
    model = case.model
    # Inputs of the activation (two if gated) and its output, T F / t each.
    branches = np.where(model.gated > 0, 3.0, 2.0)
    dense = 2.0 * case.tokens * branches * model.feedforward / case.layout.tensor_par
    return case.software.kept_bytes / 2.0 * dense


def experts_kept(case: Case) -> Floats:
    """Return the activations of a layer of experts [rows] [bytes].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
    """
    model, t, tokens = case.model, case.layout.tensor_par, case.tokens
    split = case.layout.expert_tensor_par / t
    # k copies of a token: 4 h for its input and output, 6 F_e for gate, up and activation (3 tensors of 16 bits).
    routed = tokens * model.experts_per_token * (4.0 * model.hidden * split + 6.0 * model.expert_feedforward / t)
    routed = routed * case.busiest_load
    # Shared experts likewise; the router keeps 8 bytes per token and expert.
    sparse = (
        routed
        + 6.0 * tokens * model.shared_experts * model.expert_feedforward / t
        + 8.0 * case.split_tokens * model.experts
    )
    return case.software.kept_bytes / 2.0 * sparse


def pattern_kept(case: Case, pattern: LayerPattern) -> tuple[KeptParts, ...]:
    """Return the activations of every kind of block of a pattern [rows] [bytes].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        pattern: of the model's blocks.
    """
    t, tokens, hidden = case.layout.tensor_par, case.tokens, pattern.hidden
    none: Floats = np.zeros(())
    found = []
    for place, block in enumerate(pattern.blocks):
        mixers = expanded = feedforward = widths = branches = none
        for layer, view in layer_cases(case)[place]:
            if layer.softmax() is not None:
                kept, again, width = attention_kept(view)
                mixers, expanded, widths = mixers + kept, expanded + again, widths + width
                continue
            acted = layer.activation()
            if acted is not None:
                feedforward = feedforward + (dense_kept(view) if layer.routing() is None else experts_kept(view))
                branches = branches + (2.0 if acted.gated else 1.0) * acted.width
                continue
            kept_bytes = layer.kept(hidden)
            mixers = mixers + tokens * (kept_bytes.split / t + kept_bytes.whole)
            widths = widths + sum(product.outputs for product in layer.products(hidden) if product.split == "outputs")
        norm = 4.0 * block.sublayers * case.split_tokens * hidden
        found.append(KeptParts(norm, mixers, expanded, feedforward, widths, branches))
    return tuple(found)


def _kept_by_recomputation(case: Case, parts: KeptParts) -> tuple[Floats, Floats]:
    """Return the activations of a block that recomputation leaves, and all of them [rows] [bytes]."""
    model, layout = case.model, case.layout
    t, tokens = layout.tensor_par, case.tokens
    norm, attention, expanded, feed, widths, branches = parts
    low = case.software.kept_bytes / 2.0
    unfused = case.software.attention_kernel == ATTENTION_KERNELS.index("unfused")
    # Korthikanti et al. 2022, table 2: s b h (10 + 24/t + 5 a s/(h t)), with sequence parallelism 10/t; selective
    # recomputation drops the last term, full recomputation leaves 2 s b h.
    scores = 5.0 * model.attn_heads * model.seq_size * case.tokens / t
    old = case.split_tokens * model.hidden * 10.0 + 24.0 * tokens * model.hidden / t
    kind = layout.recompute.astype(int)

    def is_kind(*names: str) -> npt.NDArray[np.bool_]:
        found: npt.NDArray[np.bool_] = np.logical_or.reduce([kind == RECOMPUTES.index(name) for name in names])
        return found

    # PyTorch keeps the gathered inputs of both halves; Megatron gathers them again.
    pytorch = case.software.pytorch_native > 0
    gathered = np.where(pytorch & (layout.sequence_par > 0), 2.0 * 2.0 * tokens * model.hidden * (1.0 - 1.0 / t), 0.0)

    everything = np.where(unfused, old + scores, norm + attention + feed + gathered)
    without_scores = np.where(unfused, old, everything)
    # The 16-bit input of the block, of which everything can be computed again.
    boundary = 2.0 * case.split_tokens * model.hidden
    operators = OPERATOR_SHARES[0] * norm + OPERATOR_SHARES[1] * attention + OPERATOR_SHARES[2] * feed
    projections = boundary + 2.0 * tokens * widths / t
    # Outputs of norms and of the activation are computed again: half of 8 T h, one of three tensors of T F.
    modules = norm / 2.0 + attention + feed * 2.0 / 3.0
    value = np.select(
        [
            is_kind("full"),
            is_kind("selective"),
            is_kind("half"),
            is_kind("operators"),
            is_kind("save_projections"),
            is_kind("save_dots"),
            is_kind("modules"),
            is_kind("modules_mla"),
        ],
        [
            boundary,
            without_scores,
            (everything + boundary) / 2.0,
            operators,
            projections,
            projections + low * 2.0 * tokens * branches / t,
            modules,
            modules - expanded,
        ],
        everything,
    )
    share = layout.recompute_share
    return share * value + (1.0 - share) * everything, everything


def in_flight(case: Case, position: Floats | float) -> Floats:
    """Return the number of microbatches whose activations a stage keeps at once [rows] [microbatches of a whole stage].

    See `schedules.activations_in_flight`. All chunks of a stage count equally, except for layouts with unlike chunks
    (`residence`).

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        position: position of the stage in the pipeline, from 0 [rows].
    """
    p, v = case.layout.pipeline_par, case.layout.pipeline_interleaving
    # In whole stages: chunks kept over chunks per stage.
    return activations_in_flight(case.layout.schedule, p, position, case.microbatches, v) / v


@dataclass(frozen=True, slots=True)
class StageMemory:
    """Memory of one stage on a processor by kind, arrays [rows] [bytes].

    `activations` are kept for the backward pass, `working` is the working memory of the current block. `block_weights`
    are `weights` without the vocabulary. `movable` and `movable_kept` are the shares of weights or state, and of kept
    activations, outside the two largest blocks: offloading moves only these.
    """

    weights: Floats
    gradients: Floats
    optimizer: Floats
    activations: Floats
    working: Floats
    logits: Floats
    temporaries: Floats
    block_weights: Floats
    movable: Floats
    movable_kept: Floats

    def peak(self) -> Floats:
        """Returns the sum of all kinds [rows] [bytes]."""
        return self.state() + self.weights + self.activations + self.working + self.logits + self.temporaries

    def state(self) -> Floats:
        """Returns gradients and optimizer state [rows] [bytes]."""
        return self.gradients + self.optimizer


def memory_use(case: Case) -> ProcessorMemory:
    """Returns the peak memory per processor of every row, that of the fullest stage [rows] [bytes].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
    """
    stages = stage_memories(case)
    peaks = [stage.peak() for stage in stages]

    def of(*names: str) -> Floats:
        values = [sum((getattr(stage, name) for name in names), start=np.zeros(())) for stage in stages]
        return of_largest(peaks, values)

    plain = ("weights", "gradients", "optimizer", "logits", "temporaries")
    return ProcessorMemory(
        peak=of_largest(peaks, peaks), activations=of("activations", "working"), **{name: of(name) for name in plain}
    )


def of_largest(sizes: Sequence[Floats], values: Sequence[Floats]) -> Floats:
    """Return each row's value at the largest of `sizes`, the first of equals [rows].

    Args:
        sizes: sizes to compare, one array [rows] per candidate.
        values: values to return, one array [rows] per candidate in the same order.
    """
    most, found = sizes[0], values[0]
    for size, value in zip(sizes[1:], values[1:], strict=True):
        found, most = np.where(size > most, value, found), np.maximum(most, size)
    return found


def block_weight_bytes(case: Case) -> tuple[Floats, ...]:
    """Returns the bytes of the weights of a block of every size, on one processor [rows] [bytes].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
    """
    local, held = local_weights(case), _Held.of(case)
    return tuple(held.weights(*pair) for pair in zip(local.blocks, local.experts, strict=True))


@dataclass(frozen=True, slots=True)
class _Held:
    """Bytes of a processor per parameter: outside experts and inside, for each kind of state."""

    weight: tuple[Floats, Floats]
    gradient: tuple[Floats, Floats]
    optimizer: tuple[Floats, Floats]

    @classmethod
    def of(cls, case: Case) -> _Held:
        layout = case.layout
        replicas, expert_replicas = replicas_of(case)
        sharded = layout.fully_sharded > 0

        def each(plain: Floats | float, full: Floats | float, stage: float) -> tuple[Floats, Floats]:
            on = layout.zero_stage >= stage
            # Rajbhandari et al. 2020, section 5: stage 1 divides the optimizer state, 2 also gradients, 3 also weights.
            outside, inside = (
                np.where(sharded, full / by, plain / np.where(on, by, 1.0)) for by in (replicas, expert_replicas)
            )
            return outside, inside

        moments = MOMENTS * case.software.moment_bytes
        return cls(
            each(WEIGHT, SHARDED_WEIGHT, 3.0), each(GRADIENT, GRADIENT, 2.0), each(MASTER + moments, moments, 1.0)
        )

    def weights(self, outside: Floats, inside: Floats) -> Floats:
        """Return the bytes of the weights of parameters outside and inside experts [bytes]."""
        return self.weight[0] * outside + self.weight[1] * inside


def stage_memories(case: Case) -> tuple[StageMemory, ...]:
    """Returns what a processor holds at its peak, on the first stage, the last, and others that may be the fullest
    [rows] [bytes].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
    """
    common = _Common(local_weights(case), _Held.of(case), activation_bytes(case))
    return tuple(_stage_memory(case, common, stage, number) for number, stage in enumerate(fullest_stages(case)))


def stage_memory(case: Case, stage: StageBlocks, number: int) -> StageMemory:
    """Returns what a processor of one stage holds at its peak [rows] [bytes].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        stage: position and blocks of the stage.
        number: 0 for the first stage, 1 for the last, more for those between them.
    """
    return _stage_memory(case, _Common(local_weights(case), _Held.of(case), activation_bytes(case)), stage, number)


class _Common(NamedTuple):
    """Figures shared by all stages of the same row."""

    local: LocalWeights
    held: _Held
    kept: Activations


def _stage_memory(case: Case, common: _Common, stage: StageBlocks, number: int) -> StageMemory:
    model, layout, software, t = case.model, case.layout, case.software, case.layout.tensor_par
    local, held, kept = common
    end = number < ENDS
    blocks, experts, vocabulary = held_on(case, local, stage, number)
    plain = blocks + vocabulary
    weights = held.weights(plain, experts)
    gradients = held.gradient[0] * plain + held.gradient[1] * experts
    optimizer = held.optimizer[0] * plain + held.optimizer[1] * experts

    # A stage keeps its blocks' activations of every microbatch in flight; see `in_flight`.
    flying = in_flight(case, stage.position)
    copies = stage.by_size(sizes_of(case.model))
    activations = _sum_of(copies, kept.kept)
    full = (layout.recompute == RECOMPUTES.index("full")) | (layout.recompute == RECOMPUTES.index("half"))
    # Recomputation brings one block at a time back in full.
    working = np.where(full, _of_largest_block(copies, kept.working), 0.0)

    pytorch = software.pytorch_native > 0
    logits: Floats = np.zeros(())
    if end:
        logits = np.where(pytorch, LOGIT_PYTORCH, LOGIT) * case.tokens * model.vocabulary / t
        # The head's gathered input and its gradient.
        logits = logits + np.where(
            pytorch & (layout.sequence_par > 0), 2.0 * 2.0 * case.tokens * model.hidden * (1.0 - 1.0 / t), 0.0
        )
        # Those of prediction layers are kept beside them.
        logits = logits * heads(case, number) * (1.0 + model.prediction_layers)
    # Weight gradients of the two largest matrices before they are added to the 32-bit ones.
    largest = model.hidden * (1.0 + model.gated) * model.feedforward / t
    whole = local.whole()
    gathered = GATHERED_BLOCKS * WEIGHT * _of_largest_block(copies, whole)
    edge = local.vocabulary if end else np.zeros(())
    temporaries = np.where(layout.fully_sharded > 0, gathered + WEIGHT * edge, WEIGHT * (largest + edge))

    kept_copies = tuple(number * flying for number in copies)
    everything = blocks + experts
    largest_blocks = _two_largest(copies, whole)
    activations = flying * activations
    unlike = has_unlike_chunks(case)
    if unlike.any():
        there = kept_blocks(case, stage)
        kept_copies = tuple(np.where(unlike, number, other) for number, other in zip(there, kept_copies, strict=True))
        activations = np.where(unlike, _sum_of(there, kept.kept), activations)
    kept_largest = _two_largest(kept_copies, kept.kept)
    return StageMemory(
        weights,
        gradients,
        optimizer,
        activations,
        working,
        logits,
        temporaries,
        held.weights(blocks, experts),
        1.0 - largest_blocks / np.maximum(everything, 1.0),
        1.0 - kept_largest / np.maximum(activations, 1.0),
    )


def _sum_of(copies: Sequence[Floats], each: Sequence[Floats]) -> Floats:
    """Return the sum over sizes of number of blocks times a figure of the size [rows]."""
    found: Floats = np.zeros(())
    for number, figure in zip(copies, each, strict=True):
        if np.any(number):
            found = found + number * figure
    return found


def _of_largest_block(copies: Sequence[Floats], each: Sequence[Floats]) -> Floats:
    """Return the largest figure of the sizes of block that the stage holds [rows]."""
    found: Floats = np.zeros(())
    for number, figure in zip(copies, each, strict=True):
        if np.any(number):
            found = np.maximum(found, np.where(number > 0, figure, 0.0))
    return found


def _two_largest(copies: Sequence[Floats], sizes: Sequence[Floats]) -> Floats:
    """Return the sum of the `RESIDENT_BLOCKS` largest among copies of some sizes [rows]."""
    present = [pair for pair in zip(copies, sizes, strict=True) if np.any(pair[0])] or [(copies[0], sizes[0])]
    if len(present) > 2:
        return _some_largest(present)
    if len(present) == 1:
        ((number, size),) = present
        return np.asarray(np.minimum(number, RESIDENT_BLOCKS) * size)
    (few, small_size), (many, large_size) = present
    second = large_size >= small_size
    more, fewer = np.where(second, many, few), np.where(second, few, many)
    large, small = np.maximum(small_size, large_size), np.minimum(small_size, large_size)
    first = np.minimum(more, RESIDENT_BLOCKS)
    return np.asarray(first * large + np.minimum(RESIDENT_BLOCKS - first, fewer) * small)


def _some_largest(present: Sequence[tuple[Floats, Floats]]) -> Floats:
    """Return the same for any number of sizes: the largest first, until enough copies are counted."""
    several = np.broadcast_arrays(*(side for pair in present for side in pair))
    copies, sizes = np.stack(several[::2], axis=-1), np.stack(several[1::2], axis=-1)
    order = np.argsort(-sizes, axis=-1, kind="stable")
    copies, sizes = np.take_along_axis(copies, order, -1), np.take_along_axis(sizes, order, -1)
    before = np.cumsum(copies, axis=-1) - copies
    taken = np.clip(RESIDENT_BLOCKS - before, 0.0, copies)
    return np.asarray((taken * sizes).sum(axis=-1))

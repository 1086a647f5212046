"""Memory of one processor: weights, gradients, optimizer state, activations, logits, temporaries; per stage.

The peak is the larger of the first stage, which holds the activations of most microbatches, and the last, which holds
the logits. Counts of bytes are those of mixed-precision training with Adam: weights in 16 bits, gradients, master
weights and two moments in 32 bits. Activation counts: Korthikanti et al. 2022 (unfused attention), and the tensors that
Megatron's and PyTorch's fused kernels keep.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.calibrated.inputs import ATTENTION_KERNELS, RECOMPUTES, Case, Floats
from engine.calibrated.pipeline import blocks_per_stage
from engine.calibrated.weights import local_weights

__all__ = ["MemoryUse", "StageMemory", "activation_bytes", "held_blocks", "in_flight", "memory_use", "stage_memory"]

WEIGHT, GRADIENT, MASTER = 2.0, 4.0, 4.0
MOMENTS = 2.0
SHARDED_WEIGHT = 4.0
"""Bytes per parameter of PyTorch's fully sharded training, whose 32-bit weights are the master copy."""
GATHERED_BLOCKS = 2.0
LOGIT, LOGIT_PYTORCH = 8.0, 14.0
"""Bytes per logit: 16-bit logits, a 32-bit copy and its gradient; PyTorch keeps further 32-bit copies."""
OPERATOR_SHARES = (0.5, 0.6, 0.5)
"""What torchtitan's per-operator checkpointing keeps of norms, attention and feed-forward."""


@dataclass(frozen=True, slots=True)
class MemoryUse:
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
    """Bytes that one microbatch leaves in one block [bytes]: kept for the backward pass, and all of them at work."""

    dense: Floats
    sparse: Floats
    dense_working: Floats
    sparse_working: Floats


def activation_bytes(case: Case) -> Activations:
    """Activations of one block and microbatch on one processor [bytes]."""
    model, layout = case.model, case.layout
    t, tokens = layout.tensor_par, case.tokens
    latent = model.latent > 0
    norm = 8.0 * case.split_tokens * model.hidden
    keys = np.where(latent, model.attn_heads, model.key_value_heads)
    widths = (model.attn_heads + keys) * model.attn_size + (keys + model.attn_heads) * model.value_size
    attention = 2.0 * tokens * widths / t + 4.0 * tokens * model.attn_heads / t
    ranks = model.query_rank + model.key_value_rank + model.rope_size + 2.0 * model.key_value_rank
    # Values are a view of the expanded latent, keys a copy of its other part.
    up = 2.0 * tokens * (model.attn_size - model.rope_size) * model.attn_heads / t
    attention = attention + np.where(latent, 2.0 * tokens * ranks + up, 0.0)
    branches = np.where(model.gated > 0, 3.0, 2.0)
    dense = 2.0 * tokens * branches * model.feedforward / t
    split = layout.expert_tensor_par / t
    routed = tokens * model.experts_per_token * (4.0 * model.hidden * split + 6.0 * model.expert_feedforward / t)
    sparse = (
        routed
        + 6.0 * tokens * model.shared_experts * model.expert_feedforward / t
        + 8.0 * case.split_tokens * model.experts
    )

    unfused = case.software.attention_kernel == ATTENTION_KERNELS.index("unfused")
    scores = 5.0 * model.attn_heads * model.seq_size * case.tokens / t
    old = case.split_tokens * model.hidden * 10.0 + 24.0 * tokens * model.hidden / t
    kind = layout.recompute.astype(int)

    def is_kind(*names: str) -> npt.NDArray[np.bool_]:
        found: npt.NDArray[np.bool_] = np.logical_or.reduce([kind == RECOMPUTES.index(name) for name in names])
        return found

    # PyTorch keeps the gathered inputs of both halves; Megatron gathers them again.
    pytorch = case.software.pytorch_native > 0
    gathered = np.where(pytorch & (layout.sequence_par > 0), 2.0 * 2.0 * tokens * model.hidden * (1.0 - 1.0 / t), 0.0)

    def kept(feed: Floats) -> tuple[Floats, Floats]:
        everything = np.where(unfused, old + scores, norm + attention + feed + gathered)
        without_scores = np.where(unfused, old, everything)
        boundary = 2.0 * case.split_tokens * model.hidden
        operators = OPERATOR_SHARES[0] * norm + OPERATOR_SHARES[1] * attention + OPERATOR_SHARES[2] * feed
        projections = boundary + 2.0 * tokens * widths / t
        modules = norm / 2.0 + attention + feed * 2.0 / 3.0
        value = np.select(
            [
                is_kind("full"), is_kind("selective"), is_kind("half"), is_kind("operators"),
                is_kind("save_projections"), is_kind("save_dots"), is_kind("modules", "modules_mla"),
            ],
            [
                boundary, without_scores, (everything + boundary) / 2.0, operators, projections,
                projections + 2.0 * tokens * (branches - 1.0) * model.feedforward / t, modules,
            ],
            everything,
        )  # fmt: skip
        share = layout.recompute_share
        return share * value + (1.0 - share) * everything, everything

    dense_kept, dense_all = kept(dense)
    sparse_kept, sparse_all = kept(sparse)
    return Activations(dense_kept, sparse_kept, dense_all, sparse_all)


def in_flight(case: Case) -> tuple[Floats, Floats]:
    """Microbatches whose activations the first and the last stage hold at once [microbatches of a whole stage].

    Under interleaving (Narayanan et al. 2021) the stage i runs 2 (p - i - 1) + (v - 1) p + 1 chunks ahead.
    """
    p, v = case.layout.pipeline_par, case.layout.pipeline_interleaving
    chunks_first = np.where(v > 1, 2.0 * (p - 1.0) + (v - 1.0) * p + 1.0, p)
    chunks_last = np.where(v > 1, (v - 1.0) * p + 1.0, 1.0)
    chunks_first = np.where(p > 1, chunks_first, 1.0)
    chunks_last = np.where(p > 1, chunks_last, 1.0)
    micro = case.microbatches
    return np.minimum(chunks_first / v, micro), np.minimum(chunks_last / v, micro)


def held_blocks(case: Case, *, last: bool) -> tuple[Floats, Floats]:
    """Blocks of the first or the last stage, and microbatches whose activations it holds at once.

    By these alone a stage's memory depends on the batch and on interleaving.
    """
    # With an equal share everywhere the middle stages hold as much; the ends decide.
    stages = blocks_per_stage(case)
    if last:
        return stages.last, in_flight(case)[1]
    # Where stages are uneven the second may hold a block more, of one microbatch less.
    layout, flying = case.layout, in_flight(case)[0]
    second = stages.middle * np.minimum(layout.pipeline_par - 1.0, case.microbatches)
    uneven = (layout.pipeline_par > 2) & (layout.pipeline_interleaving == 1) & (stages.middle > stages.first)
    return stages.first, np.where(uneven, np.maximum(flying, second / np.maximum(stages.first, 1.0)), flying)


@dataclass(frozen=True, slots=True)
class StageMemory:
    """Bytes on a processor of one stage by kind, arrays [rows] [bytes], for `blocks` blocks.

    `activations` are kept for the backward pass, `working` is what the block at work needs besides; `flying` counts the
    microbatches whose activations are kept at once.
    """

    weights: Floats
    gradients: Floats
    optimizer: Floats
    activations: Floats
    working: Floats
    logits: Floats
    temporaries: Floats
    blocks: Floats
    flying: Floats

    def peak(self) -> Floats:
        """The sum of all kinds [bytes]."""
        state = self.weights + self.gradients + self.optimizer
        return state + self.activations + self.working + self.logits + self.temporaries


def memory_use(case: Case) -> MemoryUse:
    """Peak memory per processor of every row, the larger of first and last stage [bytes]."""
    stages = (stage_memory(case, last=False), stage_memory(case, last=True))
    peaks = [stage.peak() for stage in stages]
    larger = peaks[0] >= peaks[1]

    def of(*names: str) -> Floats:
        first, last = (sum((getattr(stage, name) for name in names), start=np.zeros(())) for stage in stages)
        return np.where(larger, first, last)

    plain = ("weights", "gradients", "optimizer", "logits", "temporaries")
    return MemoryUse(
        peak=np.where(larger, *peaks), activations=of("activations", "working"), **{name: of(name) for name in plain}
    )


def stage_memory(case: Case, *, last: bool) -> StageMemory:
    """What a processor of the first or the last stage holds at its peak [bytes]."""
    model, layout, software, t = case.model, case.layout, case.software, case.layout.tensor_par
    alone = layout.pipeline_par == 1
    routed = model.experts > 0
    blocks, flying = held_blocks(case, last=last)
    plain = np.where(routed, np.minimum(model.dense_blocks, blocks) * (alone if last else 1.0), blocks)
    sparse = np.where(routed, blocks - plain, 0.0)
    local = local_weights(case)
    vocabulary = local.vocabulary
    held = plain * local.dense + np.where(routed, sparse * local.sparse, 0.0)
    held = held + vocabulary * np.where(alone & (model.tied_embeddings == 0), 2.0, 1.0)
    split = layout.expert_par * layout.expert_tensor_par
    experts = sparse * local.experts

    replicas = layout.data_par * layout.context_par
    expert_replicas = np.maximum(replicas * t / split, 1.0)
    sharded = layout.fully_sharded > 0

    def divided(stage: float) -> tuple[Floats, Floats]:
        on = layout.zero_stage >= stage
        return np.where(on, replicas, 1.0), np.where(on, expert_replicas, 1.0)

    def state(weight_like: Floats | float, full_like: Floats | float, stage: float) -> Floats:
        plain_by, expert_by = divided(stage)
        plainly = weight_like * (held / plain_by + experts / expert_by)
        return np.where(sharded, full_like * (held / replicas + experts / expert_replicas), plainly)

    weights = state(WEIGHT, SHARDED_WEIGHT, 3.0)
    gradients = state(GRADIENT, GRADIENT, 2.0)
    moments = MOMENTS * software.moment_bytes
    optimizer = state(MASTER + moments, moments, 1.0)

    kept = activation_bytes(case)
    activations = flying * (plain * kept.dense + sparse * kept.sparse)
    full = (layout.recompute == RECOMPUTES.index("full")) | (layout.recompute == RECOMPUTES.index("half"))
    working = np.where(full, np.where(routed, kept.sparse_working, kept.dense_working), 0.0)
    pytorch = software.pytorch_native > 0
    logits = np.where(pytorch, LOGIT_PYTORCH, LOGIT) * case.tokens * model.vocabulary / t
    # The head's gathered input and its gradient.
    logits = logits + np.where(
        pytorch & (layout.sequence_par > 0), 2.0 * 2.0 * case.tokens * model.hidden * (1.0 - 1.0 / t), 0.0
    )
    logits = logits if last else np.where(alone, logits, 0.0)
    # Weight gradients of the two largest matrices before they are added to the 32-bit ones.
    largest = model.hidden * (1.0 + model.gated) * model.feedforward / t + vocabulary
    gathered = GATHERED_BLOCKS * WEIGHT * np.where(routed, local.sparse + local.experts, local.dense)
    temporaries = np.where(sharded, gathered + WEIGHT * vocabulary, WEIGHT * largest)
    return StageMemory(
        weights, gradients, optimizer, activations, working, logits, temporaries,
        np.broadcast_to(blocks, np.shape(activations)), np.broadcast_to(flying, np.shape(activations)),
    )  # fmt: skip

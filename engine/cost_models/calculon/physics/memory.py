"""Memory of an execution in the two memory tiers of a processor.

Every function works on arrays of any broadcastable shapes; all sizes in bytes.

Source: Calculon 0.1.0 (commit caa4b11), `llm.py` `_compute_batch_stats`, `_get_mem_cap_reqs` and their getters.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.cost_models.calculon.physics.pipeline import PipelineShape
from engine.executions.arrays import Floats

__all__ = ["BlockSizes", "MemoryByKind", "activation_blocks", "memory_use", "tiers"]

Flags = npt.NDArray[np.bool_] | Floats


@dataclass(slots=True)
class BlockSizes:
    """Memory of one block [bytes]: see the statistics of the same names (block_*_space)."""

    weights: Floats
    act_working: Floats
    act_storage: Floats
    act_checkpoint: Floats
    act_grads: Floats
    weight_grads: Floats
    weight_grads_unsharded: Floats
    optimizer: Floats


@dataclass(slots=True)
class MemoryByKind:
    """Memory of all blocks of a processor by kind [bytes], and the part of each kind that stays in tier 1 when
    offloaded."""

    weights: Floats
    activations: Floats
    checkpoints: Floats
    act_grads: Floats
    weight_grads: Floats
    optimizer: Floats
    staged_weights: Floats
    staged_activations: Floats
    staged_checkpoints: Floats
    staged_act_grads: Floats
    staged_weight_grads: Floats
    staged_optimizer: Floats
    offloaded_weight_grads: Floats


def activation_blocks(s: PipelineShape) -> Floats:
    """Returns how many microbatches' activations a stage holds at once, in chunks: min(n, p), more when interleaved.

    Args:
        s: how microbatches fall on the pipeline.
    """
    # 1F1B keeps min(n, p) microbatches; interleaving (1 + (p - 1)/(p v)) times as many (Korthikanti et al. 2022,
    # section 4.2.3).
    held = np.minimum(s.microbatches, s.pipeline_par)
    interleaved = held * (1.0 + (s.pipeline_par - 1.0) / (s.interleaving * s.pipeline_par))
    return np.where(s.interleaving > 1, interleaved, held)


def memory_use(s: PipelineShape, z: BlockSizes, full_recompute: Flags, training: Flags) -> MemoryByKind:
    """Returns the memory by kind. Inference holds weights and one block's activations only: no key/value cache.

    Args:
        s: how blocks and microbatches fall on the pipeline.
        z: what one block holds [bytes].
        full_recompute: whether everything is recomputed.
        training: whether there is a backward pass.
    """
    held = s.blocks * activation_blocks(s)
    training = np.asarray(training, bool)
    full = np.asarray(full_recompute, bool) & training
    # One block works; the stored activations of all others and of all other microbatches come on top.
    kept = np.where(full, 0.0, z.act_storage * (held - 1.0))
    # llm.py: one block's gradients in 32 bits while they are reduced, those of the others at the datatype's width.
    weight_grads = np.where(
        s.blocks == 1, z.weight_grads_unsharded, z.weight_grads_unsharded + z.weight_grads * (s.blocks - 1.0)
    )
    full_any = np.asarray(full_recompute, bool)
    return MemoryByKind(
        weights=z.weights * s.blocks,
        activations=np.where(training & ~full, z.act_working + kept, z.act_working),
        checkpoints=np.where(full, s.blocks * z.act_checkpoint * activation_blocks(s), 0.0),
        act_grads=np.where(training, z.act_grads, 0.0),
        weight_grads=np.where(training, weight_grads, 0.0),
        optimizer=np.where(training, z.optimizer * s.blocks, 0.0),
        # What is offloaded keeps two buffers: the block in use, and the one in transit (llm.py get_*_space_min).
        staged_weights=2.0 * z.weights,
        staged_activations=np.where(full_any, z.act_working, z.act_working + z.act_storage),
        staged_checkpoints=np.where(full, 2.0 * z.act_checkpoint, 0.0),
        staged_act_grads=np.where(training, z.act_grads, 0.0),
        staged_weight_grads=np.where(training, z.weight_grads_unsharded + z.weight_grads, 0.0),
        staged_optimizer=np.where(training, 2.0 * z.optimizer, 0.0),
        offloaded_weight_grads=z.weight_grads * s.blocks,
    )


def tiers(
    m: MemoryByKind, full_recompute: Flags, weight_offload: Flags, activations_offload: Flags, optimizer_offload: Flags
) -> tuple[Floats, Floats]:
    """Returns the memory of the first and of the second tier of a processor [bytes], added in the reference's order.

    Args:
        m: memory by kind [bytes].
        full_recompute: whether everything is recomputed.
        weight_offload: whether weights are in the second tier.
        activations_offload: whether kept activations are.
        optimizer_offload: whether gradients and optimizer state are.
    """
    zero = 0.0
    first = np.where(weight_offload, m.staged_weights, m.weights)
    second = np.where(weight_offload, m.weights, zero)
    # With full recompute checkpoints move out and the working set stays; otherwise the activations themselves move.
    full = np.asarray(full_recompute, bool)
    first = first + np.where(activations_offload, m.staged_activations, m.activations)
    first = first + np.where(activations_offload, np.where(full, m.staged_checkpoints, zero), m.checkpoints)
    second = second + np.where(activations_offload, np.where(full, m.checkpoints, m.activations), zero)
    optimizer = np.asarray(optimizer_offload, bool)
    first = np.where(
        optimizer,
        (first + m.staged_weight_grads) + m.staged_optimizer,
        first + (m.weight_grads + m.optimizer),
    )
    second = np.where(optimizer, (second + m.offloaded_weight_grads) + m.optimizer, second)
    return first + m.act_grads, second

"""The fields that a block's figures depend on."""

from __future__ import annotations

from dataclasses import dataclass

from engine.executions.arrays import Flags, Ints

__all__ = ["BlockKeys"]


@dataclass(slots=True)
class BlockKeys:
    """The fields that a block's figures depend on, each an array [keys]; words are positions in their choices."""

    tensor_par: Ints
    tensor_par_net: Ints
    microbatch_size: Ints
    fused_activation: Flags
    attention_type: Ints
    activation_recompute: Ints
    tensor_par_comm_type: Ints
    tensor_par_overlap: Ints
    seq_par_ag_redo: Flags
    training: Flags

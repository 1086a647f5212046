"""Fields that distinguish modes for times, the optimizer and memory."""

from __future__ import annotations

from engine.space.schedule_points import Grains
from engine.space.space import MODE_FIELDS

__all__ = ["GRAINS", "MEMORY_FIELDS", "TIME_FIELDS"]

TIME_FIELDS = (
    "activation_recompute",
    "tensor_par_comm_type",
    "seq_par_ag_redo",
    "tensor_par_overlap",
    "fused_activation",
    "attention_type",
    "training",
)
OPTIMIZER_FIELDS = ("attention_type", "overlapped", "training")
MEMORY_FIELDS = (
    "activation_recompute",
    "tensor_par_comm_type",
    "seq_par_ag_redo",
    "overlapped",
    "fused_activation",
    "attention_type",
    "training",
    "optimizer_sharding",
    "weight_offload",
    "activations_offload",
    "optimizer_offload",
)
GRAINS = Grains(MODE_FIELDS, TIME_FIELDS, OPTIMIZER_FIELDS, MEMORY_FIELDS)

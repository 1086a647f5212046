"""Fields that belong together, and words of fields as arrays of executions hold them: by position among the choices."""

from __future__ import annotations

from engine.columns import by_name

__all__ = [
    "ALL_REDUCE",
    "ATTENTION_ONLY",
    "FULL",
    "NETWORKS",
    "NONE",
    "NO_OVERLAP",
    "OFFLOADS",
    "P2P_RS_AG",
    "PIPE",
    "RING",
    "RS_AG",
]

OFFLOADS = ("weight_offload", "activations_offload", "optimizer_offload")
"""Fields that place data in the second memory tier."""
NETWORKS = ("tensor_par_net", "pipeline_par_net", "data_par_net")
"""Fields that assign networks to kinds of parallelism."""

FULL, ATTENTION_ONLY, NONE = range(len(by_name("activation_recompute").choices))
ALL_REDUCE, P2P_RS_AG, RS_AG = range(len(by_name("tensor_par_comm_type").choices))
NO_OVERLAP, RING, PIPE = range(len(by_name("tensor_par_overlap").choices))

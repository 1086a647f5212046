"""Words of fields as arrays of executions hold them: each by its position among the choices of its column."""

from __future__ import annotations

from engine.columns import by_name

__all__ = [
    "ALL_REDUCE", "ATTENTION_ONLY", "FULL", "NONE", "NO_OVERLAP", "P2P_RS_AG", "PIPE", "RING", "RS_AG",
]  # fmt: skip

FULL, ATTENTION_ONLY, NONE = range(len(by_name("activation_recompute").choices))
ALL_REDUCE, P2P_RS_AG, RS_AG = range(len(by_name("tensor_par_comm_type").choices))
NO_OVERLAP, RING, PIPE = range(len(by_name("tensor_par_overlap").choices))

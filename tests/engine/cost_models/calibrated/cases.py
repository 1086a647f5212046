"""A small case to vary: one field at a time, scalars or arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.cost_models.calibrated import Case

A100: dict[str, Any] = {
    "flops16": 312e12,
    "flops8": 0.0,
    "flops4": 0.0,
    "memory_bandwidth": 2039e9,
    "capacity": 80 * 2**30,
    "power": 400.0,
    "generation": 0.0,
    "multiprocessors": 108.0,
    "clock": 1.41e9,
    "network_sizes": (8.0, 65536.0),
    "network_bandwidths": (300e9, 25e9),
}
H100: dict[str, Any] = {
    **A100,
    "flops16": 989e12,
    "flops8": 1979e12,
    "memory_bandwidth": 3350e9,
    "power": 700.0,
    "generation": 1.0,
    "multiprocessors": 132.0,
    "clock": 1.755e9,
    "network_bandwidths": (450e9, 50e9),
}
DENSE: dict[str, Any] = {
    "hidden": 4096.0,
    "feedforward": 16384.0,
    "num_blocks": 32.0,
    "attn_heads": 32.0,
    "key_value_heads": 32.0,
    "attn_size": 128.0,
    "value_size": 128.0,
    "vocabulary": 51200.0,
    "seq_size": 2048.0,
    "gated": 0.0,
    "tied_embeddings": 1.0,
    "latent": 0.0,
    "query_rank": 0.0,
    "key_value_rank": 0.0,
    "rope_size": 0.0,
    "window": 0.0,
    "window_chunked": 0.0,
    "full_attention_every": 0.0,
    "experts": 0.0,
    "experts_per_token": 1.0,
    "expert_feedforward": 0.0,
    "shared_experts": 0.0,
    "leading_dense": 0.0,
    "experts_every": 0.0,
}
EXPERTS: dict[str, Any] = {
    **DENSE,
    "gated": 1.0,
    "experts": 64.0,
    "experts_per_token": 8.0,
    "expert_feedforward": 1024.0,
    "shared_experts": 1.0,
    "leading_dense": 1.0,
    "experts_every": 1.0,
}
LAYOUT: dict[str, Any] = {
    "tensor_par": 1.0,
    "pipeline_par": 1.0,
    "data_par": 8.0,
    "context_par": 1.0,
    "expert_par": 1.0,
    "expert_tensor_par": 1.0,
    "pipeline_interleaving": 1.0,
    "microbatch_size": 2.0,
    "batch_size": 64.0,
    "sequence_par": 0.0,
    "zero_stage": 1.0,
    "fully_sharded": 0.0,
    "linear_bits": 16.0,
    "linear_format": 0.0,
    "recompute": 0.0,
    "recompute_share": 1.0,
}
SOFTWARE: dict[str, Any] = {
    "attention_kernel": 3.0,
    "launch": 1.0,
    "unfused_elementwise": 0.0,
    "overlap_data": 0.0,
    "overlap_tensor": 0.0,
    "overlap_expert": 0.0,
    "overlap_pipeline": 0.0,
    "split_messages": 1.0,
    "gradient_bytes": 4.0,
    "gather_bytes": 2.0,
    "gather_cast_bytes": 0.0,
    "moment_bytes": 4.0,
    "shard_gradient_bytes": 4.0,
    "grouped_experts": 1.0,
    "gather_calls": 1.0,
    "gather_efficiency": 1.0,
    "messages": 2.0,
    "pytorch_native": 0.0,
    "age_years": np.inf,
    "fp8_parameters": 0.0,
}


def case(base: dict[str, Any] | None = None, **changes: Any) -> Case:
    """The dense model on eight H100s, or another base, with some fields changed."""
    values = {**H100, **(base or DENSE), **LAYOUT, **SOFTWARE}
    unknown = set(changes) - set(values)
    assert not unknown, unknown
    return Case.of({**values, **changes})

"""The table that people fill in with their measured runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pandas as pd

__all__ = ["EXAMPLE", "FIELDS", "NEEDED", "template"]

EXAMPLE: Final = "example"
"""Prefix of the name of the template's example row; such rows are not measurements."""

NEEDED: Final[Mapping[str, str]] = {
    "hidden": "Hidden size of the model",
    "ffn": "Width of its feed-forward layer (one of the two of a gated one)",
    "layers": "Blocks",
    "heads": "Attention heads",
    "vocab": "Vocabulary as trained, with padding",
    "seq_len": "Tokens per sequence",
    "num_gpus": "Processors of the run: tp x pp x dp x cp",
    "tp": "Tensor-parallel degree",
    "pp": "Pipeline-parallel degree",
    "mbs": "Sequences per microbatch",
    "gbs": "Sequences per step, all replicas",
    "dtype": "bf16, fp16, fp8, mxfp8 or nvfp4: of the linear layers",
    "step_time_s": "Measured seconds per step; or give tokens_per_s_per_gpu",
}
"""Fields that every run must have, with their meaning."""
OPTIONAL: Final[Mapping[str, str]] = {
    "id": "A name of the run",
    "hardware": "Accelerator; the system that is calibrated where left out",
    "framework": "Such as Megatron-LM, NeMo 25.04, torchtitan: sets what the software does, unless given below",
    "model": "Name of the model; runs of one model are left out together when errors are tested",
    "tokens_per_s_per_gpu": "Measured tokens per second and processor, instead of step_time_s",
    "tflops_per_gpu": "Measured TFLOP/s per processor, instead of step_time_s; needs tflops_kind",
    "tflops_kind": "causal or full: how tflops_per_gpu counts attention; with hardware if recomputation counts",
    "mem_gib": "Measured memory, not fitted",
    "kv_heads": "Heads of keys and values; as many as heads where left out",
    "head_dim": "Width of a head; hidden / heads where left out",
    "gated_mlp": "True for SwiGLU and the like; False where left out",
    "tied_embeddings": "Whether the head shares the embedding's weights; False where left out",
    "attn": "MLA for multi-head latent attention, or sliding-window 4096",
    "moe_experts": "Routed experts of each layer, for mixtures of experts",
    "moe_topk": "Experts that a token takes",
    "moe_ffn": "Width of an expert",
    "moe_shared": "Shared experts",
    "moe_dense_layers": "Leading blocks without experts",
    "dp": "Data-parallel degree; num_gpus / (tp x pp x cp) where left out",
    "cp": "Context-parallel degree; 1 where left out",
    "ep": "Expert-parallel degree; 1 where left out",
    "vpp": "Chunks of the interleaved pipeline per processor; 1 where left out",
    "recompute": "none, selective or full; none where left out",
    "seq_parallel": "Sequence parallelism; on with tp > 1 where left out",
    "zero_stage": "0 to 3: what data parallelism shards; 1 where left out",
    "fsdp": "True where weights are gathered layer by layer",
    "gpus_per_node": "Processors of a host",
    "date": "Of the software, such as 2026-05",
    "group": "Runs to be left out together when errors are tested",
    "attention_kernel": "unfused, flash1, flash2 or native",
    "launch": "eager, fused, compiled, graphs or partial_graphs",
    "overlap_data": "1 where data-parallel communication overlaps with computation",
    "overlap_tensor": "1 where tensor-parallel communication does",
    "overlap_expert": "1 where the exchange of tokens between experts does",
    "overlap_pipeline": "1 where pipeline communication does",
    "token_dispatcher": "all_to_all, all_gather, deepep or hybridep: how tokens reach their experts",
    "dispatch_datatype": "bfloat16 or float8: the number format of tokens on their way to experts",
    "expert_imbalance": "Tokens of the busiest expert rank over the mean [%]; 100, balanced, where left out",
    "context_par_comm": "p2p, all_gather, a2a or hierarchical: what context-parallel ranks exchange",
    "gradient_bytes": "Bytes per parameter in the reduction of gradients: 2 or 4",
    "notes": "Anything; ETP=2 gives the tensor-parallel degree of experts",
}
"""Fields that a run may have."""
FIELDS: Final[Mapping[str, str]] = {**NEEDED, **OPTIONAL}
"""Every field of the template, with its meaning."""

_EXAMPLES: Final = (
    {
        "id": f"{EXAMPLE}: delete this row",
        "framework": "Megatron-LM",
        "model": "Llama-3 8B",
        "hidden": "4096",
        "ffn": "14336",
        "layers": "32",
        "heads": "32",
        "kv_heads": "8",
        "vocab": "128256",
        "seq_len": "8192",
        "gated_mlp": "True",
        "tied_embeddings": "False",
        "num_gpus": "64",
        "tp": "2",
        "pp": "2",
        "dp": "16",
        "cp": "1",
        "vpp": "1",
        "mbs": "1",
        "gbs": "256",
        "recompute": "none",
        "zero_stage": "1",
        "fsdp": "False",
        "dtype": "bf16",
        "step_time_s": "4.3",
        "overlap_data": "1",
        "seq_parallel": "True",
    },
)


def template() -> str:
    """Returns the table as CSV: a header and one example row."""
    order = ["id", *NEEDED, *(name for name in OPTIONAL if name != "id")]
    rows = [[example.get(name, "") for name in order] for example in _EXAMPLES]
    return pd.DataFrame(rows, columns=order).to_csv(index=False)

"""Which arguments of training frameworks say what of a run, in the words that logs print them with.

Names are Megatron-LM's and NeMo's; both print what they were started with. A value that says nothing is left out, so
that the row shows what is missing.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.columns import by_name

__all__ = ["ARGUMENTS", "fields_of"]

NUMBERS: Mapping[str, tuple[str, ...]] = {
    "hidden": ("hidden_size",),
    "ffn": ("ffn_hidden_size",),
    "layers": ("num_layers",),
    "heads": ("num_attention_heads",),
    "kv_heads": ("num_query_groups",),
    "head_dim": ("kv_channels",),
    "vocab": ("padded_vocab_size", "vocab_size"),
    "seq_len": ("seq_length", "encoder_seq_length", "max_position_embeddings"),
    "moe_experts": ("num_experts", "num_moe_experts"),
    "moe_topk": ("moe_router_topk",),
    "moe_ffn": ("moe_ffn_hidden_size",),
    "num_gpus": by_name("num_procs").frameworks["megatron"],
    "gpus_per_node": ("num_gpus_per_node", "devices"),
    "tp": by_name("tensor_par").frameworks["megatron"],
    "pp": by_name("pipeline_par").frameworks["megatron"],
    "dp": by_name("data_par").frameworks["megatron"],
    "cp": by_name("context_par").frameworks["megatron"],
    "ep": by_name("expert_par").frameworks["megatron"],
    "mbs": by_name("microbatch_size").frameworks["megatron"],
    "gbs": by_name("batch_size").frameworks["megatron"],
}
"""Fields of a run that are a number, and the arguments that give them, the first known one counting."""
TRUTHS: Mapping[str, tuple[str, ...]] = {
    "seq_parallel": ("sequence_parallel",),
    "overlap_data": by_name("data_par_overlap").frameworks["megatron"],
    "overlap_tensor": by_name("tensor_par_overlap").frameworks["megatron"],
    "overlap_pipeline": by_name("pipeline_overlap").frameworks["megatron"],
}
_OTHERS = (
    "swiglu", "activation", "untie_embeddings_and_output_weights", "share_embeddings_and_output_weights",
    "group_query_attention", "multi_latent_attention", "bf16", "fp16", "fp8", "fp8_format", "precision",
    "recompute_granularity", "recompute_method", "recompute_num_layers", "activations_checkpoint_granularity",
    "use_distributed_optimizer", "use_torch_fsdp2", "use_megatron_fsdp", "transformer_impl", "use_flash_attn",
    "attention_backend", "accumulate_allreduce_grads_in_fp32", "virtual_pipeline_model_parallel_size",
    "num_layers_per_virtual_pipeline_stage", "expert_tensor_parallel_size", "num_nodes", "enable_cuda_graph",
    "external_cuda_graph", "moe_shared_expert_intermediate_size", "accumulate_grad_batches",
)  # fmt: skip
ARGUMENTS = frozenset(
    {name for names in (*NUMBERS.values(), *TRUTHS.values()) for name in names}.union(_OTHERS)
)
"""Every argument that is read."""
_ON, _OFF = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


def fields_of(given: Mapping[str, str]) -> dict[str, str]:
    """Returns the fields of a run, in the schema of `runs.csv`, that arguments give.

    Args:
        given: values by name of argument, as a training program has them.
    """
    known = {name: value for name, value in given.items() if value.lower() not in ("", "none", "null")}
    row: dict[str, str] = {}
    for field, names in (*NUMBERS.items(), *TRUTHS.items()):
        found = next((known[name] for name in names if name in known), "")
        if found:
            row[field] = found
    row |= _model(known, row) | _layout(known, row) | _software(known)
    return row


def _on(known: Mapping[str, str], *names: str) -> bool:
    return any(known.get(name, "").lower() in _ON for name in names)


def _off(known: Mapping[str, str], name: str) -> bool:
    return known.get(name, "").lower() in _OFF


def _number(known: Mapping[str, str], name: str) -> float:
    try:
        return float(known.get(name, ""))
    except ValueError:
        return 0.0


def _model(known: Mapping[str, str], row: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    if "swiglu" in known or "activation" in known:
        found["gated_mlp"] = str(_on(known, "swiglu") or known.get("activation", "").endswith(("swiglu", "geglu")))
    if "untie_embeddings_and_output_weights" in known:
        found["tied_embeddings"] = str(not _on(known, "untie_embeddings_and_output_weights"))
    elif "share_embeddings_and_output_weights" in known:
        found["tied_embeddings"] = str(_on(known, "share_embeddings_and_output_weights"))
    # Megatron prints a number of query groups even where grouped-query attention is off.
    if _off(known, "group_query_attention") and "heads" in row:
        found["kv_heads"] = row["heads"]
    if _on(known, "multi_latent_attention"):
        found["attn"] = "MLA"
    shared, each = _number(known, "moe_shared_expert_intermediate_size"), _number(known, "moe_ffn_hidden_size")
    if shared > 0 and each > 0:
        found["moe_shared"] = f"{shared / each:g}"
    return found


def _layout(known: Mapping[str, str], row: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    virtual, each = _number(known, "virtual_pipeline_model_parallel_size"), _number(
        known, "num_layers_per_virtual_pipeline_stage"
    )
    stages = _number(row, "layers") / max(_number(row, "pp"), 1.0)
    if virtual >= 1:
        found["vpp"] = f"{virtual:g}"
    elif each >= 1 and stages > 0:
        found["vpp"] = f"{stages / each:g}"
    nodes, devices = _number(known, "num_nodes"), _number(known, "devices")
    if "num_gpus" not in row and nodes > 0 and devices > 0:
        found["num_gpus"] = f"{nodes * devices:g}"
    if _on(known, "use_torch_fsdp2", "use_megatron_fsdp"):
        found |= {"fsdp": "True", "zero_stage": "3"}
    elif "use_distributed_optimizer" in known:
        found["zero_stage"] = "1" if _on(known, "use_distributed_optimizer") else "0"
    if _number(known, "expert_tensor_parallel_size") >= 1:
        found["notes"] = f"ETP={_number(known, 'expert_tensor_parallel_size'):g}"
    kind = known.get("recompute_granularity", known.get("activations_checkpoint_granularity", "")).lower()
    blocks = _number(known, "recompute_num_layers")
    if kind == "full" and known.get("recompute_method", "").lower() == "block" and blocks >= 1:
        # The block method recomputes that many layers of each stage.
        found["recompute"] = f"full:{min(blocks * max(_number(row, 'pp'), 1.0), _number(row, 'layers')):.0f}layers"
    else:
        found["recompute"] = kind if kind in ("full", "selective") else "none"
    return found


def _software(known: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    precision = known.get("precision", "").lower()
    if known.get("fp8", known.get("fp8_format", "")).lower() not in ("", *_OFF):
        found["dtype"] = "fp8"
    elif _on(known, "bf16") or "bf16" in precision:
        found["dtype"] = "bf16"
    elif _on(known, "fp16") or precision in ("16", "16-mixed", "fp16"):
        found["dtype"] = "fp16"
    backend = known.get("attention_backend", "").lower().rpartition(".")[2]
    plain = known.get("transformer_impl", "").lower() == "local" and _off(known, "use_flash_attn")
    if backend in ("unfused", "local") or plain:
        found["attention_kernel"] = "unfused"
    if "accumulate_allreduce_grads_in_fp32" in known:
        found["gradient_bytes"] = "4" if _on(known, "accumulate_allreduce_grads_in_fp32") else "2"
    if _on(known, "enable_cuda_graph", "external_cuda_graph"):
        found["launch"] = "graphs"
    return found

"""Arguments of training frameworks that describe a run, under the names printed in logs.

Names are Megatron-LM's and NeMo's; both print their arguments at the start. `engine.launch.megatron` interprets
combinations of arguments, as for launch scripts; this module maps arguments to fields of a run. A value without
information is left out, so that the row shows the missing fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.launch.megatron import read_printed
from models import datatypes

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
    "num_gpus": ("world_size", "using_world_size"),
    "gpus_per_node": ("num_gpus_per_node", "devices"),
    "tp": ("tensor_model_parallel_size",),
    "pp": ("pipeline_model_parallel_size",),
    "dp": ("data_parallel_size",),
    "cp": ("context_parallel_size",),
    "ep": ("expert_model_parallel_size",),
    "mbs": ("micro_batch_size",),
    "gbs": ("global_batch_size",),
}
"""Fields of a run that are a number, and the arguments that give them, the first known one counting."""
TRUTHS: Mapping[str, tuple[str, ...]] = {
    "seq_parallel": ("sequence_parallel",),
    "overlap_data": ("overlap_grad_reduce",),
    "overlap_tensor": ("tp_comm_overlap", "ub_tp_comm_overlap"),
    "overlap_expert": ("overlap_moe_expert_parallel_comm",),
}
"""Fields of a run that are on or off. Megatron's overlap of transfers between stages is that of interleaving."""
_OTHERS = (
    "swiglu",
    "activation",
    "untie_embeddings_and_output_weights",
    "share_embeddings_and_output_weights",
    "group_query_attention",
    "multi_latent_attention",
    "bf16",
    "fp16",
    "fp8",
    "fp8_format",
    "precision",
    "recompute_granularity",
    "recompute_method",
    "recompute_num_layers",
    "activations_checkpoint_granularity",
    "use_distributed_optimizer",
    "use_torch_fsdp2",
    "use_megatron_fsdp",
    "transformer_impl",
    "use_flash_attn",
    "attention_backend",
    "accumulate_allreduce_grads_in_fp32",
    "virtual_pipeline_model_parallel_size",
    "num_layers_per_virtual_pipeline_stage",
    "expert_tensor_parallel_size",
    "num_nodes",
    "enable_cuda_graph",
    "external_cuda_graph",
    "cuda_graph_impl",
    "cuda_graph_modules",
    "moe_shared_expert_intermediate_size",
    "accumulate_grad_batches",
    "fp4",
    "fp4_format",
    "recompute_modules",
    "recompute_activations",
    "grad_reduce_in_bf16",
    "data_parallel_sharding_strategy",
    "torch_fsdp2_reshard_after_forward",
    "use_custom_fsdp",
    "optimizer_cpu_offload",
    "cpu_offloading_num_layers",
    "activations_checkpoint_method",
    "activations_checkpoint_num_layers",
    "num_virtual_stages_per_pipeline_rank",
    "account_for_embedding_in_pipeline_split",
    "account_for_loss_in_pipeline_split",
    "moe_token_dispatcher_type",
    "moe_flex_dispatcher_backend",
    "moe_enable_deepep",
    "cp_comm_type",
)
ARGUMENTS = frozenset({name for names in (*NUMBERS.values(), *TRUTHS.values()) for name in names}.union(_OTHERS))
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
    execution, _, said = read_printed(known)
    if row.get("tp") == "1" and row.get("seq_parallel"):
        row["seq_parallel"] = "False"  # the framework switches it off, even if the command line sets it
    row |= (
        _model_fields(known, row)
        | _layout_fields(known, row, execution, said)
        | _software_fields(known, execution, said)
    )
    return row


def _is_on(known: Mapping[str, str], *names: str) -> bool:
    return any(known.get(name, "").lower() in _ON for name in names)


def _is_off(known: Mapping[str, str], name: str) -> bool:
    return known.get(name, "").lower() in _OFF


def _parse_number(known: Mapping[str, str], name: str) -> float:
    try:
        return float(known.get(name, ""))
    except ValueError:
        return 0.0


def _model_fields(known: Mapping[str, str], row: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    if "swiglu" in known or "activation" in known:
        found["gated_mlp"] = str(_is_on(known, "swiglu") or known.get("activation", "").endswith(("swiglu", "geglu")))
    if "untie_embeddings_and_output_weights" in known:
        found["tied_embeddings"] = str(not _is_on(known, "untie_embeddings_and_output_weights"))
    elif "share_embeddings_and_output_weights" in known:
        found["tied_embeddings"] = str(_is_on(known, "share_embeddings_and_output_weights"))
    # Megatron prints a number of query groups even where grouped-query attention is off.
    if _is_off(known, "group_query_attention") and "heads" in row:
        found["kv_heads"] = row["heads"]
    if _is_on(known, "multi_latent_attention"):
        found["attn"] = "MLA"
    shared, each = (
        _parse_number(known, "moe_shared_expert_intermediate_size"),
        _parse_number(known, "moe_ffn_hidden_size"),
    )
    if shared > 0 and each > 0:
        found["moe_shared"] = f"{shared / each:g}"
    return found


def _layout_fields(
    known: Mapping[str, str], row: Mapping[str, str], execution: Mapping[str, Any], said: frozenset[str]
) -> dict[str, str]:
    found: dict[str, str] = {}
    if said & {"virtual_pipeline_model_parallel_size", "num_layers_per_virtual_pipeline_stage"} and execution:
        found["vpp"] = str(execution["pipeline_interleaving"])
    nodes, devices = _parse_number(known, "num_nodes"), _parse_number(known, "devices")
    if "num_gpus" not in row and nodes > 0 and devices > 0:
        found["num_gpus"] = f"{nodes * devices:g}"
    sharded = _is_on(known, "use_torch_fsdp2", "use_megatron_fsdp", "use_custom_fsdp")
    if (sharded or "use_distributed_optimizer" in said) and execution:
        found["zero_stage"] = str(execution["zero_stage"])
    if sharded and execution.get("zero_stage") == 3:
        found["fsdp"] = "True"
    notes = []
    if _parse_number(known, "expert_tensor_parallel_size") >= 1:
        notes.append(f"ETP={_parse_number(known, 'expert_tensor_parallel_size'):g}")
    if _is_on(known, "optimizer_cpu_offload"):
        notes.append("optimizer offload=True")
    if _parse_number(known, "cpu_offloading_num_layers") > 0:
        notes.append(f"offloading of {_parse_number(known, 'cpu_offloading_num_layers'):g} layers")
    if notes:
        found["notes"] = "; ".join(notes)
    found["recompute"] = _recompute_word(known, row, execution)
    return found


def _recompute_word(known: Mapping[str, str], row: Mapping[str, str], execution: Mapping[str, Any]) -> str:
    """The kind of recomputation in the words of `runs.csv`; of some layers, how many of all."""
    kind = execution.get("activation_recompute", "none")
    blocks = _parse_number(known, "recompute_num_layers") or _parse_number(known, "activations_checkpoint_num_layers")
    method = known.get("recompute_method", known.get("activations_checkpoint_method", "")).lower()
    if kind != "none" and method == "block" and blocks >= 1:
        # The block method recomputes that many layers of each chunk of each stage.
        chunks = max(_parse_number(row, "pp"), 1.0) * max(float(execution["pipeline_interleaving"]), 1.0)
        return f"full:{min(blocks * chunks, _parse_number(row, 'layers')):.0f}layers"
    if kind == "attn_only":
        chosen = str(execution["selective_recompute"])
        return "selective" if chosen == "attention" else f"modules:{chosen}"
    return str(kind)


def _software_fields(known: Mapping[str, str], execution: Mapping[str, Any], said: frozenset[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    precision = known.get("precision", "").lower()
    named = execution.get("datatype")
    word = datatypes.word_for("runs", named) if named is not None and datatypes.is_known(named) else None
    if said & {"fp4", "fp8", "bf16", "fp16"} and word is not None:
        found["dtype"] = word
    elif "bf16" in precision:
        found["dtype"] = "bf16"
    elif precision in ("16", "16-mixed", "fp16"):
        found["dtype"] = "fp16"
    backend = known.get("attention_backend", "").lower().rpartition(".")[2]
    plain = known.get("transformer_impl", "").lower() == "local" and _is_off(known, "use_flash_attn")
    if backend in ("unfused", "local") or plain:
        found["attention_kernel"] = "unfused"
    if "accumulate_allreduce_grads_in_fp32" in known:
        found["gradient_bytes"] = "4" if _is_on(known, "accumulate_allreduce_grads_in_fp32") else "2"
    if _is_on(known, "grad_reduce_in_bf16"):
        found["gradient_bytes"] = "2"
    if (launch := execution.get("launch")) in ("graphs", "partial_graphs"):
        found["launch"] = str(launch)
    # Megatron prints both arguments, also where there are no experts and no context ranks.
    for argument, degree, name in (
        ("moe_token_dispatcher_type", "num_experts", "token_dispatcher"),
        ("cp_comm_type", "context_parallel_size", "context_par_comm"),
    ):
        if argument in said and degree in said and name in execution:
            found[name] = str(execution[name])
    return found

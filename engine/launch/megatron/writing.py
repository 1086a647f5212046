"""Arguments of Megatron-Core for an execution, by destination, and the parts that it cannot express.

Sources as in `reading`; flags by field are in `terms`.
"""

from __future__ import annotations

from typing import Any, Final

from engine.columns import by_name, called, choice_label
from engine.columns.recompute_modules import modules_of_word
from engine.launch.contract import LaunchError, LaunchOrder
from engine.launch.megatron.layouts import cut_of
from engine.launch.megatron.pattern_writing import count_letters, pattern_arguments
from engine.launch.megatron.terms import CONTEXT_EXCHANGES, DISPATCHERS
from engine.launch.not_expressible import name_expert_load
from engine.launch.precision import datatype_for
from engine.launch.report import Report

__all__ = ["Groups", "describe_refusal", "groups_of", "layout_groups_of"]

Groups = dict[str, dict[str, Any]]
"""Arguments by destination, in groups."""

_DEEPSEEK_V3: Final = {
    "moe_router_num_groups": 8,
    "moe_router_group_topk": 4,
    "moe_router_score_function": "sigmoid",
    "moe_router_enable_expert_bias": True,
    "moe_router_pre_softmax": True,
    "moe_router_topk_scaling_factor": 2.5,
    "moe_router_dtype": "fp32",
    "moe_router_load_balancing_type": ["seq_aux_loss"],
    "moe_aux_loss_coeff": [1e-4],
}
"""Routing of DeepSeek-V3 (arXiv:2412.19437, sections 2.1.2 and 4.2; its config.json), without effect on time."""
_BLACKWELL_AND_HOPPER: Final = "float8 is one scale per tensor (tensorwise); on Blackwell the datatype mxfp8 is usual."


def groups_of(order: LaunchOrder, report: Report) -> Groups:
    """Returns the arguments that run an execution, in groups; remarks go to the report.

    Args:
        order: what shall be written.
        report: where what cannot be said is noted.

    Raises `LaunchError` for an execution that trains nothing.
    """
    if not order.execution["training"]:
        raise LaunchError("The execution is a forward pass only (training is false); training frameworks train.")
    model = _model_arguments(order, report)
    layout = layout_groups_of(order, report)
    batch = {
        "micro_batch_size": order.execution["microbatch_size"],
        "global_batch_size": order.execution["batch_size"],
    }
    groups: Groups = {"model": model, "parallelism": layout.pop("parallelism"), "batch": batch, **layout}
    if "dsa_indexer_topk" in model and order.execution["context_par"] > 1:
        groups["parallelism"]["cp_comm_type"] = ["allgather"]  # dsa.py takes no other
    return groups


def layout_groups_of(order: LaunchOrder, report: Report) -> Groups:
    """Return the arguments of an execution without its model and batch, in groups; remarks go to the report.

    Args:
        order: what shall be written.
        report: where what cannot be said is noted.
    """
    groups: Groups = {
        "parallelism": _parallel_flags(order, report),
        "memory": _memory_flags(order, report),
        "precision": _precision_flags(order, report),
        "overlap": _overlap_flags(order, report),
        "software": _software_flags(order, report),
    }
    groups["parallelism"] |= _network_flags(order, report)
    return groups


def describe_refusal(title: str, reason: str, order: LaunchOrder) -> str:
    """Return the sentence that refuses an execution, in the execution's own words.

    Args:
        title: name of the framework.
        reason: why its checks refuse the arguments.
        order: execution and model that were written.
    """
    e = order.execution
    is_translated = "full recomputation" in reason and e["activation_recompute"] != "full"
    selection = choice_label("selective_recompute", e["selective_recompute"])
    written_as = f", which is how {title} would recompute {selection}" if is_translated else ""
    return f"{title} refuses this execution: {reason}{written_as}."


def _model_arguments(order: LaunchOrder, report: Report) -> dict[str, Any]:
    """Returns the arguments that state the model's shape.

    Args:
        order: what shall be written.
        report: where what cannot be said is noted.
    """
    if order.model.layers is not None:
        stated = pattern_arguments(order, report)
        return stated | (_dispatch_flags(report) if "num_experts" in stated else {})
    a, shape = order.model.architecture_or_assumed(), order.shape
    found: dict[str, Any] = {
        "num_layers": a.layers,
        "hidden_size": a.hidden,
        "ffn_hidden_size": a.ffn,
        "num_attention_heads": a.heads,
        "kv_channels": shape["head_dim"],
    }
    latent = a.latent_attention
    if latent is None and a.kv_heads != a.heads:
        found |= {"group_query_attention": True, "num_query_groups": a.kv_heads}
    longest = max(order.model.seq_size, a.max_seq or 0 if a.positions == "learned" else 0)
    found |= {"seq_length": order.model.seq_size, "max_position_embeddings": longest}
    kinds = {"learned": "learned_absolute", "relative": "relative", "none": "none", None: "learned_absolute"}
    positions = "rope" if a.positions == "rotary" else kinds.get(a.positions, "none")
    found["position_embedding_type"] = positions
    if a.positions not in ("rotary", "learned", "relative", "none", None):
        report.not_expressible(f"positions by {a.positions}: written without positions")
    if positions == "rope":
        theta = a.rope_theta or 10_000
        found["rotary_base"] = int(theta)
        if latent is not None:
            found["rope_type"] = "rope"
    found |= {
        "swiglu": a.gated_mlp,
        "normalization": a.norm if a.norm in ("RMSNorm", "LayerNorm") else "LayerNorm",
        # Models that say nothing have biases where GPT had them: with LayerNorm and without a gate.
        "add_bias_linear": bool(a.linear_bias) if a.linear_bias is not None else not a.gated_mlp and a.experts is None,
        "add_qkv_bias": bool(a.qkv_bias),
        "qk_layernorm": bool(a.qk_norm),
        "untie_embeddings_and_output_weights": not a.tied_embeddings,
        "attention_dropout": 0.0,
        "hidden_dropout": 0.0,
        "vocab_size": a.vocab_padded,
    }
    if found["add_bias_linear"]:
        found["add_qkv_bias"] = False  # part of all linear biases
    if latent is not None:
        found |= {
            "multi_latent_attention": True,
            "kv_lora_rank": latent.kv_rank,
            "qk_head_dim": latent.nope_head_dim,
            "qk_pos_emb_head_dim": latent.rope_head_dim,
            "v_head_dim": latent.v_head_dim,
            "qk_layernorm": True,
        }
        if latent.q_rank is not None:
            found["q_lora_rank"] = latent.q_rank
    if a.experts is not None:
        found |= _expert_flags(order, report)
    for what, value in (("a window of attention", a.sliding_window), ("an indexer of attention", a.sparse_attention)):
        if value is not None:
            report.not_expressible(f"{what}: not written, all layers attend to everything")
    if a.trained_prediction_layers:
        found["mtp_num_layers"] = a.trained_prediction_layers
        report.not_modelled(f"--mtp-num-layers {a.trained_prediction_layers}: by the calibrated cost model only")
    elif a.prediction_layers:
        report.remark(
            f"{a.prediction_layers} layer for multi-token prediction is not trained, so that it is not written "
            "(--mtp-num-layers)."
        )
    return found


def _expert_flags(order: LaunchOrder, report: Report) -> dict[str, Any]:
    experts = order.model.architecture_or_assumed().experts
    assert experts is not None
    found: dict[str, Any] = {
        "num_experts": experts.routed,
        "moe_ffn_hidden_size": experts.ffn,
        "moe_router_topk": experts.top_k,
        "moe_layer_freq": _layer_pattern(order.shape["moe_layer_freq"]),
        **_dispatch_flags(report),
    }
    if experts.shared_width:
        found["moe_shared_expert_intermediate_size"] = experts.shared_width
    if "deepseek-v3" in (order.model.name, order.model.derived_from):
        return found | _DEEPSEEK_V3
    if order.model.family.startswith("DeepSeek") or order.model.name.startswith("kimi"):
        report.remark("The router of this family (scores by sigmoid, groups, bias) is not written: --moe-router-*.")
    return found


def _dispatch_flags(report: Report) -> dict[str, Any]:
    """Return the arguments of routing and sending tokens that say nothing of the model's shape."""
    report.not_modelled(
        "--moe-grouped-gemm, --moe-permute-fusion, --moe-router-*, --moe-aux-loss-coeff: how tokens are routed"
    )
    return {
        "moe_grouped_gemm": True,
        "moe_permute_fusion": True,
        "moe_router_load_balancing_type": ["aux_loss"],
        "moe_aux_loss_coeff": [0.01],
    }


def _layer_pattern(value: Any) -> str:
    """Return the layers with experts as the shortest text of sums and products of lists."""
    if not isinstance(value, list):
        return str(value)
    runs: list[list[int]] = []
    for each in value:
        if runs and runs[-1][0] == each:
            runs[-1][1] += 1
        else:
            runs.append([each, 1])
    return "(" + "+".join(f"[{each}]*{count}" for each, count in runs) + ")"


def _parallel_flags(order: LaunchOrder, report: Report) -> dict[str, Any]:
    e = order.execution
    v, pipeline = e["pipeline_interleaving"], e["pipeline_par"]
    found: dict[str, Any] = {
        "tensor_model_parallel_size": e["tensor_par"],
        "pipeline_model_parallel_size": pipeline,
        "context_parallel_size": e["context_par"],
    }
    if e["context_par"] > 1:
        found["cp_comm_type"] = [CONTEXT_EXCHANGES[e["context_par_comm"]]]
        if e["context_par_comm"] == "hierarchical":
            report.remark("Give --hierarchical-context-parallel-sizes: ranks of a domain, and domains.")
    if "experts" in order.shape:
        kind, backend = DISPATCHERS[e["token_dispatcher"]]
        found |= {"moe_token_dispatcher_type": kind} | ({"moe_flex_dispatcher_backend": backend} if backend else {})
        if e["dispatch_datatype"] != "bfloat16":
            report.not_expressible(f"{called('dispatch_datatype')} FP8: Megatron-Core sends tokens in 16 bits")
        name_expert_load(e, report)
        found |= {
            "expert_model_parallel_size": e["expert_par"],
            "expert_tensor_parallel_size": e["expert_tensor_par"],
        }
    if order.model.layers is None:  # a pattern marks its stages
        found |= cut_of(order.cut, pipeline, e["stage_layout"])
    if pipeline > 1 and "m" in e["stage_layout"].partition("|")[2] and not any(order.cut.predictions):
        report.remark(
            "The stage layout lists layers for multi-token prediction, m, which the model does not train: they are "
            "left out (--mtp-num-layers)."
        )
    found |= _group_flags(order, report)
    schedule = e["schedule"]
    if schedule not in ("1f1b", "interleaved", "combined_1f1b") and pipeline > 1:
        report.not_expressible(
            f"{called('schedule')} {schedule}: Megatron-Core has 1F1B, interleaved and combined 1F1B; "
            + ("interleaved" if v > 1 else "1F1B")
            + " is written"
        )
    if order.model.layers is not None and (schedule == "combined_1f1b" or e["expert_overlap"]):
        raise LaunchError(
            "Megatron-LM hides the exchange of tokens (combined_1f1b, expert_overlap) in models without a pattern of "
            "layers only."
        )
    if schedule == "combined_1f1b" and v == 1 and pipeline > 1:
        raise LaunchError("Megatron runs combined_1f1b in a pipeline with pipeline_interleaving above 1 only.")
    if schedule == "combined_1f1b" and e["expert_par"] == 1:
        raise LaunchError("Megatron runs combined_1f1b with expert_par above 1 only: it hides the exchange of tokens.")
    if schedule != "combined_1f1b" and e["expert_overlap"] and v > 1 and pipeline > 1:
        report.remark(f"{called('expert_overlap')} in a pipeline is combined 1F1B in Megatron-Core, not {schedule}.")
    return found


def _group_flags(order: LaunchOrder, report: Report) -> dict[str, Any]:
    """The size of groups of microbatches under interleaving, where as many as there are stages leave a remainder.

    Source: megatron/core/pipeline_parallel/schedules.py, `forward_backward_pipelining_with_interleaving`.
    """
    e, passes = order.execution, order.replica_microbatches
    ranks, chunks = e["pipeline_par"], e["pipeline_interleaving"]
    if chunks == 1 or ranks == 1 or passes <= ranks or passes % ranks == 0 or e["schedule"] == "combined_1f1b":
        return {}
    group = next(size for size in range(ranks, passes + 1) if passes % size == 0 or passes % size >= ranks)
    report.not_modelled(
        f"--microbatch-group-size-per-virtual-pipeline-stage {group}: {passes} microbatches leave a remainder in "
        f"groups of {ranks}, which Megatron refuses; a rank keeps {(chunks - 1) * (group - ranks)} chunks more"
    )
    return {"microbatch_group_size_per_vp_stage": group}


def _memory_flags(order: LaunchOrder, report: Report) -> dict[str, Any]:
    e, layers = order.execution, int(order.shape["layers"])
    found: dict[str, Any] = {"use_distributed_optimizer": e["zero_stage"] >= 1}
    if e["zero_stage"] >= 2:
        found |= {
            "use_megatron_fsdp": True,
            "ckpt_format": "fsdp_dtensor",
            "gradient_accumulation_fusion": False,
            "data_parallel_sharding_strategy": "optim_grads" if e["zero_stage"] == 2 else "optim_grads_params",
        }
    found |= _recompute_flags(order, report)
    if e["optimizer_offload"]:
        found |= dict.fromkeys(("optimizer_cpu_offload", "use_precision_aware_optimizer"), True)
        found["optimizer_offload_fraction"] = 1.0
        if not e["zero_stage"]:
            found["use_distributed_optimizer"] = True
            report.remark("Offloading the optimizer needs the distributed optimizer, which is switched on.")
    if e["activations_offload"] and order.model.layers is not None:
        report.not_expressible(f"{called('activations_offload')}: not for a model with a pattern of layers")
    elif e["activations_offload"]:
        if e["pipeline_par"] == 1 and e["activation_recompute"] == "none":
            found["cpu_offloading_num_layers"] = layers - 1
        else:
            found |= {"fine_grained_activation_offloading": True, "offload_modules": ["core_attn", "attn_proj"]}
            if e["launch"] in ("graphs", "partial_graphs"):
                found["fine_grained_offloading_max_inflight_offloads"] = 2
            report.remark(
                "Activations of modules are offloaded, not of whole layers, as there is a pipeline or recomputation."
            )
    return found


def _recompute_flags(order: LaunchOrder, report: Report) -> dict[str, Any]:
    e, layers = order.execution, int(order.shape["layers"])
    kind = e["activation_recompute"]
    if kind == "none":
        return {}
    # Each letter of a pattern is a layer there: the layers of a block are recomputed together, as they are here.
    together = 1 if order.model.layers is None else count_letters(order)
    uniform = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": together}
    if kind == "full" and e["recompute_blocks"]:
        if order.model.layers is not None:
            report.not_expressible(f"{called('recompute_blocks')}: not for a model with a pattern of layers")
            return uniform
        number = int(e["recompute_blocks"])
        return {"recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": number}
    if kind == "full":
        return uniform
    selected = e["selective_recompute"]
    if selected == "attention":
        return {"recompute_granularity": "selective", "recompute_modules": ["core_attn"]}
    if selected not in by_name("selective_recompute").choices:
        return {"recompute_granularity": "selective", "recompute_modules": list(modules_of_word(selected))}
    if selected == "modules":
        report.remark(f"{called('selective_recompute')} modules is written as the modules that Megatron has for it.")
        modules = ["layernorm", "moe_act"] if "experts" in order.shape else ["layernorm"]
        return {"recompute_granularity": "selective", "recompute_modules": modules}
    if selected == "half" and order.model.layers is None:
        chunk = -(-layers // (e["pipeline_par"] * e["pipeline_interleaving"]))
        report.remark("The first half of every chunk's layers is recomputed instead of every second layer.")
        if chunk > 1:
            return {"recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": chunk // 2}
    report.not_expressible(f"{called('selective_recompute')} {selected}: the attention core is recomputed instead")
    return {"recompute_granularity": "selective", "recompute_modules": ["core_attn"]}


def _precision_flags(order: LaunchOrder, report: Report) -> dict[str, Any]:
    e = order.execution
    found: dict[str, Any] = {}
    kind = e["datatype"]
    datatype = datatype_for("megatron", "Megatron", kind)
    word = datatype.words["megatron"][0]
    if datatype.bits < 16:
        found |= {"bf16": True, f"fp{datatype.bits}": datatype.encoding, f"fp{datatype.bits}_recipe": word}
    elif kind != "float32":
        found[word] = True
    if e["fp8_param_gather"]:
        found["fp8_param_gather"] = True
        if word == "mxfp8":
            # Megatron-Core, distributed_data_parallel_config.py: gathers of MXFP8 use the buffer of the gradients.
            found["reuse_grad_buf_for_mxfp8_param_ag"] = True
        if not e["zero_stage"]:
            raise LaunchError("Parameters in 8 bits need the distributed optimizer in Megatron: zero_stage 1 or more.")
    if kind == "float8":
        report.not_modelled("--fp8-recipe tensorwise: how FP8 values are scaled")
        report.remark(_BLACKWELL_AND_HOPPER)
    if e["gradient_datatype"] == "bfloat16":
        if kind != "float16":
            found["grad_reduce_in_bf16"] = True
    else:
        found["accumulate_allreduce_grads_in_fp32"] = True
    if e["zero_stage"] >= 2:
        found["megatron_fsdp_grad_comm_dtype"] = "bf16" if e["gradient_datatype"] == "bfloat16" else "fp32"
    if e["optimizer_datatype"] == "bfloat16":
        found |= {"use_precision_aware_optimizer": True, "exp_avg_dtype": "bf16", "exp_avg_sq_dtype": "bf16"}
    if found.get("use_precision_aware_optimizer") and not e["zero_stage"]:
        raise LaunchError("Moments in bfloat16 need the distributed optimizer in Megatron: zero_stage 1 or more.")
    return found


def _overlap_flags(order: LaunchOrder, report: Report) -> dict[str, Any]:
    e = order.execution
    kind = e["tensor_par_comm_type"]
    if kind == "p2p_rs_ag":
        report.not_expressible(
            f"{called('tensor_par_comm_type')} p2p_rs_ag: gone from Megatron-Core; all-reduce is written"
        )
    sequence = kind == "rs_ag" and e["tensor_par"] > 1
    found: dict[str, Any] = {"sequence_parallel": sequence, "tp_comm_overlap": False}
    if e["tensor_par_overlap"] != "none" and e["tensor_par"] > 1:
        found["tp_comm_overlap"] = sequence
        if not sequence:
            report.not_expressible(f"{called('tensor_par_overlap')}: only with sequence parallelism (rs_ag)")
    found["overlap_grad_reduce"] = bool(e["data_par_overlap"])
    found["overlap_param_gather"] = bool(e["data_par_overlap"]) and e["zero_stage"] >= 1
    spread = "experts" in order.shape and e["expert_par"] > 1
    if spread and e["tensor_par"] > 1 and not sequence:
        report.remark("Megatron asks for sequence parallelism where both tensor and expert parallel exceed 1.")
    if spread and (e["expert_overlap"] or (e["schedule"] == "combined_1f1b" and e["pipeline_par"] > 1)):
        found["overlap_moe_expert_parallel_comm"] = True
    if e["pipeline_overlap"] and e["pipeline_par"] > 1:
        report.not_expressible(f"{called('pipeline_overlap')}: transfers of plain 1F1B are not hidden")
    return found


def _software_flags(order: LaunchOrder, report: Report) -> dict[str, Any]:
    e = order.execution
    found: dict[str, Any] = {"transformer_impl": "transformer_engine", "attention_backend": "auto"}
    kernel = e["attention_kernel"]
    if kernel == "unfused":
        found["attention_backend"] = "unfused"
    elif kernel == "flash2":
        found |= {"attention_backend": "flash", "flash_attention_version": 2}
    elif kernel == "native":
        found["attention_backend"] = "fused"
    elif kernel == "flash1":
        report.not_expressible(f"{called('attention_kernel')} flash1: FlashAttention 2 is written")
        found |= {"attention_backend": "flash", "flash_attention_version": 2}
    launch = e["launch"]
    if launch == "graphs":
        found |= {"cuda_graph_impl": "full_iteration", "check_for_nan_in_loss_and_grad": False}
    elif launch == "partial_graphs" and e["activation_recompute"] != "full":
        modules = ["attn", "moe_router", "moe_preprocess"] if "experts" in order.shape else ["attn", "mlp"]
        found |= {"cuda_graph_impl": "transformer_engine", "cuda_graph_modules": modules}
    else:
        found["cuda_graph_impl"] = "none"
    if launch == "partial_graphs" and e["activation_recompute"] == "full":
        report.not_expressible(f"{called('launch')} partial CUDA graphs: not with full recomputation")
    if launch == "compiled":
        report.not_expressible(f"{called('launch')} compiled: fused kernels are written")
    if launch == "eager":
        found |= {
            "transformer_impl": "local",
            "bias_swiglu_fusion": False,
            "bias_dropout_fusion": False,
            "masked_softmax_fusion": False,
            "apply_rope_fusion": False,
        }
    if e["weight_offload"]:
        report.not_expressible(f"{called('weight_offload')}: no flag offloads weights")
    if not e["fused_activation"]:
        report.not_expressible(f"{called('fused_activation')} off: kernels are fused as a whole")
    return found


def _network_flags(order: LaunchOrder, report: Report) -> dict[str, Any]:
    """Networks follow from the order of ranks, of which there are two; what neither says cannot be said."""
    e = order.execution
    tensor, data, pipeline = (
        e[f"{name}_net"] if e[name] > 1 else None for name in ("tensor_par", "data_par", "pipeline_par")
    )
    others = [net for net in (data, pipeline) if net is not None]
    if tensor is not None and others and tensor > min(others):
        report.not_expressible("networks: tensor parallel ranks are neighbours, on the lowest tier that there is")
    if data is not None and pipeline is not None and pipeline < data:
        return {"use_tp_pp_dp_mapping": True}
    return {}

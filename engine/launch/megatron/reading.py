"""From the arguments of Megatron-Core to an execution, with the framework's own silent corrections.

Sources: NVIDIA/Megatron-LM, megatron/training/arguments.py, megatron/core/model_parallel_config.py,
megatron/core/transformer/transformer_config.py and megatron/core/recompute.py, core 0.19 and 0.20.
"""

from __future__ import annotations

import re
from typing import Any, Final

from engine.launch.contract import LaunchError
from engine.launch.megatron.arguments import Arguments
from engine.launch.megatron.layouts import ACCOUNTS, ENDS, layout_of, list_of
from engine.launch.report import Report, whole
from models.documents import shown

__all__ = ["read_execution"]

_SHARDING: Final = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
_RECOMPUTED: Final = frozenset({"layernorm", "moe_act"})
"""Modules that the selection "modules" stands for; with latent attention `mla_up_proj` beside them."""


def read_execution(args: Arguments, report: Report, gpus: int | None) -> None:
    """Puts the execution into the report.

    Args:
        args: what was said.
        report: what is found; its model has been read.
        gpus: how many there are, None where nothing says it.
    """
    _degrees(args, report, gpus)
    _batch(args, report)
    _interleaving(args, report)
    _precision(args, report)
    _communication(args, report)
    _memory(args, report)
    _recompute(args, report)
    _software(args, report)
    e = report.execution
    e["training"] = not args.on("skip_train")
    e["attention_type"] = "multiquery" if report.model.get("kv_heads") == 1 else "multihead"


def _degrees(args: Arguments, report: Report, gpus: int | None) -> None:
    e = report.execution
    e["tensor_par"] = args.number("tensor_model_parallel_size", 1)
    e["pipeline_par"] = args.number("pipeline_model_parallel_size", 1)
    e["context_par"] = args.number("context_parallel_size", 1)
    e["expert_par"], e["expert_tensor_par"] = 1, 1
    experts = "experts" in report.model or not args.dialect.assumes_model
    spread = args.number("expert_model_parallel_size", 1)
    if experts and (spread > 1 or "experts" in report.model):
        e["expert_par"] = spread
        e["expert_tensor_par"] = args.number("expert_tensor_parallel_size", e["tensor_par"])
    each = e["tensor_par"] * e["pipeline_par"] * e["context_par"]
    if gpus is None:
        gpus = args.said.get("world_size")
        gpus = None if gpus is None else whole(gpus, "world_size")
    if gpus is None:
        report.leave("num_procs", "data_par")
        report.remark("Nothing says how many GPUs there are, so that the data parallel degree is open.")
        return
    if gpus % each:
        report.leave("num_procs", "data_par")
        report.remark(f"{gpus} GPUs are said, but the degrees need a multiple of {each}; the number is left open.")
        report.refuse(f"{gpus} GPUs are no multiple of {each}, the product of the degrees")
        return
    e["num_procs"], e["data_par"] = gpus, gpus // each
    expert = e["expert_tensor_par"] * e["expert_par"] * e["pipeline_par"]
    if gpus % expert:
        report.refuse(f"{gpus} GPUs are no multiple of {expert}, the product of the degrees of experts and pipeline")
    kind = args.words("cp_comm_type")
    if e["context_par"] > 1 and kind not in ([], ["p2p"]):
        report.not_modelled(f"{args.name('cp_comm_type')} {' '.join(kind)}: a ring is assumed")
    for name in ("use_tp_pp_dp_mapping", "hierarchical_context_parallel_sizes", "hybrid_context_parallel"):
        if args.said.get(name):
            report.not_modelled(args.name(name))


def _batch(args: Arguments, report: Report) -> None:
    e = report.execution
    if args["micro_batch_size"] is None:
        report.leave("microbatch_size")
    else:
        e["microbatch_size"] = args.number("micro_batch_size")
    whole_batch = args["global_batch_size"]
    schedule = args["step_batch_size_schedule"]
    if schedule:
        last = re.findall(r":\s*(\d{1,9})", str(schedule)[:10_000])
        report.not_modelled(f"{args.name('step_batch_size_schedule')}: a batch that changes")
        report.remark("The batch grows by a schedule; its last value is taken.")
        if whole_batch is not None:
            report.refuse(f"{args.name('global_batch_size')} together with {args.name('step_batch_size_schedule')}")
        elif last:
            whole_batch = int(last[-1])
    if args["rampup_batch_size"]:
        report.not_modelled(f"{args.name('rampup_batch_size')}: a batch that changes")
        report.remark("The batch ramps up; its last value is taken.")
    if whole_batch is not None:
        e["batch_size"] = whole(whole_batch, args.name("global_batch_size"))
    elif "data_par" in e and "microbatch_size" in e:
        e["batch_size"] = e["data_par"] * e["microbatch_size"]
        report.remark(f"{args.name('global_batch_size')} is not said; it is one microbatch of every replica.")
    else:
        report.leave("batch_size")
    if "batch_size" in e and "data_par" in e and "microbatch_size" in e:
        share = e["data_par"] * e["microbatch_size"]
        if e["batch_size"] % share:
            report.refuse(f"a batch of {e['batch_size']} is no multiple of {share}, a microbatch of every replica")


def _interleaving(args: Arguments, report: Report) -> None:
    e = report.execution
    pipeline = e["pipeline_par"]
    accounted = args.on("account_for_embedding_in_pipeline_split") + args.on("account_for_loss_in_pipeline_split")
    layers = report.model.get("layers")
    chunks = 1
    layout = args["pipeline_model_parallel_layout"]
    if pipeline > 1:
        each = args["num_layers_per_virtual_pipeline_stage"]
        told = next(
            (name for name in ("num_virtual_stages_per_pipeline_rank", "virtual_pipeline_model_parallel_size")
             if args[name] is not None), None,
        )  # fmt: skip
        if layout:
            name = args.name("pipeline_model_parallel_layout")
            try:
                _, stages = list_of(layout)
            except LaunchError as problem:
                report.unread(f"{name}: {problem}"[:300])
                layout = None
            else:
                if stages % pipeline:
                    report.unread(f"{name} does not name stages of {pipeline} ranks.")
                    layout = None
                else:
                    chunks = stages // pipeline
        if told is not None:
            chunks = args.number(told)
        elif each is not None and not layout:
            width = whole(each, args.name("num_layers_per_virtual_pipeline_stage"))
            if layers is None:
                report.leave("pipeline_interleaving")
            elif (layers + accounted) % (pipeline * width):
                report.refuse(f"{layers} layers are not cut by {pipeline} stages into chunks of {width}")
            else:
                chunks = (layers + accounted) // pipeline // width
    e["pipeline_interleaving"] = chunks
    _layout(args, report, layout)
    if args.said.get("microbatch_group_size_per_vp_stage") not in (None, pipeline):
        report.not_modelled(args.name("microbatch_group_size_per_vp_stage"))


def _layout(args: Arguments, report: Report, listed: Any) -> None:
    """How layers are cut into stages, where that is not as even as they divide."""
    e, layers = report.execution, report.model.get("layers")
    set_there: dict[str, Any] = {name: True for name in ACCOUNTS if args.on(name)}
    set_there |= {name: args.number(name) for name in ENDS if args[name] is not None}
    if set_there:
        told = ", ".join(args.name(name) + ("" if value is True else f" {value}") for name, value in set_there.items())
        report.not_modelled(f"{told}: by the calibrated cost model only")
    if listed:
        set_there = {"pipeline_model_parallel_layout": listed}
        told = f"{args.name('pipeline_model_parallel_layout')} {listed}"
        report.not_modelled(f"{told[:200]}: by the calibrated cost model only")
        report.remark(
            "The pipeline layout is not even; it is read as "
            + (f"{layers} layers" if layers else "all layers")
            + f" over {e['pipeline_par']} stages of {e['pipeline_interleaving']} chunks."
        )
    found = layout_of(set_there, layers, e["pipeline_par"], e["pipeline_interleaving"])
    if found is not None:
        e["stage_layout"] = found


def _precision(args: Arguments, report: Report) -> None:
    e = report.execution
    assumed = args.dialect.assumes_precision
    eight, four = args.word("fp8"), args.word("fp4")
    if four:
        e["datatype"] = "float4"
        report.not_modelled(f"{args.name('fp4_recipe')} {args.word('fp4_recipe') or 'nvfp4 (default)'}")
    elif eight:
        e["datatype"] = "float8"
        recipe = args.word("fp8_recipe")
        default = "" if args.said.get("fp8_recipe") else " (default)"
        report.not_modelled(f"{args.name('fp8_recipe')} {recipe or 'delayed'}{default}: FP8 recipe")
    elif args.on("bf16"):
        e["datatype"] = "bfloat16"
    elif args.on("fp16"):
        e["datatype"] = "float16"
    else:
        e["datatype"] = assumed
    for name in ("fp8_param_gather", "fp4_param_gather", "first_last_layers_bf16", "reuse_grad_buf_for_mxfp8_param_ag"):
        if args.said.get(name):
            report.not_modelled(args.name(name))
    aware = args.on("use_precision_aware_optimizer")
    e["gradient_datatype"] = _gradients(args, report, aware)
    moments = [args.word("exp_avg_dtype") or "fp32", args.word("exp_avg_sq_dtype") or "fp32"]
    short = {"bfloat16": "bf16", "float32": "fp32", "float16": "fp16"}
    moments = [short.get(each, each) for each in moments]
    both = aware and moments == ["bf16", "bf16"]
    e["optimizer_datatype"] = "bfloat16" if both else "float32"
    if moments != ["fp32", "fp32"] and not both:
        report.not_modelled(f"{args.name('exp_avg_dtype')} {moments[0]}, {args.name('exp_avg_sq_dtype')} {moments[1]}")
        if not aware:
            report.refuse("moments of another datatype need the precision-aware optimizer")


def _gradients(args: Arguments, report: Report, aware: bool) -> str:
    """In what gradients travel: 32 bits with BF16 unless told otherwise, 16 bits with FP16 unless told otherwise."""
    if args.on("use_megatron_fsdp"):
        sent = args.word("megatron_fsdp_grad_comm_dtype")
        if sent in ("bf16", "fp16", "bfloat16", "float16"):
            return "bfloat16"
        if sent in ("fp32", "float32"):
            return "float32"
    main = args.word("main_grads_dtype")
    if main in ("bf16", "bfloat16"):
        report.not_modelled(f"{args.name('main_grads_dtype')} bf16: gradients kept in 16 bits")
    if args.on("grad_reduce_in_bf16") or (aware and main in ("bf16", "bfloat16")):
        return "bfloat16"
    wide = args.said.get("accumulate_allreduce_grads_in_fp32")
    if args.on("fp16") and not args.on("bf16"):
        if wide:
            return "float32"
        report.remark("Gradients in FP16 are read as 2 bytes, BF16.")
        return "bfloat16"
    return "float32"


def _communication(args: Arguments, report: Report) -> None:
    e = report.execution
    sequence = args.on("sequence_parallel")
    if sequence and e["tensor_par"] == 1:
        report.remark(f"{args.name('sequence_parallel')} has no effect with tensor parallel 1.")
        sequence = False
    e["tensor_par_comm_type"] = "rs_ag" if sequence else "ar"
    e["seq_par_ag_redo"] = sequence
    overlap = args.on("tp_comm_overlap")
    if overlap and not sequence:
        if args.dialect.overlap_needs_sequence_parallel:
            report.remark(f"{args.name('tp_comm_overlap')} is switched off without sequence parallelism.")
        else:
            report.refuse(f"{args.name('tp_comm_overlap')} needs {args.name('sequence_parallel')}")
        overlap = False
    e["tensor_par_overlap"] = "ring" if overlap else "none"
    if overlap and args.said.get("tp_comm_overlap_cfg"):
        report.not_modelled(f"{args.name('tp_comm_overlap_cfg')}: the method of every layer")
    e["data_par_overlap"] = args.on("overlap_grad_reduce")
    if args.on("overlap_param_gather_with_optimizer_step"):
        report.not_modelled(args.name("overlap_param_gather_with_optimizer_step"))
    e["expert_overlap"] = args.on("overlap_moe_expert_parallel_comm")
    if e["expert_overlap"] and e["pipeline_par"] > 1 and e["pipeline_interleaving"] > 1:
        e["schedule"] = "combined_1f1b"
    e["pipeline_overlap"] = False
    if e["pipeline_interleaving"] > 1 and args["overlap_p2p_comm"] is False:
        report.not_modelled(f"{args.name('overlap_p2p_comm')}: transfers of interleaving that are not hidden")
    _experts(args, report)


def _experts(args: Arguments, report: Report) -> None:
    if report.execution["expert_par"] > 1 or "experts" in report.model:
        kind = args.word("moe_token_dispatcher_type")
        if args.said.get("moe_token_dispatcher_type") and kind != "alltoall":
            backend = args.word("moe_flex_dispatcher_backend")
            named = f"{kind} / {backend}" if backend and kind == "flex" else kind
            report.not_modelled(f"{args.name('moe_token_dispatcher_type')} {named}")
        for name in ("moe_expert_capacity_factor", "moe_shared_expert_overlap", "delay_wgrad_compute"):
            if args.said.get(name):
                report.not_modelled(args.name(name))


def _memory(args: Arguments, report: Report) -> None:
    e = report.execution
    sharded = args.on("use_distributed_optimizer")
    e["zero_stage"] = int(sharded)
    if args.on("use_megatron_fsdp"):
        strategy = args.word("data_parallel_sharding_strategy") or "optim_grads_params"
        e["zero_stage"] = _SHARDING.get(strategy, 3)
        if e["zero_stage"] == 3 and args.said.get("outer_dp_sharding_strategy") not in (None, "no_shard"):
            report.not_modelled(args.name("outer_dp_sharding_strategy"))
    elif args.on("use_torch_fsdp2"):
        e["zero_stage"] = 3 if args["torch_fsdp2_reshard_after_forward"] is not False else 2
    e["optimizer_sharding"] = e["zero_stage"] >= 1
    if e["optimizer_sharding"] and e["data_par_overlap"] and not args.on("overlap_param_gather"):
        report.not_modelled(f"{args.name('overlap_param_gather')} is off: gathers of weights that are not hidden")
    for name in ("nccl_ub", "tensor_parallel_num_weight_shards", "distribute_saved_activations",
                 "defer_embedding_wgrad_compute", "hybrid_layer_pattern"):  # fmt: skip
        if args.said.get(name):
            report.not_modelled(args.name(name))
    instances = args.said.get("num_distributed_optimizer_instances")
    if instances not in (None, 1):
        report.not_modelled(f"{args.name('num_distributed_optimizer_instances')} {instances}: sharded inside a group")
    _offloads(args, report)


def _offloads(args: Arguments, report: Report) -> None:
    e = report.execution
    e["optimizer_offload"] = False
    if args.on("optimizer_cpu_offload"):
        share = _share(args["optimizer_offload_fraction"], args.name("optimizer_offload_fraction"))
        e["optimizer_offload"] = share >= 0.5
        if share < 1.0:
            report.remark(f"{share:.0%} of the optimizer is offloaded; it is all or nothing here.")
    named = args["cpu_offloading_num_layers"]
    some = whole(named, args.name("cpu_offloading_num_layers"), 0) if named not in (None, "") else 0
    layers = report.model.get("layers")
    if args.said.get("cpu_offloading") is False:
        some = 0
    # All layers but the last are everything that can be offloaded.
    half = bool(some) and layers is not None and 2 * some >= layers
    e["activations_offload"] = half and args.said.get("cpu_offloading_activations") is not False
    e["weight_offload"] = half and bool(args.said.get("cpu_offloading_weights"))
    if some and (layers is None or some < layers - 1):
        of = f"of {layers} " if layers is not None else ""
        report.remark(f"Activations of {some} {of}layers are offloaded; it is all or nothing here.")
    if args.on("fine_grained_activation_offloading"):
        e["activations_offload"] = True
        modules = " ".join(args.words("offload_modules"))
        report.remark(f"Activations of some modules are offloaded ({modules}); it is all or nothing here.")


def _share(value: Any, name: str) -> float:
    """A share from 0 to 1, all where nothing is said. Raises `LaunchError` for what is none."""
    try:
        share = 1.0 if value is None else float(value)
    except (TypeError, ValueError):
        share = -1.0
    if not 0.0 <= share <= 1.0:
        raise LaunchError(f"{name} is {shown(value)}; it must be a number from 0 to 1.")
    return share


def _recompute(args: Arguments, report: Report) -> None:
    e = report.execution
    kind = args.word("recompute_granularity")
    method, blocks = args.word("recompute_method"), args["recompute_num_layers"]
    if not kind and args.on("recompute_activations"):
        kind = "selective"
    if not kind and (args.on("checkpoint_activations") or (method and "recompute_granularity" not in args.said)):
        kind, method = "full", method or "uniform"
    e["activation_recompute"], e["selective_recompute"] = "none", "attention"
    if kind == "full":
        e["activation_recompute"] = "full"
        if method == "block":
            _block(args, report, whole(blocks, args.name("recompute_num_layers"), 0) if blocks is not None else 1)
    elif kind == "selective":
        e["activation_recompute"] = "attn_only"
        modules = args.words("recompute_modules") or ["core_attn"]
        if args.on("moe_layer_recompute"):
            modules.append("moe")
        others = [each for each in modules if each != "core_attn"]
        if others:
            e["selective_recompute"] = "modules"
            strange = [each for each in others if each not in _RECOMPUTED]
            if strange:
                report.remark(f"Recompute modules {', '.join(strange)} have no word here; the nearest is taken.")


def _block(args: Arguments, report: Report, blocks: int) -> None:
    """Full recomputation of the first layers of every chunk, however many chunks a stage has."""
    e = report.execution
    layers = report.model.get("layers")
    if layers is None:
        report.remark("Layers of each chunk are recomputed, but the number of layers is not known; all are taken.")
        return
    accounted = args.on("account_for_embedding_in_pipeline_split") + args.on("account_for_loss_in_pipeline_split")
    chunk = -(-(layers + accounted) // (e["pipeline_par"] * e["pipeline_interleaving"]))
    if blocks >= chunk:
        return
    e["activation_recompute"] = "attn_only" if blocks else "none"
    if blocks:
        e["selective_recompute"] = "half"
        report.remark(f"The first {blocks} of {chunk} layers of every chunk are recomputed; read as every second one.")


def _software(args: Arguments, report: Report) -> None:
    e = report.execution
    backend = args.word("attention_backend")
    if backend in ("unfused", "local"):
        e["attention_kernel"] = "unfused"
    elif backend == "flash":
        version = args["flash_attention_version"]
        e["attention_kernel"] = "native" if version in (3, 4, "3", "4") else "flash2"
    elif backend == "fused":
        e["attention_kernel"] = "native"
    else:
        report.leave("attention_kernel")
    graphs = args.word("cuda_graph_impl") not in ("", "none")
    graphs |= args.on("enable_cuda_graph") or args.on("external_cuda_graph")
    modules = args.words("cuda_graph_modules")
    plain: Any = args["bias_swiglu_fusion"] is False or args["bias_gelu_fusion"] is False
    plain = plain and args["bias_dropout_fusion"] is False and args["masked_softmax_fusion"] is False
    if graphs:
        e["launch"] = "graphs"
        if modules:
            report.remark(f"CUDA graphs cover only {', '.join(modules)}.")
    else:
        e["launch"] = "eager" if args.word("transformer_impl") == "local" and plain else "fused"

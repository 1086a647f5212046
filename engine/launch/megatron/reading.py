"""From the arguments of Megatron-Core to an execution, with the framework's own silent corrections.

Sources: NVIDIA/Megatron-LM, megatron/training/arguments.py, megatron/core/model_parallel_config.py,
megatron/core/transformer/transformer_config.py and megatron/core/recompute.py, core 0.19 and 0.20.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any, Final

from engine.launch.contract import LaunchError
from engine.launch.megatron.arguments import Arguments
from engine.launch.megatron.layouts import ACCOUNTS, ENDS, layout_of, list_of
from engine.launch.megatron.memory_reading import read_memory, read_recompute
from engine.launch.megatron.pattern_reading import has_hybrid_pattern, hybrid_layout, stated_pattern
from engine.launch.megatron.terms import CONTEXT_EXCHANGES, DISPATCHERS
from engine.launch.not_expressible import read_expert_load
from engine.launch.precision import read_word
from engine.launch.report import OPEN, Report, parse_integer
from models import datatypes

__all__ = ["read_execution"]


def read_execution(args: Arguments, report: Report) -> None:
    """Write the execution into the report.

    Args:
        args: arguments of the run.
        report: receives the execution; its model has been read.
    """
    for read in (
        _read_degrees,
        _read_batch,
        _read_interleaving,
        _read_precision,
        _read_communication,
        read_memory,
        read_recompute,
        _read_software,
    ):
        read(args, report)
    report.say("training", lambda: not args.on("skip_train"))
    report.say(
        "attention_type",
        lambda: "multiquery" if report.model.get("kv_heads") == 1 else "multihead",
        "from key and value heads",
    )


def _read_degrees(args: Arguments, report: Report) -> None:
    e, say = report.execution, report.say
    say("tensor_par", lambda: args.number("tensor_model_parallel_size", 1))
    say("pipeline_par", lambda: args.number("pipeline_model_parallel_size", 1))
    say("context_par", lambda: args.number("context_parallel_size", 1))
    say("expert_par", lambda: args.number("expert_model_parallel_size", 1))
    say(
        "expert_tensor_par",
        lambda: (
            args.number("expert_tensor_parallel_size", e["tensor_par"])
            if e["expert_par"] > 1 or "experts" in report.model
            else 1
        ),
    )
    say("num_procs", partial(_read_gpus, args, report))
    say(
        "data_par",
        lambda: e["num_procs"] // (e["tensor_par"] * e["pipeline_par"] * e["context_par"]),
        "GPUs / (tensor x pipeline x context parallel)",
    )
    report.note(partial(_check_experts, args, report))
    if "num_procs" not in e.values_known:
        if not e.origins["num_procs"].words:
            report.remark("Nothing says how many GPUs there are, so that the data parallel degree is open.")
        return
    report.note(partial(_check_degrees, args, report))


def _read_gpus(args: Arguments, report: Report) -> Any:
    e = report.execution
    gpus = report.told_gpus()
    if gpus is OPEN and args.given("world_size") is not None:
        gpus = args.number("world_size")
    each = [e.known(name) for name in ("tensor_par", "pipeline_par", "context_par")]
    if gpus is OPEN or None in each:
        return gpus
    product = each[0] * each[1] * each[2]
    if gpus % product:
        report.remark(f"{gpus} GPUs are said, but the degrees need a multiple of {product}; the number is left open.")
        report.refuse(f"{gpus} GPUs are no multiple of {product}, the product of the degrees")
        return OPEN
    return gpus


def _check_experts(args: Arguments, report: Report) -> None:
    spread, model = report.execution["expert_par"], report.model
    if spread > 1 and args.dialect.assumes_model and "layers" in model and "experts" not in model:
        report.refuse(f"{args.name('expert_model_parallel_size')} {spread} needs experts, and the model has none")


def _check_degrees(args: Arguments, report: Report) -> None:
    e = report.execution
    gpus, expert = e["num_procs"], e["expert_tensor_par"] * e["expert_par"] * e["pipeline_par"]
    if gpus % expert:
        report.refuse(f"{gpus} GPUs are no multiple of {expert}, the product of the degrees of experts and pipeline")
    for name in ("use_tp_pp_dp_mapping", "hierarchical_context_parallel_sizes", "hybrid_context_parallel"):
        if args.given(name):
            report.not_modelled(args.name(name))


def _read_batch(args: Arguments, report: Report) -> None:
    e = report.execution
    report.say("microbatch_size", lambda: OPEN if args["micro_batch_size"] is None else args.number("micro_batch_size"))
    report.say("batch_size", partial(_whole_batch, args, report))

    def check() -> None:
        share = e["data_par"] * e["microbatch_size"]
        if e["batch_size"] % share:
            report.refuse(f"a batch of {e['batch_size']} is no multiple of {share}, a microbatch of every replica")

    if {"batch_size", "data_par", "microbatch_size"} <= {*e.values_known}:
        report.note(check)


def _whole_batch(args: Arguments, report: Report) -> Any:
    e = report.execution
    whole_batch, schedule = args["global_batch_size"], args["step_batch_size_schedule"]
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
        return parse_integer(whole_batch, args.name("global_batch_size"))
    found = int(e["data_par"]) * int(e["microbatch_size"])
    report.remark(f"{args.name('global_batch_size')} is not said; it is one microbatch of every replica.")
    return found


def _read_interleaving(args: Arguments, report: Report) -> None:
    e = report.execution
    listed: list[Any] = []
    report.say("pipeline_interleaving", partial(_read_chunks, args, report, listed))
    report.say_if_any("stage_layout", partial(_read_layout, args, report, listed))  # None: even stages

    def group() -> None:
        if args.given("microbatch_group_size_per_vp_stage") not in (None, e["pipeline_par"]):
            report.not_modelled(args.name("microbatch_group_size_per_vp_stage"))

    report.note(group)


def _read_chunks(args: Arguments, report: Report, listed: list[Any]) -> Any:
    """Chunks of every stage; puts a layout that can be read into `listed`."""
    pipeline = report.execution["pipeline_par"]
    if pipeline == 1:
        return 1
    layout = args["pipeline_model_parallel_layout"]
    each = args["num_layers_per_virtual_pipeline_stage"]
    told = next(
        (
            name
            for name in ("num_virtual_stages_per_pipeline_rank", "virtual_pipeline_model_parallel_size")
            if args[name] is not None
        ),
        None,
    )
    chunks = 1
    if has_hybrid_pattern(args):
        stages = len(stated_pattern(args).segments)
        if stages > 1 and stages % pipeline:
            report.refuse(f"the pattern has {stages} stages, no multiple of {pipeline} pipeline ranks")
            return OPEN
        return max(stages // pipeline, 1)
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
                listed.append(layout)
    if told is not None:
        return args.number(told)
    if each is None or layout:
        return chunks
    width = parse_integer(each, args.name("num_layers_per_virtual_pipeline_stage"))
    accounted = args.on("account_for_embedding_in_pipeline_split") + args.on("account_for_loss_in_pipeline_split")
    if "layers" not in report.model:
        return OPEN
    layers = report.model["layers"]
    if (layers + accounted) % (pipeline * width):
        report.refuse(f"{layers} layers are not cut by {pipeline} stages into chunks of {width}")
        return OPEN
    return (layers + accounted) // pipeline // width


def _read_layout(args: Arguments, report: Report, listed: list[Any]) -> str | None:
    """Return the stage layout, None if layers divide evenly."""
    e, layers = report.execution, report.model.known("layers")
    if has_hybrid_pattern(args):
        found = hybrid_layout(args, layers) if e["pipeline_par"] > 1 else None
        listed_there = {"pipeline_model_parallel_layout": found} if found else {}
        return layout_of(listed_there, layers, e["pipeline_par"], e["pipeline_interleaving"])
    set_there: dict[str, Any] = {name: True for name in ACCOUNTS if args.on(name)}
    set_there |= {name: args.number(name) for name in ENDS if args[name] is not None}
    args["pipeline_model_parallel_layout"]  # asked for: what states the layout
    if set_there:
        told = ", ".join(args.name(name) + ("" if value is True else f" {value}") for name, value in set_there.items())
        report.not_modelled(f"{told}: by the calibrated cost model only")
    if listed:
        set_there = {"pipeline_model_parallel_layout": listed[0]}
        told = f"{args.name('pipeline_model_parallel_layout')} {listed[0]}"
        report.not_modelled(f"{told[:200]}: by the calibrated cost model only")
        report.remark(
            "The pipeline layout is not even; it is read as "
            + (f"{layers} layers" if layers else "all layers")
            + f" over {e['pipeline_par']} stages of {e['pipeline_interleaving']} chunks."
        )
    return layout_of(set_there, layers, e["pipeline_par"], e["pipeline_interleaving"])


def _read_precision(args: Arguments, report: Report) -> None:
    report.say("datatype", partial(_read_datatype, args, report))
    for name in ("fp4_param_gather", "first_last_layers_bf16"):
        report.note(partial(args.note_if_given, report, name))
    report.say("fp8_param_gather", partial(_has_fp8_parameters, args, report))

    def buffer() -> None:
        if not args.on("fp8_param_gather"):
            args.note_if_given(report, "reuse_grad_buf_for_mxfp8_param_ag")

    report.note(buffer)
    report.say("gradient_datatype", partial(_read_gradients, args, report))
    report.say("optimizer_datatype", partial(_read_moments, args, report))


_DEFAULT_RECIPES: Final = {"fp4": "nvfp4", "fp8": "delayed"}
"""Recipes that Megatron takes where none is given, by the flag that turns them on; the first that is on counts."""


def _read_datatype(args: Arguments, report: Report) -> Any:
    # Both are asked for: each may be a value that is not known.
    on = {name: args.word(name) for name in reversed(_DEFAULT_RECIPES)}
    for name, usual in _DEFAULT_RECIPES.items():
        if on[name]:
            recipe = args.word(f"{name}_recipe") or usual
            found = read_word(report, "megatron", args.name(f"{name}_recipe"), recipe)
            if found == "float8":
                default = "" if args.given("fp8_recipe") else " (default)"
                report.not_modelled(f"{args.name('fp8_recipe')} {recipe}{default}: how FP8 values are scaled")
            return found
    if args.on("bf16"):
        return "bfloat16"
    if args.given("fp32_precision"):
        return "float32"
    return "float16" if args.on("fp16") else args.dialect.assumes_precision


def _has_fp8_parameters(args: Arguments, report: Report) -> bool:
    is_given, datatype = args.on("fp8_param_gather"), report.execution.get("datatype")
    if is_given and datatype is not None and datatypes.named(datatype).bits != 8:
        report.not_modelled(f"{args.name('fp8_param_gather')}: without effect on {datatypes.label_of(datatype)}")
        return False
    return is_given


def _read_moments(args: Arguments, report: Report) -> str:
    aware = args.on("use_precision_aware_optimizer")
    moments = [args.word("exp_avg_dtype") or "fp32", args.word("exp_avg_sq_dtype") or "fp32"]
    short = {"bfloat16": "bf16", "float32": "fp32", "float16": "fp16"}
    moments = [short.get(each, each) for each in moments]
    both = aware and moments == ["bf16", "bf16"]
    if moments != ["fp32", "fp32"] and not both:
        report.not_modelled(f"{args.name('exp_avg_dtype')} {moments[0]}, {args.name('exp_avg_sq_dtype')} {moments[1]}")
        if not aware:
            report.refuse("moments of another datatype need the precision-aware optimizer")
    return "bfloat16" if both else "float32"


def _read_gradients(args: Arguments, report: Report) -> str:
    """Return the datatype of exchanged gradients: by default 32 bits with BF16, 16 bits with FP16."""
    aware = args.on("use_precision_aware_optimizer")
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
    wide = args.given("accumulate_allreduce_grads_in_fp32")
    if args.on("fp16") and not args.on("bf16"):
        if wide or (wide is None and args.dialect.wide_gradients):
            return "float32"
        report.remark("Gradients in FP16 are read as 2 bytes, BF16.")
        return "bfloat16"
    return "float32"


def _read_communication(args: Arguments, report: Report) -> None:
    e, say = report.execution, report.say

    def sequence() -> tuple[str, bool]:
        on = args.on("sequence_parallel")
        if on and e["tensor_par"] == 1:
            report.remark(f"{args.name('sequence_parallel')} has no effect with tensor parallel 1.")
            on = False
        return "rs_ag" if on else "ar", on

    def tensor_overlap() -> str:
        on = args.on("tp_comm_overlap")
        if on and e["tensor_par_comm_type"] != "rs_ag":
            if args.dialect.overlap_needs_sequence_parallel:
                report.remark(f"{args.name('tp_comm_overlap')} is switched off without sequence parallelism.")
            else:
                report.refuse(f"{args.name('tp_comm_overlap')} needs {args.name('sequence_parallel')}")
            on = False
        return "ring" if on else "none"

    say(("tensor_par_comm_type", "seq_par_ag_redo"), sequence)
    say("tensor_par_overlap", tensor_overlap)
    say("data_par_overlap", partial(_data_overlap, args))
    say("expert_overlap", lambda: args.on("overlap_moe_expert_parallel_comm"))
    if (
        e.known("expert_overlap") is not False
        and (e.known("pipeline_par") or 1) > 1
        and (e.known("pipeline_interleaving") or 1) > 1
    ):
        say("schedule", lambda: "combined_1f1b" if args.on("overlap_moe_expert_parallel_comm") else OPEN)
    say("pipeline_overlap", lambda: False)
    say("context_par_comm", partial(_read_context_exchange, args, report))
    say("token_dispatcher", partial(_read_dispatcher, args, report))
    say("dispatch_datatype", lambda: "bfloat16")  # Megatron-Core sends tokens as they are
    read_expert_load(report)
    report.note(lambda: _note_communication(args, report))
    report.note(lambda: _note_experts(args, report))


def _read_dispatcher(args: Arguments, report: Report) -> Any:
    spread = (report.execution.known("expert_par") or 1) > 1 or "experts" in report.model
    if not spread and ("layers" in report.model or not args.given("moe_token_dispatcher_type")):
        return "all_to_all"  # nothing is sent, whatever the argument says
    if not args.dialect.assumes_model and not args.given("moe_token_dispatcher_type"):
        return OPEN  # a recipe may say it
    kind, backend = args.word("moe_token_dispatcher_type"), args.word("moe_flex_dispatcher_backend")
    if args.on("moe_enable_deepep"):
        backend = "deepep"
    words = kind, backend if kind == "flex" else None
    found = next((name for name, each in DISPATCHERS.items() if each == words), None)
    if found is None:
        named = " / ".join(filter(None, words))
        report.not_modelled(f"{args.name('moe_token_dispatcher_type')} {named}"[:200])
    return found or OPEN


def _read_context_exchange(args: Arguments, report: Report) -> Any:
    kinds = set(args.words("cp_comm_type")) or {"p2p"}
    if report.execution.known("context_par") == 1 or args.given("dsa_indexer_topk"):
        return "p2p"  # nothing is exchanged, or layers with an indexer say what is
    found = next((name for name, word in CONTEXT_EXCHANGES.items() if kinds == {word}), None)
    if found is None:
        report.not_modelled(f"{args.name('cp_comm_type')} {' '.join(sorted(kinds))}"[:200])
    return found or OPEN


def _data_overlap(args: Arguments) -> Any:
    if args.given("deepspeed"):
        return OPEN  # overlap_comm of DeepSpeed's JSON decides
    return args.has_overlap("overlap_grad_reduce")


def _note_communication(args: Arguments, report: Report) -> None:
    e = report.execution
    if e.known("tensor_par_overlap") == "ring" and args.given("tp_comm_overlap_cfg"):
        report.not_modelled(f"{args.name('tp_comm_overlap_cfg')}: the method of every layer")
    if args.on("overlap_param_gather_with_optimizer_step"):
        report.not_modelled(args.name("overlap_param_gather_with_optimizer_step"))
    if (e.known("pipeline_interleaving") or 1) > 1 and args["overlap_p2p_comm"] is False:
        report.not_modelled(f"{args.name('overlap_p2p_comm')}: transfers of interleaving that are not hidden")


def _note_experts(args: Arguments, report: Report) -> None:
    if (report.execution.known("expert_par") or 1) > 1 or report.model.known("experts"):
        for name in ("moe_expert_capacity_factor", "moe_shared_expert_overlap", "delay_wgrad_compute"):
            if args.given(name):
                report.not_modelled(args.name(name))


def _read_software(args: Arguments, report: Report) -> None:
    def kernel() -> Any:
        backend = args.word("attention_backend")
        if backend in ("unfused", "local"):
            return "unfused"
        if backend == "flash":
            return "native" if args["flash_attention_version"] in (3, 4, "3", "4") else "flash2"
        if args.given("use_flash_attn") and backend != "fused":
            report.not_modelled(f"{args.name('use_flash_attn')}: which version of FlashAttention is not said")
        return "native" if backend == "fused" else OPEN

    def launch() -> str:
        graphs = args.word("cuda_graph_impl") not in ("", "none")
        graphs |= args.on("enable_cuda_graph") or args.on("external_cuda_graph")
        if graphs:
            former = "cuda_graph_scope_deprecated"  # flag of older releases; "full" is a whole layer
            told = "cuda_graph_modules" if args.words("cuda_graph_modules") else former
            modules = [word for word in args.words(told) if word != "full"]
            if not modules or "full_iteration" in (args.word("cuda_graph_impl"), *modules):
                return "graphs"
            if "attn" in modules:
                report.remark(f"CUDA graphs cover only {', '.join(modules)}.")
                return "partial_graphs"
            report.not_modelled(f"{args.name(told)} {' '.join(modules)}: graphs without attention"[:200])
        plain: Any = args["bias_swiglu_fusion"] is False or args["bias_gelu_fusion"] is False
        plain = plain and args["bias_dropout_fusion"] is False and args["masked_softmax_fusion"] is False
        return "eager" if args.word("transformer_impl") == "local" and plain else "fused"

    report.say("attention_kernel", kernel)
    report.say("launch", launch)

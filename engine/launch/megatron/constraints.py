"""Reasons why Megatron's parser, its configurations and its process groups refuse arguments.

Source: Megatron-LM, megatron/training/arguments.py `validate_args`, transformer_config.py `__post_init__`,
parallel_state.py `initialize_model_parallel`; core 0.19 and 0.20.
"""

from __future__ import annotations

from typing import Final

from engine.columns.stage_layouts import layout_of_word
from engine.launch.contract import LaunchError
from engine.launch.megatron.arguments import Arguments
from engine.launch.megatron.hybrid_patterns import PATTERNS
from engine.launch.megatron.layouts import ACCOUNTS, ENDS, list_of
from engine.launch.megatron.pattern_reading import has_hybrid_pattern, has_pattern, stated_pattern
from engine.launch.report import OpenValue

__all__ = ["check_arguments"]

_CHUNK_WORDS: Final = (
    "num_layers_per_virtual_pipeline_stage",
    "num_virtual_stages_per_pipeline_rank",
    "pipeline_model_parallel_layout",
)


def check_arguments(args: Arguments, gpus: int) -> str:
    """Return the reason why Megatron would not start with these arguments; empty without one.

    Args:
        args: arguments of the run.
        gpus: number of GPUs.
    """
    for rule in (
        _check_degrees,
        _check_batch,
        _check_pipeline,
        _check_pattern,
        _check_overlap,
        _check_recompute,
        _check_memory,
        _check_precision,
    ):
        try:
            if found := rule(args, gpus):
                return found
        except OpenValue:
            continue  # what is not known speaks against nothing
    return ""


def _check_degrees(args: Arguments, gpus: int) -> str:
    tensor, pipeline = args.number("tensor_model_parallel_size", 1), args.number("pipeline_model_parallel_size", 1)
    context = args.number("context_parallel_size", 1)
    if gpus % (tensor * pipeline * context):
        return f"{gpus} GPUs are no multiple of {tensor * pipeline * context}, the product of the degrees"
    if args["num_attention_heads"] is not None:
        heads = args.number("num_attention_heads")
        groups = args.number("num_query_groups", 1) if args.on("group_query_attention") else heads
        if heads % tensor:
            return f"{heads} attention heads are no multiple of tensor parallel {tensor}"
        if groups % tensor and tensor % groups and not args.on("multi_latent_attention"):
            return f"{groups} query groups and tensor parallel {tensor} do not divide each other"
    if context > 1 and args["seq_length"] is not None and args.number("seq_length") % (2 * context):
        return f"a sequence of {args['seq_length']} is no multiple of twice context parallel {context}"
    if args["num_experts"] is None:
        return ""
    expert, split = args.number("expert_model_parallel_size", 1), args.number("expert_tensor_parallel_size", tensor)
    if args.number("num_experts") % expert:
        return f"{args['num_experts']} experts are no multiple of expert parallel {expert}"
    if gpus % (split * expert * pipeline):
        return f"{gpus} GPUs are no multiple of {split * expert * pipeline}, the degrees of experts and pipeline"
    if split > 1 and args["add_bias_linear"] is not False and args.on("add_bias_linear"):
        return "experts with biases need expert tensor parallel 1"
    return ""


def _check_batch(args: Arguments, gpus: int) -> str:
    if args["global_batch_size"] is None or args["micro_batch_size"] is None:
        return ""
    each = args.number("tensor_model_parallel_size", 1) * args.number("pipeline_model_parallel_size", 1)
    replicas = gpus // (each * args.number("context_parallel_size", 1))
    share = replicas * args.number("micro_batch_size")
    batch, pipeline = args.number("global_batch_size"), args.number("pipeline_model_parallel_size", 1)
    if share and batch % share:
        return f"a batch of {batch} is no multiple of {share}, a microbatch of every replica"
    if _count_chunks(args) == 1 or pipeline == 1 or not share:
        return ""
    passes, group = batch // share, args.number("microbatch_group_size_per_vp_stage", pipeline)
    name = args.name("microbatch_group_size_per_vp_stage")
    if passes < pipeline:
        return f"interleaving needs at least {pipeline} microbatches; a replica has {passes}"
    if not pipeline <= group <= passes:
        return f"{name} is {group}; it has to be from {pipeline} stages to {passes} microbatches"
    if 0 < passes % group < pipeline:
        return f"interleaving needs microbatches in groups of {group}; a replica has {passes}"
    return ""


def _check_pipeline(args: Arguments, gpus: int) -> str:
    pipeline = args.number("pipeline_model_parallel_size", 1)
    chunks = _count_chunks(args)
    if chunks > 1 and pipeline == 1:
        return "interleaving needs a pipeline"
    counted = [name for name in ACCOUNTS if args.on(name)]
    ends = [name for name in ENDS if args[name] is not None]
    if has_hybrid_pattern(args):
        return _check_pattern_stages(args, pipeline, [*counted, *ends])
    if args["pipeline_model_parallel_layout"]:
        return _check_layer_list(args, pipeline, [*counted, *ends])
    if args["num_layers"] is None:
        return ""
    if counted and ends:
        return f"{args.name(ends[0])} excludes {args.name(counted[0])}"
    if pipeline == 1:
        return ""
    layers = args.number("num_layers")
    if ends:
        return _check_end_stages(args, layers, pipeline, chunks, ends)
    if (layers + len(counted)) % (pipeline * chunks):
        with_ends = "" if not counted else f" with {len(counted)} for embedding and loss"
        return f"{layers} layers{with_ends} are no multiple of {pipeline} stages of {chunks} chunks"
    return ""


def _check_pattern_stages(args: Arguments, pipeline: int, others: list[str]) -> str:
    """Return why the stages of a pattern of layers are refused (arguments.py, "Hybrid layer pattern")."""
    stated = {str(args[name]) for name in PATTERNS if name in args}  # a log prints both, equal
    if len(stated) > 1:
        return f"{args.name(PATTERNS[1])} excludes {args.name(PATTERNS[0])}"
    found = stated_pattern(args)
    stages, layers = len(found.segments), sum(map(len, found.segments))
    others = [name for name in others if name not in ENDS or stages > 1]
    others += [name for name in _CHUNK_WORDS if args[name] is not None]
    if others:
        return f"{args.name(others[0])} excludes a pattern of layers, whose | are the stages"
    if stages > 1 and stages % pipeline:
        return f"the pattern has {stages} stages, no multiple of {pipeline} pipeline ranks"
    if stages == 1 and pipeline > 1 and layers % pipeline and not any(args[name] is not None for name in ENDS):
        return f"{layers} layers of the pattern are no multiple of {pipeline} stages"
    return ""


def _check_pattern(args: Arguments, gpus: int) -> str:
    """Return why layers of a pattern are refused (mamba_mixer.py, mamba_context_parallel.py, dsa.py; for gated delta
    nets transformer_config.py)."""
    if not has_pattern(args):
        return ""
    letters = "".join(stated_pattern(args).segments) if has_hybrid_pattern(args) else "G"
    tensor, context = args.number("tensor_model_parallel_size", 1), args.number("context_parallel_size", 1)
    limits: list[tuple[str, int]] = []
    if "G" in letters:
        limits += [(name, tensor * context) for name in ("linear_num_key_heads", "linear_num_value_heads")]
    if "M" in letters:
        limits += [("mamba_num_groups", tensor)]
        if args["mamba_num_heads"] is not None:
            limits += [("mamba_num_heads", tensor * context)]
    for name, ranks in limits:
        if args.number(name) % ranks:
            return f"{args.name(name)} {args.number(name)} is no multiple of {ranks} tensor and context ranks"
    if "M" in letters and (groups := args.number("mamba_num_groups") // tensor) % context and context % groups:
        return f"{groups} groups of Mamba-2 on a tensor rank and context parallel {context} do not divide each other"
    if "D" in letters and context > 1 and args.words("cp_comm_type") != ["allgather"]:
        return f"layers D need {args.name('cp_comm_type')} allgather"
    if "M" in letters and args.word("fp8") and args["mamba_num_heads"] is not None:
        heads, states = args.number("mamba_num_heads"), args.number("mamba_num_groups") * args.number("mamba_state_dim")
        if (2 * heads * args.number("mamba_head_dim") + 2 * states + heads) % 16:
            return "FP8 needs a first product of Mamba-2 whose width is a multiple of 16"
    return ""


def _check_end_stages(args: Arguments, layers: int, pipeline: int, chunks: int, ends: list[str]) -> str:
    """Return why layers of the first or the last stage are refused (transformer_config.py, "Uneven PP")."""
    given = [args.number(name) for name in ends]
    middle, rest = pipeline - len(ends), layers - sum(given)
    if rest < 0 or bool(rest) != bool(middle):
        return f"{layers} layers less {sum(given)} of the ends leave {rest} for {middle} stages between"
    if middle and rest % middle:
        return f"{layers} layers less {sum(given)} of the ends do not divide over {middle} stages"
    for each in (*given, rest // middle if middle else 0):
        if each % chunks:
            return f"{each} layers of a stage do not divide over {chunks} chunks"
    return ""


def _check_layer_list(args: Arguments, pipeline: int, others: list[str]) -> str:
    """Return why a list of layers is refused (pipeline_parallel_layer_layout.py, `validate_layer_layout`)."""
    name = args.name("pipeline_model_parallel_layout")
    try:
        found = layout_of_word(list_of(args["pipeline_model_parallel_layout"])[0])
    except LaunchError:
        return ""  # named as not read
    stages, predictions = len(found.layers), found.predictions
    if stages % pipeline:
        return f"{name} lists {stages} stages, which {pipeline} ranks do not divide"
    virtual = "virtual_pipeline_model_parallel_size"
    if args["num_virtual_stages_per_pipeline_rank"] is not None:
        others = [*others, "num_virtual_stages_per_pipeline_rank"]
    if args["num_layers_per_virtual_pipeline_stage"] is not None:
        others = [*others, "num_layers_per_virtual_pipeline_stage"]
    if others:
        return f"{name} excludes {args.name(others[0])}"
    if args[virtual] is not None and args.number(virtual) != stages // pipeline:
        return f"{name} lists {stages // pipeline} chunks of each rank, and {args.name(virtual)} is {args[virtual]}"
    if args["num_layers"] is not None and sum(found.layers) != args.number("num_layers"):
        return f"{name} lists {sum(found.layers)} layers of {args['num_layers']}"
    trained = args.number("mtp_num_layers", 0, 0)
    if (args.dialect.assumes_model or args.given("mtp_num_layers") is not None) and sum(predictions) != trained:
        return f"{name} lists {sum(predictions)} layers for multi-token prediction of {trained}"
    early = any(predictions[: stages - pipeline]) or (pipeline > 1 and predictions[stages - pipeline] > 0)
    if early or sum(map(bool, predictions)) > 1:
        return f"{name} has to list all layers for multi-token prediction in the last chunk of one rank but the first"
    return ""


def _check_overlap(args: Arguments, gpus: int) -> str:
    switched_off = args.dialect.overlap_needs_sequence_parallel
    if args.on("tp_comm_overlap") and not args.on("sequence_parallel") and not switched_off:
        return "--tp-comm-overlap needs --sequence-parallel"
    sharded = args.on("use_distributed_optimizer") or args.on("use_megatron_fsdp")
    if args.on("overlap_param_gather") and not (args.on("overlap_grad_reduce") and sharded):
        return "--overlap-param-gather needs --overlap-grad-reduce and the distributed optimizer"
    return _expert_overlap(args) if args.on("overlap_moe_expert_parallel_comm") else ""


def _expert_overlap(args: Arguments) -> str:
    """Return why combined 1F1B is refused, with or without a pipeline."""
    what = "overlap of expert communication"
    if args.number("expert_model_parallel_size", 1) == 1:
        return f"{what} needs expert parallelism"
    kind = args.word("moe_token_dispatcher_type")
    # Elsewhere a recipe may say it.
    told = args.dialect.assumes_model or args.given("moe_token_dispatcher_type") is not None
    if told and kind not in ("alltoall", "flex"):
        return f"{what} needs the token dispatcher alltoall or flex, not {kind}"
    if args.word("recompute_granularity") == "full":
        return f"{what} does not go with {_describe_full_recomputation(args)}"
    if args.word("recompute_granularity") == "selective" and "moe" in args.words("recompute_modules"):
        return f"{what} does not go with recomputing the module moe"
    if args.on("moe_shared_expert_overlap"):
        return f"{what} does not go with overlap of shared experts"
    predictions = args.number("mtp_num_layers", 0, 0)
    if predictions > 1:
        return f"{what} takes one layer for multi-token prediction at most, not {predictions}"
    if args.number("pipeline_model_parallel_size", 1) > 1 and _count_chunks(args) == 1:
        return f"{what} in a pipeline needs interleaving"
    if not (args.on("bf16") or args.on("fp16")):
        return f"{what} needs BF16 or FP16"
    return ""


def _count_chunks(args: Arguments) -> int:
    """Chunks of each rank, from whichever argument says it."""
    pipeline = args.number("pipeline_model_parallel_size", 1)
    if has_hybrid_pattern(args):
        return max(len(stated_pattern(args).segments) // pipeline, 1)
    if args["num_virtual_stages_per_pipeline_rank"] is not None:
        return args.number("num_virtual_stages_per_pipeline_rank")
    if args["virtual_pipeline_model_parallel_size"] is not None:
        return args.number("virtual_pipeline_model_parallel_size")
    if args["pipeline_model_parallel_layout"]:
        try:
            return max(list_of(args["pipeline_model_parallel_layout"])[1] // pipeline, 1)
        except LaunchError:
            return 1
    if args["num_layers_per_virtual_pipeline_stage"] is not None and args["num_layers"] is not None:
        each = pipeline * args.number("num_layers_per_virtual_pipeline_stage")
        accounted = args.on("account_for_embedding_in_pipeline_split") + args.on("account_for_loss_in_pipeline_split")
        return max((args.number("num_layers") + accounted) // each, 1)
    return 1


def _check_recompute(args: Arguments, gpus: int) -> str:
    kind, modules = args.word("recompute_granularity"), args.words("recompute_modules")
    if kind == "full" and args.word("cuda_graph_impl") not in ("", "none", "full_iteration"):
        return f"CUDA graphs with {_describe_full_recomputation(args)} have to be of full iterations"
    whole = args.dialect.assumes_model  # elsewhere a recipe may say it
    if kind == "selective":
        if args["recompute_method"] is not None:
            return "selective recomputation takes no --recompute-method"
        if "moe_act" in modules and whole and not args.on("moe_grouped_gemm"):
            return "recomputing moe_act needs --moe-grouped-gemm"
        if "mla_up_proj" in modules and whole and not args.on("multi_latent_attention"):
            return "recomputing mla_up_proj needs latent attention"
        if args.word("fp8") and args.word("fp8_recipe") == "delayed" and {"moe_act", "layernorm"} & set(modules):
            return "FP8 with delayed scaling does not recompute moe_act or layernorm"
    return ""


def _describe_full_recomputation(args: Arguments) -> str:
    """Return the words for granularity full: of all layers, or of so many of every chunk."""
    if args.word("recompute_method") != "block":
        return "full recomputation"
    layers = args.number("recompute_num_layers", 1)
    return f"full recomputation of {layers} layer{'s' * (layers != 1)} of every chunk"


def _check_memory(args: Arguments, gpus: int) -> str:
    named = args.number("cpu_offloading_num_layers", 0, 0)
    if named:
        if args.number("pipeline_model_parallel_size", 1) > 1:
            return "offloading activations by layers needs a pipeline of one stage"
        if args.word("recompute_granularity"):
            return "offloading activations by layers does not go with recomputation"
        if args["num_layers"] is not None and named >= args.number("num_layers"):
            return "at most all layers but one can be offloaded"
    if args.on("optimizer_cpu_offload") and not args.on("use_precision_aware_optimizer"):
        return "offloading the optimizer needs --use-precision-aware-optimizer"
    if args.on("use_torch_fsdp2") and args.number("pipeline_model_parallel_size", 1) > 1:
        return "--use-torch-fsdp2 needs a pipeline of one stage"
    return ""


def _check_precision(args: Arguments, gpus: int) -> str:
    if args.word("fp8") and args.word("fp4"):
        return "FP8 and FP4 exclude each other"
    if args.on("fp16") and args.on("bf16"):
        return "--fp16 and --bf16 exclude each other"
    return ""

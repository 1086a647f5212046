"""MaxText's keys as an execution.

Degrees are sizes of two meshes: `ici_*` within a slice, which is a node on GPUs, and `dcn_*` across them; one -1 on
each takes the rest. Defaults come from base.yml (0.2.5, Apache-2.0).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Final

from engine.launch.contract import LaunchError, LaunchInputs, LaunchReading, Origin
from engine.launch.maxtext.names import (
    AXES,
    DATA_AXES,
    MODELS,
    POLICIES,
    WITHOUT_EFFECT,
    default_of,
    known_keys,
    pipelined_layers,
)
from engine.launch.named_models import library_shape
from engine.launch.not_expressible import read_expert_load
from engine.launch.precision import read_word
from engine.launch.report import OPEN, OpenValue, Report
from engine.launch.settings import LaunchSettings
from models.documents import shown

__all__ = ["read_configuration"]

_NUMBERS: Final = {
    "layers": ("base_num_decoder_layers", 16),
    "hidden": ("base_emb_dim", 2048),
    "ffn": ("base_mlp_dim", 7168),
    "heads": ("base_num_query_heads", 16),
    "kv_heads": ("base_num_kv_heads", 16),
    "head_dim": ("head_dim", 128),
    "vocab": ("vocab_size", 32_000),
}
"""Numbers of a model that has no name: key and default."""
_NODE: Final = 8
_NOT_MODELLED: Final = ("enable_diloco", "te_moe_block", "pipeline_fsdp_ag_once")


def read_configuration(flags: Mapping[str, Any], asked: LaunchInputs) -> LaunchReading:
    """Return the execution that keys and values of MaxText describe.

    Args:
        flags: values by key.
        asked: what the caller states beside them; where nothing says how many GPUs there are, the product of the
            degrees that are given counts.

    Raises LaunchError where a value is of no use, or degrees do not multiply to the GPUs.
    """
    report = Report("MaxText", asked)
    settings = LaunchSettings(flags, report)
    _read_model(settings, report)
    _read_degrees(settings, report)
    _read_batch(settings, report)
    _read_pipeline(settings, report)
    _read_recompute(settings, report)
    _read_software(settings, report)
    for name in settings.given:
        if name not in known_keys():
            report.unread(name)
            report.refuse(f"{name} is no key of MaxText's; it refuses what it does not know.")
    report.remark(*(f"{each} is not at hand; it may hold keys." for each in settings.hidden if "$" in each.expression))
    _name_rest(settings, report)
    return report.reading("maxtext", "0.2.5", flags)


def _name_rest(settings: LaunchSettings, report: Report) -> None:
    """Names the keys that nothing here depends on, where they are not at their default."""
    for name in settings.rest():
        value = settings.given[name]
        if name not in known_keys() or str(value).lower() == str(default_of(name)).lower():
            continue
        if name in ("base_config", "hardware") or any(fnmatchcase(name, each) for each in WITHOUT_EFFECT):
            report.without_effect(name)
        else:
            report.not_modelled(f"{name} {value}"[:200])


def _read_model(settings: LaunchSettings, report: Report) -> None:
    try:
        _read_shape(settings, report)
    except OpenValue as signal:
        report.leave("model shape")
        report.open_model(signal.origin)
    report.describe("seq", lambda: settings.whole("max_target_length", 2048))
    if "kv_heads" in report.model.origins:
        report.say(
            "attention_type",
            lambda: "multiquery" if report.model["kv_heads"] == 1 and "kv_rank" not in report.model else "multihead",
            "from key and value heads",
        )


def _read_shape(settings: LaunchSettings, report: Report) -> None:
    named = settings.word("model_name", "default")
    library = MODELS.get(named)
    own = [key for key, _ in _NUMBERS.values() if key in settings.given]
    if library is None and named != "default" and (own or settings.has("decoder_block")):
        report.remark(f"MaxText's model {shown(named)[1:-1]} is not known here; the sizes that are given count.")
    if library is not None:
        report.start_model(library_shape(library), report.origin_of("model_name"))
        for word, (key, _) in _NUMBERS.items():
            report.describe(word, partial(settings.whole, key))
    elif own or settings.has("decoder_block"):
        for word, (key, default) in _NUMBERS.items():
            report.describe(word, partial(settings.whole, key, default))
        _read_further_numbers(settings, report)
    else:
        report.leave("model shape")
        if named != "default":
            report.remark(f"MaxText's model {shown(named)[1:-1]} is not known here; give the model beside it.")


def _read_further_numbers(settings: LaunchSettings, report: Report) -> None:
    """Reads what a model without a name has beside its sizes: gates, embeddings, experts, latent attention."""
    model, describe = report.model, report.describe
    latent = settings.word("attention_type", "global") == "mla"
    describe("gated_mlp", lambda: len(settings.words("mlp_activations", ("silu", "linear"))) > 1)
    describe("tied_embeddings", lambda: settings.truth("logits_via_embedding"))

    def experts() -> int | None:
        found = settings.whole("num_experts", 1) or 1
        return found if found > 1 else None

    def width() -> int:
        found = settings.whole("base_moe_mlp_dim", -1, least=-1) or -1
        return found if found > 0 else int(model["ffn"])

    def pattern() -> int | list[int]:
        first = settings.whole("first_num_dense_layers", 0, least=0) or 0
        return [0] * first + [1] * (int(model["layers"]) - first) if first else 1

    describe("experts", experts)
    if "experts" in model.origins:
        describe("top_k", lambda: settings.whole("num_experts_per_tok", 1))
        describe("expert_ffn", width)
        describe("shared_ffn", lambda: (settings.whole("shared_experts", 0, least=0) or 0) * width())
        describe("moe_layer_freq", pattern)
    if latent and not report.asked.model:
        model.values_known.pop("head_dim", None)
        model.origins.pop("head_dim", None)
        describe("kv_heads", lambda: settings.word("attention_type") and model["heads"])
        for word, key, default in (
            ("kv_rank", "kv_lora_rank", 512),
            ("nope_head_dim", "qk_nope_head_dim", 128),
            ("rope_head_dim", "qk_rope_head_dim", 64),
            ("v_head_dim", "v_head_dim", 128),
        ):
            describe(word, partial(settings.whole, key, default))
        describe("q_rank", lambda: settings.whole("q_lora_rank", 0, least=0) or None)


def _axis_sizes(settings: LaunchSettings, gpus: int | None) -> dict[str, int]:
    """Sizes of all axes, both sides together; a negative one is open."""
    inner = {axis: settings.whole(f"ici_{axis}_parallelism", -1 if axis == "fsdp" else 1, least=-1) for axis in AXES}
    outer = {axis: settings.whole(f"dcn_{axis}_parallelism", -1 if axis == "data" else 1, least=-1) for axis in AXES}
    each = _gpus_per_node(inner, outer, settings, gpus)
    _fill_open_axis(inner, each, "ici")
    _fill_open_axis(outer, None if gpus is None or each is None else gpus // each, "dcn")
    return {axis: (inner[axis] or 1) * (outer[axis] or 1) for axis in AXES}


def _read_degrees(settings: LaunchSettings, report: Report) -> None:
    e, say, gpus = report.execution, report.say, report.asked.gpus

    def axis(*names: str) -> int:
        """Return the product of axes; reads only their own keys if none of them is -1."""
        sizes = [
            (settings.whole(f"ici_{name}_parallelism", -1 if name == "fsdp" else 1, least=-1) or 1)
            * (settings.whole(f"dcn_{name}_parallelism", -1 if name == "data" else 1, least=-1) or 1)
            for name in names
        ]
        return math.prod(sizes) if min(sizes) > 0 else math.prod(_axis_sizes(settings, gpus)[name] for name in names)

    def gpus_of_degrees() -> Any:
        told = report.told_gpus()
        sizes = _axis_sizes(settings, None if told is OPEN else told)
        if min(sizes.values()) < 0:
            return told
        product = math.prod(sizes.values())
        if told is OPEN:
            report.remark(f"{product:,} GPUs are the product of the degrees.")
        elif product != told:
            raise LaunchError(f"The degrees multiply to {product:,} GPUs, not to {told:,}; they must be equal.")
        return product

    def replicas() -> Any:
        sizes = _axis_sizes(settings, e["num_procs"])
        return math.prod(sizes[name] for name in DATA_AXES) if min(sizes.values()) > 0 else OPEN

    say("tensor_par", lambda: axis("tensor", "tensor_transpose", "tensor_sequence"))
    say("pipeline_par", lambda: axis("pipeline"))
    say("context_par", lambda: axis("context"))
    say("expert_par", lambda: axis("expert"))
    say("expert_tensor_par", lambda: e["tensor_par"] if report.model.get("experts") else 1)
    say(("tensor_par_comm_type", "seq_par_ag_redo"), lambda: ("rs_ag", True) if e["tensor_par"] > 1 else ("ar", False))
    say("num_procs", gpus_of_degrees)
    if gpus is not None and "num_procs" in e.values_known:
        e.origins["num_procs"] = report.asked.gpus_origin or Origin("stated", "number of GPUs")
    say("data_par", replicas)
    if e.origins["data_par"].kind == "unknown" and not e.origins["data_par"].words:
        e.values_known.pop("num_procs", None)
        e.origins["num_procs"] = Origin("unknown")
        report.leave("num_procs", "data_par")

    def notes() -> None:
        if axis("tensor") > 1:
            report.remark("The tensor axis shards the width of activations; read as sequence parallelism.")
        for name in ("sequence", "autoregressive", "context_autoregressive", "context_usp_ulysses", "diloco"):
            if (size := axis(name)) > 1:
                report.not_modelled(f"the {name} axis, {size}")

    def exchange() -> Any:
        if e["context_par"] == 1:
            return "p2p"
        word = settings.word("context_parallel_strategy", "all_gather")
        found = {"ring": "p2p", "all_gather": "all_gather"}.get(word)
        if found is None:
            report.not_modelled(f"context_parallel_strategy {word}"[:200])
        return found or OPEN

    report.note(notes)
    say("context_par_comm", exchange)
    say("zero_stage", lambda: _zero_stage(settings, report))
    say("optimizer_sharding", lambda: e["zero_stage"] >= 1)
    e.origins["optimizer_sharding"] = e.origins["zero_stage"]
    say("data_par_overlap", lambda: e["context_par"] > 1 or e["data_par"] > 1)


def _gpus_per_node(
    inner: Mapping[str, int | None], outer: Mapping[str, int | None], settings: LaunchSettings, gpus: int | None
) -> int | None:
    """Returns the GPUs of a node: the product of its axes, or what nodes leave of all GPUs; None where open."""
    if -1 not in inner.values():
        return math.prod(size or 1 for size in inner.values())
    if gpus is None:
        return None
    nodes = settings.whole("num_slices", -1, least=-1) or -1
    if nodes < 1:
        # Without a word on the number of nodes, -1 across them is taken as few as nodes of eight allow.
        told = math.prod(size or 1 for size in outer.values() if size != -1)
        of_eight = gpus // _NODE if gpus % _NODE == 0 else 1
        nodes = told if -1 not in outer.values() or told > 1 else of_eight
    if gpus % nodes:
        raise LaunchError(f"{gpus:,} GPUs cannot be spread over {nodes:,} nodes; give another number of GPUs.")
    return gpus // nodes


def _fill_open_axis(axes: dict[str, int | None], size: int | None, side: str) -> None:
    """Replace the -1 of a side by the remaining size; if that is open, a -1 across nodes counts one."""
    open_axes = [axis for axis, degree in axes.items() if degree == -1]
    if len(open_axes) > 1:
        raise LaunchError(f"Several of {side}_*_parallelism are -1; MaxText takes one on each side.")
    rest = math.prod(degree or 1 for degree in axes.values() if degree != -1)
    if not open_axes:
        return
    if size is None:
        if side == "dcn" and rest > 1:
            axes[open_axes[0]] = 1
        return
    if size % rest:
        raise LaunchError(f"The {side}_* degrees of {rest:,} do not divide {size:,}; choose degrees that do.")
    axes[open_axes[0]] = size // rest


def _zero_stage(settings: LaunchSettings, report: Report) -> int:
    sizes = _axis_sizes(settings, report.execution.known("num_procs"))
    shards = sizes["fsdp"] * sizes["fsdp_transpose"]
    if shards > 1 and abs(sizes["data"]) > 1:
        report.remark(f"Weights are sharded within {abs(sizes['data'])} groups of replicas; read as over all.")
    over_data = settings.truth("shard_optimizer_over_data")
    return 3 if shards > 1 or sizes["fsdp"] < 0 else int(over_data)


def _read_batch(settings: LaunchSettings, report: Report) -> None:
    e = report.execution

    def batch() -> Any:
        each = settings.number("per_device_batch_size", 12.0) or 12.0
        steps = settings.whole("gradient_accumulation_steps", 1) or 1
        e["data_par"]  # open where the GPUs are
        gpus = int(e["num_procs"])
        found = round(each * gpus * steps)
        if found < 1 or abs(each * gpus * steps - found) > 1e-6 * found:
            report.refuse(f"per_device_batch_size {each:g} gives no whole number of sequences on {gpus:,} GPUs.")
            return OPEN
        return found

    def micro() -> Any:
        parts = settings.whole("gradient_accumulation_steps", 1) or 1
        passes = settings.whole("num_pipeline_microbatches", -1, least=-1) or -1
        whole, replicas, pipeline = int(e["batch_size"]), int(e["data_par"]), int(e["pipeline_par"])
        if pipeline > 1:
            parts *= passes if passes > 0 else pipeline
            if passes > 0 and passes % pipeline:
                report.refuse(f"num_pipeline_microbatches {passes} is no multiple of {pipeline} stages.")
        if whole % (parts * replicas):
            report.refuse(f"{whole} sequences cannot be shared by {replicas} replicas in {parts} microbatches.")
            return OPEN
        return whole // (parts * replicas)

    report.say("batch_size", batch)
    report.say("microbatch_size", micro)
    e.origins["microbatch_size"] = (
        e.origins["microbatch_size"]
        if "microbatch_size" not in e.values_known
        else (
            e.origins["batch_size"] if e.origins["microbatch_size"].kind == "default" else e.origins["microbatch_size"]
        )
    )


def _read_pipeline(settings: LaunchSettings, report: Report) -> None:
    e = report.execution

    def chunks() -> Any:
        repeats = settings.whole("num_pipeline_repeats", -1, least=-1) or -1
        layers = settings.whole("num_layers_per_pipeline_stage", 1) or 1
        given = settings.whole("pipeline_parallel_layers", -1, least=-1) or -1
        pipeline = int(e["pipeline_par"])
        if pipeline == 1:
            return 1
        report.remark("The pipeline runs all forward passes, then all backward passes; here it is 1F1B.")
        if repeats > 0:
            return repeats
        blocks = given if given > 0 else pipelined_layers(report.model)
        if blocks is None:
            return OPEN
        if blocks % (pipeline * layers):
            report.refuse(f"{pipeline} stages of {layers} layers do not divide {blocks} layers.")
            return OPEN
        return blocks // (pipeline * layers)

    def delayed() -> None:
        if settings.truth("pipeline_delay_activation_forwarding"):
            report.not_modelled("pipeline_delay_activation_forwarding (twice the bubble)")

    report.say("pipeline_overlap", lambda: False)
    report.note(delayed)
    report.say("pipeline_interleaving", chunks)


def _remat_policy(settings: LaunchSettings) -> str:
    given = settings.raw("remat_policy")
    if given is None and settings.given.get("remat_policy"):
        return "none"  # the word itself, which elsewhere stands for nothing
    return settings.word("remat_policy", "full").lower()


def _read_recompute(settings: LaunchSettings, report: Report) -> None:
    def recompute() -> tuple[Any, Any]:
        policy = _remat_policy(settings)
        found = POLICIES.get(policy)
        if found is not None:
            if policy not in ("none", "full", "minimal", "save_dot_except_mlp"):
                report.remark(f"remat_policy {policy} is read as the nearest: {found[1].replace('_', ' ')}.")
            return found
        if policy == "custom":
            report.not_modelled("remat_policy custom, tensor by tensor")
        else:
            report.refuse(f"remat_policy {shown(policy)[1:-1]} is none of MaxText's; it fails when the model is built.")
        return OPEN, OPEN

    def offload() -> bool:
        policy = _remat_policy(settings)
        if policy == "custom":
            return "offload" in [str(value).lower() for value in settings.given.values()]
        return policy.endswith("_offloaded")

    report.say(("activation_recompute", "selective_recompute"), recompute)
    report.say("recompute_blocks", lambda: 0)
    report.say("activations_offload", offload)
    try:
        is_custom = _remat_policy(settings) == "custom"
    except OpenValue:
        is_custom = True
    for name, value in settings.given.items():
        if str(value).lower() in ("remat", "device", "offload"):  # a tensor of the policy custom
            settings.asked.add(name)
            (report.not_modelled if is_custom else report.without_effect)(f"{name} {value}" if is_custom else name)


def _read_software(settings: LaunchSettings, report: Report) -> None:
    e, say = report.execution, report.say

    def datatype() -> Any:
        found, quantization = settings.word("dtype", "bfloat16"), settings.word("quantization").lower()
        if quantization and quantization != "te_no_quant":
            return read_word(report, "maxtext", "quantization", quantization)
        return found

    def kernel() -> Any:
        word = settings.word("attention", "autoselected")
        found = {"dot_product": "unfused", "cudnn_flash_te": "native"}.get(word)
        if found is None and word != "autoselected":
            report.not_modelled(f"attention {word}"[:200])
        return OPEN if found is None else found

    def tensor_overlap() -> str:
        on = settings.word("te_comm_gemm_overlap", "disabled") != "disabled" and int(e["tensor_par"]) > 1
        return "ring" if on else "none"

    say("datatype", datatype)
    say("training", lambda: True)
    say("launch", lambda: "compiled")
    say("optimizer_datatype", lambda: "float32")
    say("fp8_param_gather", lambda: False)
    say("gradient_datatype", lambda: "float32" if settings.word("grad_dtype", "float32") == "float32" else "bfloat16")
    say("optimizer_offload", lambda: settings.truth("optimizer_memory_host_offload"))
    say("weight_offload", lambda: settings.truth("parameter_memory_host_offload"))
    say("attention_kernel", kernel)
    say("tensor_par_overlap", tensor_overlap)
    # A ring of experts gathers all tokens on every rank.
    say("token_dispatcher", lambda: "all_gather" if settings.truth("use_ring_of_experts") else "all_to_all")
    say("dispatch_datatype", lambda: "bfloat16")
    read_expert_load(report)
    say("expert_overlap", lambda: settings.truth("use_batch_split_schedule") and int(e["expert_par"]) > 1)

    def notes() -> None:
        if (settings.word("mu_dtype") or settings.word("weight_dtype", "float32")) != "float32":
            report.remark("The first moment is in BF16 and the second in FP32; read as FP32.")
        if settings.word("weight_dtype", "float32") != "float32":
            report.not_modelled("weight_dtype (no copy of the weights in FP32)")
        capacity = settings.number("capacity_factor", -1.0) or -1.0
        if capacity > 0:
            report.not_modelled(f"capacity_factor {capacity:g} (tokens dropped)")
        for name in _NOT_MODELLED:
            if settings.truth(name):
                report.not_modelled(name)

    report.note(notes)

"""What MaxText's keys say of an execution.

Degrees stand on two meshes: `ici_*` within a slice, which is a node on GPUs, and `dcn_*` across them; one -1 on each
takes the rest. Defaults are those of base.yml (0.2.5, Apache-2.0).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from engine.launch.contract import LaunchError, Reading
from engine.launch.maxtext.names import AXES, DATA_AXES, MODELS, POLICIES, known_keys, pipelined_layers
from engine.launch.named_models import library_shape
from engine.launch.report import Report
from engine.launch.settings import Settings
from models.documents import shown

__all__ = ["read"]

_NUMBERS: Final = {
    "layers": ("base_num_decoder_layers", 16), "hidden": ("base_emb_dim", 2048), "ffn": ("base_mlp_dim", 7168),
    "heads": ("base_num_query_heads", 16), "kv_heads": ("base_num_kv_heads", 16), "head_dim": ("head_dim", 128),
    "vocab": ("vocab_size", 32_000),
}  # fmt: skip
"""Numbers of a model that has no name: key and default."""
_NODE: Final = 8
_NOT_MODELLED: Final = ("enable_diloco", "use_ring_of_experts", "te_moe_block", "pipeline_fsdp_ag_once")
_FLOAT8: Final = ("fp8", "nanoo_fp8", "te_fp8", "te_mxfp8")
_FLOAT4: Final = ("fp4", "te_nvfp4")


def read(flags: Mapping[str, Any], gpus: int | None = None) -> Reading:
    """Returns what keys and values of MaxText say.

    Args:
        flags: values by key.
        gpus: number of GPUs it is started on; where nothing says it, the product of the degrees that are given.

    Raises LaunchError where a value is of no use, or degrees do not multiply to the GPUs.
    """
    settings, report = Settings(flags), Report()
    _read_model(settings, report)
    gpus = _read_degrees(settings, report, gpus)
    _read_batch(settings, report, gpus)
    _read_pipeline(settings, report)
    _read_recompute(settings, report)
    _read_software(settings, report)
    for name in settings.given:
        if name not in known_keys():
            report.unread(name)
            report.refuse(f"{name} is no key of MaxText's; it refuses what it does not know.")
    return report.reading("maxtext", "0.2.5", flags, gpus)


def _read_model(settings: Settings, report: Report) -> None:
    named = settings.word("model_name", "default")
    library = MODELS.get(named)
    own = any(settings.has(key) for key, _ in _NUMBERS.values())
    if library is not None:
        report.model = library_shape(library)
        for word, (key, _) in _NUMBERS.items():
            if (given := settings.whole(key)) is not None:
                report.model[word] = given
    elif own or settings.has("decoder_block"):
        report.model = {word: settings.whole(key, default) for word, (key, default) in _NUMBERS.items()}
        _read_further_numbers(settings, report)
    else:
        report.leave("model shape")
        if named != "default":
            report.remark(f"MaxText's model {shown(named)[1:-1]} is not known here; give the model beside it.")
    report.model["seq"] = settings.whole("max_target_length", 2048)
    if "kv_heads" in report.model:
        one = report.model["kv_heads"] == 1 and "kv_rank" not in report.model
        report.execution["attention_type"] = "multiquery" if one else "multihead"


def _read_further_numbers(settings: Settings, report: Report) -> None:
    """Reads what a model without a name has beside its sizes: gates, embeddings, experts, latent attention."""
    model = report.model
    model["gated_mlp"] = len(settings.words("mlp_activations", ("silu", "linear"))) > 1
    model["tied_embeddings"] = settings.truth("logits_via_embedding")
    experts = settings.whole("num_experts", 1) or 1
    if experts > 1:
        width = settings.whole("base_moe_mlp_dim", -1, least=-1) or -1
        width = width if width > 0 else int(model["ffn"])
        first = settings.whole("first_num_dense_layers", 0, least=0) or 0
        model |= {
            "experts": experts, "top_k": settings.whole("num_experts_per_tok", 1), "expert_ffn": width,
            "shared_ffn": (settings.whole("shared_experts", 0, least=0) or 0) * width,
            "moe_layer_freq": [0] * first + [1] * (int(model["layers"]) - first) if first else 1,
        }  # fmt: skip
    if settings.word("attention_type", "global") == "mla":
        del model["head_dim"]
        model |= {
            "kv_heads": model["heads"], "kv_rank": settings.whole("kv_lora_rank", 512),
            "nope_head_dim": settings.whole("qk_nope_head_dim", 128),
            "rope_head_dim": settings.whole("qk_rope_head_dim", 64), "v_head_dim": settings.whole("v_head_dim", 128),
        }  # fmt: skip
        if rank := settings.whole("q_lora_rank", 0, least=0):
            model["q_rank"] = rank


def _read_degrees(settings: Settings, report: Report, gpus: int | None) -> int | None:
    inner = {axis: settings.whole(f"ici_{axis}_parallelism", -1 if axis == "fsdp" else 1, least=-1) for axis in AXES}
    outer = {axis: settings.whole(f"dcn_{axis}_parallelism", -1 if axis == "data" else 1, least=-1) for axis in AXES}
    each = _node(inner, outer, settings, gpus)
    _fill(inner, each, "ici")
    _fill(outer, None if gpus is None or each is None else gpus // each, "dcn")
    sizes = {axis: (inner[axis] or 1) * (outer[axis] or 1) for axis in AXES}
    known = all(size > 0 for size in sizes.values())
    if known:
        product = math.prod(sizes.values())
        if gpus is None:
            gpus = product
            report.remark(f"{gpus:,} GPUs are the product of the degrees.")
        if product != gpus:
            raise LaunchError(f"The degrees multiply to {product:,} GPUs, not to {gpus:,}; they must be equal.")
    tensor = sizes["tensor"] * sizes["tensor_transpose"] * sizes["tensor_sequence"]
    e = report.execution
    e.update(
        tensor_par=tensor, pipeline_par=sizes["pipeline"], context_par=sizes["context"], expert_par=sizes["expert"]
    )
    e["expert_tensor_par"] = tensor if report.model.get("experts") else 1
    e["tensor_par_comm_type"], e["seq_par_ag_redo"] = ("rs_ag", True) if tensor > 1 else ("ar", False)
    if sizes["tensor"] > 1:
        report.remark("The tensor axis shards the width of activations; read as sequence parallelism.")
    if sizes["context"] > 1 and settings.word("context_parallel_strategy", "all_gather") != "ring":
        report.remark("Keys and values are gathered over context ranks; here they go round a ring.")
    for axis in ("sequence", "autoregressive", "context_autoregressive", "context_usp_ulysses", "diloco"):
        if sizes[axis] > 1:
            report.not_modelled(f"the {axis} axis, {sizes[axis]}")
    if known:
        e.update(num_procs=gpus, data_par=math.prod(sizes[axis] for axis in DATA_AXES))
    else:
        report.leave("num_procs", "data_par")
    _read_sharding(settings, report, sizes)
    return gpus


def _node(
    inner: Mapping[str, int | None], outer: Mapping[str, int | None], settings: Settings, gpus: int | None
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


def _fill(axes: dict[str, int | None], size: int | None, side: str) -> None:
    """Puts what is left of a side in the place of its -1; where the size is open, a -1 across nodes counts one."""
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


def _read_sharding(settings: Settings, report: Report, sizes: Mapping[str, int]) -> None:
    shards = sizes["fsdp"] * sizes["fsdp_transpose"]
    over_data = settings.truth("shard_optimizer_over_data")
    stage = 3 if shards > 1 or sizes["fsdp"] < 0 else int(over_data)
    if shards > 1 and abs(sizes["data"]) > 1:
        report.remark(f"Weights are sharded within {abs(sizes['data'])} groups of replicas; read as over all.")
    report.execution.update(zero_stage=stage, optimizer_sharding=stage >= 1)
    e = report.execution
    e["data_par_overlap"] = e.get("data_par", 2) * e["context_par"] > 1


def _read_batch(settings: Settings, report: Report, gpus: int | None) -> None:
    e = report.execution
    each = settings.number("per_device_batch_size", 12.0) or 12.0
    steps = settings.whole("gradient_accumulation_steps", 1) or 1
    passes = settings.whole("num_pipeline_microbatches", -1, least=-1) or -1
    if gpus is None or "data_par" not in e:
        report.leave("batch_size", "microbatch_size")
        return
    batch = round(each * gpus * steps)
    if batch < 1 or abs(each * gpus * steps - batch) > 1e-6 * batch:
        report.refuse(f"per_device_batch_size {each:g} gives no whole number of sequences on {gpus:,} GPUs.")
        report.leave("batch_size", "microbatch_size")
        return
    parts = steps
    if e["pipeline_par"] > 1:
        parts = steps * (passes if passes > 0 else int(e["pipeline_par"]))
        if passes > 0 and passes % int(e["pipeline_par"]):
            report.refuse(f"num_pipeline_microbatches {passes} is no multiple of {e['pipeline_par']} stages.")
    e["batch_size"] = batch
    if batch % (parts * e["data_par"]):
        report.refuse(f"{batch} sequences cannot be shared by {e['data_par']} replicas in {parts} microbatches.")
        report.leave("microbatch_size")
    else:
        e["microbatch_size"] = batch // (parts * e["data_par"])


def _read_pipeline(settings: Settings, report: Report) -> None:
    e = report.execution
    e["pipeline_overlap"] = False
    if settings.truth("pipeline_delay_activation_forwarding"):
        report.not_modelled("pipeline_delay_activation_forwarding (twice the bubble)")
    repeats = settings.whole("num_pipeline_repeats", -1, least=-1) or -1
    layers = settings.whole("num_layers_per_pipeline_stage", 1) or 1
    given = settings.whole("pipeline_parallel_layers", -1, least=-1) or -1
    pipeline = int(e["pipeline_par"])
    if pipeline == 1:
        e["pipeline_interleaving"] = 1
        return
    report.remark("The pipeline runs all forward passes, then all backward passes; here it is 1F1B.")
    if repeats > 0:
        e["pipeline_interleaving"] = repeats
        return
    blocks = given if given > 0 else pipelined_layers(report.model)
    if blocks is None:
        report.leave("pipeline_interleaving")
    elif blocks % (pipeline * layers):
        report.refuse(f"{pipeline} stages of {layers} layers do not divide {blocks} layers.")
        report.leave("pipeline_interleaving")
    else:
        e["pipeline_interleaving"] = blocks // (pipeline * layers)


def _read_recompute(settings: Settings, report: Report) -> None:
    policy = settings.word("remat_policy", "full" if not settings.given.get("remat_policy") else "none").lower()
    e = report.execution
    e["activations_offload"] = policy.endswith("_offloaded")
    found = POLICIES.get(policy)
    if found is not None:
        e["activation_recompute"], e["selective_recompute"] = found
        if policy not in ("none", "full", "minimal", "save_dot_except_mlp"):
            report.remark(f"remat_policy {policy} is read as the nearest: {found[1].replace('_', ' ')}.")
    elif policy == "custom":
        report.not_modelled("remat_policy custom, tensor by tensor")
        report.leave("activation_recompute")
        e["activations_offload"] = "offload" in [str(value).lower() for value in settings.given.values()]
    else:
        report.leave("activation_recompute")
        report.refuse(f"remat_policy {shown(policy)[1:-1]} is none of MaxText's; it fails when the model is built.")


def _read_software(settings: Settings, report: Report) -> None:
    e = report.execution
    datatype, quantization = settings.word("dtype", "bfloat16"), settings.word("quantization").lower()
    if quantization.startswith(_FLOAT4):
        datatype = "float4"
    elif quantization.startswith(_FLOAT8):
        datatype = "float8"
    elif quantization and quantization != "te_no_quant":
        report.not_modelled(f"quantization {quantization}")
    e.update(datatype=datatype, training=True, launch="compiled", optimizer_datatype="float32")
    gradients = settings.word("grad_dtype", "float32")
    e["gradient_datatype"] = "float32" if gradients == "float32" else "bfloat16"
    if (settings.word("mu_dtype") or settings.word("weight_dtype", "float32")) != "float32":
        report.remark("The first moment is in BF16 and the second in FP32; read as FP32.")
    if settings.word("weight_dtype", "float32") != "float32":
        report.not_modelled("weight_dtype (no copy of the weights in FP32)")
    e["optimizer_offload"] = settings.truth("optimizer_memory_host_offload")
    e["weight_offload"] = settings.truth("parameter_memory_host_offload")
    kernel = {"dot_product": "unfused", "cudnn_flash_te": "native"}.get(settings.word("attention", "autoselected"))
    if kernel is None:
        report.leave("attention_kernel")
    else:
        e["attention_kernel"] = kernel
    overlapped = settings.word("te_comm_gemm_overlap", "disabled") != "disabled" and int(e["tensor_par"]) > 1
    e["tensor_par_overlap"] = "ring" if overlapped else "none"
    e["expert_overlap"] = settings.truth("use_batch_split_schedule") and int(e["expert_par"]) > 1
    capacity = settings.number("capacity_factor", -1.0) or -1.0
    if capacity > 0:
        report.not_modelled(f"capacity_factor {capacity:g} (tokens dropped)")
    for name in _NOT_MODELLED:
        if settings.truth(name):
            report.not_modelled(name)

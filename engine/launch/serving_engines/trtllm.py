"""TensorRT-LLM: deployments as flags and YAML of `trtllm-serve`, and back. The YAML counts more than the flags.

Its tensor parallel degree is the world of a stage: with attention data parallelism every rank is a replica.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from engine.launch.contract import LaunchError
from engine.launch.report import parse_integer
from engine.launch.serving_engines.arguments import snapshot_of
from engine.launch.serving_engines.contract import DeploymentOrder, EngineInstance, ServerCommand, ServingEngine
from engine.launch.serving_engines.engine_flags import EngineFlags
from engine.launch.serving_engines.words import (
    absent_weight_reason,
    check_divisions,
    drafting_of,
    host_memory_of,
    kv_bits_of,
    never_said,
    prediction_layers_of,
    refuse_layout,
    slicing_sentence,
    speculation_of,
)
from hardware import GIB

__all__ = ["TRTLLM"]

_FILE_FLAGS: Final[Mapping[str, str]] = {
    "expert-parallel-size": "moe_expert_parallel_size",
    "free-gpu-memory-fraction": "free_gpu_memory_fraction",
}
"""Names of the YAML by names of Dynamo's worker, where they differ by more than dashes."""
_NO_SETTINGS: Final = (
    "config",
    "extra_engine_args",
    "override_engine_args",
    "disaggregation_mode",
    "server_role",
    "gpus_per_node",
)
_NOT_MODELLED: Final = (
    "attention_dp_config",
    "cp_config",
    "dwdp_config",
    "sparse_attention_config",
    "kv_cache_compression_config",
    "peft_cache_config",
    "kv_connector_config",
    "moe_cluster_parallel_size",
)
_NESTED_NOT_MODELLED: Final = (("moe_config", "load_balancer"),)
_ADAPTED: Final = ("attn_q", "attn_k", "attn_v", "attn_dense", "mlp_gate", "mlp_h_to_4h", "mlp_4h_to_h")
"""Matrices with adapters, by the names of lora_config: q, k, v, o, up, gate and down. Without directories of adapters,
TensorRT-LLM needs them. Source: TensorRT-LLM, tensorrt_llm/_torch/peft/lora/config.py,
`get_default_trtllm_modules_to_hf_modules` and `LoraConfig`."""
_ADAPTED_SHARED: Final = ("shared_expert_gate", "shared_expert_h_to_4h", "shared_expert_4h_to_h")
"""The same of shared experts of a mixture. Source: as above."""
_DRAFT_MODEL: Final = "Draft_Target"
"""decoding_type of a draft model, with max_draft_len and speculative_model. Source: TensorRT-LLM,
tensorrt_llm/llmapi/llm_args.py @ 0004396, `DraftTargetDecodingConfig`."""
_HOST_CACHE_UNIT: Final = 1.0
"""Unit of host_cache_size, which each rank has for itself [bytes]. Source: TensorRT-LLM, llm_args.py, `KvCacheConfig`,
and _torch/pyexecutor/resource_manager.py, which divides it by the bytes per token of a rank."""
_FRACTION: Final = "free_gpu_memory_fraction"


def _read(flags: EngineFlags, yaml: Mapping[str, Any]) -> EngineInstance:
    model = flags.word("model")
    merged = _merge_file(flags, yaml)
    flags.used.update(flags.values)
    _read_former(merged)
    for name in (*_NO_SETTINGS, "backend", "model"):
        merged.used.add(name)
    instance = _read_merged(merged, model)
    flags.remarks += merged.remarks
    flags.unread += merged.unread
    flags.not_modelled += merged.not_modelled
    flags.open |= merged.open
    # What the file sets without effect is listed with the flags.
    for name, raw in merged.written.items():
        if name not in merged.used:
            flags.values.setdefault(f"yaml.{name}", merged.values[name])
            flags.written.setdefault(f"yaml.{name}", raw)
    return instance


def _merge_file(flags: EngineFlags, yaml: Mapping[str, Any]) -> EngineFlags:
    """Return the settings of the command line, overwritten by the YAML, by the YAML's names."""
    file = snapshot_of("trtllm_yaml")
    merged = EngineFlags(file, f"TensorRT-LLM {file.version}", flags.role)
    fraction = None
    for full, value in flags.values.items():
        name = _FILE_FLAGS.get(full, full.replace("-", "_"))
        if name == _FRACTION:
            fraction = (flags.written[full], value)
        elif name in file.kinds:
            merged.values[name] = value
            merged.written[name] = flags.written[full]
    override = flags.table("override-engine-args") if "override-engine-args" in flags.values else {}
    top: Any = None
    for given in (yaml, override):
        outer = {str(key): value for key, value in given.items()}
        for key in ("kv_cache_free_gpu_memory_fraction", _FRACTION):
            if key in outer:
                top = (key, outer.pop(key))
        before = dict(merged.values)
        known = EngineFlags(file, merged.title)
        known.add(outer)
        merged.unread += known.unread
        merged.former |= known.former
        for name, value in known.values.items():
            if name in before and before[name] != value and not isinstance(value, Mapping):
                merged.remark([f"{known.written[name]} is {before[name]} and {value}: the file wins, {value}."])
            merged.values[name] = _merge_tables(merged.values.get(name), value)
            merged.written[name] = known.written[name]
    if top is not None:
        merged.remark([f"{top[0]} at the top level of the file is the command line's name."])
    inner = merged.table("kv_cache_config").get(_FRACTION)
    outer_value = top if top is not None else fraction
    if outer_value is not None:
        cache = dict(merged.table("kv_cache_config"))
        if inner is not None and str(inner) != str(outer_value[1]):
            said = f"The memory fraction is {outer_value[1]} in {outer_value[0]} and {inner} in the file"
            merged.remark([f"{said}: {inner} counts."])
        cache.setdefault(_FRACTION, outer_value[1])
        merged.values["kv_cache_config"] = cache
        merged.written.setdefault("kv_cache_config", outer_value[0])
    return merged


def _merge_tables(before: Any, after: Any) -> Any:
    """Return a value of a later file; of two tables the keys of both, the later value counting."""
    if not isinstance(before, Mapping) or not isinstance(after, Mapping):
        return after
    inner = {key: _merge_tables(before[key], value) if key in before else value for key, value in after.items()}
    return {**before, **inner}


def _read_former(merged: EngineFlags) -> None:
    for name, (raw, value) in merged.former.items():
        new = merged.snapshot.gone[name]
        merged.remark([f"{raw} is of an earlier version" + (f"; today it is in {new}." if new else ".")])
        if name == "use_cuda_graph" and value in (False, "false"):
            merged.values.setdefault("cuda_graph_config", None)


def _read_merged(merged: EngineFlags, model: str) -> EngineInstance:
    world, pipeline = merged.integer("tensor_parallel_size", 1), merged.integer("pipeline_parallel_size", 1)
    context = merged.integer("context_parallel_size", 1)
    expert = merged.integer("moe_expert_parallel_size", 1, least=-1)
    expert = 1 if expert is not None and expert < 1 else expert
    moe_tensor = merged.integer("moe_tensor_parallel_size", None, least=-1)
    if moe_tensor is not None and moe_tensor > 0 and world is not None and not merged.has("moe_expert_parallel_size"):
        if world % moe_tensor:
            raise LaunchError(
                f"moe_tensor_parallel_size {moe_tensor} does not divide tensor_parallel_size {world}; TensorRT-LLM "
                "refuses it."
            )
        expert = world // moe_tensor
    replicated = merged.is_on("enable_attention_dp")
    fields: dict[str, Any] = {"pipeline_par": pipeline, "expert_par": expert}
    rejected = ""
    if world is not None:
        fields |= {"tensor_par": 1 if replicated else world, "replicas": world if replicated else 1}
        if expert is not None and world % expert:
            raise LaunchError(
                f"moe_expert_parallel_size {expert} does not divide tensor_parallel_size {world}; TensorRT-LLM "
                "refuses it."
            )
        if replicated and world > 1 and expert is not None and expert != world:
            rejected = slicing_sentence(world, expert)
    fields["batch"] = merged.integer("max_batch_size")
    cache = merged.table("kv_cache_config")
    word = str(cache.get("dtype") or "auto")
    fields["kv_bits"] = kv_bits_of(word, merged.remarks, "kv_cache_config.dtype")
    if fields["kv_bits"] is None and word.lower() == "auto":
        merged.remark(["The KV cache has the datatype that the checkpoint states."])
    fields["launch"] = _read_launch(merged, fields["batch"])
    settings: dict[str, Any] = {
        "prefix_cache": str(cache.get("enable_block_reuse", True)).lower() not in ("false", "0", "no"),
        "chunk": merged.integer("max_num_tokens"),
        "max_length": merged.integer("max_seq_len"),
        "memory_fraction": _read_fraction(cache.get(_FRACTION)),
        **_read_speculation(merged),
        **_read_adapters(merged),
        **host_memory_of(cache.get("host_cache_size") or 0, "host_cache_size", _HOST_CACHE_UNIT, merged.remarks),
    }
    is_chunked = merged.is_on("enable_chunked_prefill")
    if settings["chunk"] is not None and not is_chunked and merged.role != "decode":
        merged.remark([f"Chunked prefill is off: prompts longer than {settings['chunk']:,} tokens are refused."])
    if context is not None and context > 1:
        merged.note_not_modelled("context_parallel_size", value=True)
    for name in _NOT_MODELLED:
        if merged.raw(name) not in (None, False, {}, 1, -1):
            merged.note_not_modelled(name)
    for name, key in _NESTED_NOT_MODELLED:
        if merged.table(name).get(key):
            merged.not_modelled.append(f"{name}.{key}")
        elif name == "moe_config":
            merged.used.discard(name)
    merged.used.update(("dtype", "print_iter_log", "moe_tensor_parallel_size"))
    known = None not in (world, pipeline, context)
    gpus = world * pipeline * context if known else None  # type: ignore[operator]
    return EngineInstance(_set_values(fields), _set_values(settings), gpus, rejected, model)


def _set_values(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _read_fraction(value: Any) -> float | None:
    if value is None:
        return None
    try:
        share = -1.0 if isinstance(value, bool) else float(str(value)[:60])
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise LaunchError(f"{_FRACTION} is {str(value)[:60]!r}; it must be a share from 0 to 1.")
    return share


def _read_launch(merged: EngineFlags, batch: int | None) -> str:
    """Return how kernels are launched; only an explicit null switches graphs off."""
    if merged.has("cuda_graph_config") and merged.values["cuda_graph_config"] in (None, "null", "None", ""):
        return "compiled" if merged.table("torch_compile_config") else "eager"
    graphs = merged.table("cuda_graph_config")
    merged.raw("torch_compile_config")
    sizes = graphs.get("batch_sizes")
    most: Any = graphs.get("max_batch_size")
    if isinstance(sizes, list | tuple) and sizes and all(isinstance(size, int) for size in sizes):
        most = max(sizes)
    if isinstance(most, int) and batch is not None:
        if most < batch:
            merged.remark([f"Graphs are captured for batches up to {most:,}, and the batch is up to {batch:,}."])
        elif most > batch:
            merged.remark([f"Graph sizes above the batch of {batch:,} are never used."])
    return "graphs"


def _read_speculation(merged: EngineFlags) -> dict[str, Any]:
    settings = merged.table("speculative_config")
    if not settings:
        return {}
    kind = str(settings.get("decoding_type") or "unknown")
    tokens = settings.get("num_nextn_predict_layers", settings.get("max_draft_len"))
    found = drafting_of(kind, tokens, "num_nextn_predict_layers")
    if kind.upper() == "MTP":
        return prediction_layers_of(found, "max_draft_len", merged.remarks)
    # Earlier versions have `speculative_model_dir`.
    model = settings.get("speculative_model") or settings.get("speculative_model_dir")
    more = speculation_of(
        kind,
        found.get("draft_tokens"),
        checkpoint=str(model or ""),
        is_model=kind.lower() in (_DRAFT_MODEL.lower(), "drafttarget"),
    )
    return {"speculation": found, **more}


def _read_adapters(merged: EngineFlags) -> dict[str, Any]:
    """Return adapters of low rank, where their number is stated, and their rank."""
    settings, is_on = merged.table("lora_config"), merged.is_on("enable_lora")
    if not settings and not is_on:
        return {}
    number, rank = settings.get("max_loras"), settings.get("max_lora_rank", 64)
    if number is None:
        merged.remark(["lora_config does not say max_loras: the adapters are not modelled."])
        return {}
    return {
        "lora_adapters": parse_integer(number, "max_loras"),
        "lora_rank": parse_integer(rank, "max_lora_rank"),
    }


def _write(order: DeploymentOrder) -> ServerCommand:
    shared, fields = check_divisions(order, "TensorRT-LLM"), order.fields
    tensor, pipeline, expert, replicas = (
        int(fields[name]) for name in ("tensor_par", "pipeline_par", "expert_par", "replicas")
    )
    if shared > 1 and tensor > 1:
        raise refuse_layout(
            order,
            "TensorRT-LLM",
            "replicas that share experts have one GPU per stage",
            f"Try tensor_par 1 and expert_par {expert}, or expert_par up to {tensor}.",
        )
    unsaid, remarks = never_said(order), []
    file: dict[str, Any] = {"tensor_parallel_size": tensor * shared, "pipeline_parallel_size": pipeline}
    if order.is_mixture:
        file["moe_expert_parallel_size"] = expert
    if shared > 1:
        file["enable_attention_dp"] = True
        if pipeline > 1:
            remarks.append("TensorRT-LLM supports pipeline with attention data parallelism for some models only.")
    batch = fields.get("batch")
    if batch is not None:
        file["max_batch_size"] = int(batch)
    if (bits := fields.get("weight_bits")) is not None:
        unsaid["weight_bits"] = absent_weight_reason(int(bits), order.checkpoint)
    cache: dict[str, Any] = {}
    if (word := {16: "bfloat16", 8: "fp8", 4: "nvfp4"}.get(int(fields.get("kv_bits") or 0))) is not None:
        cache["dtype"] = word
    settings = order.settings
    if settings.get("memory_fraction") is not None:
        cache[_FRACTION] = settings["memory_fraction"]
    if settings.get("prefix_cache") is not None:
        cache["enable_block_reuse"] = bool(settings["prefix_cache"])
    if settings.get("host_cache_gib") is not None:
        cache["host_cache_size"] = int(settings["host_cache_gib"] * GIB / _HOST_CACHE_UNIT)
    if cache:
        file["kv_cache_config"] = cache
    launch = fields.get("launch")
    if launch in ("eager", "compiled"):
        file["cuda_graph_config"] = None
        if launch == "compiled":
            file["torch_compile_config"] = {"enable_fullgraph": True}
    elif launch == "graphs":
        file["cuda_graph_config"] = {"enable_padding": True} | ({} if batch is None else {"max_batch_size": int(batch)})
    if settings.get("chunk") is not None:
        file |= {"max_num_tokens": int(settings["chunk"]), "enable_chunked_prefill": True}
    if settings.get("max_length") is not None:
        file["max_seq_len"] = int(settings["max_length"])
    if number := settings.get("lora_adapters"):
        rank = int(settings.get("lora_rank") or 16)
        file["lora_config"] = {
            "max_loras": int(number),
            "max_lora_rank": rank,
            "lora_target_modules": [*_ADAPTED, *(_ADAPTED_SHARED if order.is_mixture else ())],
        }
    if settings.get("mtp_tokens"):
        file["speculative_config"] = {
            "decoding_type": "MTP",
            "num_nextn_predict_layers": int(settings["mtp_tokens"]),
        }
    if settings.get("draft_tokens"):
        file["speculative_config"] = {
            "decoding_type": _DRAFT_MODEL,
            "max_draft_len": int(settings["draft_tokens"]),
            "speculative_model": settings["draft_checkpoint"],
        }
    if order.role:
        file["cache_transceiver_config"] = {"backend": "DEFAULT"}
        remarks.append("Start trtllm-serve disaggregated with the URLs of both pools, unless Dynamo routes requests.")
        if order.role == "prefill":
            file["disable_overlap_scheduler"] = True
    name = f"{order.role}_engine.yaml" if order.role else "engine.yaml"
    return ServerCommand(
        ("trtllm-serve", order.checkpoint),
        {"--config": name},
        tensor * pipeline * shared,
        replicas // shared,
        yaml=json.loads(json.dumps(file)),
        unsaid=unsaid,
        remarks=tuple(remarks),
    )


TRTLLM: Final = ServingEngine(
    name="trtllm",
    title="TensorRT-LLM",
    aliases=("tensorrt-llm", "trt-llm", "trt"),
    version="1.2-1.3",
    source=(
        "NVIDIA/TensorRT-LLM: llmapi/llm_args.py at 00043967, commands/serve.py at 00209af1, mapping.py at 05ebebb2"
    ),
    snapshot="trtllm",
    terms={
        "tensor_par": "tensor_parallel_size; 1 with enable_attention_dp",
        "pipeline_par": "pipeline_parallel_size",
        "expert_par": "moe_expert_parallel_size",
        "replicas": "enable_attention_dp, copies of the server",
        "batch": "max_batch_size",
        "weight_bits": "checkpoint",
        "kv_bits": "kv_cache_config.dtype",
        "launch": "cuda_graph_config",
    },
    read=_read,
    write=_write,
)

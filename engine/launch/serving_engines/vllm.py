"""vLLM: deployments as flags of `vllm serve`, and back."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final

from engine.launch.serving_engines.contract import (
    DeploymentOrder,
    EngineInstance,
    ServerCommand,
    ServingEngine,
    UnsayableDeploymentError,
)
from engine.launch.serving_engines.engine_flags import EngineFlags
from engine.launch.serving_engines.model_names import is_mixture
from engine.launch.serving_engines.words import (
    GRAPHS_SAID,
    absent_weight_reason,
    check_divisions,
    drafting_of,
    host_memory_of,
    kv_bits_of,
    never_said,
    prediction_layers_of,
    quantization_bits,
    refuse_layout,
    slicing_sentence,
    speculation_of,
)
from hardware import GIB

__all__ = ["VLLM"]

_NOT_MODELLED: Final = (
    "enable-dbo",
    "enable-eplb",
    "cpu-offload-gb",
    "offload-group-size",
    "fully-sharded-loras",
    "enable-elastic-ep",
    "kv-sharing-fast-prefill",
    "long-prefill-token-threshold",
    "ubatch-size",
    "mm-encoder-tp-mode",
)
"""Flags that change time or memory and that no field here describes, where they are on."""
_RANKS: Final = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Values of --max-lora-rank; --max-loras adapters are on the GPUs at once. Source: vllm 0.33.0, config/lora.py,
MaxLoRARanks and max_loras."""
_DRAFT_MODEL: Final = "draft_model"
"""Method of --speculative-config of a draft model. Source: vllm 0.33.0, config/speculative.py."""
_CONTEXT: Final = ("decode-context-parallel-size", "prefill-context-parallel-size")
_PLAIN: Final = (
    "data-parallel-size-local",
    "data-parallel-start-rank",
    "data-parallel-address",
    "data-parallel-rpc-port",
    "nnodes",
    "node-rank",
    "headless",
)
"""Flags of one node's command: two commands that differ in them alone are one deployment."""


def _read(flags: EngineFlags, yaml: Mapping[str, Any]) -> EngineInstance:
    model = flags.word("model")
    flags.used.update(("config", "dtype", *_PLAIN))
    tensor = flags.integer("tensor-parallel-size", 1)
    pipeline = flags.integer("pipeline-parallel-size", 1)
    data = flags.integer("data-parallel-size", 1)
    has_experts = is_mixture(model) if model else None
    is_shared = flags.is_on("enable-expert-parallel")
    fields: dict[str, Any] = {"tensor_par": tensor, "pipeline_par": pipeline}
    rejected = ""
    if tensor is not None and data is not None:
        if is_shared and has_experts is not False:
            fields["expert_par"] = tensor * data
        else:
            fields["expert_par"] = 1
            if data > 1 and has_experts:
                rejected = slicing_sentence(tensor * data, 1)
            elif data > 1 and has_experts is None and not is_shared:
                flags.remark(
                    [
                        f"If the model has experts, vLLM slices them over {tensor * data} ranks; name a known model "
                        "to check."
                    ]
                )
        if is_shared and has_experts is False:
            flags.remark([f"{flags.name_of('enable-expert-parallel')} has no effect: the model has no experts."])
        elif has_experts and not is_shared and tensor > 1 and data == 1:
            flags.remark(["Experts are sliced over the tensor parallel ranks: expert parallelism is not switched on."])
    fields["replicas"] = data
    fields["batch"] = flags.integer("max-num-seqs")
    method = flags.word("quantization")
    fields["weight_bits"] = quantization_bits(method)
    if method and fields["weight_bits"] is None:
        flags.remark([f"{flags.name_of('quantization')} {method[:40]}: the checkpoint states the bits."])
    fields["kv_bits"] = kv_bits_of(flags.word("kv-cache-dtype"), flags.remarks, flags.name_of("kv-cache-dtype"))
    fields["launch"] = _read_launch(flags)
    context = 1
    for name in _CONTEXT:
        size = flags.integer(name, 1)
        if size is not None and size > 1:
            flags.note_not_modelled(name, value=True)
            context *= size if name.startswith("prefill") else 1
    _note_others(flags)
    settings = {
        "prefix_cache": flags.is_on("enable-prefix-caching", True),
        "chunk": flags.integer("max-num-batched-tokens"),
        "max_length": _read_length(flags),
        "memory_fraction": flags.share("gpu-memory-utilization"),
        **_read_speculation(flags),
        **_read_adapters(flags),
    }
    if tensor is not None and pipeline is not None:
        settings |= _read_host_cache(flags, tensor * pipeline)
    known = None not in (tensor, pipeline, data)
    gpus = tensor * pipeline * data * context if known else None  # type: ignore[operator]
    return EngineInstance(_set_values(fields), _set_values(settings), gpus, rejected, model)


def _set_values(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _read_length(flags: EngineFlags) -> int | None:
    value = flags.raw("max-model-len")
    if value is None or str(value).strip().lower() in ("auto", "-1"):
        return None
    return flags.integer("max-model-len")


def _read_launch(flags: EngineFlags) -> str | None:
    """Return how kernels are launched: eager, compiled without graphs, or graphs, the default."""
    if flags.is_on("enforce-eager"):
        return "eager"
    settings = flags.table("compilation-config")
    mode = str(settings.get("cudagraph_mode") or "").rpartition(".")[2].upper()
    level = flags.word("optimization-level", "2").lstrip("oO")
    compiles = str(settings.get("mode", settings.get("level", ""))).rpartition(".")[2].upper() not in ("0", "NONE")
    if mode == "NONE" or (not mode and level == "0"):
        return "compiled" if compiles and level != "0" else "eager"
    if mode == "PIECEWISE":
        flags.remark(["cudagraph_mode PIECEWISE launches attention outside graphs; nearest: graphs."])
    most, batch = flags.raw("max-cudagraph-capture-size"), flags.raw("max-num-seqs")
    if str(most).isdigit() and str(batch).isdigit() and int(str(most)) < int(str(batch)):
        flags.remark([f"Graphs are captured for batches up to {most}; larger ones run without."])
    return "graphs"


def _read_speculation(flags: EngineFlags) -> dict[str, Any]:
    """Return tokens that the model's own prediction layers draft, or another speculation by kind."""
    settings = dict(flags.table("speculative-config"))
    for flag, key in (("spec-method", "method"), ("spec-model", "model"), ("spec-tokens", "num_speculative_tokens")):
        if (value := flags.raw(flag)) is not None:
            settings.setdefault(key, value)
    if not settings:
        return {}
    method = str(settings.get("method") or ("draft_model" if settings.get("model") else "unknown"))
    found = drafting_of(method, settings.get("num_speculative_tokens"), "num_speculative_tokens")
    accepted = _read_accepted(settings, found.get("draft_tokens"))
    if method == "mtp" or method.endswith("_mtp"):
        return prediction_layers_of(found, "num_speculative_tokens", flags.remarks, accepted)
    more = speculation_of(
        method,
        found.get("draft_tokens"),
        checkpoint=str(settings.get("model") or ""),
        quantization=str(settings.get("quantization") or ""),
        accepted=accepted,
        is_model=method == _DRAFT_MODEL,
    )
    return {"speculation": found, **more}


def _read_accepted(settings: Mapping[str, Any], drafted: int | None) -> float | None:
    """Return the drafts per step that a flag makes the engine accept; None where its models decide."""
    # rejection_sample_method synthetic: a mean rate of all drafts, one per position, or a length with the own token.
    # Source: vllm, config/speculative.py, SpeculativeConfig.
    if settings.get("rejection_sample_method") != "synthetic" or drafted is None:
        return None
    rates, length = settings.get("synthetic_acceptance_rates"), settings.get("synthetic_acceptance_length")
    rate = settings.get("synthetic_acceptance_rate")
    try:
        if isinstance(rates, list):
            accepted = sum(map(float, rates))
        elif length is not None:
            accepted = float(length) - 1.0
        else:
            accepted = math.nan if rate is None else float(rate) * drafted
    except (TypeError, ValueError):
        return None
    return accepted if 0 <= accepted <= drafted else None


def _read_adapters(flags: EngineFlags) -> dict[str, Any]:
    """Return adapters of low rank and their rank; the defaults are vLLM's."""
    number, rank = flags.integer("max-loras", 1), flags.integer("max-lora-rank", 16)
    return {"lora_adapters": number, "lora_rank": rank} if flags.is_on("enable-lora") else {}


def _read_host_cache(flags: EngineFlags, ranks: int) -> dict[str, Any]:
    """Return the host memory of a rank for the cache: --kv-offloading-size has GiB of all ranks of an engine together.

    Source: vllm, config/cache.py, `kv_offloading_size`; config/vllm.py, `_post_init_kv_transfer_config`.
    """
    size, backend = flags.raw("kv-offloading-size"), flags.word("kv-offloading-backend", "native")
    if size is None:
        return {}
    name = flags.name_of("kv-offloading-size")
    if backend != "native":
        # LMCache's server has a size of its own, which vLLM does not pass on.
        flags.note_not_modelled("kv-offloading-backend", value=True)
        return {}
    return host_memory_of(size, name, GIB / ranks, flags.remarks)


def _note_others(flags: EngineFlags) -> None:
    for name in _NOT_MODELLED:
        value = flags.raw(name)
        if value in (None, False, 0, "0", "false", "False", "weights"):
            continue
        detail = ""
        if name == "enable-eplb":
            redundant = flags.table("eplb-config").get("num_redundant_experts")
            detail = f"{str(redundant)[:12]} redundant experts" if redundant else ""
        flags.note_not_modelled(name, detail)
    noted = len(flags.not_modelled)
    attention = flags.table("attention-config")
    for key, value in attention.items():
        if "indexer" in str(key) and value not in (False, "False", "false", None):
            dotted = flags.nested.get("attention-config", {}).get(str(key))
            if dotted is not None:
                flags.not_modelled.append(dotted[:80])
            else:
                word = str(value)[:20] if isinstance(value, str) else str(key).removesuffix("_cache")[:40]
                flags.note_not_modelled("attention-config", f"indexer {word}")
    if len(flags.not_modelled) == noted:
        flags.used.discard("attention-config")
    transfer = flags.table("kv-transfer-config")
    connector = str(transfer.get("kv_connector") or "")
    if any(word in connector for word in ("LMCache", "Offloading", "Store", "Multi", "SharedStorage")):
        flags.note_not_modelled("kv-transfer-config", connector[:40])
    for key, (raw, _) in flags.former.items():
        if key == "swap-space":
            flags.not_modelled.append(raw[:80])


def _write(order: DeploymentOrder) -> ServerCommand:
    shared, fields = check_divisions(order, "vLLM"), order.fields
    tensor, pipeline, expert, replicas = (
        int(fields[name]) for name in ("tensor_par", "pipeline_par", "expert_par", "replicas")
    )
    if 1 < expert < tensor:
        raise refuse_layout(
            order, "vLLM", "it shares experts among all ranks or none", f"Try expert_par 1 or {tensor}."
        )
    flags: dict[str, Any] = {"--tensor-parallel-size": tensor}
    unsaid, remarks = never_said(order), []
    if pipeline > 1:
        flags["--pipeline-parallel-size"] = pipeline
    if expert > 1:
        flags["--enable-expert-parallel"] = True
    if shared > 1:
        flags["--data-parallel-size"] = shared
        if pipeline > 1:
            remarks.append(
                "Pipeline and data parallelism together: check that your version of vLLM supports the model."
            )
    batch = fields.get("batch")
    if batch is not None:
        flags["--max-num-seqs"] = int(batch)
    bits = fields.get("weight_bits")
    if bits == 8:
        flags["--quantization"] = "fp8"
        remarks.append("Weights are quantised to FP8 when the server starts, unless the checkpoint is FP8 already.")
    elif bits is not None:
        unsaid["weight_bits"] = absent_weight_reason(int(bits), order.checkpoint)
    cache = {16: "bfloat16", 8: "fp8", 4: "nvfp4"}.get(int(fields.get("kv_bits") or 0))
    if cache is not None:
        flags["--kv-cache-dtype"] = cache
    launch = fields.get("launch")
    if launch == "eager":
        flags["--enforce-eager"] = True
    elif launch == "compiled":
        flags["--compilation-config"] = json.dumps({"cudagraph_mode": "NONE"})
    elif batch is not None and int(batch) > GRAPHS_SAID:
        flags["--max-cudagraph-capture-size"] = int(batch)
    flags |= _write_settings(order.settings) | _write_adapters(order, remarks)
    if (host := order.settings.get("host_cache_gib")) is not None:
        if order.role:
            # Both are a connector of --kv-transfer-config, of which vLLM would keep the one of the host cache.
            unsaid["host_cache_gib"] = "vLLM has no --kv-offloading-size next to the transfer between two pools."
        else:
            flags["--kv-offloading-size"] = host * tensor * pipeline
    if order.role:
        kind = "kv_producer" if order.role == "prefill" else "kv_consumer"
        flags["--kv-transfer-config"] = json.dumps({"kv_connector": "NixlConnector", "kv_role": kind})
    return ServerCommand(
        ("vllm", "serve", order.checkpoint),
        flags,
        tensor * pipeline * shared,
        replicas // shared,
        unsaid=unsaid,
        remarks=tuple(remarks),
    )


def _write_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    flags: dict[str, Any] = {}
    if settings.get("prefix_cache") is not None:
        flags["--enable-prefix-caching" if settings["prefix_cache"] else "--no-enable-prefix-caching"] = True
    for name, flag in (
        ("chunk", "--max-num-batched-tokens"),
        ("max_length", "--max-model-len"),
        ("memory_fraction", "--gpu-memory-utilization"),
    ):
        if settings.get(name) is not None:
            flags[flag] = settings[name]
    if settings.get("mtp_tokens"):
        flags["--speculative-config"] = json.dumps(
            {"method": "mtp", "num_speculative_tokens": int(settings["mtp_tokens"])}
        )
    if settings.get("draft_tokens"):
        said: dict[str, Any] = {"method": _DRAFT_MODEL, "model": settings["draft_checkpoint"]}
        said["num_speculative_tokens"] = int(settings["draft_tokens"])
        if settings.get("draft_bits") == 8:
            said["quantization"] = "fp8"
        flags["--speculative-config"] = json.dumps(said)
    return flags


def _write_adapters(order: DeploymentOrder, remarks: list[str]) -> dict[str, Any]:
    settings = order.settings
    if not settings.get("lora_adapters"):
        return {}
    rank = int(settings.get("lora_rank") or 16)
    if rank > _RANKS[-1]:
        raise UnsayableDeploymentError(f"vLLM accepts adapters up to rank {_RANKS[-1]}; lora_rank is {rank:,}.")
    said = next(each for each in _RANKS if each >= rank)
    if said != rank:
        remarks.append(f"vLLM pads adapters of rank {rank} to {said}.")
    if order.is_mixture:
        # vllm, lora/layers/fused_moe.py: matrices of every local expert, for each of --max-loras.
        remarks.append("vLLM takes memory for adapters of routed experts, too; figures count none.")
    return {"--enable-lora": True, "--max-loras": int(settings["lora_adapters"]), "--max-lora-rank": said}


VLLM: Final = ServingEngine(
    name="vllm",
    title="vLLM",
    aliases=(),
    version="0.33.0",
    source="vllm 0.33.0: arg_utils.py; config/parallel.py, cache.py, scheduler.py, speculative.py",
    snapshot="vllm",
    terms={
        "tensor_par": "--tensor-parallel-size",
        "pipeline_par": "--pipeline-parallel-size",
        "expert_par": "--enable-expert-parallel, --data-parallel-size",
        "replicas": "copies of the server",
        "batch": "--max-num-seqs",
        "weight_bits": "checkpoint, or --quantization",
        "kv_bits": "--kv-cache-dtype",
        "launch": "--enforce-eager, --compilation-config",
    },
    read=_read,
    write=_write,
)

"""SGLang: deployments as flags of `python -m sglang.launch_server`, and back.

Its tensor parallel degree is the world of a stage: attention data parallelism divides it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from engine.launch.contract import LaunchError
from engine.launch.report import parse_integer
from engine.launch.serving_engines.contract import (
    DeploymentOrder,
    EngineInstance,
    ServerCommand,
    ServingEngine,
    UnsayableDeploymentError,
)
from engine.launch.serving_engines.engine_flags import EngineFlags
from engine.launch.serving_engines.words import (
    absent_weight_reason,
    check_divisions,
    drafting_of,
    host_memory_of,
    kv_bits_of,
    never_said,
    prediction_layers_of,
    quantization_bits,
    slicing_sentence,
    speculation_of,
)
from hardware import GIB

__all__ = ["SGLANG"]

_GIGABYTE: Final = 1e9
"""Unit of --hicache-size, whole numbers of which each rank has for itself [bytes]. Source: sglang 0.5.23,
srt/mem_cache/pool_host/base.py, `int(host_size * 1e9 // size_per_token)` tokens of a rank."""
_ADAPTED: Final = "all"
"""Matrices that adapters may have, as --lora-target-modules says them; without paths of adapters, SGLang needs it and
their rank. Source: sglang, docs/advanced_features/server_arguments.md, LoRA."""
_DRAFT_MODEL: Final = "STANDALONE"
"""--speculative-algorithm of a draft model. Source: sglang, docs/advanced_features/server_arguments.md, Speculative
decoding. With attention data parallelism it does not start: srt/arg_groups/speculative_hook.py,
`_handle_eagle_family`."""

_SHARING_BACKENDS: Final = frozenset(
    {
        "deepep",
        "deepep_v2",
        "mooncake",
        "nixl",
        "mori",
        "megamoe",
        "flashinfer",
        "flashinfer_megamoe",
        "pplx",
        "ascend_fuseep",
    }
)
"""Exchanges of tokens that set the expert parallel degree to the tensor parallel one. Source: sglang 0.5.23,
arg_groups/moe_hook.py."""
_NOT_MODELLED: Final = (
    "enable-two-batch-overlap",
    "enable-single-batch-overlap",
    "enable-lmcache",
    "enable-flexkv",
    "enable-hisparse",
    "cpu-offload-gb",
    "offload-group-size",
    "enable-mixed-chunk",
    "enable-prefill-cp",
    "enable-deepseek-v4-fp4-indexer",
    "enable-paged-experts",
    "enable-pdmux",
    "disaggregation-decode-enable-offload-kvcache",
)
_DEGREES: Final = ("dcp-size", "attn-cp-size", "moe-dp-size", "dwdp-size")
_NODE: Final = ("nnodes", "node-rank", "dist-init-addr", "config", "disaggregation-mode")


def _read(flags: EngineFlags, yaml: Mapping[str, Any]) -> EngineInstance:
    flags.used.update(_NODE)
    model = flags.word("model-path")
    world, pipeline = flags.integer("tp-size", 1), flags.integer("pp-size", 1)
    copies, ranks = flags.integer("dp-size", 1), flags.integer("attn-dp-size", 1)
    if flags.is_on("enable-dp-attention") and ranks == 1 and copies is not None:
        # Until 0.5.21: --dp-size N --enable-dp-attention means N attention ranks inside the tensor parallel group.
        ranks, copies = copies, 1
        if ranks > 1:
            flags.remark([f"SGLang 0.5.23 spells it --attn-dp-size {ranks}; the old spelling goes after 2026."])
    elif flags.has("dp-size") and copies == 1:
        flags.remark([f"{flags.name_of('dp-size')} 1 says nothing."])
    fields: dict[str, Any] = {"pipeline_par": pipeline}
    rejected, expert = "", _expert_degree(flags, world)
    if None not in (world, copies, ranks):
        assert world is not None
        assert copies is not None
        assert ranks is not None
        if world % ranks:
            raise LaunchError(
                f"Attention data parallelism of {ranks} does not divide the tensor parallel degree {world}; SGLang "
                "refuses it."
            )
        fields |= {"tensor_par": world // ranks, "replicas": copies * ranks}
        if expert is not None:
            fields["expert_par"] = expert
            if world % expert:
                raise LaunchError(
                    f"{flags.name_of('ep-size')} {expert} does not divide the tensor parallel degree {world}; SGLang "
                    "refuses it."
                )
            if ranks > 1 and expert != world:
                rejected = slicing_sentence(world, expert)
    fields["batch"] = _read_batch(flags, ranks)
    method = flags.word("quantization")
    fields["weight_bits"] = quantization_bits(method)
    if method and fields["weight_bits"] is None:
        flags.remark([f"{flags.name_of('quantization')} {method[:40]}: the checkpoint states the bits."])
    fields["kv_bits"] = kv_bits_of(flags.word("kv-cache-dtype"), flags.remarks, flags.name_of("kv-cache-dtype"))
    fields["launch"] = _read_launch(flags, fields["batch"])
    settings = {
        "prefix_cache": not flags.is_on("disable-radix-cache"),
        "chunk": _read_chunk(flags),
        "max_length": flags.integer("context-length"),
        "memory_fraction": flags.share("mem-fraction-static"),
        **_read_speculation(flags),
        **_read_adapters(flags),
        **_read_host_cache(flags),
    }
    _note_others(flags)
    known = None not in (world, pipeline, copies)
    gpus = world * pipeline * copies if known else None  # type: ignore[operator]
    return EngineInstance(_set_values(fields), _set_values(settings), gpus, rejected, model)


def _set_values(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _expert_degree(flags: EngineFlags, world: int | None) -> int | None:
    backend = flags.word("moe-a2a-backend", "none").lower()
    expert = flags.integer("ep-size", 1)
    former = any(name in flags.former for name in ("enable-ep-moe", "enable-deepep-moe"))
    if backend in _SHARING_BACKENDS or former:
        if expert is not None and world is not None and flags.has("ep-size") and expert != world:
            flags.remark([f"{flags.name_of('moe-a2a-backend')} {backend} sets the expert parallel degree to {world}."])
        return world
    return expert


def _read_batch(flags: EngineFlags, ranks: int | None) -> int | None:
    """Return requests at a time of one attention rank; the flag counts all ranks."""
    total = flags.integer("max-running-requests")
    if total is None or ranks is None:
        return None
    if ranks > 1:
        flags.remark([f"{flags.name_of('max-running-requests')} {total:,} is for all {ranks} attention ranks."])
    return max(total // ranks, 1)


def _read_chunk(flags: EngineFlags) -> int | None:
    value = flags.raw("chunked-prefill-size")
    if value is not None and str(value).strip() == "-1":
        flags.remark(["Chunked prefill is off: a prompt is processed in one pass."])
        return None
    return flags.integer("chunked-prefill-size")


def _read_launch(flags: EngineFlags, batch: int | None) -> str:
    decode = flags.word("cuda-graph-backend-decode")
    flags.word("cuda-graph-backend-prefill")
    is_off = flags.is_on("disable-cuda-graph") or flags.is_on("disable-decode-cuda-graph") or decode == "disabled"
    compiles = flags.is_on("enable-torch-compile")
    if is_off:
        return "compiled" if compiles else "eager"
    most: Any = flags.raw("cuda-graph-max-bs-decode")
    if "cuda-graph-max-bs" in flags.former:
        raw, most = flags.former["cuda-graph-max-bs"]
        flags.remark([f"{raw} is ambiguous in SGLang 0.5.23, which refuses it; read as --cuda-graph-max-bs-decode."])
    if batch is not None and str(most).isdigit() and int(str(most)) < batch:
        flags.remark([f"Graphs are captured for batches up to {most}; larger ones run without."])
    return "graphs"


def _read_speculation(flags: EngineFlags) -> dict[str, Any]:
    algorithm = flags.word("speculative-algorithm")
    draft = flags.word("speculative-draft-model-path")
    steps, tokens = flags.raw("speculative-num-steps"), flags.raw("speculative-num-draft-tokens")
    top = flags.integer("speculative-eagle-topk", 1)
    if not algorithm:
        return {}
    if algorithm.upper() in ("EAGLE", "NEXTN", "MTP") and not draft and top == 1:
        drafted = steps if steps is not None else None if tokens is None else int(str(tokens)) - 1
        if drafted is not None:
            flags.remark([f"{algorithm} with top-k 1 and no draft model is the model's own prediction layer."])
            found = drafting_of("mtp", drafted, "speculative-num-steps")
            return prediction_layers_of(found, "speculative-num-steps", flags.remarks)
    if steps is None and tokens is not None and top == 1:
        # A chain checks its drafts and the token before them.
        tokens = parse_integer(tokens, "speculative-num-draft-tokens", 2) - 1
    found = drafting_of(algorithm, steps if steps is not None else tokens, "speculative-num-steps")
    more = speculation_of(
        algorithm,
        found.get("draft_tokens"),
        checkpoint=str(draft or ""),
        quantization=str(flags.word("speculative-draft-model-quantization") or ""),
        is_model=algorithm.upper() == _DRAFT_MODEL,
    )
    return {"speculation": found, **more}


def _read_adapters(flags: EngineFlags) -> dict[str, Any]:
    """Return adapters of low rank and, where it is stated, their rank."""
    number, rank = flags.integer("max-loras-per-batch", 8), flags.integer("max-lora-rank")
    flags.used.add("lora-target-modules")
    has_paths = flags.raw("lora-paths") not in (None, False, [])
    if not flags.is_on("enable-lora", has_paths):
        return {}
    if rank is None:
        flags.remark(["The adapters state their rank; 16 is assumed."])
    return {"lora_adapters": number, "lora_rank": rank}


def _read_host_cache(flags: EngineFlags) -> dict[str, Any]:
    """Return the host memory of a rank for the cache, where it is stated."""
    is_on, size = flags.is_on("enable-hierarchical-cache"), flags.raw("hicache-size")
    ratio = flags.raw("hicache-ratio")
    if not is_on:
        return {}
    if size is None or str(size).strip() == "0":
        times = "twice" if ratio is None else f"{str(ratio)[:12]} times"
        flags.remark([f"The cache in host memory has {times} the size of that on the GPU."])
        return {}
    return host_memory_of(size, flags.name_of("hicache-size"), _GIGABYTE, flags.remarks)


def _note_others(flags: EngineFlags) -> None:
    for name in _NOT_MODELLED:
        if flags.raw(name) not in (None, False, 0, "0", "false", "False", -1, "-1", []):
            flags.note_not_modelled(name)
    redundant = flags.integer("ep-num-redundant-experts", 0, least=0)
    if flags.is_on("enable-eplb"):
        flags.note_not_modelled("enable-eplb", f"{redundant} redundant experts" if redundant else "")
    elif redundant:
        flags.note_not_modelled("ep-num-redundant-experts", value=True)
    for name in _DEGREES:
        if (flags.integer(name, 1) or 1) > 1:
            flags.note_not_modelled(name, value=True)
    if (flags.integer("num-continuous-decode-steps", 1) or 1) > 1:
        flags.note_not_modelled("num-continuous-decode-steps")


def _write(order: DeploymentOrder) -> ServerCommand:
    shared, fields = check_divisions(order, "SGLang"), order.fields
    tensor, pipeline, expert, replicas = (
        int(fields[name]) for name in ("tensor_par", "pipeline_par", "expert_par", "replicas")
    )
    flags: dict[str, Any] = {"--tp-size": tensor * shared}
    unsaid, remarks = never_said(order), []
    if pipeline > 1:
        flags["--pp-size"] = pipeline
        if shared > 1:
            remarks.append("SGLang supports pipeline with attention data parallelism for some models only.")
    if shared > 1:
        flags["--attn-dp-size"] = shared
    if expert > 1:
        flags["--ep-size"] = expert
    batch = fields.get("batch")
    if batch is not None:
        flags["--max-running-requests"] = int(batch) * shared
    bits = fields.get("weight_bits")
    if bits == 8:
        flags["--quantization"] = "fp8"
        remarks.append("Weights are quantised to FP8 when the server starts, unless the checkpoint is FP8 already.")
    elif bits is not None:
        unsaid["weight_bits"] = absent_weight_reason(int(bits), order.checkpoint)
    cache = {16: "bfloat16", 8: "fp8_e4m3", 4: "nvfp4"}.get(int(fields.get("kv_bits") or 0))
    if cache is not None:
        flags["--kv-cache-dtype"] = cache
    launch = fields.get("launch")
    if launch in ("eager", "compiled"):
        flags |= {"--cuda-graph-backend-decode": "disabled", "--cuda-graph-backend-prefill": "disabled"}
        if launch == "compiled":
            flags["--enable-torch-compile"] = True
    elif launch == "graphs" and batch is not None:
        flags["--cuda-graph-max-bs-decode"] = int(batch)
    if order.settings.get("draft_tokens") and shared > 1:
        raise UnsayableDeploymentError(
            f"SGLang runs no draft model where replicas share experts; leave it out, or try expert_par up to {tensor}."
        )
    flags |= _write_settings(order.settings, remarks)
    if order.role:
        flags["--disaggregation-mode"] = order.role
    program = ("python3", "-m", "sglang.launch_server")
    return ServerCommand(
        program,
        {"--model-path": order.checkpoint, **flags},
        tensor * pipeline * shared,
        replicas // shared,
        unsaid=unsaid,
        remarks=tuple(remarks),
    )


def _write_settings(settings: Mapping[str, Any], remarks: list[str]) -> dict[str, Any]:
    flags: dict[str, Any] = {}
    if settings.get("prefix_cache") is False:
        flags["--disable-radix-cache"] = True
    for name, flag in (
        ("chunk", "--chunked-prefill-size"),
        ("max_length", "--context-length"),
        ("memory_fraction", "--mem-fraction-static"),
    ):
        if settings.get(name) is not None:
            flags[flag] = settings[name]
    if (host := settings.get("host_cache_gib")) is not None:
        size = max(int(host * GIB // _GIGABYTE), 1)
        if size * _GIGABYTE != host * GIB:
            remarks.append(f"SGLang has whole gigabytes of host memory per GPU: {size:,} GB for {host:,.4g} GiB.")
        flags |= {"--enable-hierarchical-cache": True, "--hicache-size": size}
    if number := settings.get("lora_adapters"):
        remarks.append(
            f"--lora-target-modules {_ADAPTED} takes memory for every matrix; name those that your adapters have."
        )
        flags |= {
            "--enable-lora": True,
            "--max-loras-per-batch": int(number),
            "--max-lora-rank": int(settings.get("lora_rank") or 16),
            "--lora-target-modules": _ADAPTED,
        }
    if drafted := settings.get("mtp_tokens"):
        flags |= {
            "--speculative-algorithm": "EAGLE",
            "--speculative-num-steps": int(drafted),
            "--speculative-eagle-topk": 1,
            "--speculative-num-draft-tokens": int(drafted) + 1,
        }
    if drafted := settings.get("draft_tokens"):
        flags |= {
            "--speculative-algorithm": _DRAFT_MODEL,
            "--speculative-draft-model-path": settings["draft_checkpoint"],
            "--speculative-num-steps": int(drafted),
            "--speculative-eagle-topk": 1,
            "--speculative-num-draft-tokens": int(drafted) + 1,
        }
        if settings.get("draft_bits") == 8:
            flags["--speculative-draft-model-quantization"] = "fp8"
    return flags


SGLANG: Final = ServingEngine(
    name="sglang",
    title="SGLang",
    aliases=("sgl",),
    version="0.5.23",
    source="sglang 0.5.23: srt/arg_groups/fields/*.py, parallel_hook.py, moe_hook.py, memory_hook.py",
    snapshot="sglang",
    terms={
        "tensor_par": "--tp-size / --attn-dp-size",
        "pipeline_par": "--pp-size",
        "expert_par": "--ep-size",
        "replicas": "--attn-dp-size, copies of the server",
        "batch": "--max-running-requests / --attn-dp-size",
        "weight_bits": "checkpoint, or --quantization",
        "kv_bits": "--kv-cache-dtype",
        "launch": "--cuda-graph-backend-decode",
    },
    read=_read,
    write=_write,
)

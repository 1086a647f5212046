"""Words that several serving engines share: precisions, speculation, layouts of experts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from engine.launch.contract import LaunchError
from engine.launch.report import parse_integer
from engine.launch.serving_engines.contract import DeploymentOrder, UnsayableDeploymentError
from engine.launch.serving_engines.model_names import library_name
from engine.launch.shapes import shape_of
from hardware import GIB
from models.documents import shown

__all__ = [
    "GRAPHS_SAID",
    "absent_weight_reason",
    "check_divisions",
    "drafting_of",
    "host_memory_of",
    "kv_bits_of",
    "never_said",
    "prediction_layers_of",
    "quantization_bits",
    "refuse_layout",
    "slicing_sentence",
    "speculation_of",
]

_WITHOUT_MODEL: Final = ("ngram", "ngram_gpu", "suffix", "lookahead", "ngram_embedding")
"""Kinds of speculation that draft from the text, without a model."""
_KV_BITS: Final[Mapping[str, int]] = {
    "fp8": 8,
    "fp8_e4m3": 8,
    "fp8_e5m2": 8,
    "fp8_inc": 8,
    "fp8_ds_mla": 8,
    "fp8_per_token_head": 8,
    "mxfp8": 8,
    "int8": 8,
    "int8_per_token_head": 8,
    "nvfp4": 4,
    "nvfp4_4over6": 4,
    "nvfp4_ds_mla": 4,
    "fp4_mx_block16": 4,
    "fp4_e2m1": 4,
    "int4_per_token_head": 4,
    "bfloat16": 16,
    "bf16": 16,
    "float16": 16,
    "fp16": 16,
    "half": 16,
}
_QUANTIZATION_BITS: Final[Mapping[str, int]] = {
    "fp8": 8,
    "fp8_per_tensor": 8,
    "fp8_per_block": 8,
    "fp8_per_channel": 8,
    "fbgemm_fp8": 8,
    "modelopt_fp8": 8,
    "deepseek_v4_fp8": 8,
    "mxfp8": 8,
    "modelopt_mxfp8": 8,
    "int8_per_channel_weight_only": 8,
    "w8a8_int8": 8,
    "w8a8_fp8": 8,
    "experts_int8": 8,
    "auto-round-int8": 8,
    "mlx_q8": 8,
    "awq": 4,
    "auto_awq": 4,
    "awq_marlin": 4,
    "modelopt_fp4": 4,
    "nvfp4_online": 4,
    "nvfp4_per_token": 4,
    "petit_nvfp4": 4,
    "mxfp4": 4,
    "gpt_oss_mxfp4": 4,
    "quark_mxfp4": 4,
    "w4afp8": 4,
    "mxfp_w4a8": 4,
    "mlx_q4": 4,
}
"""Bits per weight of `--quantization`; methods of several widths, such as gptq, are absent: the checkpoint says."""
GRAPHS_SAID: Final = 512
"""Batch up to which vLLM captures graphs by itself. Source: vLLM 0.33.0, config/compilation.py,
max_cudagraph_capture_size."""


def kv_bits_of(word: str, remarks: list[str], name: str) -> int | None:
    """Return the bits of a KV cache's datatype; None for `auto`, which is the model's or checkpoint's.

    Args:
        word: datatype as engines write it.
        remarks: takes a sentence where the nearest width is returned.
        name: of the flag, for the sentences.
    """
    word = word.lower()
    if word in ("", "auto"):
        return None
    bits = _KV_BITS.get(word)
    if bits is not None:
        if word.endswith("_ds_mla"):
            remarks.append(f"{name} {word} keeps the rotary part in 16 bits; nearest: {bits} bits.")
        return bits
    digits = re.search(r"(?:k|int|fp|_|^)(\d{1,2})(?:v|bit|_|\Z)", word)
    width = int(digits[1]) if digits else 0
    nearest = 4 if 0 < width <= 5 else 8 if width <= 8 else 16
    if not width:
        remarks.append(f"{name} {word[:40]} is not known here; the bits of the KV cache stay open.")
        return None
    remarks.append(f"{name} {word[:40]} is read as the nearest width, {nearest} bits.")
    return nearest


def quantization_bits(word: str) -> int | None:
    """Return the bits per weight of a `--quantization`; None where the checkpoint decides.

    Args:
        word: method as engines write it.
    """
    return _QUANTIZATION_BITS.get(word.lower())


def drafting_of(kind: str, tokens: Any, name: str) -> dict[str, Any]:
    """Return speculation by its kind and the number of drafted tokens.

    Args:
        kind: method as the engine writes it.
        tokens: drafted tokens; None where the engine decides.
        name: of the setting, for the message.

    Raises `LaunchError` for an invalid number.
    """
    found: dict[str, Any] = {"kind": kind.lower().replace("-", "_")}
    if tokens is not None:
        found["draft_tokens"] = parse_integer(tokens, name)
    return found


def speculation_of(
    kind: str,
    tokens: int | None,
    *,
    checkpoint: str = "",
    quantization: str = "",
    accepted: float | None = None,
    is_model: bool = True,
) -> dict[str, Any]:
    """Return speculation in this project's terms, as settings: `draft`, and `open_speculation`, the sentence on what
    the configuration leaves open.

    Args:
        kind: method as the engine writes it, or "prediction layers".
        tokens: drafted tokens; None where the engine decides.
        checkpoint: weights of the draft model; empty for the model's own layers, and where none is named.
        quantization: of the draft model, as the engine writes it; empty where the checkpoint decides.
        accepted: drafts per step that a flag makes the engine accept; None without such a flag.
        is_model: True where a whole model drafts, with passes of its own.
    """
    name = library_name(checkpoint) if checkpoint and is_model else None
    found: dict[str, Any] = {"draft_tokens": tokens, "draft_checkpoint": checkpoint, "draft_model": name}
    found["accepted_tokens"] = accepted
    bits = quantization_bits(quantization) if quantization else None
    found["draft_bits"] = bits if name is not None else None
    draft = {each: value for each, value in found.items() if value not in (None, "")}
    by = f"{kind[:40]} with {checkpoint[:100]}" if checkpoint else kind[:40]
    stated = [] if tokens is not None else ["draft_tokens"]
    stated += [] if accepted is not None else ["acceptance_rate"]
    if kind.lower() in _WITHOUT_MODEL:
        why, stated = "no model drafts", []
    elif kind == "prediction layers" or name is not None:
        why = "flags do not say how many drafts are accepted" if stated else ""
    elif is_model:
        why, stated = "the library has no such draft model", [*stated, "draft_model"]
    else:
        why, stated = "its drafting layers are not modelled", [*stated, "a draft_model like them"]
    words = f"Speculation by {by} is in no figure: {why}." if why else ""
    return {"draft": draft, "open_speculation": f"{words} State {' and '.join(stated)}." if stated else words}


def prediction_layers_of(
    found: Mapping[str, Any], name: str, remarks: list[str], accepted: float | None = None
) -> dict[str, Any]:
    """Return the tokens that the model's own prediction layers draft as settings.

    Args:
        found: result of `drafting_of`.
        name: of the number's setting, for the remark.
        remarks: takes what the configuration leaves open.
        accepted: drafts per step that a flag makes the engine accept; None without such a flag.
    """
    if "draft_tokens" not in found:
        remarks.append(f"{name} is not stated: the checkpoint decides; read as 1.")
    tokens = found.get("draft_tokens", 1)
    return {"mtp_tokens": tokens, **speculation_of("prediction layers", tokens, accepted=accepted)}


def host_memory_of(value: Any, name: str, unit: float, remarks: list[str]) -> dict[str, float]:
    """Return the host memory for the cache of one GPU as a setting; empty for none.

    Args:
        value: as the engine has it.
        name: of the setting, for the message.
        unit: bytes of a GPU's share of one of its units.
        remarks: takes what the prediction needs besides.

    Raises `LaunchError` for anything but a number of at least 0.
    """
    try:
        size = -1.0 if isinstance(value, bool) else float(str(value)[:60])
    except ValueError:
        size = -1.0
    if not 0 <= size * unit <= 1e6 * GIB:
        raise LaunchError(f"{name} is {shown(value)}; it must be a size of at least 0.")
    if not size:
        return {}
    remarks.append(f"{name}: state which share of the prefix cache's hits is in host memory to see its effect.")
    return {"host_cache_gib": size * unit / GIB}


def slicing_sentence(ranks: int, expert_par: int) -> str:
    """Return the sentence on a layout that replicates attention and slices experts.

    Args:
        ranks: processors that share the experts.
        expert_par: groups of experts among them.
    """
    return f"experts are sliced over {ranks // max(expert_par, 1)} ranks while attention is replicated"


def refuse_layout(order: DeploymentOrder, engine: str, why: str, nearest: str) -> UnsayableDeploymentError:
    """Return the error for a layout of experts that an engine has no words for.

    Args:
        order: deployment to write.
        engine: title of the engine.
        why: what the engine can say instead.
        nearest: values that it accepts.
    """
    fields = order.fields
    return UnsayableDeploymentError(
        f"{engine} cannot run expert_par {fields['expert_par']} with tensor_par {fields['tensor_par']} and replicas "
        f"{fields['replicas']}: {why}. {nearest}"
    )


def check_divisions(order: DeploymentOrder, engine: str) -> int:
    """Return how many replicas share their experts; 1 where experts stay within a replica.

    Args:
        order: deployment to write.
        engine: title of the engine.

    Raises `UnsayableDeploymentError` where expert_par neither divides tensor_par nor is a multiple of it that divides
    the ranks of all replicas.
    """
    tensor, expert, replicas = (int(order.fields[name]) for name in ("tensor_par", "expert_par", "replicas"))
    _check_shape(order, engine)
    if not order.is_mixture:
        if expert != 1:
            raise UnsayableDeploymentError(
                f"{order.model.title or order.model.name} has no experts; expert_par must be 1, not {expert}."
            )
        return 1
    if tensor % expert == 0:
        return 1
    if expert % tensor or replicas % (expert // tensor):
        raise refuse_layout(
            order,
            engine,
            "experts are shared within a replica or by whole replicas",
            f"Try expert_par 1 or {tensor}, or a multiple of {tensor} that divides {tensor * replicas}.",
        )
    return expert // tensor


def _check_shape(order: DeploymentOrder, engine: str) -> None:
    """Raise `UnsayableDeploymentError` for degrees that do not divide the model; engines refuse to start then."""
    shape = shape_of(order.model)
    for name, word, what in (("tensor_par", "heads", "query heads"), ("expert_par", "experts", "experts")):
        size, degree = shape.get(word), int(order.fields[name])
        if isinstance(size, int) and size and size % degree:
            raise UnsayableDeploymentError(
                f"{name} must divide the {size:,} {what} of {order.model.title or order.model.name} for {engine}; "
                f"{degree} does not."
            )
    layers, stages = shape.get("layers"), int(order.fields["pipeline_par"])
    if isinstance(layers, int) and stages > layers:
        raise UnsayableDeploymentError(
            f"pipeline_par must be at most the {layers:,} layers of {order.model.title or order.model.name}; it is "
            f"{stages}."
        )


def never_said(order: DeploymentOrder) -> dict[str, str]:
    """Return the reasons for fields that no engine's configuration says.

    Args:
        order: deployment to write.
    """
    reason = "Prompt and output: lengths come with the requests; no flag states them."
    return {name: reason for name in ("prompt", "output") if order.fields.get(name) is not None}


def absent_weight_reason(bits: int, checkpoint: str) -> str:
    """Return why a configuration does not say the bits of weights, and what to serve instead.

    Args:
        bits: per weight.
        checkpoint: that is served.
    """
    return f"Weight bits: no flag states them; the weights of {shown(checkpoint)[1:-1]} must have {bits} bits."


def whole_field(order: DeploymentOrder, name: str) -> int | None:
    """Return a field of a deployment as a whole number, None where it is not set. Raises `LaunchError` for others."""
    value = order.fields.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or int(value) != value:
        raise LaunchError(f"{name} is {shown(value)}; it must be a whole number.")
    return int(value)

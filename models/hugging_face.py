"""Models from Hugging Face's config.json: which families are read, and a precise refusal for the others."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

from models import hugging_face_experts as experts
from models import hugging_face_families as families
from models.architecture import Architecture
from models.documents import name_from_stem, sentence, shown
from models.hugging_face_config import HuggingFaceConfig
from models.hugging_face_families import Fields
from models.parameters import parameters
from models.schema import Model, ModelFileError

FAMILIES: dict[str, tuple[str, Callable[[HuggingFaceConfig], Fields]]] = {
    "bloom": ("BLOOM", families.bloom),
    "dbrx": ("DBRX", experts.dbrx),
    "deepseek_v2": ("DeepSeek", experts.deepseek),
    "deepseek_v3": ("DeepSeek", experts.deepseek),
    "deepseek_v32": ("DeepSeek", experts.deepseek),
    "falcon": ("Falcon", families.falcon),
    "gemma": ("Gemma", families.gemma),
    "gemma2": ("Gemma", families.gemma2),
    "gemma3": ("Gemma", families.gemma3),
    "gemma3_text": ("Gemma", families.gemma3),
    "glm4_moe": ("GLM", experts.glm4_moe),
    "glm_moe_dsa": ("GLM", experts.deepseek),
    "gpt2": ("GPT-2", families.gpt2),
    "gpt_bigcode": ("StarCoder", families.gpt_bigcode),
    "gpt_neox": ("GPT-NeoX", families.gpt_neox),
    "gpt_oss": ("gpt-oss", experts.gpt_oss),
    "kimi_k2": ("Kimi", experts.deepseek),
    "llama": ("Llama", families.llama),
    "llama4": ("Llama 4", experts.llama4),
    "llama4_text": ("Llama 4", experts.llama4),
    "minimax_m2": ("MiniMax", experts.minimax_m2),
    "mistral": ("Mistral", families.mistral),
    "mixtral": ("Mixtral", experts.mixtral),
    "mpt": ("MPT", families.mpt),
    "nemotron": ("Nemotron", families.nemotron),
    "olmo": ("OLMo", families.olmo),
    "olmo2": ("OLMo", families.olmo2),
    "olmo3": ("OLMo", families.olmo2),
    "opt": ("OPT", families.opt),
    "phi": ("Phi", families.phi),
    "phi3": ("Phi", families.phi3),
    "qwen2": ("Qwen2", families.qwen2),
    "qwen2_moe": ("Qwen2", experts.qwen2_moe),
    "qwen3": ("Qwen3", families.qwen3),
    "qwen3_moe": ("Qwen3", experts.qwen3_moe),
    "qwen3_vl_moe_text": ("Qwen3-VL", experts.qwen3_moe),
    "qwen3_vl_text": ("Qwen3-VL", families.qwen3),
    "smollm3": ("SmolLM", families.smollm3),
    "starcoder2": ("StarCoder", families.starcoder2),
}
"""By `model_type`: the name of the family here, and the function that reads its config.json."""

STATE_SPACE = (
    "bamba",
    "falcon_h1",
    "falcon_mamba",
    "granitemoehybrid",
    "jamba",
    "kimi_linear",
    "lfm2",
    "mamba",
    "mamba2",
    "minimax",
    "minimax_m1",
    "nemotron_h",
    "qwen3_5",
    "qwen3_5_moe",
    "qwen3_next",
    "recurrent_gemma",
    "rwkv",
    "zamba",
    "zamba2",
)
"""Model types with layers that are no attention: state spaces, linear attention, recurrences."""

COMPRESSED = ("deepseek_v4",)
"""Model types whose attention reads compressed sequences."""

LONGEST_ASSUMED = 8192
"""Longest context that is assumed to be the training length [tokens]; models with longer contexts were trained on
less."""


def hugging_face_types() -> list[str]:
    """The `model_type`s that can be read, in alphabetical order."""
    return sorted(FAMILIES)


def is_hugging_face(document: object) -> bool:
    """Returns whether a document without a format of ours looks like a Hugging Face config.json."""
    if not isinstance(document, Mapping):
        return False
    return "format" not in document and ("model_type" in document or "architectures" in document)


def from_hugging_face(
    document: object, name: str | None = None, *, where: str = "the document", seq_size: int | None = None
) -> Model:
    """Returns the model that a parsed Hugging Face config.json describes.

    `name` is its name, by default the end of the file's `_name_or_path`, or the family with the number of parameters,
    such as "Llama 8.03B". `where` names the document in messages. `seq_size` [tokens] is the length of a sample: by
    default the longest context, or 4,096 where that is above 8,192. Raises `ModelFileError` for families, or for shapes
    within one, that cannot be represented.
    """
    if not isinstance(document, Mapping):
        raise ModelFileError(f"{where} is {shown(document)}; a config.json must be an object with named keys.")
    config = _language_model(document, where)
    model_type = config.model_type
    family, read = FAMILIES[model_type]
    try:
        architecture = Architecture.model_validate(read(config))
        seq, basis = _seq_size(architecture, seq_size)
        called = name or _own_name(document) or _describe_model(family, architecture)
        return Model(
            name=called,
            title=called,
            family=family,
            source=f"a Hugging Face config.json (model_type {model_type})",
            seq_size=seq,
            seq_size_basis=basis,
            architecture=architecture,
            notes=tuple(config.notes),
            left_out=tuple(config.left_out),
        )
    except ValidationError as problem:
        schema = Model if problem.title == "Model" else Architecture
        hint = f" (read as a Hugging Face config, model_type '{model_type}')"
        raise ModelFileError(sentence(problem, schema, where, hint=hint)) from None


def _own_name(document: Mapping[str, Any]) -> str:
    """Return the last part of the document's stated path; empty without one."""
    path = document.get("_name_or_path")
    last = path.rstrip("/").rpartition("/")[2] if isinstance(path, str) else ""
    return name_from_stem(last) if last.strip(". ") else ""


def _describe_model(family: str, architecture: Architecture) -> str:
    """A name for a model that has none: its family and how many parameters it has."""
    count = parameters(architecture)
    size, unit = (count / 1e9, "B") if count >= 1e9 else (count / 1e6, "M")
    return f"{family} {size:.3g}{unit}"


def _seq_size(architecture: Architecture, wanted: int | None) -> tuple[int, str]:
    longest = architecture.max_seq or 4096
    if wanted is not None:
        return wanted, "Chosen when the model was imported."
    if longest <= LONGEST_ASSUMED:
        return longest, "The longest context its configuration states."
    return 4096, f"Assumed; its configuration states only the longest context, {longest:,} tokens."


def _language_model(document: Mapping[str, Any], where: str) -> HuggingFaceConfig:
    """Returns the keys of the language model: the whole file, or `text_config` where it is one part of several."""
    inner = document.get("text_config")
    if inner is None:
        config = HuggingFaceConfig(document, where, _model_type(document, where))
    else:
        whole = HuggingFaceConfig(document, where, str(document.get("model_type")))
        content = dict(whole.part("text_config").content)
        content.setdefault("tie_word_embeddings", document.get("tie_word_embeddings"))
        named = {key: content[key] for key in ("model_type",) if content.get(key) is not None} or document
        config = HuggingFaceConfig(content, where, _model_type(named, where), "text_config")
    if inner is not None or any(document.get(key) is not None for key in ("vision_config", "audio_config")):
        config.left_out.append("Only the language model is counted: what reads images or sound is left out.")
    return config


def _model_type(document: Mapping[str, Any], where: str) -> str:
    given = document.get("model_type")
    classes = document.get("architectures")
    first = classes[0] if isinstance(classes, list) and classes else None
    if given is None and isinstance(first, str):
        # "GPTNeoXForCausalLM" is gpt_neox
        stem = re.sub(r"(ForCausalLM|ForConditionalGeneration|LMHeadModel|Model)$", "", first).lower()
        given = next((each for each in FAMILIES if each.replace("_", "") == stem), first)
    if not isinstance(given, str):
        raise ModelFileError(
            f"{where}: 'model_type' is {shown(given)}; it must be one of {', '.join(hugging_face_types())}."
        )
    if given in FAMILIES:
        return given
    if given.removesuffix("_text") in STATE_SPACE:
        reason = "has layers of state spaces or linear attention, which cannot be represented"
    elif given in COMPRESSED:
        reason = "attends to compressed sequences, which cannot be represented"
    else:
        # Families differ by a letter or digit, so that only another way to write the same name is a hint.
        same = [each for each in FAMILIES if _normalise_letters(each) == _normalise_letters(given)]
        reason = "is not among the families that can be read" + (f"; did you mean {same[0]!r}" if same else "")
    raise ModelFileError(
        f"{where}: a Hugging Face config of model_type {shown(given)} {reason}; "
        f"supported are {', '.join(hugging_face_types())}."
    )


def _normalise_letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name[:100].lower())

"""Models from Hugging Face's config.json: which families are read, and a precise refusal for the others."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from models import hugging_face_experts as experts
from models import hugging_face_families as families
from models.architecture import Architecture
from models.datatypes import UnknownDatatypeError, datatype_of_checkpoint
from models.documents import name_from_stem, sentence, shown
from models.hugging_face_config import HuggingFaceConfig, KeyedNumber
from models.hugging_face_families import Fields
from models.hugging_face_hybrids import HYBRID_FAMILIES
from models.hugging_face_mixed import MIXED_FAMILIES
from models.hugging_face_towers import read_tower
from models.layers import LayerPattern, pattern_counts
from models.parameters import parameters
from models.schema import Model, ModelFileError

FAMILIES: dict[str, tuple[str, Callable[[HuggingFaceConfig], Fields]]] = {
    "apertus": ("Apertus", families.read_apertus),
    "arcee": ("AFM", families.read_arcee),
    "bailing_moe": ("Ling", experts.read_sarvam_moe),
    "bailing_moe_v2": ("Ling", experts.read_sarvam_moe),
    "bloom": ("BLOOM", families.read_bloom),
    "cohere2": ("Command", families.read_cohere2),
    "dbrx": ("DBRX", experts.read_dbrx),
    "deepseek_v2": ("DeepSeek", experts.read_deepseek),
    "deepseek_v3": ("DeepSeek", experts.read_deepseek),
    "deepseek_v32": ("DeepSeek", experts.read_deepseek),
    "dots1": ("dots", experts.read_dots1),
    "ernie4_5": ("ERNIE", families.read_ernie_dense),
    "ernie4_5_moe": ("ERNIE", experts.read_ernie),
    "exaone4": ("EXAONE", families.read_exaone4),
    "exaone_moe": ("EXAONE", experts.read_exaone_moe),
    "falcon": ("Falcon", families.read_falcon),
    "flex_olmo": ("OLMo", experts.read_olmoe),
    "gemma": ("Gemma", families.read_gemma),
    "gemma2": ("Gemma", families.read_gemma2),
    "gemma3": ("Gemma", families.read_gemma3),
    "gemma3_text": ("Gemma", families.read_gemma3),
    "glm4": ("GLM", families.read_glm4),
    "glm4_moe": ("GLM", experts.read_glm4_moe),
    "glm4_moe_lite": ("GLM", experts.read_deepseek),
    "glm4v_moe": ("GLM", experts.read_glm4_moe),
    "glm4v_moe_text": ("GLM", experts.read_glm4_moe),
    "glm_moe_dsa": ("GLM", experts.read_deepseek),
    "gpt2": ("GPT-2", families.read_gpt2),
    "gpt_bigcode": ("StarCoder", families.read_gpt_bigcode),
    "gpt_neox": ("GPT-NeoX", families.read_gpt_neox),
    "gpt_oss": ("gpt-oss", experts.read_gpt_oss),
    "granite": ("Granite", families.read_granite),
    "granitemoe": ("Granite", experts.read_granite_moe),
    "hunyuan_v1_dense": ("Hunyuan", families.read_hunyuan),
    "hunyuan_v1_moe": ("Hunyuan", experts.read_hunyuan_moe),
    "hy_v3": ("Hunyuan", experts.read_hy_v3),
    "kimi_k2": ("Kimi", experts.read_deepseek),
    "llama": ("Llama", families.read_llama),
    "llama4": ("Llama 4", experts.read_llama4),
    "llama4_text": ("Llama 4", experts.read_llama4),
    "mellum": ("Mellum", experts.read_mellum),
    "mimo": ("MiMo", families.read_mimo),
    "minimax_m2": ("MiniMax", experts.read_minimax_m2),
    "ministral3": ("Mistral", families.read_mistral),
    "mistral": ("Mistral", families.read_mistral),
    "mistral4": ("Mistral", experts.read_deepseek),
    "mixtral": ("Mixtral", experts.read_mixtral),
    "mpt": ("MPT", families.read_mpt),
    "nemotron": ("Nemotron", families.read_nemotron),
    "olmo": ("OLMo", families.read_olmo),
    "olmo2": ("OLMo", families.read_olmo2),
    "olmo3": ("OLMo", families.read_olmo2),
    "olmoe": ("OLMo", experts.read_olmoe),
    "opt": ("OPT", families.read_opt),
    "phi": ("Phi", families.read_phi),
    "phi3": ("Phi", families.read_phi3),
    "phimoe": ("Phi", experts.read_phimoe),
    "qwen2": ("Qwen2", families.read_qwen2),
    "qwen2_moe": ("Qwen2", experts.read_qwen2_moe),
    "qwen3": ("Qwen3", families.read_qwen3),
    "qwen3_moe": ("Qwen3", experts.read_qwen3_moe),
    "qwen3_vl_moe_text": ("Qwen3-VL", experts.read_qwen3_moe),
    "qwen3_vl_text": ("Qwen3-VL", families.read_qwen3),
    "sarvam_mla": ("Sarvam", experts.read_deepseek),
    "sarvam_moe": ("Sarvam", experts.read_sarvam_moe),
    "seed_oss": ("Seed", families.read_seed_oss),
    "smollm3": ("SmolLM", families.read_smollm3),
    "solar_open": ("Solar", experts.read_solar_open),
    "starcoder2": ("StarCoder", families.read_starcoder2),
    "youtu": ("Youtu", experts.read_deepseek),
}
"""By `model_type`: the name of the family here, and the function that reads its config.json."""

PATTERN_FAMILIES = {**HYBRID_FAMILIES, **MIXED_FAMILIES}
"""Families whose blocks are not all of one shape, likewise."""

LONGEST_ASSUMED = 8192
"""Longest context that is assumed to be the training length [tokens]; models with longer contexts were trained on
less."""


def hugging_face_types() -> list[str]:
    """The `model_type`s that can be read, in alphabetical order."""
    return sorted({*FAMILIES, *PATTERN_FAMILIES})


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
    config, tower = _language_model(document, where)
    for key in ("is_encoder_decoder", "add_cross_attention"):
        if config.flag(key, False):
            raise config.refuse(f"'{key}' is true; only models with a decoder alone are covered")
    model_type = config.model_type
    shape: dict[str, Any]
    try:
        if model_type in PATTERN_FAMILIES:
            family, read_pattern = PATTERN_FAMILIES[model_type]
            pattern = read_pattern(config)
            shape, longest, count = {"layers": pattern}, pattern.max_seq, pattern_counts(pattern).total
        else:
            family, read = FAMILIES[model_type]
            architecture = Architecture.model_validate(read(config))
            shape, longest, count = {"architecture": architecture}, architecture.max_seq, parameters(architecture)
        config.refuse_unread_biases()
        config.notes.extend(_describe_weights(document))
        seq, basis = _seq_size(longest, seq_size)
        called = name or _own_name(document) or _describe_model(family, count)
        return Model(
            name=called,
            title=called,
            family=family,
            source=f"a Hugging Face config.json (model_type {model_type})",
            seq_size=seq,
            seq_size_basis=basis,
            notes=tuple(config.notes),
            left_out=tuple(config.left_out),
            tower=tower,
            **shape,
        )
    except ValidationError as problem:
        raise ModelFileError(_describe_fault(problem, where, model_type)) from None


def _describe_fault(problem: ValidationError, where: str, model_type: str) -> str:
    """Return one sentence on the first fault of a model, with the keys of the file where its numbers are from there."""
    hint = f" (read as a Hugging Face config, model_type '{model_type}')"
    fault = problem.errors(include_url=False)[0]
    value = fault["input"]
    if isinstance(value, KeyedNumber):
        return f"{where}: '{value.key}' is {shown(int(value))}; it must be {fault['msg']}{hint}."
    if fault["type"] == "refused" and isinstance(value, Mapping):
        stated = [
            f"'{each.key}' is {each:,}"
            for name, each in value.items()
            if isinstance(each, KeyedNumber) and re.search(rf"\b{name}\b", fault["msg"])
        ]
        hint = (f"; {', '.join(stated)}" if stated else "") + hint
    if fault["type"] == "not_accepted" and isinstance(value, int) and problem.title != "Model":
        hint = "; it is computed from keys of the file" + hint
    schemas: dict[str, type[BaseModel]] = {"Model": Model, "Architecture": Architecture}
    return sentence(problem, schemas.get(problem.title, LayerPattern), where, hint=hint)


def _describe_weights(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield a note on the datatype of the published weights where they are quantised."""
    if not document.get("quantization_config"):
        return
    try:
        found = datatype_of_checkpoint(document)
    except UnknownDatatypeError as problem:
        yield f"{problem} Counts of parameters do not depend on it."
        return
    if found is not None:
        yield f"Published weights are {found.label}, {found.weight_bits:.4g} bits each with scales."


def _own_name(document: Mapping[str, Any]) -> str:
    """Return the last part of the document's stated path; empty without one."""
    path = document.get("_name_or_path")
    last = path.rstrip("/").rpartition("/")[2] if isinstance(path, str) else ""
    return name_from_stem(last) if last.strip(". ") else ""


def _describe_model(family: str, count: int) -> str:
    """A name for a model that has none: its family and how many parameters it has."""
    size, unit = (count / 1e9, "B") if count >= 1e9 else (count / 1e6, "M")
    return f"{family} {size:.3g}{unit}"


def _seq_size(longest: int | None, wanted: int | None) -> tuple[int, str]:
    longest = longest or 4096
    if wanted is not None:
        return wanted, "Chosen when the model was imported."
    if longest <= LONGEST_ASSUMED:
        return longest, "The longest context its configuration states."
    return 4096, f"Assumed; its configuration states only the longest context, {longest:,} tokens."


def _language_model(document: Mapping[str, Any], where: str) -> tuple[HuggingFaceConfig, LayerPattern | None]:
    """Return the keys of the language model, and the tower that reads images.

    The keys are the whole file, or `text_config` where it is one part of several. The tower is None without one, and
    where it is left out; then the language model's configuration says so.
    """
    inner = document.get("text_config")
    whole = HuggingFaceConfig(document, where, str(document.get("model_type")))
    if inner is None:
        config = HuggingFaceConfig(document, where, _model_type(document, where))
    else:
        content = dict(whole.part("text_config").content)
        if document.get("tie_word_embeddings") is not None:  # the head belongs to the whole model, which has the say
            content["tie_word_embeddings"] = document["tie_word_embeddings"]
        named = {key: content[key] for key in ("model_type",) if content.get(key) is not None} or document
        config = HuggingFaceConfig(content, where, _model_type(named, where), "text_config")
    tower, problem = read_tower(whole, config)
    if tower is not None:
        counted = pattern_counts(tower).total
        config.left_out.append(
            f"Its tower for images, {tower.layers} layers of {counted:,} weights with their projection, is counted "
            "apart, and in no time or memory."
        )
        if document.get("audio_config") is not None:
            config.left_out.append("What reads sound is left out.")
    elif inner is not None or any(document.get(key) is not None for key in ("vision_config", "audio_config")):
        config.left_out.append(f"Only the language model is counted: what reads images or sound is left out{problem}.")
    return config, tower


def _model_type(document: Mapping[str, Any], where: str) -> str:
    given = document.get("model_type")
    classes = document.get("architectures")
    first = classes[0] if isinstance(classes, list) and classes else None
    if given is None and isinstance(first, str):
        # "GPTNeoXForCausalLM" is gpt_neox
        stem = re.sub(r"(ForCausalLM|ForConditionalGeneration|LMHeadModel|Model)$", "", first).lower()
        given = next((each for each in hugging_face_types() if each.replace("_", "") == stem), first)
    if not isinstance(given, str):
        raise ModelFileError(f"{where}: 'model_type' is {shown(given)}; it must be one of {_family_words()}.")
    if given in FAMILIES or given in PATTERN_FAMILIES:
        return given
    # Families differ by a letter or digit, so that only another way to write the same name is a hint.
    same = [each for each in hugging_face_types() if _normalise_letters(each) == _normalise_letters(given)]
    reason = "is not among the families that can be read" + (f"; did you mean {same[0]!r}" if same else "")
    raise ModelFileError(
        f"{where}: a Hugging Face config of model_type {shown(given)} {reason}; supported are {_family_words()}."
    )


def _normalise_letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name[:100].lower())


def _family_words() -> str:
    """Return the families that can be read; a language model inside another file by the name of the whole."""
    return ", ".join(sorted({each.removesuffix("_text") for each in hugging_face_types()}))

"""Names of checkpoints: models of the library behind them, whether they have experts, and bits that they suggest.

`checkpoints.json` has names of repositories on Hugging Face by model of the library.
"""

from __future__ import annotations

import json
import re
from functools import cache
from importlib.resources import files
from typing import Final

import models
from engine.launch.shapes import shape_of
from models import Model

__all__ = ["checkpoint_of", "has_experts", "is_mixture", "library_name", "suggested_bits"]

_BITS: Final = (
    (4, re.compile(r"(?<![a-z0-9])(nvfp4|mxfp4|fp4|int4|w4a16|w4a8|w4afp8|awq|4bit)(?![a-z0-9])", re.IGNORECASE)),
    (8, re.compile(r"(?<![a-z0-9])(fp8|mxfp8|w8a8|int8|w8a16|8bit)(?![a-z0-9])", re.IGNORECASE)),
)
_SUFFIXES: Final = re.compile(
    r"[-_.](nvfp4|mxfp4|fp4|fp8|int4|int8|awq|gptq|w4a16|w8a8|w4a8|w4afp8|dynamic|block|instruct|it|chat|thinking|base|bf16|"
    r"v2|hf|gguf|mtp|0528|0324|2507|2506|2512|0905)\Z",
    re.IGNORECASE,
)
_MIXTURE: Final = re.compile(
    r"-a\d+(\.\d+)?b|\d+x\d+(\.\d+)?b|moe|mixtral|deepseek[-_.]?(v[2-9]|r1)|kimi[-_.]?k|gpt[-_]oss|minimax|glm[-_]?(4\.[5-9]|[5-9])|"
    r"llama-?4|dbrx|grok|arctic|qwen3-next|step-3",
    re.IGNORECASE,
)
"""Families whose models have experts, by words in the names of their checkpoints."""
_DENSE: Final = re.compile(
    r"llama-?[123]|codellama|qwen(2|2\.5|3)-\d+(\.\d+)?b(?!-a)|mistral-(7b|small-3|nemo|large-2)|gemma-[123]|phi-[1-4]|falcon|opt-|"
    r"olmo-[23]|command-(a|r)",
    re.IGNORECASE,
)


@cache
def _checkpoints() -> dict[str, list[str]]:
    found: dict[str, list[str]] = json.loads((files(__package__) / "checkpoints.json").read_text("utf-8"))[
        "checkpoints"
    ]
    return found


@cache
def _library_names() -> dict[str, str]:
    names = {each.lower(): name for name, known in _checkpoints().items() for each in known}
    names |= {each.rpartition("/")[2]: name for each, name in names.items()}
    return {name.lower(): name for name in models.names()} | names


def checkpoint_of(name: str) -> str | None:
    """Return the published checkpoint of a model of the library; None where none is recorded.

    Args:
        name: of the model.
    """
    known = _checkpoints().get(name)
    return known[0] if known else None


def library_name(checkpoint: str) -> str | None:
    """Return the model of the library that a checkpoint holds, in any precision; None for an unknown one.

    Args:
        checkpoint: repository on Hugging Face, or a path, whose last part counts.
    """
    text = checkpoint.strip().rstrip("/")[:400].lower()
    found = re.search(r"models--[^/]+--([^/]+)", text)
    text = found[1] if found else text
    known = _library_names()
    for name in (text, text.rpartition("/")[2]):
        for _ in range(6):
            if name in known:
                return known[name]
            shorter = _SUFFIXES.sub("", name)
            if shorter == name:
                break
            name = shorter
    return None


def has_experts(model: Model) -> bool:
    """Return whether a model has routed experts."""
    return bool(shape_of(model).get("experts"))


def is_mixture(checkpoint: str) -> bool | None:
    """Return whether the model of a checkpoint has routed experts; None where its name does not tell.

    Args:
        checkpoint: repository or path.
    """
    named = library_name(checkpoint)
    if named is not None:
        return has_experts(models.load(named))
    if _MIXTURE.search(checkpoint[:400]):
        return True
    return False if _DENSE.search(checkpoint[:400]) else None


def suggested_bits(name: str) -> tuple[int, str] | None:
    """Return the bits per weight that a name suggests, with the word that does; None without one.

    Args:
        name: of a checkpoint.
    """
    for bits, pattern in _BITS:
        if found := pattern.search(name[:400]):
            return bits, found[1].upper()
    return None

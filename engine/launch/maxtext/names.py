"""MaxText's names of models, axes and policies, as its configs have them (base.yml and models/*.yml of 0.2.5)."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from importlib import resources
from typing import Any, Final

from engine.launch.key_lists import read_key_lists
from engine.launch.named_models import PatternSize, same_blocks

__all__ = [
    "AXES",
    "DATA_AXES",
    "MODELS",
    "PATTERN_MODELS",
    "POLICIES",
    "WITHOUT_EFFECT",
    "default_of",
    "known_keys",
    "model_name",
    "pipelined_layers",
]

MODELS: Final[Mapping[str, str]] = {
    "llama2-7b": "llama-2-7B",
    "llama2-13b": "llama-2-13B",
    "llama2-70b": "llama-2-70B",
    "llama3-8b": "llama-3-8B",
    "llama3-70b": "llama-3-70B",
    "llama3-405b": "llama-3.1-405B",
    "llama3.1-8b": "llama-3.1-8B",
    "llama3.1-70b": "llama-3.1-70B",
    "llama3.1-405b": "llama-3.1-405B",
    "llama3.3-70b": "llama-3.3-70B",
    "llama4-17b-16e": "llama-4-scout",
    "llama4-17b-128e": "llama-4-maverick",
    "mistral-7b": "mistral-7B-v0.1",
    "mixtral-8x7b": "mixtral-8x7B",
    "mixtral-8x22b": "mixtral-8x22B",
    "deepseek2-16b": "deepseek-v2-lite",
    "deepseek2-236b": "deepseek-v2",
    "deepseek3-671b": "deepseek-v3",
    "deepseek3.2-671b": "deepseek-v3.2",
    "kimi-k2-1t": "kimi-k2",
    "gemma-2b": "gemma-2B",
    "gemma-7b": "gemma-7B",
    "gemma3-4b": "gemma-3-4B",
    "gemma3-12b": "gemma-3-12B",
    "gemma3-27b": "gemma-3-27B",
    "gpt-oss-20b": "gpt-oss-20B",
    "gpt-oss-120b": "gpt-oss-120B",
    "gpt3-175b": "gpt3-175B-maxtext",
    "qwen2.5-1.5b": "qwen2.5-1.5B",
    "qwen2.5-7b": "qwen2.5-7B",
    "qwen2.5-14b": "qwen2.5-14B",
    "qwen3-0.6b": "qwen3-0.6B",
    "qwen3-4b": "qwen3-4B",
    "qwen3-1.7b": "qwen3-1.7B",
    "qwen3-8b": "qwen3-8B",
    "qwen3-14b": "qwen3-14B",
    "qwen3-32b": "qwen3-32B",
    "qwen3-30b-a3b": "qwen3-30B-A3B",
    "qwen3-235b-a22b": "qwen3-235B-A22B",
    "qwen3-480b-a35b": "qwen3-coder-480B-A35B",
    "olmo3-32b": "olmo-3-32B",
}
"""Model of the library by `model_name`; shapes of both were compared."""
PATTERN_MODELS: Final[Mapping[str, PatternSize]] = {
    "deepseek4-284b": PatternSize(4_096, 43, 284_332_230_231),
    "qwen3-next-80b-a3b": PatternSize(2_048, 48, 79_674_391_296),
    "qwen3.5-35b-a3b": PatternSize(2_048, 40, 34_660_610_688),
    "qwen3.5-397b-a17b": PatternSize(4_096, 60, 396_346_350_336),
}
"""Models with a pattern of layers by `model_name`; sizes of the text model were compared with its widths (commit
e591f30c)."""
DATA_AXES: Final = ("data", "fsdp", "fsdp_transpose", "expert")
"""Axes over which the batch is spread."""
AXES: Final = (
    *DATA_AXES,
    "pipeline",
    "context",
    "tensor",
    "tensor_transpose",
    "tensor_sequence",
    "sequence",
    "autoregressive",
    "context_autoregressive",
    "context_usp_ulysses",
    "diloco",
)
POLICIES: Final[Mapping[str, tuple[str, str]]] = {
    "none": ("none", "attention"),
    "full": ("full", "attention"),
    "minimal": ("attn_only", "save_dots"),
    "minimal_with_context": ("attn_only", "save_dots"),
    "minimal_flash": ("attn_only", "save_dots"),
    "minimal_offloaded": ("attn_only", "save_dots"),
    "minimal_with_context_and_quantization": ("attn_only", "save_dots"),
    "save_dot_except_mlp": ("attn_only", "save_projections"),
    "save_dot_with_context_except_mlp": ("attn_only", "save_projections"),
    "save_dot_except_mlpwi": ("attn_only", "save_projections"),
    "save_qkv_proj": ("attn_only", "save_projections"),
    "save_out_proj": ("attn_only", "save_projections"),
    "qkv_proj_offloaded": ("attn_only", "save_projections"),
}
"""Recompute and its selection, by `remat_policy`."""


_LISTS: Final = read_key_lists("maxtext")
WITHOUT_EFFECT: Final = tuple(_LISTS["without effect"])
"""Patterns of keys that change nothing that is predicted; what neither they nor the reader have is not modelled."""


@functools.cache
def _load_defaults() -> Mapping[str, Any]:
    text = (resources.files("engine.launch.maxtext") / "parser_keys.json").read_text("utf-8")
    return {row[0]: row[3] for row in json.loads(text)["keys"]}


def default_of(key: str) -> Any:
    """Returns the default of a key, None without one.

    Args:
        key: of MaxText's configuration.
    """
    return _load_defaults().get(key)


@functools.cache
def known_keys() -> frozenset[str]:
    """Return the keys of MaxText, which refuses others."""
    return frozenset({"base_config", *_load_defaults()})


def model_name(shape: Mapping[str, Any], library_name: str) -> str | None:
    """Returns MaxText's name of a model, `None` where it has none of this shape.

    Args:
        shape: of the model.
        library_name: of the model here; of several that are equal, the one called alike goes first.
    """
    found = [word for word, name in MODELS.items() if same_blocks(name, shape)]
    return min(found, key=lambda word: (MODELS[word] != library_name, len(word)), default=None)


def pipelined_layers(shape: Mapping[str, Any]) -> int | None:
    """Returns the layers that a pipeline holds: those with experts where the first ones have none; None where the
    shape does not say.

    Args:
        shape: of the model, by the words of `engine.launch.shapes`.
    """
    which = shape.get("moe_layer_freq")
    if isinstance(which, list) and which and not which[0] and all(which[which.index(1) :] if 1 in which else ()):
        return sum(1 for each in which if each)
    return shape.get("layers")

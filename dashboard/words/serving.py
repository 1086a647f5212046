"""Words for the choices of a deployment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["LAUNCHED", "WORDS", "bits_words", "precision_words"]

WORDS: Final = {
    "eager": "One by one",
    "compiled": "Compiled",
    "graphs": "CUDA graphs",
    "generic": "Any engine",
    "vllm": "vLLM",
    "sglang": "SGLang",
    "trtllm": "TensorRT-LLM",
}
LAUNCHED: Final = {
    "eager": "kernels launched one by one",
    "compiled": "kernels fused by a compiler",
    "graphs": "kernels in CUDA graphs",
}
"""Launch modes in a sentence."""


def bits_words(row: Mapping[Any, Any]) -> str:
    """Return the precision of a deployment: "weights in 8 bits, KV cache in 16".

    Args:
        row: its fields.
    """
    return f"weights in {int(row['weight_bits'])} bits, KV cache in {int(row['kv_bits'])}"


def precision_words(row: Mapping[Any, Any]) -> str:
    """Return precision and launch mode of a deployment: "weights in 8 bits, KV cache in 16, kernels in CUDA graphs".

    Args:
        row: its fields.
    """
    return f"{bits_words(row)}, {LAUNCHED[str(row['launch'])]}"

"""Datatype of a published checkpoint's weights, from the words of its config.json."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from models.datatypes.entry import Datatype
from models.datatypes.lookup import UnknownDatatypeError, spelled, words_of_program

__all__ = ["datatype_of_checkpoint"]


def datatype_of_checkpoint(config: Mapping[str, Any]) -> Datatype | None:
    """Return the datatype that most weights of a checkpoint are stored in; None where its config.json does not say.

    `quantization_config` counts more than `dtype` (`torch_dtype` before transformers 5).

    Args:
        config: content of the config.json.

    Raises:
        UnknownDatatypeError: a format that the register does not have; one sentence with the known words.
    """
    stated = config.get("quantization_config") or config.get("compression_config")
    if not isinstance(stated, Mapping):
        word = config.get("dtype") or config.get("torch_dtype")
        return _spelled_or_fail("torch", "dtype", [str(word).removeprefix("torch.")], None) if word else None
    method = str(stated.get("quant_method") or stated.get("quant_algo") or "").lower()
    inner = stated.get("quantization")
    algorithm = stated.get("quant_algo") or (inner.get("quant_algo") if isinstance(inner, Mapping) else None)
    word = method
    if method == "compressed-tensors":
        word = str(stated.get("format") or method)
    elif method.startswith("modelopt") and algorithm:
        word = str(algorithm)
    weights = next(_weight_settings(stated), {})
    bits = stated.get("bits") or weights.get("num_bits")
    block = stated.get("weight_block_size") or weights.get("block_structure")
    sized = [f"{word} {'x'.join(map(str, block))}"] if isinstance(block, list) else []
    return _spelled_or_fail("hugging_face", "quantization_config", [*sized, f"{word} {bits}", word], bits)


def _weight_settings(stated: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the settings of weights in each group of layers, as compressed-tensors has them."""
    groups = stated.get("config_groups")
    for group in groups.values() if isinstance(groups, Mapping) else ():
        if isinstance(group, Mapping) and isinstance(group.get("weights"), Mapping):
            yield group["weights"]


def _spelled_or_fail(program: str, key: str, words: list[str], bits: Any) -> Datatype:
    for word in words:
        found = spelled(program, word)
        if found is not None and (bits is None or bits == found.bits):
            return found
    width = "" if bits is None else f" with {str(bits)[:8]} bits"
    known = ", ".join(words_of_program(program))
    raise UnknownDatatypeError(f"{key} says {words[-1][:40]!r}{width}, which is unknown; known are {known}.")

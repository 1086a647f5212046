"""Shapes of torchtitan's models by name and flavor, and the functions that configure them.

torchtitan has no key for a model's shape: it takes a flavor that is registered in its code. Names are from
`torchtitan/models/*/__init__.py` of the wheels 0.2.2 and 0.3.0 (BSD-3-Clause); their shapes were compared with the
library's models of the same name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from engine.launch.named_models import PatternSize, same_blocks

__all__ = ["CONFIGS", "FLAVORS", "PATTERN_CONFIGS", "PATTERN_MODULE", "FlavorConfig", "config_for", "library_model"]

_FLAVORS_OF: Final[Mapping[str, Mapping[str, str]]] = {
    "llama3": {
        "1b": "llama-3.2-1B",
        "3b": "llama-3.2-3B",
        "8b": "llama-3.1-8B",
        "70b": "llama-3.1-70B",
        "405b": "llama-3.1-405B",
    },
    "llama4": {"17bx16e": "llama-4-scout", "17bx128e": "llama-4-maverick"},
    "deepseek_v3": {"16b": "deepseek-v2-lite", "236b": "deepseek-v2", "671b": "deepseek-v3"},
    "qwen3": {
        "0.6b": "qwen3-0.6B",
        "1.7b": "qwen3-1.7B",
        "4b": "qwen3-4B",
        "8b": "qwen3-8B",
        "14b": "qwen3-14B",
        "32b": "qwen3-32B",
        "30b-a3b": "qwen3-30B-A3B",
        "235b-a22b": "qwen3-235B-A22B",
    },
    "gpt_oss": {"20b": "gpt-oss-20B", "120b": "gpt-oss-120B"},
}
FLAVORS: Final[Mapping[tuple[str, str], str]] = {
    (family, flavor): name for family, flavors in _FLAVORS_OF.items() for flavor, name in flavors.items()
}
"""Model of the library, by the name and the flavor (lower case) that torchtitan has for it."""
_ATTENTION_SUFFIXES: Final = ("_flex_attn", "_varlen_attn", "_flex", "_varlen", "_irope")


class FlavorConfig(NamedTuple):
    """A function of torchtitan that returns a configuration."""

    module: str
    function: str
    model: str
    """Name of the library's model of the same shape."""
    datatype: str = "bfloat16"
    """Datatype of matrix products that its converters choose; no key of the command line does."""


CONFIGS: Final[tuple[FlavorConfig, ...]] = (
    FlavorConfig("llama3", "llama3_8b", "llama-3.1-8B"),
    FlavorConfig("llama3", "llama3_8b_mxfp8", "llama-3.1-8B", "mxfp8"),
    FlavorConfig("llama3", "llama3_70b", "llama-3.1-70B"),
    FlavorConfig("llama3", "llama3_405b", "llama-3.1-405B", "float8"),
    FlavorConfig("deepseek_v3", "deepseek_v3_16b", "deepseek-v2-lite"),
    FlavorConfig("deepseek_v3", "deepseek_v3_671b", "deepseek-v3"),
    FlavorConfig("deepseek_v3", "deepseek_v3_671b_float8", "deepseek-v3", "float8"),
    FlavorConfig("qwen3", "qwen3_0_6b", "qwen3-0.6B"),
    FlavorConfig("qwen3", "qwen3_1_7b", "qwen3-1.7B"),
    FlavorConfig("qwen3", "qwen3_14b", "qwen3-14B"),
    FlavorConfig("qwen3", "qwen3_30b_a3b", "qwen3-30B-A3B"),
    FlavorConfig("qwen3", "qwen3_32b", "qwen3-32B"),
    FlavorConfig("gpt_oss", "gpt_oss_20b", "gpt-oss-20B"),
    FlavorConfig("gpt_oss", "gpt_oss_120b", "gpt-oss-120B"),
)
"""Functions of `torchtitan/models/*/config_registry.py` that train a model of the library."""


PATTERN_CONFIGS: Final[Mapping[str, PatternSize]] = {
    "qwen35_27b": PatternSize(5_120, 64, 26_895_998_464),
    "qwen35_35b_a3b": PatternSize(2_048, 40, 34_660_610_688),
    "qwen35_122b_a10b": PatternSize(3_072, 48, 122_111_526_912),
    "qwen35_397b_a17b": PatternSize(4_096, 60, 396_346_350_336),
}
"""Functions of `torchtitan/models/qwen3_5/config_registry.py`; sizes of the text model are of its widths."""
PATTERN_MODULE: Final = "qwen3_5"


def library_model(family: str, flavor: str) -> str | None:
    """Return the name of the library's model that a flavor means, `None` without one.

    Args:
        family: torchtitan's name of the model, such as "llama3"; empty for the default.
        flavor: flavor of that model, such as "70B".
    """
    wanted = flavor.lower()
    for suffix in _ATTENTION_SUFFIXES:
        wanted = wanted.removesuffix(suffix)
    found = FLAVORS.get((family.lower(), wanted))
    if found is None and not family:
        named = {name for (_, each), name in FLAVORS.items() if each == wanted}
        found = named.pop() if len(named) == 1 else None
    return found


def config_for(shape: Mapping[str, Any], datatype: str) -> FlavorConfig | None:
    """Returns the function that trains a model of this shape, `None` where torchtitan has none.

    Args:
        shape: of the model, by the names of `engine.launch`.
        datatype: of matrix products; a function that has it goes first.
    """
    found = [each for each in CONFIGS if same_blocks(each.model, shape)]
    return min(found, key=lambda each: (each.datatype != datatype, each.datatype != "bfloat16"), default=None)

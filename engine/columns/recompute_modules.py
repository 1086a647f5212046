"""Sets of modules that selective recomputation repeats, in the words of Megatron-Core.

A set is its modules joined by "+", such as `moe_act+layernorm`. The core of attention alone is `attention`, the word
that this selection had before there were sets.

Source: Megatron-LM, `--recompute-modules` (megatron/core/transformer/transformer_config.py, `recompute_modules`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from models.documents import did_you_mean, shown

__all__ = ["ATTENTION_CORE", "MODULES", "RecomputeModulesError", "module_bits", "modules_of_word", "word_of_modules"]

MODULES: Final = ("core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe", "shared_experts")
"""Megatron-Core's modules, in the order of its documentation."""
ATTENTION_CORE: Final = "attention"
"""The selection of `core_attn` alone."""


class RecomputeModulesError(ValueError):
    """Unknown module; the message names it and the modules that there are."""


@lru_cache(maxsize=4096)
def modules_of_word(text: str) -> tuple[str, ...]:
    """Return the modules of a set in the order of `MODULES`.

    Args:
        text: modules separated by "+", spaces or commas, or `attention`.

    Raises `RecomputeModulesError`.
    """
    given = ["core_attn" if each == ATTENTION_CORE else each for each in re.split(r"[+,\s]+", text.strip()) if each]
    unknown = [each for each in given if each not in MODULES]
    if unknown or not given:
        word = unknown[0] if unknown else text
        raise RecomputeModulesError(
            f"{shown(word)} is no module that can be recomputed{did_you_mean(word, MODULES)}; a set is one or more of "
            f"{', '.join(MODULES)}, joined by +, such as layernorm+moe_act."
        )
    return tuple(each for each in MODULES if each in given)


def module_bits(modules: Iterable[str]) -> float:
    """Return the sum of 2 to the position in `MODULES` of every module, which numbers the sets.

    Args:
        modules: of `MODULES`, each once.
    """
    return float(sum(1 << MODULES.index(each) for each in modules))


def word_of_modules(text: str) -> str:
    """Return the one word that equal sets share.

    Args:
        text: as for `modules_of_word`.

    Raises `RecomputeModulesError`.
    """
    modules = modules_of_word(text)
    return ATTENTION_CORE if modules == ("core_attn",) else "+".join(modules)

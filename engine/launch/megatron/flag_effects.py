"""Effect of each argument of Megatron-Core on a prediction (read, not modelled, without effect), as data.

"read in patterns" are arguments of layers that are read for models with a pattern of layers only.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from importlib.resources import files
from typing import Final, Literal

__all__ = ["MODEL", "FlagEffect", "effect_groups", "effect_of"]

MODEL: Final = "model"
"""Area of the flags that describe the model's shape."""


@dataclass(frozen=True, slots=True)
class FlagEffect:
    """Effect of an argument on a prediction, its area ("model", "execution" or empty), and its subject."""

    effect: Literal["read", "read in patterns", "not modelled", "none"]
    area: str = ""
    about: str = ""


@lru_cache(maxsize=1)
def effect_groups() -> tuple[tuple[FlagEffect, tuple[str, ...]], ...]:
    """Returns effects with the patterns of destinations that have them; the first that matches counts."""
    text = (files("engine.launch.megatron") / "flag_effects.json").read_text("utf-8")
    return tuple(
        (FlagEffect(effect, area, about), tuple(patterns))
        for effect, area, about, patterns in json.loads(text)["groups"]
    )


@lru_cache(maxsize=4_096)
def effect_of(destination: str) -> FlagEffect:
    """Returns the effect of an argument; one that no group has is not modelled.

    Args:
        destination: of the argument.
    """
    for effect, patterns in effect_groups():
        if any(fnmatchcase(destination, each) for each in patterns):
            return effect
    return FlagEffect("not modelled", "execution")

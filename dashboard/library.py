"""Which models and systems can be chosen, and what they are called."""

from __future__ import annotations

from functools import lru_cache

import hardware
import models
from hardware import System

__all__ = ["system_name", "systems", "usable_models"]


@lru_cache(maxsize=1)
def usable_models() -> list[str]:
    """Names of the library's models that the block recipe can stand for, by family and size."""
    found = [models.load(name) for name in models.names()]
    fitting = [model for model in found if model.block is not None]
    return [model.name for model in sorted(fitting, key=lambda model: (model.family.lower(), model.title.lower()))]


@lru_cache(maxsize=1)
def systems() -> list[str]:
    """Names of the library's systems."""
    return hardware.names()


def system_name(system: System) -> str:
    """The title of a system without the remark in brackets."""
    return (system.title or system.name).partition(" (")[0]

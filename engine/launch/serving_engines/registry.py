"""Every serving engine that can be written and read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from engine.launch.contract import LaunchError
from engine.launch.serving_engines.contract import ServingEngine
from engine.launch.serving_engines.sglang import SGLANG
from engine.launch.serving_engines.trtllm import TRTLLM
from engine.launch.serving_engines.vllm import VLLM
from models.documents import did_you_mean, shown

__all__ = ["ENGINES", "engine_of"]

ENGINES: Final[Mapping[str, ServingEngine]] = {each.name: each for each in (VLLM, SGLANG, TRTLLM)}
"""Engines by name, in the order of the form."""


def engine_of(name: str) -> ServingEngine:
    """Return the engine of a name.

    Args:
        name: of it, or another word that it is known by.

    Raises `LaunchError` for an unknown one.
    """
    wanted = str(name).strip().lower().replace("_", "-")[:80]
    for each in ENGINES.values():
        if wanted in (each.name, *each.aliases):
            return each
    hint = did_you_mean(wanted, list(ENGINES)).rstrip(".")
    raise LaunchError(f"There is no serving engine {shown(name)}: known are {', '.join(ENGINES)}{hint}.")

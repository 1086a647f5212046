"""Ready fleets by name."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any, Final

__all__ = ["READY_FLEETS", "ready_fleet"]

READY_FLEETS: Final = {
    "pretrain_and_serve": "Pre-training beside two services on 256 H100",
    "pretrain_and_two": "Pre-training, experiments and two services on 512 H100",
    "rl_at_night": "Reinforcement learning at night on serving's GPUs",
    "life_of_8b": "The life of an 8B model on 64 H100, a node of them spare",
    "two_systems": "H100 and GB200: who gets which",
}
"""Titles by name."""


def ready_fleet(name: str) -> dict[str, Any]:
    """Return the document of a ready fleet.

    Args:
        name: one of `READY_FLEETS`.

    Raises `KeyError` for another name.
    """
    if name not in READY_FLEETS:
        raise KeyError(name)
    found: dict[str, Any] = json.loads(files("engine.fleet.library").joinpath(f"{name}.json").read_text("utf-8"))
    return found

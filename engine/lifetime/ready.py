"""Ready lives of models by name: questions with phases."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any, Final

__all__ = ["READY_LIVES", "ready_life"]

READY_LIVES: Final = {
    "life_8b": "Life of an 8B on 64 H100 in 30 days",
    "life_70b": "Life of a 70B in 120 days on H100 or B200",
}
"""Titles by name."""


def ready_life(name: str) -> dict[str, Any]:
    """Return the question of a ready life, as `plan_run` takes it.

    Args:
        name: one of `READY_LIVES`.

    Raises `KeyError` for another name.
    """
    if name not in READY_LIVES:
        raise KeyError(name)
    found: dict[str, Any] = json.loads(files("engine.lifetime.library").joinpath(f"{name}.json").read_text("utf-8"))
    return found

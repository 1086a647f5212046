"""Every framework that can be written and read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from engine.launch.contract import Framework, LaunchError
from engine.launch.deepspeed import DEEPSPEED
from engine.launch.maxtext import MAXTEXT
from engine.launch.megatron import MEGATRON
from engine.launch.megatron_bridge import MEGATRON_BRIDGE
from engine.launch.torchtitan import TORCHTITAN
from models.documents import near_matches, shown

__all__ = ["FRAMEWORKS", "framework_of"]

FRAMEWORKS: Final[Mapping[str, Framework]] = {
    each.name: each for each in (MEGATRON, MEGATRON_BRIDGE, TORCHTITAN, DEEPSPEED, MAXTEXT)
}
"""Frameworks by name, in the order of the form; a file belongs to the first that recognises it."""


def framework_of(name: str) -> Framework:
    """Returns the framework of a name.

    Args:
        name: of it, or another word that it is known by.

    Raises `LaunchError` for an unknown one.
    """
    wanted = str(name).strip().lower().replace("_", "-")
    for each in FRAMEWORKS.values():
        if wanted in (each.name, *each.aliases):
            return each
    near = near_matches(wanted, list(FRAMEWORKS))
    hint = f"; did you mean {near[0]}?" if near else ""
    raise LaunchError(f"There is no framework {shown(name)}; known are {', '.join(FRAMEWORKS)}{hint or '.'}")

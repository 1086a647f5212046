"""Every framework of reinforcement learning that can be written and read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from engine.launch.contract import LaunchError
from engine.launch.post_training.contract import RunFramework
from engine.launch.post_training.nemo_rl import NEMO_RL
from engine.launch.post_training.slime import SLIME
from engine.launch.post_training.verl import VERL
from models.documents import did_you_mean, shown

__all__ = ["RUN_FRAMEWORKS", "is_run_target", "run_framework_of"]

RUN_FRAMEWORKS: Final[Mapping[str, RunFramework]] = {each.name: each for each in (NEMO_RL, VERL, SLIME)}
"""Frameworks by name; a file belongs to the first that recognises it."""


def is_run_target(name: str) -> bool:
    """Return whether a name is one of a framework of reinforcement learning."""
    wanted = name.strip().lower().replace("_", "-")
    return any(wanted in (each.name, *each.aliases) for each in RUN_FRAMEWORKS.values())


def run_framework_of(name: str) -> RunFramework:
    """Return the framework of a name.

    Args:
        name: of it, or another word for it.

    Raises `LaunchError` for an unknown one.
    """
    wanted = str(name).strip().lower().replace("_", "-")
    for each in RUN_FRAMEWORKS.values():
        if wanted in (each.name, *each.aliases):
            return each
    known = list(RUN_FRAMEWORKS)
    raise LaunchError(
        f"There is no framework of reinforcement learning {shown(name)}{did_you_mean(wanted, known)}; known are "
        f"{', '.join(known)}."
    )

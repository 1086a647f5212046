"""Keys of explorations, and what an exploration is called in a sentence."""

import re
from typing import Any, Final

from models.documents import shown

__all__ = ["KEY_PATTERN", "describe_exploration", "exploration_title"]

KEY_PATTERN: Final = re.compile(r"[0-9a-z][0-9a-z_-]{0,127}")
"""Valid keys of explorations: they name a folder and a table. Lower case only, because some file systems ignore case.
"""


def describe_exploration(key: str, scenario: Any) -> str:
    """Returns the subject of a sentence about an exploration: "The exploration 0a1b2c3d of GPT-3 175B on 8 x A100".

    Args:
        key: of the exploration.
        scenario: its document; anything where it is damaged.
    """
    return f"The exploration {exploration_title(key, scenario)}"


def exploration_title(key: str, scenario: Any) -> str:
    """Returns key, model and system of an exploration, as far as its scenario names them.

    Args:
        key: of the exploration.
        scenario: its document; anything where it is damaged.
    """
    names = [scenario.get(part) if isinstance(scenario, dict) else None for part in ("model", "system")]
    titles = [(one.get("title") or one.get("name")) if isinstance(one, dict) else None for one in names]
    if not (all(isinstance(title, str) and title for title in titles) and KEY_PATTERN.fullmatch(key)):
        return key if KEY_PATTERN.fullmatch(key) else shown(key)
    model, system, number = (shown(one).strip("'\"") for one in (*titles, scenario.get("num_procs")))
    return f"{key[:8]} of {model} on {number} x {system}"

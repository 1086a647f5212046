"""Keys of frameworks as data: which ones are known, and which change nothing that is predicted."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

__all__ = ["read_key_lists"]


@cache
def read_key_lists(framework: str) -> dict[str, Any]:
    """Return the lists of keys of a framework by name, from its `key_lists.json`.

    Args:
        framework: name of its package in `engine.launch`.
    """
    text = (files(f"engine.launch.{framework}") / "key_lists.json").read_text("utf-8")
    found: dict[str, Any] = json.loads(text)
    return found

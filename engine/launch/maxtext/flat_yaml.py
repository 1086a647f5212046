"""The YAML in which MaxText's configurations are written: keys and values without levels, and lists.

Files overlay base.yml key by key, so nothing else is needed, and nothing that can build objects or refer to itself is
understood: anchors, tags and nested tables are named as unread.
"""

from __future__ import annotations

import re
from typing import Any, Final

from engine.launch.contract import LaunchError

__all__ = ["read_flat_yaml"]

_LINE: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]{0,100})\s*:(?:\s+(.*))?$")
_WORDS: Final = {"true": True, "false": False, "null": None, "~": None, "": None}


def read_flat_yaml(text: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Returns values by key, and the lines that are none.

    Args:
        text: of the file.

    Raises LaunchError where a key stands there twice.
    """
    found: dict[str, Any] = {}
    unread: list[str] = []
    last = ""
    for line in text.splitlines():
        plain = line.rstrip()
        if not plain.strip() or plain.lstrip().startswith(("#", "---", "...")):
            continue
        if plain.lstrip().startswith("- ") and last and (found[last] is None or isinstance(found[last], list)):
            found[last] = [*(found[last] or []), scalar(plain.lstrip()[2:])]
            continue
        match = _LINE.match(plain)
        value = "" if match is None else (match[2] or "").strip()
        if match is None or value.startswith(("&", "*", "!", "{", "|", ">", "<<")):
            unread.append(plain.strip()[:100])
            last = ""
            continue
        last = match[1]
        if last in found:
            raise LaunchError(f"The key {last} stands there twice; leave one of them out.")
        found[last] = scalar(value)
    return found, tuple(unread)


def scalar(text: str) -> Any:
    """Returns a value: a list in brackets, a truth, nothing, or a word.

    Args:
        text: as it stands behind the colon or the equals sign.
    """
    word = text.strip()
    if word[:1] in ("'", '"'):
        end = word.find(word[0], 1)
        return word[1:end] if end > 0 else word[1:]
    word = "" if word.startswith("#") else word.split(" #")[0].strip()
    if word.startswith("["):
        return [each.strip().strip("'\"") for each in word.strip("[] ").split(",") if each.strip()]
    return _WORDS.get(word.lower(), word)

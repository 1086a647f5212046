"""Conditions of shell scripts, as far as words and numbers decide them; what needs a machine stays open.

A condition is the words of `[ ... ]`, `[[ ... ]]` or `test ...` with their variables put in, several of them joined by
`&&` and `||`. Files and programs are not looked at.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

__all__ = ["BRACKETS", "holds", "matches"]

BRACKETS: Final = frozenset({"[", "[[", "test"})
"""Words that conditions begin with."""
_BEGINNINGS: Final = BRACKETS | {"!", "true", "false", ":"}
_NUMBERS: Final[Mapping[str, Callable[[int, int], bool]]] = {
    "-eq": int.__eq__, "-ne": int.__ne__, "-gt": int.__gt__, "-ge": int.__ge__, "-lt": int.__lt__, "-le": int.__le__,
}  # fmt: skip
_JOINTS: Final = {"&&": "&&", "||": "||", "-a": "&&", "-o": "||"}
_NUMBER: Final = re.compile(r"[+-]?\d{1,18}")


def matches(word: str, pattern: str) -> bool:
    """Returns whether a word is what a pattern of the shell stands for.

    Args:
        word: as it is.
        pattern: with `*`, `?` and `[...]`.
    """
    return len(pattern) < 1_000 and pattern.count("*") < 10 and fnmatch.fnmatchcase(word, pattern)


def holds(words: Sequence[str]) -> bool | None:
    """Returns whether a condition holds, None where that is not a matter of its words.

    Args:
        words: of the condition, with its brackets.
    """
    if not words or words[0] not in _BEGINNINGS:
        return None
    found: bool | None = None
    joint = ""
    place = 0
    while place < len(words):
        end = next((at for at in range(place, len(words)) if words[at] in _JOINTS), len(words))
        one = _single([word for word in words[place:end] if word not in BRACKETS | {"]", "]]"}])
        if not joint:
            found = one
        elif joint == "&&":
            found = False if found is False or one is False else None if None in (found, one) else True
        else:
            found = True if found or one else None if None in (found, one) else False
        joint = _JOINTS[words[end]] if end < len(words) else ""
        place = end + 1
    return found


def _single(words: Sequence[str]) -> bool | None:
    if words[:1] == ["!"]:
        inner = _single(words[1:])
        return None if inner is None else not inner
    if words in (["true"], [":"], ["false"]):
        return words != ["false"]
    if len(words) == 1:
        return bool(words[0])
    if len(words) == 2 and words[0] in ("-z", "-n"):
        return (words[0] == "-n") == bool(words[1])
    if len(words) != 3:
        return None
    left, sign, right = words
    if sign in ("=", "=="):
        return matches(left, right)
    if sign == "!=":
        return not matches(left, right)
    if sign in _NUMBERS and _NUMBER.fullmatch(left) and _NUMBER.fullmatch(right):
        return _NUMBERS[sign](int(left), int(right))
    return None

"""Text of unknown origin, made safe for widgets that read Markdown."""

from __future__ import annotations

import re
from typing import Final

from dashboard.words.numbers import SPACE

__all__ = ["literal"]

_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~$:&])")
_LATE: Final = re.compile(
    r"(?<=:)(?=//|[\w+\-/]+:)|(?<=www)(?=\.)|(?<=@)|(?<!\S)(?=(?:<->|->|<-|--|>=|<=|~=)(?!\S))", re.IGNORECASE
)
"""Where addresses, icons and arrows are broken off, which are looked for when the escapes are gone."""
_GAP: Final = re.compile(r"[^\S\u00a0]+")
"""Everything between words but the space that holds a number and its unit together."""
_UNIT: Final = re.compile(
    r"(?<=\d) (?=(?:%|[KMGT]?i?B(?:/s)?|[MGTPE]FLOP(?:/s)?|[pnµm]?s|min|h|days?|samples/s|tokens?(?:/s)?|GPUs?|bits?)"
    r"(?![\w/]))"
)
"""The space before a unit in sentences that others wrote: the engine's have plain ones, for terminals."""
_JOINER: Final = "\u2060"
"""Takes no room and belongs to no word."""


def literal(text: str) -> str:
    """The text with every character escaped that Markdown would interpret: no links, images, colours or formulas.

    Lines do not end between a number and its unit.

    Streamlit looks for icons such as ":material/bug:", for addresses such as "www.example.org" and for arrows after
    Markdown has taken the escapes away, so a mark without width stands in the midst of what might be one.
    """
    whole = _UNIT.sub(SPACE, _GAP.sub(" ", text).strip())
    return _SPECIAL.sub(r"\\\1", _LATE.sub(_JOINER, whole))

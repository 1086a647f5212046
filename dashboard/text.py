"""Text of unknown origin, made safe for widgets that read Markdown."""

from __future__ import annotations

import re
from typing import Final

from dashboard.format import SPACE

__all__ = ["literal"]

_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~$:&])")
_ICON: Final = re.compile(r":(?=[\w+\-/]+:)")
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

    Streamlit looks for icons such as ":material/bug:" after Markdown has taken the escapes away, so a colon that might
    begin one is followed by a mark without width.
    """
    whole = _UNIT.sub(SPACE, _GAP.sub(" ", text).strip())
    return _SPECIAL.sub(r"\\\1", _ICON.sub(f":{_JOINER}", whole))

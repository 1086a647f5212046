"""Text of unknown origin, made safe for widgets that read Markdown."""

from __future__ import annotations

import re
from typing import Final

from dashboard.compat.markdown_text import escaped
from dashboard.words.numbers import SPACE

__all__ = ["literal"]

_GAP: Final = re.compile(r"[^\S\u00a0]+")
"""Everything between words but the space that holds a number and its unit together."""
_UNIT: Final = re.compile(
    r"(?<=\d) (?=(?:%|[KMGT]?i?B(?:/s)?|[MGTPE]FLOP(?:/s)?|[pnµm]?s|min|h|days?|samples/s|tokens?(?:/s)?|GPUs?|bits?)"
    r"(?![\w/]))"
)
"""The space before a unit in sentences that others wrote: the engine's have plain ones, for terminals."""


def literal(text: str) -> str:
    """Return a text as Markdown that shows it literally: no links, images, colours or formulas.

    Lines do not end between a number and its unit.
    """
    return escaped(_UNIT.sub(SPACE, _GAP.sub(" ", text).strip()))

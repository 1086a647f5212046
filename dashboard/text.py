"""Text of unknown origin, made safe for widgets that read Markdown."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["literal"]

_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~$:&])")
_ICON: Final = re.compile(r":(?=[\w+\-/]+:)")
_JOINER: Final = "\u2060"
"""Takes no room and belongs to no word."""


def literal(text: str) -> str:
    """The text with every character escaped that Markdown would interpret: no links, images, colours or formulas.

    Streamlit looks for icons such as ":material/bug:" after Markdown has taken the escapes away, so a colon that might
    begin one is followed by a mark without width.
    """
    return _SPECIAL.sub(r"\\\1", _ICON.sub(f":{_JOINER}", " ".join(text.split())))

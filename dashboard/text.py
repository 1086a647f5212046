"""Text of unknown origin, made safe for widgets that read Markdown."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["literal"]

_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~$:&])")


def literal(text: str) -> str:
    """The text with every character escaped that Markdown would interpret: no links, images, colours or formulas."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))

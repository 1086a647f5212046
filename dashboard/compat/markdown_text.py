"""Escaping for Streamlit's Markdown, and for the patterns that it replaces afterwards.

Checked with Streamlit 1.67.0; tests/browser/test_library_flows.py and tests/dashboard/pages/test_hostile_text.py show
text that tries all of it.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["escaped"]

_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~$:&])")
_LATE: Final = re.compile(
    r"(?<=:)(?=//|[\w+\-/]+:)|(?<=www)(?=\.)|(?<=@)|(?<!\S)(?=(?:<->|->|<-|--|>=|<=|~=)(?!\S))", re.IGNORECASE
)
"""Places to break addresses, icons and arrows, which Streamlit replaces after it has removed escapes."""
_JOINER: Final = "\u2060"
"""Character without width that joins no words."""


def escaped(text: str) -> str:
    """Returns a text with every character escaped that Markdown would interpret: no links, images, colours or formulas.

    Streamlit looks for icons such as ":material/bug:", for addresses such as "www.example.org" and for arrows after
    Markdown has taken the escapes away, so a mark without width stands in the midst of what might be one.
    """
    return _SPECIAL.sub(r"\\\1", _LATE.sub(_JOINER, text))

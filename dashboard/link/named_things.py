"""Several names in one parameter of a link, and typed in a list: a user's name may contain any character."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote, unquote

__all__ = ["NAMES", "joined", "quoted", "separate", "unquoted"]

NAMES: Final = re.compile(r"[^<>\x00-\x1f]{1,4000}")
"""Pattern of a parameter with several names."""
_BETWEEN: Final = "~"
_PLAIN: Final = " /!$&'()*+,;=:@"
_SIMPLE: Final = re.compile(r"[\w.\-](?:[\w.\- ]*[\w.\-])?")
_QUOTED: Final = re.compile(r'"(?:[^"]|"")*"')


def joined(names: Iterable[str]) -> str:
    """Returns names as one parameter of a link; `separate` gives them again."""
    return _BETWEEN.join(quote(name, safe=_PLAIN).replace(_BETWEEN, "%7E") for name in names)


def separate(text: str) -> list[str]:
    """Returns the names of a parameter, each once."""
    return list(dict.fromkeys(unquote(part, errors="replace") for part in text.split(_BETWEEN) if part))


def quoted(name: str) -> str:
    """Returns a name as it is typed in a list: in double quotes where a sign of it could be one of the list's."""
    return name if _SIMPLE.fullmatch(name) else '"' + name.replace('"', '""') + '"'


def unquoted(text: str) -> str:
    """Returns the name that was typed."""
    return text[1:-1].replace('""', '"') if _QUOTED.fullmatch(text) else text

"""Here-documents of a script, taken out of its text before it is parsed.

The parser's own treatment of them loses the rest of a file after `cat <<A > f; echo x`, and its work grows with the
square of their number.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass
from typing import Final

__all__ = ["HereDocument", "take_inputs"]

_OPERATOR: Final = re.compile(r"<<(-?)[ \t]*(?:'([^'\n]{1,100})'|\"([^\"\n]{1,100})\"|\\?([A-Za-z0-9_.!+-]{1,100}))")
_ORDINARY: Final = re.compile(r"[^\\'\"$`(){}<# \t\n;&|]+")
_BEFORE_COMMENTS: Final = " \t\n;&|()"


@dataclass(frozen=True, slots=True)
class HereDocument:
    """A here-document: the place of its operator, and where its text begins and ends [bytes]."""

    place: int
    start: int
    end: int
    row: int
    """Row of its first line."""
    is_quoted: bool
    strips_tabs: bool


def take_inputs(data: bytes) -> tuple[bytes, list[HereDocument]]:
    """Returns a script without its here-documents, every other place the same, and the here-documents.

    Args:
        data: text of the script in UTF-8.
    """
    if b"<<" not in data:
        return data, []
    text = data.decode("latin-1")  # one letter for each byte; only ASCII matters here
    found: list[HereDocument] = []
    taken: list[tuple[int, int]] = []
    pending: list[tuple[int, str, bool, bool]] = []
    lines: dict[str, list[int]] | None = None
    closers: list[str] = []
    numbers_from = 0
    """Number of open brackets at the beginning of arithmetic; 0 outside of it."""
    place, size, row = 0, len(text), 0
    before = "\n"
    while place < size:
        letter = text[place]
        top = closers[-1] if closers else ""
        if letter == "\\":
            row += text.startswith("\n", place + 1)
            place += 2
            before = "\\"
            continue
        if letter == "\n":
            row += 1
            place += 1
            before = letter
            if pending and top in ("", ")"):
                lines = _line_places(text) if lines is None else lines
                for operator, word, is_quoted, strips_tabs in pending:
                    ends = [each for each in (lines.get(word), lines.get("\t" + word) if strips_tabs else None) if each]
                    nexts = [each[at] for each in ends if (at := bisect_left(each, place)) < len(each)]
                    if not nexts:
                        continue
                    end = min(nexts)
                    found.append(HereDocument(operator, place, end, row, is_quoted, strips_tabs))
                    after = text.find("\n", end)
                    after = size if after < 0 else after + 1
                    taken.append((place, after))
                    row += text.count("\n", place, after)
                    place = after
                pending.clear()
            continue
        if letter == top:
            closers.pop()
            numbers_from = 0 if len(closers) < numbers_from else numbers_from
        elif letter == "'" and top != '"' and not (top == "}" and '"' in closers[-2:-1]):
            end = text.find("'", place + 1)
            end = size if end < 0 else end
            row += text.count("\n", place, end)
            place = end
        elif letter in '"`':
            closers.append(letter)
        elif letter == "$" and text[place + 1 : place + 2] in ("(", "{"):
            if text.startswith("((", place + 1):
                numbers_from = numbers_from or len(closers) + 1
            closers.append(")" if text[place + 1] == "(" else "}")
            place += 1
        elif letter == "(" and top in ("", ")"):
            if text.startswith("((", place) and before in _BEFORE_COMMENTS:
                numbers_from = numbers_from or len(closers) + 1
            closers.append(")")
        elif letter == "#" and before in _BEFORE_COMMENTS and top in ("", ")") and not numbers_from:
            end = text.find("\n", place)
            place = size if end < 0 else end
            continue
        elif letter == "<" and top in ("", ")") and not numbers_from:
            if text.startswith("<<<", place):
                place += 2
            elif operator_found := _OPERATOR.match(text, place):
                word = operator_found[2] or operator_found[3] or operator_found[4]
                is_quoted = operator_found[4] is None or "\\" in operator_found[0]
                pending.append((place, word, is_quoted, bool(operator_found[1])))
                taken.append((place, operator_found.end()))
                place = operator_found.end()
                before = " "
                continue
        elif ordinary := _ORDINARY.match(text, place):
            place = ordinary.end()
            before = text[place - 1]
            continue
        before = letter
        place += 1
    return _blank_ranges(data, taken), found


def _line_places(text: str) -> dict[str, list[int]]:
    """Returns where lines begin, by their text; those after tabs by one tab and the rest."""
    found: dict[str, list[int]] = {}
    place = 0
    for line in text.split("\n"):
        bare = line.lstrip("\t")
        if len(bare) <= 100:
            found.setdefault(line if line == bare else "\t" + bare, []).append(place)
        place += len(line) + 1
    return found


def _blank_ranges(data: bytes, taken: list[tuple[int, int]]) -> bytes:
    """Returns a text with spaces where something was taken out; line ends stay."""
    parts: list[bytes] = []
    place = 0
    for start, end in taken:
        parts += [data[place:start], re.sub(rb"[^\n]", b" ", data[start:end])]
        place = end
    return b"".join([*parts, data[place:]])

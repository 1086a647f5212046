"""Patterns of the shell, `*`, `?` and `[...]`, matched in work that grows with text times pattern, never more."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["ShellPattern"]

MOST_TOKENS: Final = 1_000
MOST_WORK: Final = 1_000_000
"""Largest product of the lengths of a text and a pattern."""
_SET: Final = re.compile(r"\[[!^]?\]?[^\]]*\]")


class ShellPattern:
    """A pattern as segments between its stars; a segment is a tuple of letters, sets of letters, or None for any."""

    def __init__(self, pieces: list[tuple[str, bool]]) -> None:
        """Takes the texts of a pattern, each with whether it was quoted: quoted ones match themselves."""
        tokens: list[re.Pattern[str] | str | None] = []
        self.is_readable = True
        for text, is_quoted in pieces:
            place = 0
            while place < len(text) and len(tokens) <= MOST_TOKENS:
                letter = text[place]
                found = _SET.match(text, place) if letter == "[" and not is_quoted else None
                if is_quoted or letter not in "*?[" or (letter == "[" and found is None):
                    tokens.append(letter)
                    place += 1
                elif found is not None:
                    tokens.append(_parse_set(found[0]))
                    place = found.end()
                else:
                    tokens.append("*" * 2 if letter == "*" else None)
                    place += 1
            self.is_readable &= not re.search(r"[?@+!*]\(", text) or is_quoted
        self.is_readable &= len(tokens) <= MOST_TOKENS
        self.segments: list[list[re.Pattern[str] | str | None]] = [[]]
        for token in tokens:
            if token == "**":
                self.segments.append([])
            else:
                self.segments[-1].append(token)
        self._length = len(tokens)

    def can_match(self, text: str) -> bool:
        """Returns whether a text is short enough to be matched."""
        return self.is_readable and len(text) * max(self._length, 1) <= MOST_WORK

    def matches(self, text: str) -> bool:
        """Return whether the pattern matches a whole text."""
        if len(self.segments) == 1:
            return len(text) == len(self.segments[0]) and _fits_at(self.segments[0], text, 0)
        last = self.segments[-1]
        end = self._earliest(text, self.segments[:-1])
        place = len(text) - len(last)
        return end is not None and place >= end and _fits_at(last, text, place)

    def prefix(self, text: str, longest: bool) -> int | None:
        """Return the length of the shortest or longest matching beginning of a text."""
        if not longest or len(self.segments) == 1:
            return self._earliest(text, self.segments)
        end = self._earliest(text, self.segments[:-1])
        if end is None:
            return None
        last = self.segments[-1]
        for place in range(len(text) - len(last), end - 1, -1):
            if _fits_at(last, text, place):
                return place + len(last)
        return None

    def suffix(self, text: str, longest: bool) -> int | None:
        """Return the length of the shortest or longest matching end of a text."""
        mirrored = ShellPattern([])
        mirrored.segments = [segment[::-1] for segment in self.segments[::-1]]
        return mirrored.prefix(text[::-1], longest)

    @staticmethod
    def _earliest(text: str, segments: list[list[re.Pattern[str] | str | None]]) -> int | None:
        if not _fits_at(segments[0], text, 0):
            return None
        end = len(segments[0])
        for segment in segments[1:]:
            while not _fits_at(segment, text, end):
                end += 1
                if end > len(text):
                    return None
            end += len(segment)
        return end


def _fits_at(segment: list[re.Pattern[str] | str | None], text: str, place: int) -> bool:
    if place + len(segment) > len(text):
        return False
    return all(
        token is None or (token == text[at] if isinstance(token, str) else token.fullmatch(text[at]) is not None)
        for at, token in enumerate(segment, place)
    )


def _parse_set(text: str) -> re.Pattern[str] | str:
    inside = text[1:-1]
    negated = inside[:1] in ("!", "^")
    inside = inside[1:] if negated else inside
    if "[:" in inside or "\\" in inside:
        return text[:1]
    try:
        return re.compile(f"[{'^' if negated else ''}{re.escape(inside).replace(chr(92) + '-', '-')}]", re.DOTALL)
    except re.error:
        return text[:1]

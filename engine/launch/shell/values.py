"""Texts of a shell script that remember where they were written and what in them has no value.

A value is a tuple of segments. An expression without a value is one character of Unicode's private use area within a
segment's text, so that values can be split, joined, parsed again and compared as text; `Holes` lists the expressions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from engine.launch.contract import LaunchError

__all__ = [
    "Array",
    "Hole",
    "Holes",
    "ScriptWork",
    "Segment",
    "Value",
    "Word",
    "has_hole",
    "join_values",
    "length_of",
    "text_of",
    "without_holes",
    "without_start",
]

MOST_WORK: Final = 500_000
"""Units of work of a script, about 2 microseconds each; published launch scripts take 1,000 to 20,000."""
MOST_TEXT: Final = 8_000_000
"""Characters that variables hold together."""
MOST_WORDS: Final = 200_000
"""Words of commands, variables put in."""
_FIRST, _LAST = 0xE000, 0xF8FE
_HOLE: Final = re.compile(f"[{chr(_FIRST)}-{chr(_LAST + 1)}]")
_LONGEST: Final = 80
"""Characters of an expression as it is shown."""


class Segment(NamedTuple):
    """A piece of text with the line and the file in which it was written."""

    text: str
    line: int
    file: str
    default: str = ""
    """The expression whose default in the script this text is, such as `${1:-8}`."""


Value = tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class Array:
    """An array of the shell: values by index, or by key where `is_map`."""

    items: Mapping[int | str, Value]
    is_map: bool = False


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a command, variables put in."""

    text: str
    """Pieces without a value are empty."""
    line: int
    """Line of the file, from 1; of words that a variable held, the line where that text was assigned."""
    file: str
    unknown: tuple[str, ...] = ()
    """Expressions in the word that have no value, such as `$TP`, `$(nproc)`, `${9}`."""
    defaults: tuple[str, ...] = ()
    """Expressions for which the script's own default was taken, such as `${1:-8}`."""


@dataclass(frozen=True, slots=True)
class Hole:
    """An expression without a value."""

    expression: str
    name: str = ""
    """The variable, where it is one that nothing in the script sets."""
    is_argument: bool = False
    """True for an argument of the script, such as `$1`."""


class Holes:
    """Expressions without a value, each with the character that represents it."""

    def __init__(self) -> None:
        self._known: dict[Hole, str] = {}
        self._by_sign: dict[str, Hole] = {}

    def sign(self, hole: Hole) -> str:
        """Returns the character for an expression; beyond 6,399 expressions they share the last one."""
        hole = Hole(hole.expression[:_LONGEST], hole.name, hole.is_argument)
        found = self._known.get(hole)
        if found is None:
            code = _FIRST + len(self._known)
            found = chr(min(code, _LAST + 1))
            if code > _LAST:
                hole = Hole("...")
            else:
                self._known[hole] = found
            self._by_sign[found] = hole
        return found

    def within(self, text: str) -> list[Hole]:
        """Returns the expressions without a value in a text, each once."""
        return [self._by_sign[sign] for sign in dict.fromkeys(_HOLE.findall(text)) if sign in self._by_sign]

    def shown(self, text: str) -> str:
        """Returns a text with its expressions written out."""
        return _HOLE.sub(lambda found: self._by_sign.get(found[0], Hole("?")).expression, text)

    def without_any(self, text: str) -> str:
        """Returns a text as it is if nothing is given from outside: a number of arguments is 0, the rest is empty."""
        return _HOLE.sub(lambda found: "0" if self._by_sign[found[0]].expression in ("$#", "${#}") else "", text)

    def word(self, value: Value, line: int, file: str) -> Word:
        """Returns a value as a word; `line` and `file` count where it is empty."""
        text = text_of(value)
        first = next((each for each in value if each.text), None)
        line, file = (first.line, first.file) if first is not None else (line, file)
        defaults = tuple(dict.fromkeys(each.default for each in value if each.default))
        if not has_hole(text):
            return Word(text, line, file, (), defaults)
        unknown = tuple(dict.fromkeys(hole.expression for hole in self.within(text)))
        return Word(_HOLE.sub("", text), line, file, unknown, defaults)


class ScriptWork:
    """Work that a script may still take."""

    def __init__(self) -> None:
        self.done = 0
        self.words = 0
        self.held = 0

    def spend(self, units: int) -> None:
        """Counts work. Raises `LaunchError` where it becomes too much."""
        self.done += units
        if self.done > MOST_WORK:
            raise LaunchError("The script takes more work than launch scripts do; give the command that it starts.")

    def copy(self, length: int) -> None:
        """Counts the making of a text of a length. Raises `LaunchError` where it becomes too much."""
        if length > MOST_TEXT:
            self.hold(length)
        self.spend(1 + length // 64)

    def hold(self, more: int) -> None:
        """Counts characters that variables hold. Raises `LaunchError` where they become too many."""
        self.held += more
        if self.held > MOST_TEXT:
            raise LaunchError(
                f"The script's variables hold more than {MOST_TEXT:,} characters; launch scripts have thousands."
            )

    def add_words(self, count: int) -> None:
        """Counts words of commands. Raises `LaunchError` where they become too many."""
        self.words += count
        if self.words > MOST_WORDS:
            raise LaunchError(
                f"The script's commands have more than {MOST_WORDS:,} words; launch scripts have hundreds."
            )


def text_of(value: Iterable[Segment]) -> str:
    """Returns the text of a value, one character for each expression without a value."""
    return "".join([each.text for each in value])


def has_hole(text: str) -> bool:
    """Returns whether a text has an expression without a value."""
    return _HOLE.search(text) is not None


def without_holes(text: str) -> str:
    """Returns a text in which no character can be taken for an expression without a value."""
    return text if text.isascii() else _HOLE.sub("\ufffd", text)


def join_values(values: Sequence[Value], separator: str = " ") -> Value:
    """Returns several values as one."""
    return tuple(_separate_values(values, separator))


def _separate_values(values: Sequence[Value], separator: str) -> Iterator[Segment]:
    for place, value in enumerate(values):
        if place and separator:
            last = value[0] if value else Segment("", 0, "")
            yield Segment(separator, last.line, last.file)
        yield from value


def length_of(value: Value | Array | None) -> int:
    """Returns how many characters a variable holds, with a share for what the value itself takes."""
    if value is None:
        return 0
    if isinstance(value, Array):
        return sum(length_of(each) + 16 for each in value.items.values())
    return sum([len(each.text) + 4 for each in value])


def without_start(value: Value, length: int) -> Value:
    """Return a value without its first characters."""
    found: list[Segment] = []
    for each in value:
        cut = min(length, len(each.text))
        length -= cut
        if each.text[cut:]:
            found.append(each._replace(text=each.text[cut:]))
    return tuple(found)

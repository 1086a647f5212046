"""Words of the shell as pieces: quoted and plain text, variables, arithmetic. Nothing is put in here.

`tree-sitter-bash` finds where words begin and end; within them it drops white space of strings and here-documents, so
that their text is read here. Work grows with the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

__all__ = [
    "COMMAND_ENDS",
    "ArithmeticExpansion",
    "Literal",
    "ParameterExpansion",
    "Piece",
    "Unreadable",
    "parse_text",
    "parse_word",
    "split_words",
]

COMMAND_ENDS: Final = frozenset({"\n", ";", "&", "|", "&&", "||", "(", ")", ";;"})
"""Words that end a simple command."""
DEEPEST: Final = 20
"""Expressions within expressions of a word."""
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*#?$!-]")
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-]")
_OPERATOR: Final = re.compile(r":[-=?+]|[-=?+]|##?|%%?|/[/#%]?|\^\^?|,,?|:|@")
_BRACES: Final = re.compile(r"\{[^{}\s'\"]*(?:,|\.\.)[^{}\s'\"]*\}")
_PLAIN: Final = re.compile(r"[^\\'\"$`{<>\n]+")
_IN_STRING: Final = re.compile(r"[^\\\"$`\n]+")
_SEPARATORS: Final = frozenset(" \t\n;&|()<>")
_REDIRECTION: Final = re.compile(r"[0-9]*(?:<<<|<<-?|<&|<>|>>|>&|>\||<|>)(?!\()|&>>?")
_ORDINARY: Final = re.compile(r"[^\\'\"$`(){} \t\n;&|<>]+")
_ANSI: Final = re.compile(r"\\(?:([abefnrtv\\'\"?])|x([0-9a-fA-F]{1,2})|([0-7]{1,3})|u([0-9a-fA-F]{1,4}))")
_ANSI_LETTERS: Final = {
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "?": "?",
}


@dataclass(frozen=True, slots=True)
class Literal:
    """Text as it is; `row` counts the lines of the word before it."""

    text: str
    is_quoted: bool
    row: int


@dataclass(frozen=True, slots=True)
class ParameterExpansion:
    """A variable, `$X` or `${X...}`."""

    source: str
    name: str
    is_quoted: bool
    row: int
    index: str | None = None
    operator: str = ""
    rest: tuple[Piece, ...] = ()
    """Pieces behind the operator."""
    rest_source: str = ""
    is_length: bool = False
    is_indirect: bool = False


@dataclass(frozen=True, slots=True)
class ArithmeticExpansion:
    """An expression of numbers, `$((...))`; `inside` is its text."""

    source: str
    inside: str
    is_quoted: bool
    row: int


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An expression whose value is unknown unless it runs: `$(...)`, `<(...)`, `{a,b}`."""

    source: str
    is_quoted: bool
    row: int


Piece = Literal | ParameterExpansion | ArithmeticExpansion | Unreadable


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.place = 0
        self.row = 0

    def pieces(self, stop: str, is_quoted: bool, depth: int) -> Iterator[Piece]:
        """Yields pieces up to a closing sign, which is passed, or the end of the text."""
        text, size = self.text, len(self.text)
        in_string = is_quoted
        while self.place < size:
            letter = text[self.place]
            if letter == stop:
                self.place += 1
                return
            if letter == "\n":
                self.place += 1
                yield Literal("\n", in_string, self.row)
                self.row += 1
            elif letter == "\\":
                yield from self._escaped(in_string)
            elif letter == '"':
                if in_string and not stop:  # the text of a here-document has no quotes
                    self.place += 1
                    yield Literal('"', True, self.row)
                elif in_string:  # quotes within ${...} of a string end it for a while, and begin it again
                    self.place += 1
                    continue
                else:
                    self.place += 1
                    yield Literal("", True, self.row)
                    yield from self.pieces('"', True, depth + 1)
            elif letter == "'" and not in_string:
                end = text.find("'", self.place + 1)
                end = size if end < 0 else end
                yield from self._lines(text[self.place + 1 : end], True)
                self.place = end + 1
            elif letter == "$":
                yield from self._dollar(in_string, depth)
            elif letter == "`":
                end = self.place + 1
                while end < size and text[end] != "`":
                    end += 2 if text[end] == "\\" else 1
                yield self._open(min(end + 1, size), in_string)
            elif letter in "<>" and not in_string and text.startswith("(", self.place + 1):
                yield self._open(_closing_place(text, self.place + 1), in_string)
            elif letter == "{" and not in_string and (found := _BRACES.match(text, self.place)):
                yield self._open(found.end(), in_string)
            else:
                found = (_IN_STRING if in_string else _PLAIN).match(text, self.place)
                end = found.end() if found is not None else self.place + 1
                if stop not in ("", '"') and (at := text.find(stop, self.place, end)) >= 0:
                    end = at
                yield Literal(text[self.place : end], in_string, self.row)
                self.place = end

    def _lines(self, text: str, is_quoted: bool) -> Iterator[Piece]:
        if not text:
            yield Literal("", is_quoted, self.row)
        while text:
            line, newline, text = text.partition("\n")
            yield Literal(line + newline, is_quoted, self.row)
            self.row += bool(newline)

    def _escaped(self, in_string: bool) -> Iterator[Piece]:
        following = self.text[self.place + 1 : self.place + 2]
        self.place += 2
        if following == "\n":
            self.row += 1
        elif in_string and following not in '$`"\\':
            yield Literal("\\" + following, True, self.row)
        else:
            yield Literal(following or "\\", True, self.row)

    def _open(self, end: int, is_quoted: bool) -> Piece:
        source, row = self.text[self.place : end], self.row
        self.row += source.count("\n")
        self.place = end
        return Unreadable(source, is_quoted, row)

    def _dollar(self, in_string: bool, depth: int) -> Iterator[Piece]:
        text, start = self.text, self.place
        if text.startswith("$((", start):
            end = _closing_place(text, start + 1)
            if text[end - 2 : end] == "))":
                row = self.row
                self.row += text.count("\n", start, end)
                self.place = end
                yield ArithmeticExpansion(text[start:end], text[start + 3 : end - 2], in_string, row)
            else:
                yield self._open(end, in_string)
        elif text.startswith("$(", start):
            yield self._open(_closing_place(text, start + 1), in_string)
        elif text.startswith("$[", start):
            end = text.find("]", start)
            yield self._open(len(text) if end < 0 else end + 1, in_string)
        elif text.startswith("${", start):
            yield self._braced(in_string, depth)
        elif not in_string and text.startswith("$'", start):
            end = start + 2
            while end < len(text) and text[end] != "'":
                end += 2 if text[end] == "\\" else 1
            self.place = min(end + 1, len(text))
            yield from self._lines(_ANSI.sub(_decode_escape, text[start + 2 : end]), True)
        elif not in_string and text.startswith('$"', start):
            self.place += 1
        elif found := _PLAIN_NAME.match(text, start + 1):
            self.place = found.end()
            yield ParameterExpansion(text[start : self.place], found[0], in_string, self.row)
        else:
            self.place += 1
            yield Literal("$", True, self.row)

    def _braced(self, in_string: bool, depth: int) -> Piece:
        text, start, row = self.text, self.place, self.row
        place = start + 2
        is_length = text.startswith("#", place) and not text.startswith(("}", ":", "-", "#", "%"), place + 1)
        is_indirect = text.startswith("!", place)
        found = _NAME.match(text, place + (is_length or is_indirect))
        if found is None or depth > DEEPEST:
            return self._open(_closing_place(text, start + 1), in_string)
        place = found.end()
        index = None
        if text.startswith("[", place):
            end = _closing_place(text, place)
            index, place = text[place + 1 : end - 1], end
        operator = _OPERATOR.match(text, place)
        self.place = operator.end() if operator is not None else place
        begin = self.place
        # A pattern is read as outside of a string, even within one.
        is_pattern = operator is not None and operator[0][0] in "#%/"
        rest = tuple(self.pieces("}", in_string and not is_pattern, depth + 1))
        source = text[start : self.place]
        if not source.endswith("}") or (operator is None and rest):
            return Unreadable(source, in_string, row)
        return ParameterExpansion(
            source,
            found[0],
            in_string,
            row,
            index,
            operator[0] if operator is not None else "",
            rest,
            text[begin : self.place - 1],
            is_length,
            is_indirect,
        )


def _decode_escape(found: re.Match[str]) -> str:
    if found[1]:
        return _ANSI_LETTERS[found[1]]
    return chr(int(found[2] or found[4], 16) if found[2] or found[4] else int(found[3], 8))


@lru_cache(maxsize=256)
def parse_word(text: str) -> tuple[Piece, ...]:
    """Returns the pieces of a word as a script has it.

    Args:
        text: of the word, with its quotes.
    """
    return tuple(_Scanner(text).pieces("", False, 0))


def parse_text(text: str) -> tuple[Piece, ...]:
    """Returns the pieces of text in which variables are put in and quotes are letters, such as a here-document.

    Args:
        text: of a here-document or an arithmetic expression.
    """
    return tuple(_Scanner(text).pieces("", True, 0))


def _closing_place(text: str, start: int) -> int:
    """Returns the place behind the bracket that closes the one at `start`; the end of the text where none does."""
    return _end_place(text, start + 1, [{"(": ")", "{": "}", "[": "]"}[text[start]]])


def _end_place(text: str, place: int, closers: list[str]) -> int:
    """Returns the place behind the sign that closes the outermost of `closers`; with none, the end of the word."""
    size = len(text)
    to_close = bool(closers)
    strings = 0
    before = " "
    while place < size:
        letter = text[place]
        top = closers[-1] if closers else ""
        if letter == "\\":
            place += 2
            before = letter
            continue
        if letter == top:
            closers.pop()
            strings -= letter == '"'
            if to_close and not closers:
                return place + 1
        elif letter == "'" and top != '"' and not (top == "}" and strings):
            place = text.find("'", place + 1)
            if place < 0:
                return size
        elif letter == '"':
            closers.append('"')
            strings += 1
        elif letter == "`":
            closers.append("`")
        elif letter == "$" and text[place + 1 : place + 2] in ("(", "{"):
            closers.append(")" if text[place + 1] == "(" else "}")
            place += 1
        elif letter == "(" and (top == ")" or (not closers and before in "=<>?@+!*")):
            closers.append(")")
        elif letter == "[" and top == "]":
            closers.append("]")
        elif letter in "<>" and not closers and text.startswith("(", place + 1):
            closers.append(")")
            place += 1
        elif letter == "#" and top == ")" and before in " \t\n":
            place = text.find("\n", place)
            if place < 0:
                return size
        elif not closers and letter in _SEPARATORS:
            return place
        elif top != ")" and (found := _ORDINARY.match(text, place)):
            end = found.end()
            if top == "]" and (at := min(_find_sign(text, "]", place, end), _find_sign(text, "[", place, end))) < end:
                end = max(at, place + 1)
            place = end
            before = text[place - 1]
            continue
        before = letter
        place += 1
    return size


def _find_sign(text: str, sign: str, start: int, end: int) -> int:
    found = text.find(sign, start, end)
    return end if found < 0 else found


def split_words(text: str) -> Iterator[tuple[int, str]]:
    """Yield the words of a text as written, and separators, each with its place.

    Separators are line ends, `;`, `&`, `|`, `&&`, `||`, parentheses and signs of redirection such as `2>&`; comments
    are left out.

    Args:
        text: for example the inside of an array or a condition.
    """
    place, size = 0, len(text)
    while place < size:
        letter = text[place]
        if letter in " \t":
            place += 1
        elif text.startswith("\\\n", place):
            place += 2
        elif letter == "#":
            end = text.find("\n", place)
            place = size if end < 0 else end
        elif (letter in "<>&" or letter.isdigit()) and (found := _REDIRECTION.match(text, place)):
            yield place, found[0]
            place = found.end()
        elif letter in _SEPARATORS and not text.startswith(("<(", ">("), place):
            end = place + (2 if text[place : place + 2] in ("&&", "||", ";;") else 1)
            yield place, text[place:end]
            place = end
        else:
            end = max(_end_place(text, place, []), place + 1)
            yield place, text[place:end]
            place = end

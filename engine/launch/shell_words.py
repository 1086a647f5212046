"""Words of shell scripts as people write launch scripts: quotes, variables, arrays, arithmetic; nothing is run.

Statements are gone through in order whatever their conditions, the last assignment counting; `$(...)` and files that a
script includes are unknown. Work is bounded by the length of the text and by `MOST_WORDS`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

__all__ = ["Script", "Word", "read_script"]

MOST_WORDS: Final = 200_000
"""Words after variables were put in."""
DEEPEST: Final = 12
"""Variables within variables."""
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,100}")
_ASSIGNED: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]{0,100})(\+?)=(.*)", re.DOTALL)
_SIMPLE: Final = re.compile(r"[0-9A-Za-z_$+\-*/%() \t]{1,200}")
_SEPARATORS: Final = frozenset({"\n", ";", "&", "|"})
_BEFORE: Final = frozenset({"export", "declare", "local", "readonly", "then", "else", "do", "-x", "-r", "-a"})
HIDDEN: Final = "\ue000"
"""Stands for a dollar sign that is text."""
_ESCAPED: Final = {"$": HIDDEN, '"': '"', "\\": "\\", "`": "`", "\n": " "}
"""What a backslash before a letter is between double quotes."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word as written: pieces of text, each with whether it stood within quotes."""

    pieces: tuple[tuple[str, bool], ...]

    @property
    def text(self) -> str:
        """Returns the word without its quotes, variables not put in."""
        return "".join(text for text, _ in self.pieces)


@dataclass
class Script:
    """What a script says: its commands, variables put in, and its variables."""

    commands: list[list[str]] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    exported: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, None] = field(default_factory=dict)
    """Variables that commands use and nothing gives."""


def _tokens(text: str) -> Iterator[Word | str]:
    """Yields words, and separators as text: line ends, `;`, `&`, `|`, and parentheses that stand alone."""
    place, size = 0, len(text)
    pieces: list[tuple[str, bool]] = []
    plain: list[str] = []

    def close() -> list[Word]:
        nonlocal pieces, plain
        if plain:
            pieces.append(("".join(plain), False))
        found = [Word(tuple(pieces))] if pieces else []
        pieces, plain = [], []
        return found

    while place < size:
        letter = text[place]
        if letter == "\\" and place + 1 < size:
            if text[place + 1] != "\n":
                plain.append(HIDDEN if text[place + 1] == "$" else text[place + 1])
            elif plain or pieces:
                yield from close()
            place += 2
        elif letter == "'":
            end = text.find("'", place + 1)
            end = size if end < 0 else end
            if plain:
                pieces.append(("".join(plain), False))
                plain = []
            pieces.append((text[place + 1 : end].replace("$", HIDDEN), True))
            place = end + 1
        elif letter == '"':
            inner: list[str] = []
            place += 1
            while place < size and text[place] != '"':
                if text[place] == "\\" and place + 1 < size:
                    following = text[place + 1]
                    inner.append(_ESCAPED.get(following, "\\" + following))
                    place += 2
                elif text.startswith("$(", place) or text.startswith("${", place):
                    end = _balanced(text, place + 1)
                    inner.append(text[place:end])
                    place = end
                else:
                    inner.append(text[place])
                    place += 1
            place += 1
            if plain:
                pieces.append(("".join(plain), False))
                plain = []
            pieces.append(("".join(inner), True))
        elif letter == "$" and text[place + 1 : place + 2] in ("(", "{"):
            end = _balanced(text, place + 1)
            plain.append(text[place:end])
            place = end
        elif letter == "`":
            end = text.find("`", place + 1)
            plain.append("$(...)")
            place = size if end < 0 else end + 1
        elif letter == "#" and not plain and not pieces:
            end = text.find("\n", place)
            place = size if end < 0 else end
        elif letter in " \t":
            yield from close()
            place += 1
        elif letter in "\n;&|()":
            yield from close()
            yield letter
            place += 1
        else:
            plain.append(letter)
            place += 1
    yield from close()


def _balanced(text: str, start: int) -> int:
    """The place behind the bracket that closes the one at `start`; the end of the text where none does."""
    opening = text[start]
    closing = ")" if opening == "(" else "}"
    depth = 0
    for place in range(start, len(text)):
        if text[place] == opening:
            depth += 1
        elif text[place] == closing:
            depth -= 1
            if depth == 0:
                return place + 1
    return len(text)


class _Reader:
    def __init__(self, given: Mapping[str, str]) -> None:
        self.script = Script(variables=dict(given))
        self.arrays: dict[str, list[str]] = {}
        self.left = MOST_WORDS

    def value(self, text: str, depth: int = 0) -> str:
        """A text with its variables put in."""
        if "$" not in text or depth > DEEPEST:
            return text
        out: list[str] = []
        place = 0
        while place < len(text):
            if text[place] != "$":
                end = text.find("$", place)
                end = len(text) if end < 0 else end
                out.append(text[place:end])
                place = end
            elif text.startswith("$((", place):
                end = _balanced(text, place + 1)
                out.append(self.arithmetic(text[place + 3 : end - 2], depth))
                place = end
            elif text.startswith("$(", place):
                end = _balanced(text, place + 1)
                place = end
            elif text.startswith("${", place):
                end = _balanced(text, place + 1)
                out.append(self.variable(text[place + 2 : end - 1], depth))
                place = end
            elif found := _NAME.match(text, place + 1):
                out.append(self.named(found[0], depth))
                place = found.end()
            elif text[place + 1 : place + 2].isdecimal():
                place += 2
            else:
                out.append("$")
                place += 1
            if sum(map(len, out)) > 10 * MOST_WORDS:
                break
        return "".join(out)

    def named(self, name: str, depth: int) -> str:
        if name in self.arrays:
            return " ".join(self.arrays[name])
        if name in self.script.variables:
            return self.script.variables[name]
        self.script.unknown[name] = None
        return ""

    def variable(self, inside: str, depth: int) -> str:
        """What `${...}` is: a name, with a default behind `:-`, `-` or `:=`."""
        found = _NAME.match(inside)
        if found is None:
            return ""
        name, rest = found[0], inside[found.end() :]
        known = self.script.variables.get(name, "")
        if name in self.arrays:
            return " ".join(self.arrays[name])
        if rest.startswith((":-", ":=", "-", "=")) and not known:
            return self.value(rest.lstrip(":")[1:].strip("\"'"), depth + 1)
        if rest.startswith((":+", "+")):
            return self.value(rest.lstrip(":")[1:], depth + 1) if known else ""
        return known or self.named(name, depth)

    def arithmetic(self, text: str, depth: int) -> str:
        text = self.value(text, depth + 1)
        text = _NAME.sub(lambda found: self.script.variables.get(found[0], "0"), text)
        if not _SIMPLE.fullmatch(text) or "**" in text:
            return ""
        return _calculated(text)

    def words(self, word: Word) -> list[str]:
        """The words that a word becomes: unquoted variables are split, arrays are many."""
        self.left -= 1
        if self.left < 0:
            return []
        whole = re.fullmatch(r"\$\{([A-Za-z_][A-Za-z0-9_]{0,100})\[[@*]\]\}", word.text)
        if whole:
            name = whole[1]
            if name in self.arrays:
                quoted = any(quoted for _, quoted in word.pieces)
                found = self.arrays[name] if quoted else [each for item in self.arrays[name] for each in item.split()]
                self.left -= len(found)
                return list(found) if self.left > 0 else []
            return self.value(self.named(name, 0)).split()
        if any(quoted for _, quoted in word.pieces) or "$" not in word.text:
            return [self.value(word.text)]
        found = self.value(word.text).split()
        self.left -= len(found)
        return found if self.left > 0 else []

    def run(self, text: str) -> Script:
        statement: list[Word] = []
        tokens = iter(_tokens(text))
        for token in tokens:
            if isinstance(token, Word):
                statement.append(token)
            elif token == "(" and statement and statement[-1].text.endswith("=") and len(statement[-1].pieces) == 1:
                name = statement.pop().text[:-1]
                items: list[str] = []
                for inner in tokens:
                    if inner == ")":
                        break
                    if isinstance(inner, Word):
                        items += self.words(inner)
                if name.endswith("+"):
                    items = self.arrays.get(name[:-1], []) + items
                self.arrays[name.rstrip("+")] = items
            elif token in _SEPARATORS or token in "()":
                self.statement(statement)
                statement = []
        self.statement(statement)
        return self.script

    def statement(self, statement: list[Word]) -> None:
        exported = False
        words = list(statement)
        while words:
            text = words[0].text
            if text in _BEFORE:
                exported |= text == "export"
            elif found := _ASSIGNED.fullmatch(text):
                name, more, value = found[1], found[2], self.value(found[3])
                if more:
                    value = self.script.variables.get(name, "") + value
                if value or name not in self.script.variables:
                    self.script.variables[name] = value
                if exported or len(words) > 1:
                    self.script.exported[name] = value
                self.arrays.pop(name, None)
            else:
                break
            words.pop(0)
        if words:
            found_words = [each for word in _without_redirections(words) for each in self.words(word)]
            if found_words:
                self.script.commands.append([each.replace(HIDDEN, "$") for each in found_words])


def _without_redirections(words: list[Word]) -> list[Word]:
    """Words without those that say where output goes or input comes from."""
    kept: list[Word] = []
    skip = False
    for word in words:
        found = None if any(quoted for _, quoted in word.pieces) else re.fullmatch(r"\d?(>>?|<)(.*)", word.text)
        if found is not None:
            skip = not found[2]
        elif skip:
            skip = False
        else:
            kept.append(word)
    return kept


def _calculated(text: str) -> str:
    """The value of sums, products and quotients of whole numbers; empty where it is none."""
    tokens = re.findall(r"\d+|[-+*/%()]", text)
    place = 0

    def product() -> int:
        nonlocal place
        result = factor()
        while place < len(tokens) and tokens[place] in "*/%":
            sign = tokens[place]
            place += 1
            right = factor()
            result = result * right if sign == "*" else result // right if sign == "/" else result % right
            if abs(result) > 10**18:
                raise ValueError(text)
        return result

    def total() -> int:
        nonlocal place
        result = product()
        while place < len(tokens) and tokens[place] in "+-":
            sign = tokens[place]
            place += 1
            result = result + product() if sign == "+" else result - product()
        return result

    def factor() -> int:
        nonlocal place
        token = tokens[place]
        place += 1
        if token == "(":
            result = total()
            place += 1
            return result
        return -factor() if token == "-" else int(token[:18])

    try:
        return str(total())
    except (IndexError, ValueError, ZeroDivisionError, RecursionError):
        return ""


def read_script(text: str, given: Mapping[str, str] | None = None) -> Script:
    """Returns the commands and variables of a script.

    Args:
        text: of the script.
        given: variables that are known before it begins.
    """
    return _Reader(given or {}).run(text)

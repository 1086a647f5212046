"""Words of shell scripts as people write launch scripts: quotes, variables, arrays, arithmetic; nothing is run.

Of `if` and `case` the branch counts that the script takes where nothing is given from outside. Where files or programs
decide, all branches are gone through, the last assignment counting, and `Script.open_conditions` says so; `$(...)` and
files that a script includes are unknown. What stands in the script as input of a command (`<<EOF`) is read as commands,
because it often is some; its quotes end with it. Work is bounded by the length of the text and by `MOST_WORDS`.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from engine.launch.shell_conditions import BRACKETS, holds, matches

__all__ = ["Script", "Word", "read_script"]

MOST_WORDS: Final = 200_000
"""Words after variables were put in."""
MOST_BRANCHES: Final = 200
"""Branches within branches, and words of a condition before `&&`."""
DEEPEST: Final = 12
"""Variables within variables."""
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,100}")
_ASSIGNED: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]{0,100})(\+?)=(.*)", re.DOTALL)
_SIMPLE: Final = re.compile(r"[0-9A-Za-z_$+\-*/%() \t]{1,200}")
_USED: Final = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]{0,100}|[0-9])(?![A-Za-z0-9_]|:?[-=])")
"""A variable without a default."""
_BEFORE: Final = frozenset({"export", "declare", "local", "readonly", "then", "else", "do", "-x", "-r", "-a"})
_INPUT: Final = re.compile(r"<<-?[ \t]*(?:'([^'\n]{1,100})'|\"([^\"\n]{1,100})\"|\\?([A-Za-z0-9_]{1,100}))")
"""Input of a command that stands in the lines below, up to one that has the same word alone."""
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
    outside: dict[str, None] = field(default_factory=dict)
    """Variables that conditions ask for and nothing in the script gives; they count as empty."""
    open_conditions: dict[str, None] = field(default_factory=dict)
    """Conditions that words do not decide and something depends on."""


@dataclass
class _Branch:
    """An `if` or a `case` that is gone through."""

    active: bool | None = True
    """Whether this branch is taken; None where that is open."""
    taken: bool = False
    """Whether an earlier branch surely was."""
    condition: list[str] | None = None
    """Words of a condition up to its `then`."""
    told: str = ""
    subject: str | None = None
    """What a `case` looks at."""
    pattern_next: bool = False

    def decide(self, outcome: bool | None) -> None:
        """Enters a branch by the outcome of its condition."""
        self.active = False if self.taken else outcome
        self.taken |= outcome is True


@dataclass(frozen=True, slots=True)
class _Statement:
    words: list[Word]
    array: list[Word] | None
    """What the array holds that the last word assigns."""
    ending: str
    """What stands between this statement and the next one."""


def _tokens(text: str, depth: int = 0) -> Iterator[Word | str]:
    """Yields words, and separators as text: line ends, `;`, `&`, `|`, and parentheses that stand alone."""
    place, size = 0, len(text)
    inputs: list[str] = []
    starts: dict[str, list[int]] | None = None
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
        elif letter == "<" and depth < DEEPEST and (found := _INPUT.match(text, place)):
            yield from close()
            inputs.append(found[1] or found[2] or found[3])
            place = found.end()
        elif letter in "\n;&|()":
            yield from close()
            yield letter
            place += 1
            if letter == "\n" and inputs:
                starts = _lines(text) if starts is None else starts
                for word in inputs:
                    ends = starts.get(word, [])
                    after = bisect_left(ends, place)
                    if after < len(ends):
                        yield from _tokens(text[place : ends[after]], depth + 1)
                        yield "\n"
                        place = text.find("\n", ends[after])
                        place = size if place < 0 else place + 1
                inputs.clear()
        else:
            plain.append(letter)
            place += 1
    yield from close()


def _lines(text: str) -> dict[str, list[int]]:
    """Where the lines of a text begin, by what stands on them without space around it."""
    found: dict[str, list[int]] = {}
    place = 0
    for line in text.split("\n"):
        found.setdefault(line.strip(), []).append(place)
        place += len(line) + 1
    return found


def _statements(text: str) -> Iterator[_Statement]:
    """Yields the statements of a script in order."""
    words: list[Word] = []
    array: list[Word] | None = None
    ending = ""
    tokens = iter(_tokens(text))
    for token in tokens:
        if isinstance(token, Word):
            if ending:
                yield _Statement(words, array, ending)
                words, array, ending = [], None, ""
            words.append(token)
        elif token == "(" and not ending and words and _is_array(words[-1]):
            array = []
            for inner in tokens:
                if inner == ")":
                    break
                if isinstance(inner, Word):
                    array.append(inner)
            ending = "\n"
        else:
            ending += token
    yield _Statement(words, array, ending)


def _is_array(word: Word) -> bool:
    return word.text.endswith("=") and len(word.pieces) == 1


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
        self.branches: list[_Branch] = []
        self.test: list[str] = []
        """Words of a condition that stands before `&&` or `||`, with that at its end."""
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
            elif text[place + 1 : place + 2].isdecimal() or text[place + 1 : place + 2] in ("@", "*"):
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
        return ""

    def variable(self, inside: str, depth: int) -> str:
        """What `${...}` is: a name, with a default behind `:-`, `-` or `:=`."""
        found = _NAME.match(inside) or re.match(r"[0-9]", inside)
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
        if word.text in ("$@", "$*"):
            return []
        if any(quoted for _, quoted in word.pieces) or "$" not in word.text:
            return [self.value(word.text)]
        found = self.value(word.text).split()
        self.left -= len(found)
        return found if self.left > 0 else []

    def run(self, text: str) -> Script:
        for each in _statements(text):
            words = self.guided(each.words, each.ending)
            if words and self.happens(words, each.ending):
                self.statement(words, each.array)
            if ";;" in each.ending and self.branches and self.branches[-1].subject is not None:
                self.branches[-1].pattern_next, self.branches[-1].active = True, False
        return self.script

    def texts(self, words: list[Word]) -> list[str]:
        """Words of a condition, each as one, with variables put in."""
        for name in (name for word in words for name in _USED.findall(word.text)):
            if name not in self.script.variables and name not in self.arrays:
                self.script.outside[name] = None
        return [self.value(word.text).replace(HIDDEN, "$") for word in words]

    def guided(self, words: list[Word], ending: str) -> list[Word]:
        """Goes into branches and out of them; returns the words that are no part of that."""
        while words:
            text = words[0].text
            branch = self.branches[-1] if self.branches else None
            if branch is not None and branch.condition is not None and text != "then":
                branch.condition += [*self.texts(words), *([ending] if ending in ("&&", "||") else [])]
                return []
            if branch is not None and branch.pattern_next and text != "esac":
                if any(matches(branch.subject or "", self.value(word.text)) for word in words):
                    branch.decide(True)
                branch.pattern_next = ")" not in ending
                return []
            if text == "if":
                self.branches.append(_Branch(condition=[]))
            elif text == "case" and len(words) > 1:
                (subject,) = self.texts(words[1:2])
                self.branches.append(_Branch(False, subject=subject, pattern_next=True))
                words = [word for word in words[1:] if word.text != "in"]
            elif branch is not None and text == "then" and branch.condition is not None:
                branch.told = " ".join(branch.condition)[:100]
                branch.decide(holds(branch.condition))
                branch.condition = None
            elif branch is not None and text == "elif":
                branch.condition, branch.active = [], True
            elif branch is not None and text == "else":
                branch.decide(None if branch.active is None else True)
            elif branch is not None and text in ("fi", "esac"):
                self.branches.pop()
            else:
                break
            words = words[1:]
        return words

    def happens(self, words: list[Word], ending: str) -> bool:
        """Tells whether a statement is gone through, and notes the conditions that leave it open."""
        around = self.branches[-MOST_BRANCHES:]
        if any(branch.active is False for branch in around):
            return False
        inside = "[[" in self.test and "]]" not in self.test
        if inside or words[0].text in BRACKETS:
            joint = [ending] if ending in ("&&", "||") else []
            if (joint or inside) and len(self.test) < MOST_BRANCHES:
                self.test += [*self.texts(words), *joint]
            else:
                self.test = []
            return False
        found: bool | None = True
        if self.test:
            found = holds(self.test[:-1])
            found = not found if found is not None and self.test[-1] == "||" else found
        told = [branch.told for branch in around if branch.active is None]
        told += [" ".join(self.test[:-1])[:100]] if found is None else []
        self.test = [*self.test[:-1], ending] if self.test and ending in ("&&", "||") else []
        if found is not False and (_ASSIGNED.fullmatch(words[0].text) or len(words) > 3):
            self.script.open_conditions |= dict.fromkeys(told)
        return found is not False

    def statement(self, statement: list[Word], array: list[Word] | None) -> None:
        exported = False
        words = list(statement)
        if array is not None:
            name = words.pop().text[:-1]
            items = [each for word in array for each in self.words(word)]
            before = self.arrays.get(name[:-1], []) if name.endswith("+") else []
            self.arrays[name.rstrip("+")] = before + items
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

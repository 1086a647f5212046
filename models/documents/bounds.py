"""Bounds on text of unknown origin: digits of a number, depth of keys, number of values.

Python refuses to convert whole numbers of more than 4,300 digits, with an error of its own that every parser passes on,
and takes memory in proportion to the square of a TOML key's parts. Each door checks text here before it is parsed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    pass

__all__ = [
    "DEEPEST",
    "MOST_DIGITS",
    "MOST_KEY_PARTS",
    "MOST_VALUES",
    "check_numbers",
    "check_toml_keys",
    "check_values",
]

MOST_DIGITS: Final = 1_000
"""Digits that one number may have; the largest float has 309."""
DEEPEST: Final = 16
"""Objects within objects that a document may have; real ones have six."""
MOST_VALUES: Final = 50_000
"""Values that a document may hold; real ones have some hundreds, measured samples some thousand."""
MOST_KEY_PARTS: Final = 50
"""Parts that a dotted key of TOML may have; real ones have four."""

# Decimal digits with Python's and TOML's underscores, other bases, and YAML's numbers to the base of 60. Each run of
# digits is tried once, from its beginning, so that the time is linear.
_LONG_NUMBER: Final = re.compile(
    rf"(?<![0-9_])[0-9][0-9_]{{{MOST_DIGITS},}}"
    rf"|(?<![0-9A-Za-z_])0[xob][0-9A-Fa-f_]{{{MOST_DIGITS},}}"
    r"|(?<![0-9:])[0-9]{1,9}(?::[0-5]?[0-9]){200,}"
)


def check_numbers(text: str, where: str, error: type[Exception]) -> None:
    """Refuses text with a number that is longer than any that is meant.

    Args:
        text: of a document, a table, a script or an option.
        where: name of the document in messages.
        error: class of the error to raise.

    Raises `error` with the place of the first such number.
    """
    found = _LONG_NUMBER.search(text)
    if found is not None:
        line = text.count("\n", 0, found.start()) + 1
        at = f" in line {line:,}" if "\n" in text.rstrip("\n") else ""
        raise error(f"{where} has a number of {len(found[0]):,} digits{at}; at most {MOST_DIGITS:,} are read.")


def check_values(document: object, where: str, error: type[Exception]) -> None:
    """Refuses a parsed document that is too deep or too full for anything that reads it next.

    Args:
        document: a parsed JSON, TOML or YAML value.
        where: name of the document in messages.
        error: class of the error to raise.

    Raises `error` beyond `DEEPEST` levels or `MOST_VALUES` values.
    """
    level, depth, values = [document], 0, 0
    while level:
        values += len(level)
        if depth > DEEPEST:
            raise error(f"{where} is nested more than {DEEPEST} levels deep and is not read.")
        if values > MOST_VALUES:
            raise error(f"{where} holds more than {MOST_VALUES:,} values and is not read.")
        inner: list[object] = []
        for each in level:
            if isinstance(each, dict):
                inner.extend(each.values())
            elif isinstance(each, list):
                inner.extend(each)
        level, depth = inner, depth + 1


def check_toml_keys(text: str, where: str, error: type[Exception]) -> None:
    """Refuses TOML with a dotted key of more than `MOST_KEY_PARTS` parts, for which `tomllib` would take gigabytes.

    Args:
        text: TOML, right or wrong.
        where: name of the document in messages.
        error: class of the error to raise.

    Raises `error` with the line of the key.
    """
    for number, line in enumerate(_without_strings(text).split("\n"), 1):
        if line.count(".") < MOST_KEY_PARTS:
            continue
        # Text between these signs is one key, or one value, whose only dot is a decimal point.
        parts = 1 + max(piece.count(".") for piece in re.split(r"[=,\[\]{}]", line))
        if parts > MOST_KEY_PARTS:
            raise error(f"{where} has a key of {parts:,} parts in line {number:,}; at most {MOST_KEY_PARTS} are read.")


def _without_strings(text: str) -> str:
    """Returns TOML with `x` for every string and nothing for every comment; lines stay. Ends at an open string."""
    found: list[str] = []
    at = 0
    for mark in _OPENING.finditer(text):
        if mark.start() < at:
            continue
        found.append(text[at : mark.start()])
        at = _end_of(text, mark)
        if mark[0] != "#":
            found.append("x")
        found.append("\n" * text.count("\n", mark.start(), at))
    found.append(text[at:])
    return "".join(found)


_OPENING: Final = re.compile(r'"""|\'\'\'|"|\'|#')


def _end_of(text: str, mark: re.Match[str]) -> int:
    """Returns where the string or comment that a mark opens is over."""
    sign, at = mark[0], mark.end()
    if sign == "#":
        end = text.find("\n", at)
        return len(text) if end < 0 else end
    closing = _CLOSING[sign].match(text, at)
    if closing is None:
        return len(text)
    return closing.start() if closing[0] == "\n" else closing.end()


_CLOSING: Final = {
    '"': re.compile(r'(?:[^"\\\n]+|\\[^\n])*+["\n]'),
    "'": re.compile(r"[^'\n]*+['\n]"),
    # Up to two quotation marks may come right before the closing ones.
    '"""': re.compile(r'(?:[^"\\]+|\\.|"(?!""))*+"{3,5}', re.DOTALL),
    "'''": re.compile(r"(?:[^']+|'(?!''))*+'{3,5}"),
}

"""Arithmetic of the shell: whole numbers of 64 bits with the operators of C.

An expression that needs a variable without a value, divides by zero or leaves 64 bits has no value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

__all__ = ["NoNumberError", "calculate_expression"]

DEEPEST: Final = 40
"""Brackets within brackets."""
LONGEST: Final = 10_000
"""Characters of an expression."""
_TOKEN: Final = re.compile(
    r"\s*(?:(\d[0-9A-Za-z@_]*(?:#[0-9A-Za-z@_]+)?)|([A-Za-z_][A-Za-z0-9_]*)|"
    r"(<<=|>>=|\*\*|<<|>>|<=|>=|==|!=|&&|\|\||\+\+|--|[-+*/%&|^]=|[-+*/%<>&|^~!?:=(),]))"
)
_LEVELS: Final = {
    "||": 3,
    "&&": 4,
    "|": 5,
    "^": 6,
    "&": 7,
    "==": 8,
    "!=": 8,
    "<": 9,
    ">": 9,
    "<=": 9,
    ">=": 9,
    "<<": 10,
    ">>": 10,
    "+": 11,
    "-": 11,
    "*": 12,
    "/": 12,
    "%": 12,
    "**": 14,
}
_ASSIGNMENTS: Final = frozenset({"=", "+=", "-=", "*=", "/=", "%=", "<<=", ">>=", "&=", "|=", "^="})
_SIGNS: Final = 2**63


class NoNumberError(ValueError):
    """An expression has no value."""


def _divide_truncated(left: int, right: int) -> int:
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


_OPERATIONS: Final[Mapping[str, Callable[[int, int], int]]] = {
    "+": int.__add__,
    "-": int.__sub__,
    "*": int.__mul__,
    "/": _divide_truncated,
    "%": lambda left, right: left - right * _divide_truncated(left, right),
    "&": int.__and__,
    "|": int.__or__,
    "^": int.__xor__,
    "<<": lambda left, right: left << right,
    ">>": lambda left, right: left >> right,
    "**": lambda left, right: left**right,
    "==": lambda left, right: int(left == right),
    "!=": lambda left, right: int(left != right),
    "<": lambda left, right: int(left < right),
    ">": lambda left, right: int(left > right),
    "<=": lambda left, right: int(left <= right),
    ">=": lambda left, right: int(left >= right),
}


class _Parser:
    def __init__(self, text: str, read: Callable[[str], int], write: Callable[[str, int], None]) -> None:
        self.tokens: list[str] = []
        self.place = 0
        self.read = read
        self.write = write
        self.is_idle = False
        """True in a branch that is skipped: its variables are neither read nor set."""
        place = 0
        text = text.rstrip()
        if len(text) > LONGEST:
            raise NoNumberError(text[:40])
        while place < len(text):
            found = _TOKEN.match(text, place)
            if found is None:
                raise NoNumberError(text[:40])
            self.tokens.append(found[1] or found[2] or found[3])
            place = found.end()

    def next(self) -> str:
        return self.tokens[self.place] if self.place < len(self.tokens) else ""

    def take(self) -> str:
        token = self.next()
        self.place += 1
        return token

    def comma(self, depth: int) -> int:
        value = self.assigned(depth)
        while self.next() == ",":
            self.take()
            value = self.assigned(depth)
        return value

    def assigned(self, depth: int) -> int:
        if depth > DEEPEST:
            raise NoNumberError("deep")
        name, sign = self.next(), self.tokens[self.place + 1] if self.place + 1 < len(self.tokens) else ""
        if sign in _ASSIGNMENTS and name.isidentifier():
            self.place += 2
            value = self.assigned(depth + 1)
            if sign != "=":
                value = self.calculated(sign[:-1], 0 if self.is_idle else self.read(name), value)
            if not self.is_idle:
                self.write(name, value)
            return value
        return self.choice(depth)

    def choice(self, depth: int) -> int:
        condition = self.binary(3, depth)
        if self.next() != "?":
            return condition
        self.take()
        first = self.passed(not condition, lambda: self.assigned(depth + 1))
        if self.take() != ":":
            raise NoNumberError("?")
        second = self.passed(bool(condition), lambda: self.assigned(depth + 1))
        return first if condition else second

    def passed(self, over: bool, parse: Callable[[], int]) -> int:
        before, self.is_idle = self.is_idle, self.is_idle or over
        try:
            return parse()
        finally:
            self.is_idle = before

    def binary(self, level: int, depth: int) -> int:
        left = self.unary(depth)
        while (sign := self.next()) in _LEVELS and _LEVELS[sign] >= level:
            self.take()
            # ** groups from the right, all others from the left.
            following = _LEVELS[sign] + (sign != "**")
            if depth > DEEPEST:
                raise NoNumberError("deep")
            if sign == "&&":
                right = self.passed(not left, lambda at=following: self.binary(at, depth + 1))  # type: ignore[misc]
                left = int(bool(left) and bool(right))
            elif sign == "||":
                right = self.passed(bool(left), lambda at=following: self.binary(at, depth + 1))  # type: ignore[misc]
                left = int(bool(left) or bool(right))
            else:
                left = self.calculated(sign, left, self.binary(following, depth + 1))
        return left

    def calculated(self, sign: str, left: int, right: int) -> int:
        if self.is_idle:
            return 0
        if (sign in ("/", "%") and right == 0) or (sign in ("**", "<<", ">>") and not 0 <= right < 64):
            raise NoNumberError(sign)
        return self.bounded(_OPERATIONS[sign](left, right))

    @staticmethod
    def bounded(value: int) -> int:
        if not -_SIGNS <= value < _SIGNS:
            raise NoNumberError("64 bits")
        return value

    def unary(self, depth: int) -> int:
        if depth > DEEPEST:
            raise NoNumberError("deep")
        token = self.take()
        if token == "(":
            value = self.comma(depth + 1)
            if self.take() != ")":
                raise NoNumberError("(")
        elif token in ("++", "--") and self.next().isidentifier():
            name = self.take()
            value = self.changed(name, 1 if token == "++" else -1)
        elif token in ("-", "+", "!", "~", "++", "--"):
            value = self.unary(depth + 1)
            value = {"-": -value, "!": int(not value), "~": ~value}.get(token, value)
        elif token.isidentifier():
            if self.next() in ("++", "--"):
                step = 1 if self.take() == "++" else -1
                value = self.changed(token, step) - step
            else:
                value = 0 if self.is_idle else self.read(token)
        else:
            value = self.bounded(_parse_number(token))
        return value

    def changed(self, name: str, step: int) -> int:
        if self.is_idle:
            return 0
        value = self.bounded(self.read(name) + step)
        self.write(name, value)
        return value


def _parse_number(token: str) -> int:
    if not token or len(token) > 40:
        raise NoNumberError(token[:40])
    base, sign, digits = token.partition("#")
    try:
        if sign:
            if not 2 <= int(base) <= 36:
                raise NoNumberError(token)
            return int(digits, int(base))
        if token[:2] in ("0x", "0X"):
            return int(token[2:], 16)
        return int(token, 8 if token.startswith("0") and len(token) > 1 else 10)
    except ValueError:
        raise NoNumberError(token) from None


def calculate_expression(text: str, read: Callable[[str], int], write: Callable[[str, int], None]) -> int:
    """Returns the value of an expression.

    Args:
        text: of the expression, its `$` variables put in.
        read: returns the number that a variable holds; raises `NoNumberError` where it has none.
        write: sets a variable, as `i++` and `n = 2` do.

    Raises `NoNumberError` for an expression without a value.
    """
    parser = _Parser(text, read, write)
    if not parser.tokens:
        return 0
    value = parser.comma(0)
    if parser.place < len(parser.tokens):
        raise NoNumberError(text[:40])
    return value

"""Conditions of shell scripts, as far as words and numbers decide them; what needs a machine stays open."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from engine.launch.shell.patterns import Pattern

__all__ = ["Operand", "holds"]

Operand = tuple[list[tuple[str, bool]], str | None]
"""A word of a condition: its pieces of text, each with whether it was quoted, and its text; None without a value."""
_NUMBERS: Final[Mapping[str, Callable[[int, int], bool]]] = {
    "-eq": int.__eq__, "-ne": int.__ne__, "-gt": int.__gt__, "-ge": int.__ge__, "-lt": int.__lt__, "-le": int.__le__,
}  # fmt: skip
_NUMBER: Final = re.compile(r"[+-]?\d{1,18}")


def holds(operands: Sequence[Operand | str], has_patterns: bool) -> bool | None:
    """Returns whether a condition holds, None where its words do not decide it.

    Args:
        operands: words between the brackets; operators (`&&`, `||`, `(`, `)`, `!`) as text.
        has_patterns: whether the right side of `=` is a pattern, as in `[[ ... ]]`, not a word.
    """
    stack: list[list[bool | str | None]] = [[]]
    place = 0
    while place < len(operands):
        operand = operands[place]
        if operand == "(":
            stack.append([])
            place += 1
        elif operand == ")":
            if len(stack) == 1:
                return None
            value = _combined(stack.pop())
            stack[-1].append(value)
            place += 1
        elif isinstance(operand, str):
            stack[-1].append(operand)
            place += 1
        else:
            end = place
            while end < len(operands) and not isinstance(operands[end], str):
                end += 1
            stack[-1].append(_single([each for each in operands[place:end] if not isinstance(each, str)], has_patterns))
            place = end
    return _combined(stack[0]) if len(stack) == 1 else None


def _combined(terms: Sequence[bool | str | None]) -> bool | None:
    """Returns the value of terms joined by `!`, `&&` (which binds closer) and `||`."""
    either: bool | None = False
    both: bool | None = True
    negated = False
    is_value_next = True
    for term in terms:
        if isinstance(term, str):
            if term == "!" and is_value_next:
                negated = not negated
            elif term == "&&" and not is_value_next:
                is_value_next = True
            elif term == "||" and not is_value_next:
                either, both, is_value_next = _either(either, both), True, True
            else:
                return None
        elif not is_value_next:
            return None
        else:
            value = not term if negated and term is not None else term
            negated, is_value_next = False, False
            both = False if both is False or value is False else None if None in (both, value) else True
    return None if is_value_next and terms else _either(either, both) if terms else False


def _either(left: bool | None, right: bool | None) -> bool | None:
    return True if left or right else None if None in (left, right) else False


def _single(words: Sequence[Operand], has_patterns: bool) -> bool | None:
    texts = [text for _, text in words]
    if len(words) == 1:
        return None if texts[0] is None else bool(texts[0])
    if len(words) == 2 and texts[0] in ("-z", "-n"):
        return None if texts[1] is None else (texts[0] == "-n") == bool(texts[1])
    if len(words) != 3 or None in texts:
        return None
    left, sign, right = (text or "" for text in texts)
    if sign in ("=", "==", "!="):
        if not has_patterns:
            return (left == right) == (sign != "!=")
        pattern = Pattern(words[2][0])
        return pattern.matches(left) == (sign != "!=") if pattern.can_match(left) else None
    if sign in ("<", ">"):
        return None
    if sign in _NUMBERS and _NUMBER.fullmatch(left.strip()) and _NUMBER.fullmatch(right.strip()):
        return _NUMBERS[sign](int(left), int(right))
    return None

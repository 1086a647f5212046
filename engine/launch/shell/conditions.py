"""Conditions of shell scripts, as far as words and numbers decide them; tests of files or programs stay open."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from engine.launch.shell.expansion import Expander, ScriptSpot
from engine.launch.shell.patterns import ShellPattern
from engine.launch.shell.source import Raw
from engine.launch.shell.state import State
from engine.launch.shell.values import has_hole

__all__ = ["Conditions", "Operand"]

Operand = tuple[list[tuple[str, bool]], str | None]
"""A word of a condition: its pieces of text, each with whether it was quoted, and its text; None without a value."""
_NUMBERS: Final[Mapping[str, Callable[[int, int], bool]]] = {
    "-eq": int.__eq__,
    "-ne": int.__ne__,
    "-gt": int.__gt__,
    "-ge": int.__ge__,
    "-lt": int.__lt__,
    "-le": int.__le__,
}
_NUMBER: Final = re.compile(r"[+-]?\d{1,18}")


def evaluate_condition(operands: Sequence[Operand | str], has_patterns: bool) -> bool | None:
    """Return whether a condition holds, None if its words do not decide it.

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
            value = _combine_terms(stack.pop())
            stack[-1].append(value)
            place += 1
        elif isinstance(operand, str):
            stack[-1].append(operand)
            place += 1
        else:
            end = place
            while end < len(operands) and not isinstance(operands[end], str):
                end += 1
            stack[-1].append(
                _evaluate_test([each for each in operands[place:end] if not isinstance(each, str)], has_patterns)
            )
            place = end
    return _combine_terms(stack[0]) if len(stack) == 1 else None


def _combine_terms(terms: Sequence[bool | str | None]) -> bool | None:
    """Return the value of terms joined by `!`, `&&` (which binds closer) and `||`."""
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
                either, both, is_value_next = _either_holds(either, both), True, True
            else:
                return None
        elif not is_value_next:
            return None
        else:
            value = not term if negated and term is not None else term
            negated, is_value_next = False, False
            both = False if both is False or value is False else None if None in (both, value) else True
    return None if is_value_next and terms else _either_holds(either, both) if terms else False


def _either_holds(left: bool | None, right: bool | None) -> bool | None:
    return True if left or right else None if None in (left, right) else False


def _evaluate_test(words: Sequence[Operand], has_patterns: bool) -> bool | None:
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
        pattern = ShellPattern(words[2][0])
        return pattern.matches(left) == (sign != "!=") if pattern.can_match(left) else None
    if sign in ("<", ">"):
        return None
    if sign in _NUMBERS and _NUMBER.fullmatch(left.strip()) and _NUMBER.fullmatch(right.strip()):
        return _NUMBERS[sign](int(left), int(right))
    return None


class Conditions:
    """Evaluates conditions and patterns with the variables of a state."""

    def __init__(self, state: State, expander: Expander) -> None:
        self.state = state
        self.expander = expander

    def matches_any(self, text: str | None, patterns: Iterable[Raw]) -> bool | None:
        """Return whether a text matches one of the patterns of a `case` item, None if that is open."""
        outcome: bool | None = False
        for raw in patterns:
            pieces = self.expander.operand(self.expander.pieces(raw.text), raw.spot)
            pattern = ShellPattern(pieces)
            if [part for part, _ in pieces] == ["*"]:
                return True
            if text is None or any(has_hole(part) for part, _ in pieces) or not pattern.can_match(text):
                outcome = None
            elif pattern.matches(text):
                return True
        return outcome

    def known_text(self, pieces: Sequence[tuple[str, bool]]) -> str | None:
        """Return the text of a condition's word, None if it is open. Variables of the environment count as empty."""
        text = "".join(part for part, _ in pieces)
        if not has_hole(text):
            return text
        for hole in self.state.holes.within(text):
            if hole.name:
                self.state.outside[hole.name] = None
            elif not (hole.is_argument and self.state.has_no_arguments):
                return None
        return self.state.holes.without_any(text)

    def evaluate_words(self, words: Sequence[tuple[str, ScriptSpot]], is_double: bool) -> bool | None:
        """Return whether the words of `[ ... ]` or `[[ ... ]]` hold, None if that is open."""
        operands: list[Operand | str] = []
        self.state.work.spend(5 * len(words))
        for raw, spot in words:
            is_first = not operands or isinstance(operands[-1], str)
            if raw in ("&&", "||", "(", ")") or (raw == "!" and is_first):
                operands.append(raw)
            elif raw in ("\\(", "\\)"):
                operands.append(raw[1])
            elif raw in ("-a", "-o") and not is_first and not is_double:
                operands.append("&&" if raw == "-a" else "||")
            elif raw != "\n":
                pieces = self.expander.operand(self.expander.pieces(raw), spot)
                operands.append((pieces, self.known_text(pieces)))
        return evaluate_condition(operands, is_double)

"""Pieces of words with variables put in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from engine.launch.shell.arithmetic import NoNumberError, calculate_expression
from engine.launch.shell.patterns import ShellPattern
from engine.launch.shell.state import State
from engine.launch.shell.values import Array, Segment, Value, has_hole, join_values, text_of
from engine.launch.shell.words import (
    ArithmeticExpansion,
    Literal,
    ParameterExpansion,
    Piece,
    Unreadable,
    parse_text,
    parse_word,
)

__all__ = ["Expander", "ScriptSpot"]

DEEPEST: Final = 12
"""Variables within numbers of an expression."""
CACHED: Final = 2_000
"""Characters of words whose pieces are remembered."""


class ScriptSpot(NamedTuple):
    """Place of a word. In text from a variable, all rows of a word have the same line."""

    line: int
    file: str
    counts_rows: bool = True

    def at(self, row: int) -> int:
        """Returns the line of a row of the word."""
        return self.line + row if self.counts_rows else self.line


class ChosenPieces(NamedTuple):
    """Pieces behind the operator of `${X:-d}`, to be read in its place."""

    pieces: tuple[Piece, ...]
    default: str = ""
    """The expression, where this is the script's default."""


class Expander:
    """Puts the variables of a state into words."""

    def __init__(self, state: State) -> None:
        self.state = state

    def pieces(self, raw: str) -> tuple[Piece, ...]:
        """Returns the pieces of a word as it is written."""
        self.state.work.spend(2 + len(raw) // 8)
        return parse_word(raw) if len(raw) <= CACHED else parse_word.__wrapped__(raw)

    def value(self, pieces: Iterable[Piece], spot: ScriptSpot) -> Value:
        """Returns pieces as one value, as on the right of an assignment."""
        found: list[Segment] = []
        for piece in pieces:
            if isinstance(piece, Literal):
                _append_segments(found, (Segment(piece.text, spot.at(piece.row), spot.file),))
            else:
                _append_segments(found, self._as_value(self._expanded(piece, spot), spot))
        self.state.work.copy(sum([len(each.text) for each in found]) + 64 * len(found))
        return tuple(found)

    def text_value(self, text: str, spot: ScriptSpot) -> Value:
        """Returns text in which quotes are letters, such as a here-document, with its variables put in."""
        self.state.work.spend(2 + len(text) // 8)
        return self.value(parse_text(text), spot)

    def operand(self, pieces: Iterable[Piece], spot: ScriptSpot) -> list[tuple[str, bool]]:
        """Returns the texts of a condition's word or of a pattern, each with whether it was quoted."""
        found: list[tuple[str, bool]] = []
        for piece in pieces:
            if isinstance(piece, Literal):
                found.append((piece.text, piece.is_quoted))
            else:
                given = self._expanded(piece, spot)
                if isinstance(given, ChosenPieces):
                    found += self.operand(given.pieces, spot)
                else:
                    found.append((text_of(self._as_value(given, spot)), piece.is_quoted))
        self.state.work.copy(sum([len(text) for text, _ in found]))
        return found

    def fields(self, pieces: Sequence[Piece], spot: ScriptSpot) -> list[Value]:
        """Returns the words that a word becomes: values without quotes are split, arrays are many."""
        done: list[Value] = []
        current: list[Segment] | None = None

        def close() -> None:
            nonlocal current
            if current is not None:
                done.append(tuple(current))
                current = None

        stack = [(iter(pieces), "")]
        while stack:
            piece = next(stack[-1][0], None)
            default = stack[-1][1]
            if piece is None:
                stack.pop()
                continue
            self.state.work.spend(3)
            if isinstance(piece, Literal):
                current = [] if current is None else current
                _append_segments(current, (Segment(piece.text, spot.at(piece.row), spot.file, default),))
                continue
            given = self._expanded(piece, spot)
            if isinstance(given, ChosenPieces):
                stack.append((iter(given.pieces), given.default or default))
                continue
            for place, value in enumerate(given if isinstance(given, list) else [given]):
                if place:
                    close()
                if piece.is_quoted:
                    current = [] if current is None else current
                    _append_segments(current, value)
                    self.state.work.copy(64 * len(value))
                    continue
                for segment in value:
                    for is_new, text in self._split(segment.text):
                        if is_new:
                            close()
                        if text is not None:
                            current = [] if current is None else current
                            _append_segments(current, (segment._replace(text=text),))
            if piece.is_quoted and not isinstance(given, list):
                current = [] if current is None else current
        close()
        self.state.work.spend(len(done))
        return done

    def _split(self, text: str) -> list[tuple[bool, str | None]]:
        """Returns the parts of an unquoted text; True begins a new word, None adds nothing to it."""
        self.state.work.copy(len(text))
        separators = self.state.variables.get("IFS")
        signs = text_of(separators) if isinstance(separators, tuple) else " \t\n"
        if not text or not signs or has_hole(signs):
            return [(False, text)] if text else []
        if not signs.strip():
            parts: list[str] = text.split() if signs == " \t\n" else re.split(f"[{re.escape(signs)}]+", text)
            starts, ends = text[0] in signs, text[-1] in signs
            parts = [each for each in parts if each]
        else:
            parts = re.split(f"[{re.escape(signs)}]", text)
            starts, ends = False, text[-1] in signs
            parts = parts[:-1] if ends else parts
        self.state.work.spend(len(parts))
        found: list[tuple[bool, str | None]] = [(starts or place > 0, part) for place, part in enumerate(parts)]
        if (not found and starts) or ends:
            found.append((True, None))
        return found

    def _as_value(self, given: Value | list[Value] | ChosenPieces, spot: ScriptSpot) -> Value:
        if isinstance(given, ChosenPieces):
            value = self.value(given.pieces, spot)
            return tuple(
                each if each.default or not given.default else each._replace(default=given.default) for each in value
            )
        return join_values(given) if isinstance(given, list) else given

    def _expanded(self, piece: Piece, spot: ScriptSpot) -> Value | list[Value] | ChosenPieces:
        self.state.work.spend(4)
        line = spot.at(piece.row)
        if isinstance(piece, ParameterExpansion):
            return self._parameter(piece, spot)
        if isinstance(piece, ArithmeticExpansion):
            number = self.number(piece.inside, spot)
            if number is None:
                return self.state.hole(piece.source, line, spot.file)
            return (Segment(str(number), line, spot.file),)
        source = piece.source if isinstance(piece, Unreadable) else ""
        return self.state.hole(source, line, spot.file)

    def number(self, text: str, spot: ScriptSpot) -> int | None:
        """Returns the value of an arithmetic expression, None where it has none."""
        given = text_of(self.text_value(text, spot)) if "$" in text or "`" in text else text
        self.state.work.spend(5 + len(given) // 4)
        if self.state.has_no_arguments and all(each.is_argument for each in self.state.holes.within(given)):
            given = self.state.holes.without_any(given)
        if has_hole(given):
            return None
        try:
            return calculate_expression(
                given.replace('"', ""),
                lambda name: self._numeric(name, 0),
                lambda name, number: self._write(name, number, spot),
            )
        except NoNumberError:
            return None

    def _write(self, name: str, number: int, spot: ScriptSpot) -> None:
        self.state.put(name, (Segment(str(number), spot.line, spot.file),))

    def _numeric(self, name: str, depth: int) -> int:
        value = self.state.variables.get(name)
        if isinstance(value, Array):
            value = value.items.get(0, ())
        if value is None or depth > DEEPEST:
            raise NoNumberError(name)
        text = text_of(value)
        if has_hole(text):
            raise NoNumberError(name)
        self.state.work.spend(5 + len(text) // 4)
        return calculate_expression(text, lambda inner: self._numeric(inner, depth + 1), _write_nothing)

    def _parameter(self, given: ParameterExpansion, spot: ScriptSpot) -> Value | list[Value] | ChosenPieces:
        line = spot.at(given.row)
        state = self.state
        unknown = state.hole(given.source, line, spot.file)
        if given.is_indirect:
            return self._indirect(given, spot, unknown)
        current = self._current(given, spot)
        operator = given.operator
        if current is None and self._is_absent(given, spot):
            return self._of_absent(given, spot)
        if given.is_length:
            return self._length(given, current, line, spot.file, unknown)
        absent = state.unset(given.source, given.name, line, spot.file)
        if not operator:
            return absent if current is None else current
        if operator in ("-", ":-", "=", ":=", "+", ":+", "?", ":?"):
            return self._chosen(given, current, absent, spot)
        if current is None or (isinstance(current, tuple) and has_hole(text_of(current))):
            holes = state.holes.within(text_of(current)) if isinstance(current, tuple) else []
            is_argument = bool(holes) and all(each.is_argument for each in holes)
            return absent if current is None else state.hole(given.source, line, spot.file, is_argument=is_argument)
        if operator == ":":
            return self._part(given, current, spot, unknown)
        changed: list[Value] = []
        for value in current if isinstance(current, list) else [current]:
            found = None if has_hole(text_of(value)) else self._changed(given, value, spot)
            if found is None:
                return unknown
            changed.append(found)
        return changed if isinstance(current, list) else changed[0]

    def _is_absent(self, given: ParameterExpansion, spot: ScriptSpot) -> bool:
        """Returns whether a variable without a value is known to have none."""
        if given.name.isdecimal() and given.name != "0":
            return self.state.arguments is not None and not self._has_open_arguments()
        return given.name in self.state.variables

    def _of_absent(self, given: ParameterExpansion, spot: ScriptSpot) -> Value | ChosenPieces:
        """Returns what `${X...}` is of a variable that has no value."""
        if given.is_length:
            return (Segment("0", spot.at(given.row), spot.file),)
        if given.operator in ("=", ":="):
            value = self.value(given.rest, spot)
            self.state.put(given.name, value)
            return value
        return ChosenPieces(given.rest) if given.operator in ("-", ":-") else ()

    def _current(self, given: ParameterExpansion, spot: ScriptSpot) -> Value | list[Value] | None:
        """Returns what a variable holds, several values for all of an array, None where it is not set."""
        name, state = given.name, self.state
        if name in ("@", "*"):
            if state.arguments is None:
                return None
            return list(state.arguments) if name == "@" or not given.is_quoted else join_values(state.arguments)
        if name == "#":
            return (
                None
                if state.arguments is None or self._has_open_arguments()
                else self._plain(len(state.arguments), given, spot)
            )
        if name.isdecimal() and name != "0":
            return self._argument(int(name[:6]))
        value = state.variables.get(name)
        if given.index is None:
            return value.items.get(0) if isinstance(value, Array) else value
        if given.index in ("@", "*"):
            if value is None:
                return None
            items = list(value.items.values()) if isinstance(value, Array) else [value]
            state.work.spend(len(items))
            return items if given.index == "@" or not given.is_quoted else join_values(items)
        if value is None:
            return None
        if isinstance(value, Array):
            key = self.key(given.index, value, spot)
            if key is None or (key not in value.items and isinstance(key, str) and has_hole(key)):
                return state.hole(given.source, spot.at(given.row), spot.file)
            return value.items.get(key)
        return value if self.number(given.index, spot) == 0 else None

    def key(self, index: str, array: Array | None, spot: ScriptSpot) -> int | str | None:
        """Returns the key of an array's item, None where it has no value."""
        if array is not None and array.is_map:
            return text_of(self.value(self.pieces(index), spot))
        number = self.number(index, spot)
        if number is not None and number < 0 and array is not None:
            number += 1 + max([each for each in array.items if isinstance(each, int)], default=-1)
        return number

    def _plain(self, number: int, given: ParameterExpansion, spot: ScriptSpot) -> Value:
        return (Segment(str(number), spot.at(given.row), spot.file),)

    def _argument(self, number: int) -> Value | None:
        arguments = self.state.arguments
        if arguments is None:
            return None
        for place, value in enumerate(arguments[:number], 1):
            if self._is_many(value):  # arguments of the caller, nobody knows how many
                return None
            if place == number:
                return value
        return None

    def _is_many(self, value: Value) -> bool:
        text = text_of(value)
        if len(text) != 1:
            return False
        return any(
            each.is_argument and each.expression.strip('"${}[]') in ("@", "*") for each in self.state.holes.within(text)
        )

    def _has_open_arguments(self) -> bool:
        return any(self._is_many(value) for value in self.state.arguments or ())

    def _indirect(
        self, given: ParameterExpansion, spot: ScriptSpot, unknown: Value
    ) -> Value | list[Value] | ChosenPieces:
        value = self.state.variables.get(given.name)
        if given.index in ("@", "*") and isinstance(value, Array):
            line = spot.at(given.row)
            self.state.work.spend(len(value.items))
            return [(Segment(str(key), line, spot.file),) for key in value.items]
        name = text_of(value) if isinstance(value, tuple) else ""
        if given.index is None and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            return self._parameter(
                ParameterExpansion(
                    given.source, name, given.is_quoted, given.row, None, given.operator, given.rest, given.rest_source
                ),
                spot,
            )
        return unknown

    def _length(
        self, given: ParameterExpansion, current: Value | list[Value] | None, line: int, file: str, unknown: Value
    ) -> Value:
        if current is None and given.index is None and given.name not in ("@", "*"):
            return unknown
        if current is None:
            return self.state.hole(given.source, line, file, is_argument=given.name in ("@", "*"))
        if given.index in ("@", "*") or given.name in ("@", "*"):
            values = current if isinstance(current, list) else [current]
            is_open = any(self._is_many(value) for value in values)
            return unknown if is_open else (Segment(str(len(values)), line, file),)
        text = text_of(current if isinstance(current, tuple) else join_values(current))
        return unknown if has_hole(text) else (Segment(str(len(text)), line, file),)

    def _chosen(
        self, given: ParameterExpansion, current: Value | list[Value] | None, absent: Value, spot: ScriptSpot
    ) -> Value | list[Value] | ChosenPieces:
        """Returns what `${X:-d}` and its like choose."""
        state, operator = self.state, given.operator
        text = None if current is None else text_of(join_values(current) if isinstance(current, list) else current)
        if text is None or state.is_nothing(text):
            holes = state.holes.within(text if text is not None else text_of(absent))
            hole = holes[0] if holes else None
            is_known_absent = hole is not None and (hole.is_argument or bool(hole.name))
            if not is_known_absent or operator in ("?", ":?"):
                return absent if current is None else current
            if operator in ("+", ":+"):
                if hole is not None and hole.name:
                    state.outside[hole.name] = None
                    return ()
                return state.hole(given.source, spot.at(given.row), spot.file, is_argument=True)
            return self._default(given, spot)
        is_empty = not text and operator.startswith(":")
        if operator in ("+", ":+"):
            if is_empty:
                return ()
            if has_hole(text) and operator == ":+" and not re.sub("[\ue000-\uf8ff]", "", text):
                return state.hole(given.source, spot.at(given.row), spot.file)
            return ChosenPieces(given.rest)
        if is_empty and operator == ":=":
            value = self.value(given.rest, spot)
            state.put(given.name, value)
            return value
        if is_empty and operator == ":-":
            return ChosenPieces(given.rest)
        return current if current is not None else absent

    def _default(self, given: ParameterExpansion, spot: ScriptSpot) -> Value | ChosenPieces:
        chosen = ChosenPieces(given.rest, given.source[:80])
        if given.operator in ("=", ":=") and re.fullmatch(r"[A-Za-z_]\w*", given.name):
            value = self._as_value(chosen, spot)
            self.state.put(given.name, value)
            return value
        return chosen

    def _part(
        self, given: ParameterExpansion, current: Value | list[Value], spot: ScriptSpot, unknown: Value
    ) -> Value | list[Value]:
        """Returns `${X:start:length}`."""
        start_text, colon, length_text = given.rest_source.partition(":")
        start = self.number(start_text, spot)
        length = self.number(length_text, spot) if colon else None
        if start is None or (colon and length is None):
            return unknown
        if isinstance(current, list):
            if given.name == "@":
                if start < 1 or self._has_open_arguments():
                    return unknown
                start -= 1
            size = len(current)
        else:
            size = len(text_of(current))
        start = start + size if start < 0 else start
        if start < 0:
            return ()
        end = size if length is None else start + length if length >= 0 else size + length
        return current[start:end] if isinstance(current, list) else _cut_value(current, start, end)

    def _changed(self, given: ParameterExpansion, value: Value, spot: ScriptSpot) -> Value | None:
        """Returns a value without a pattern, with something replaced or in other letters; None where that is open."""
        operator, text = given.operator, text_of(value)
        if operator[0] in "#%":
            pieces = self.operand(given.rest, spot)
            pattern = ShellPattern(pieces)
            if any(has_hole(each) for each, _ in pieces) or not pattern.can_match(text):
                return None
            self.state.work.spend(len(text) * max(1, sum(len(each) for each, _ in pieces)) // 4)
            ends = pattern.suffix if operator[0] == "%" else pattern.prefix
            length = ends(text, len(operator) == 2)
            if length is None:
                return value
            return (
                _cut_value(value, 0, len(text) - length) if operator[0] == "%" else _cut_value(value, length, len(text))
            )
        if operator in ("/", "//"):
            found = re.match(r"((?:[^\\/'\"$]|\\.)+)(?:/(.*))?$", given.rest_source, re.DOTALL)
            if found is None or re.search(r"[*?\[]", found[1].replace("\\", "")):
                return None
            old = re.sub(r"\\(.)", r"\1", found[1], flags=re.DOTALL)
            new = text_of(self.value(self.pieces(found[2] or ""), spot))
            if new.startswith("&") or "&" in new:
                return None
            self.state.work.copy(len(text) + len(new) * (text.count(old) if operator == "//" else 1))
            changed = text.replace(old, new, -1 if operator == "//" else 1)
            return (Segment(changed, value[0].line, value[0].file),) if value else ()
        if operator in ("^", "^^", ",", ",,") and not given.rest:
            change = str.upper if operator[0] == "^" else str.lower
            self.state.work.copy(len(text))
            if len(operator) == 2:
                return tuple(each._replace(text=change(each.text)) for each in value)
            return (*_change_first(value, change),)
        return None


def _change_first(value: Value, change: object) -> Value:
    if not value:
        return value
    first = value[0]
    changed = change(first.text[:1])  # type: ignore[operator]
    return (first._replace(text=changed + first.text[1:]), *value[1:])


def _append_segments(found: list[Segment], value: Value) -> None:
    """Append segments; segments of one line are joined."""
    for each in value:
        if not each.text:
            continue
        last = found[-1] if found else None
        if last is not None and last[1:] == each[1:] and len(last.text) < 1_000:
            found[-1] = last._replace(text=last.text + each.text)
        else:
            found.append(each)


def _cut_value(value: Value, start: int, end: int) -> Value:
    found: list[Segment] = []
    place = 0
    for each in value:
        text = each.text[max(0, start - place) : max(0, end - place)]
        if text:
            found.append(each._replace(text=text))
        place += len(each.text)
    return tuple(found)


def _write_nothing(_name: str, _number: int) -> None:
    """Numbers within variables set nothing."""

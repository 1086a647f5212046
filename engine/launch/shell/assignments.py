"""Assignments and declarations of shell variables, and commands that read variables from input."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from engine.launch.shell.expansion import Expander, ScriptSpot
from engine.launch.shell.source import Raw
from engine.launch.shell.state import State
from engine.launch.shell.values import Array, Segment, Value, text_of, without_start
from engine.launch.shell.words import COMMAND_ENDS, split_words

__all__ = ["ASSIGNMENT", "InputUse", "VariableAssignments"]

ASSIGNMENT: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:\[([^\]\n]{0,200})\])?(\+?)=(.*)", re.DOTALL)
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class InputUse(NamedTuple):
    """Use of a here-document by `read` and the like."""

    name: str
    """Variable that takes the whole text; empty if several variables or loops divide it."""
    joins_lines: bool
    """True if a backslash joins a line to the next one."""


class VariableAssignments:
    """Sets the variables of a state as assignments, `declare`, `export` and `read` do."""

    def __init__(self, state: State, expander: Expander) -> None:
        self.state = state
        self.expander = expander

    def read_names(self, command: str, fields: Sequence[Value], spot: ScriptSpot) -> InputUse:
        """Set the variables that `read`, `mapfile` or `getopts` fills to unknown values; return the use of input."""
        texts = [text_of(each) for each in fields]
        names = [each for each in texts if _NAME.fullmatch(each)]
        if command == "getopts":
            names = names[-1:] if len(names) > 1 or (texts and not _NAME.fullmatch(texts[0])) else texts[1:2]
        options = "".join(each[1:] for each in texts if each.startswith("-"))
        reads_all = command == "read" and "-a" not in texts and "d" in options and "" in texts
        for name in names or (["MAPFILE"] if command != "read" else ["REPLY"]):
            hole = self.state.hole(f"${name}", spot.line, spot.file, is_argument=command == "getopts")
            self.state.put(name, Array({0: hole}) if command in ("mapfile", "readarray") or "-a" in texts else hole)
        return InputUse(names[0] if reads_all and len(names) == 1 else "", "r" not in options)

    def declare_variables(self, words: Sequence[Raw], how: str) -> None:
        """Set the variables of `declare`, `export`, `local`, `readonly` or `typeset`."""
        options = "".join(each.text[1:] for each in words[1:] if each.text.startswith("-"))
        is_exported = how == "export" or "x" in options
        for each in words[1:]:
            if each.text.startswith("-"):
                continue
            if ASSIGNMENT.match(each.text) is not None:
                self.assign_variable(each, is_exported=is_exported, is_map="A" in options, is_number="i" in options)
            elif _NAME.fullmatch(each.text):
                if is_exported:
                    self.state.exported[each.text] = None
                elif ("A" in options or "a" in options) and each.text not in self.state.variables:
                    self.state.put(each.text, Array({}, "A" in options))
                elif how == "local":
                    self.state.remove(each.text)
            elif "$" in each.text:
                for value in self.expander.fields(self.expander.pieces(each.text), each.spot):
                    text = text_of(value)
                    name, equals, _ = text.partition("=")
                    if equals and _NAME.fullmatch(name):
                        self._set_variable(name, without_start(value, len(name) + 1), is_exported)

    def assign_variable(self, word: Raw, *, is_exported: bool, is_map: bool = False, is_number: bool = False) -> None:
        """Set the variable of `NAME=value`, `NAME+=value` or `NAME[key]=value`."""
        found = ASSIGNMENT.match(word.text)
        if found is None:
            return
        name, index, more, text = found[1], found[2], found[3], found[4]
        before = self.state.variables.get(name)
        if index is None and text.startswith("("):
            array = before if isinstance(before, Array) else Array({0: before} if before is not None and more else {})
            array = array if more else Array({}, array.is_map or is_map)
            self.state.put(name, self._parse_array(text, word.spot, array))
            return
        spot = word.spot
        value = self.expander.value(self.expander.pieces(text), spot)
        if index is not None:
            array = before if isinstance(before, Array) else Array({} if before is None else {0: before}, is_map)
            key = self.expander.key(index, array, spot)
            if key is not None:
                old = array.items.get(key, ()) if more else ()
                self.state.put(name, Array({**array.items, key: (*old, *value)}, array.is_map))
            else:
                self.state.put(name, Array({0: self.state.hole(f"${{{name}[@]}}", spot.line, spot.file)}))
            return
        if is_number and not more:
            number = self.expander.number(text_of(value), spot)
            value = (
                self.state.hole(f"${name}", spot.line, spot.file)
                if number is None
                else (Segment(str(number), spot.line, spot.file),)
            )
        if more and before is None:
            value = (*self._value_elsewhere(name, spot), *value)
        if more and isinstance(before, Array):
            self.state.put(name, Array({**before.items, 0: (*before.items.get(0, ()), *value)}, before.is_map))
            return
        if more and isinstance(before, tuple):
            self.state.work.copy(64 * len(before))
            value = (*before, *value)
        self._set_variable(name, value, is_exported)

    def _value_elsewhere(self, name: str, spot: ScriptSpot) -> Value:
        """Return an unknown value for a variable that a missing file may set, else an empty one."""
        return self.state.hole(f"${name}", spot.line, spot.file) if self.state.may_be_set_elsewhere else ()

    def _set_variable(self, name: str, value: Value, is_exported: bool) -> None:
        self.state.put(name, value)
        if is_exported:
            self.state.exported[name] = None

    def _parse_array(self, text: str, spot: ScriptSpot, before: Array) -> Array:
        items = dict(before.items)
        self.state.work.spend(len(items) + len(text) // 4)
        following = max([each for each in items if isinstance(each, int)], default=-1) + 1
        inside = text[1:-1] if text.endswith(")") else text[1:]
        rows, seen = 0, 0
        for place, raw in split_words(inside):
            if raw in COMMAND_ENDS:
                continue
            rows += inside.count("\n", seen, place)
            seen = place
            at = spot._replace(line=spot.at(rows))
            keyed = re.match(r"\[([^\]\n]{0,200})\]=(.*)", raw, re.DOTALL)
            if keyed is not None:
                key = self.expander.key(keyed[1], Array({}, before.is_map), at)
                if key is not None:
                    items[key] = self.expander.value(self.expander.pieces(keyed[2]), at)
                    following = key + 1 if isinstance(key, int) else following
                continue
            for value in self.expander.fields(self.expander.pieces(raw), at):
                items[following] = value
                following += 1
        return Array(items, before.is_map)

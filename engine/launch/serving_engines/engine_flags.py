"""Flags of one server, by their full names, with a record of the ones read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from engine.launch.contract import LaunchError, UnknownValue
from engine.launch.report import parse_flag, parse_integer
from engine.launch.serving_engines.arguments import ArgumentSnapshot
from models.documents import shown

__all__ = ["EngineFlags"]

LONGEST_JSON: Final = 100_000
_HUMAN: Final = re.compile(r"(\d+(?:\.\d+)?)([kKmMgG])\Z")
_FACTORS: Final[Mapping[str, int]] = {
    "k": 1_000,
    "m": 1_000_000,
    "g": 1_000_000_000,
    "K": 1_024,
    "M": 1_048_576,
    "G": 1_073_741_824,
}
"""Units of `--max-model-len 32k` and its kin. Source: vLLM 0.33.0, utils/argparse_utils.py, human_readable_int."""


class EngineFlags:
    """Values of a server's flags. A rule that asks for a value that is not known gets None and notes it as open."""

    def __init__(self, snapshot: ArgumentSnapshot, title: str, role: str = "") -> None:
        """Take the arguments that the program knows.

        Args:
            snapshot: of the program and its version.
            title: name of the program with its version, for sentences.
            role: of the server among pools; empty for one that does everything.
        """
        self.snapshot, self.title, self.role = snapshot, title, role
        self._has_underscores = any("_" in name for name in snapshot.kinds)
        self.values: dict[str, Any] = {}
        self.written: dict[str, str] = {}
        """Name as the configuration writes it, by full name."""
        self.nested: dict[str, dict[str, str]] = {}
        """Dotted names as written, by full name and key."""
        self.former: dict[str, tuple[str, Any]] = {}
        """Names of earlier versions, as written, with their values."""
        self.used: set[str] = set()
        self.open: dict[str, str] = {}
        """Expression by full name of a flag whose value comes from outside."""
        self.not_modelled: list[str] = []
        self.unread: list[str] = []
        self.remarks: list[str] = []

    def add(self, given: Mapping[str, Any], *, wins: bool = True, source: str = "") -> None:
        """Take flags with their values.

        Args:
            given: values by flag; True for a flag without a value.
            wins: whether they count more than those taken before.
            source: place of these flags in a remark on values that differ.
        """
        for raw, value in given.items():
            self._add_one(str(raw), value, wins, source)

    def _add_one(self, raw: str, value: Any, wins: bool, source: str) -> None:
        if isinstance(value, UnknownValue) and raw == value.expression:
            self.unread.append(f"{value.expression} comes from outside; the configuration is read without it.")
            return
        name = raw.lstrip("-")
        key = name.replace("-", "_") if self._has_underscores else name.replace("_", "-")
        key, dot, path = key.partition(".")
        if dot:
            path = name.partition(".")[2]
        full = self.snapshot.resolve(key)
        if full is None and key.startswith(("no-", "no_")) and not dot:
            positive = self.snapshot.resolve(key[3:])
            if positive is not None and self.snapshot.kinds[positive] == "flag":
                full = positive
                value = value if isinstance(value, UnknownValue) else not parse_flag(value, raw)
        if full is None:
            if key in self.snapshot.gone:
                self.former[key] = (raw, value)
                return
            near = self.snapshot.nearest(key)
            dashes = raw[: len(raw) - len(name)]
            hint = f"; did you mean {dashes}{near}?" if near else "."
            self.unread.append(f"{raw[:80]} is not an argument of {self.title}{hint}")
            return
        if dot:
            self._add_nested(full, path, raw, value)
            return
        if full in self.values and self.values[full] != value:
            kept = value if wins else self.values[full]
            if source:
                self.remarks.append(
                    f"{raw[:80]} is set twice, {shown(self.values[full])} and {shown(value)}; {source} wins: "
                    f"{shown(kept)}."
                )
            if not wins:
                return
        self.values[full] = value
        self.written[full] = raw

    def _add_nested(self, full: str, path: str, raw: str, value: Any) -> None:
        table = self.values.get(full)
        table = dict(self.table_of(table, raw) or {}) if table is not None else {}
        inner, keys = table, path.split(".")[:20]
        for key in keys[:-1]:
            below = inner.get(key)
            inner[key] = dict(below) if isinstance(below, Mapping) else {}
            inner = inner[key]
        inner[keys[-1]] = value
        self.values[full] = table
        self.written.setdefault(full, raw)
        self.nested.setdefault(full, {})[keys[0]] = raw

    def has(self, name: str) -> bool:
        """Return whether a flag is set to anything; it counts as read."""
        self.used.add(name)
        return name in self.values

    def raw(self, name: str) -> Any:
        """Return a value unchanged; None where it is absent, empty, or comes from outside."""
        self.used.add(name)
        value = self.values.get(name)
        if isinstance(value, UnknownValue):
            self.open[name] = value.expression
            return None
        if isinstance(value, str) and value.strip().lower() in ("", "none", "null"):
            return None
        return value

    def is_on(self, name: str, default: bool = False) -> bool:
        """Return whether a switch is on, or the default where it is absent or comes from outside.

        Raises `LaunchError` for a value that is no truth value.
        """
        value = self.raw(name)
        return default if value is None else parse_flag(value, self.name_of(name))

    def integer(self, name: str, default: int | None = None, *, least: int = 1) -> int | None:
        """Return a whole number, or the default where the flag is absent; None where it comes from outside.

        Args:
            name: full name of the flag.
            default: the engine's own.
            least: smallest accepted value.

        Raises `LaunchError` for anything else.
        """
        value = self.raw(name)
        if value is None:
            return None if name in self.open else default
        if isinstance(value, str) and (found := _HUMAN.match(value.strip())):
            value = float(found[1]) * _FACTORS[found[2]]
        return parse_integer(value, self.name_of(name), least)

    def share(self, name: str) -> float | None:
        """Return a share between 0 and 1; None where it is absent or comes from outside.

        Raises `LaunchError` for anything else.
        """
        value = self.raw(name)
        if value is None:
            return None
        try:
            number = float(str(value).strip()[:60]) if not isinstance(value, bool) else -1.0
        except ValueError:
            number = -1.0
        if not 0 < number <= 1:
            raise LaunchError(f"{self.name_of(name)} is {shown(value)}; it must be a share above 0, up to 1.")
        return number

    def word(self, name: str, default: str = "") -> str:
        """Return a word, or the default where the flag is absent or comes from outside.

        Raises `LaunchError` where a list or a table is there.
        """
        value = self.raw(name)
        if value is None:
            return default
        if isinstance(value, Mapping | list | tuple | bool):
            raise LaunchError(f"{self.name_of(name)} is {shown(value)}; it must be one word.")
        return str(value).strip()

    def table(self, name: str) -> Mapping[str, Any]:
        """Return a table that is written as JSON, YAML, or with dotted names; empty where it is absent.

        Keys whose value comes from outside are absent and noted as open.

        Raises `LaunchError` for text that is no such table.
        """
        value = self.raw(name)
        table = {} if value is None else self.table_of(value, self.name_of(name)) or {}
        outside = {key: each.expression for key, each in table.items() if isinstance(each, UnknownValue)}
        self.open |= {f"{name}.{key}": expression for key, expression in outside.items()}
        return {key: each for key, each in table.items() if key not in outside}

    def table_of(self, value: Any, name: str) -> Mapping[str, Any] | None:
        """Return a value as a table; None for a plain word or number.

        Args:
            value: a table, or its JSON.
            name: of the flag, for the message.

        Raises `LaunchError` for invalid JSON.
        """
        if isinstance(value, Mapping):
            return value
        text = str(value).strip()
        if not text.startswith("{"):
            return None
        try:
            if len(text) > LONGEST_JSON:
                raise ValueError
            found = json.loads(text)
        except (ValueError, RecursionError):
            raise LaunchError(f"{name} is {shown(text)}; it must be valid JSON in braces.") from None
        return found if isinstance(found, Mapping) else None

    def name_of(self, full: str) -> str:
        """Return a flag as the configuration writes it."""
        return self.written.get(full, full)[:80]

    def note_not_modelled(self, name: str, detail: str = "", *, value: bool = False) -> None:
        """List a flag that is set and changes what no field here describes.

        Args:
            name: full name of the flag.
            detail: the part that matters, in brackets.
            value: whether to show its value.
        """
        shown_value = f" {self.values[name]}"[:40] if value else ""
        self.not_modelled.append(f"{self.name_of(name)}{shown_value}{f' ({detail})' if detail else ''}")

    def list_without_effect(self) -> list[str]:
        """Return the flags that are set and known, and change nothing that is predicted."""
        listed = {entry.split(" ")[0] for entry in self.not_modelled}
        names = [self.written[full] for full in self.values if full not in self.used]
        return [name[:80] for name in names if name[:80] not in listed]

    def remark(self, sentences: Iterable[str]) -> None:
        """Add remarks."""
        self.remarks.extend(sentences)

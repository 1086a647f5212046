"""Settings of a launch configuration, read key by key with their type, so that unread keys can be listed.

Files and command lines write one value in several ways: `true`, `"True"` and a bare flag; `8`, `"8"` and `8.0`. Readers
of frameworks get a number, a truth value or a word here, or one sentence about the invalid value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from engine.launch.contract import LaunchError, UnknownValue
from engine.launch.report import Report
from models.documents import shown

__all__ = ["LARGEST", "LaunchSettings", "is_hidden"]

LARGEST = 2**53
"""No number of a configuration is larger; beyond it floats skip whole numbers."""
_ON, _OFF = frozenset({"true", "yes", "on", "1"}), frozenset({"false", "no", "off", "0"})
_NOTHING = frozenset({"", "none", "null", "~"})


def is_hidden(key: str, value: Any) -> bool:
    """Return whether an entry of flags is a placeholder for missing words, which may hold any flag.

    Args:
        key: of the entry.
        value: of the entry.
    """
    return isinstance(value, UnknownValue) and key == value.expression


class LaunchSettings:
    """Keys and values of one launch configuration, with a record of the keys read.

    Asking for a value that is not known raises the signal of `engine.launch.report` that leaves a field open.
    """

    def __init__(self, given: Mapping[str, Any], report: Report, prefix: str = "") -> None:
        """Store keys and values; keys may start with the dashes of flags.

        Args:
            given: values by key.
            report: records the keys that are read.
            prefix: prefix of the keys if they are a section of a document.
        """
        self.given: dict[str, Any] = {str(key).lstrip("-"): value for key, value in given.items()}
        self.asked: set[str] = set()
        self._report, self._prefix = report, prefix
        self.hidden = [value for key, value in given.items() if is_hidden(str(key), value)]
        for value in self.hidden:
            self.given.pop(value.expression.lstrip("-"), None)

    def has(self, *names: str) -> bool:
        """Return whether one of these keys has a value; it counts as read."""
        self.asked.update(names)
        return any(self._value(name) is not None for name in names)

    def raw(self, name: str) -> Any:
        """Return a value unchanged, None if the key is absent or empty."""
        return self._value(name)

    def section(self, name: str) -> LaunchSettings:
        """Returns a section of a nested document; an absent one is empty, and `true` stands for an enabled one.

        Raises LaunchError where something else stands there.
        """
        found = self.given.get(name)
        self.asked.add(name)
        if isinstance(found, UnknownValue):
            raise self._report.unknown(self._prefix + name, found)
        if isinstance(found, bool):
            found = {"enabled": found, "stage": int(found)}
        if found is not None and not isinstance(found, Mapping):
            raise LaunchError(f"{self._prefix}{self._prefix}{name} is {shown(found)}; it must be a table in braces.")
        return LaunchSettings(found or {}, self._report, f"{self._prefix}{name}.")

    def _value(self, name: str) -> Any:
        self.asked.add(name)
        value = self.given.get(name)
        if isinstance(value, str) and value.strip().lower() in _NOTHING:
            value = None
        if isinstance(value, UnknownValue):
            raise self._report.unknown(self._prefix + name, value)
        if isinstance(value, list | tuple) and (inner := next((e for e in value if isinstance(e, UnknownValue)), None)):
            raise self._report.unknown(self._prefix + name, inner)
        if value is None and self.hidden and not self._report.asked.takes_defaults:
            raise self._report.unknown(self.hidden[0].expression, self.hidden[0])
        self._report.saw_flag(self._prefix + name, value is not None)
        return value

    def number(self, name: str, default: float | None = None) -> float | None:
        """Returns a number, or the default where the key is absent or empty.

        Args:
            name: of the key.
            default: what the framework takes where nothing is said.

        Raises LaunchError where something else stands there.
        """
        value = self._value(name)
        if value is None:
            return default
        try:
            found = math.nan if isinstance(value, bool) else float(str(value).strip())
        except ValueError:
            found = math.nan
        if not math.isfinite(found) or abs(found) > LARGEST:
            raise LaunchError(f"{self._prefix}{name} is {shown(value)}; it must be a number.")
        return found

    def whole(self, name: str, default: int | None = None, *, least: int = 1) -> int | None:
        """Returns a whole number, or the default where the key is absent or empty.

        Args:
            name: of the key.
            default: what the framework takes where nothing is said.
            least: smallest number that makes sense.

        Raises LaunchError where something else stands there.
        """
        if self._value(name) is None:
            return default
        try:
            found = self.number(name)
        except LaunchError:
            found = None
        if found is None or found != int(found) or found < least:
            raise LaunchError(
                f"{self._prefix}{name} is {shown(self.given[name])}; it must be a whole number from {least} on."
            )
        return int(found)

    def truth(self, name: str, default: bool = False) -> bool:
        """Returns whether a switch is on, or the default where the key is absent or empty.

        Args:
            name: of the key.
            default: what the framework takes where nothing is said.

        Raises LaunchError where something else stands there.
        """
        value = self._value(name)
        if value is None:
            return default
        if isinstance(value, bool):
            return value
        word = str(value).strip().lower()
        if word in _ON or word in _OFF:
            return word in _ON
        raise LaunchError(f"{self._prefix}{name} is {shown(value)}; it must be true or false.")

    def word(self, name: str, default: str = "") -> str:
        """Returns a word, or the default where the key is absent or empty.

        Args:
            name: of the key.
            default: what the framework takes where nothing is said.

        Raises LaunchError where a list or a table stands there.
        """
        value = self._value(name)
        if value is None:
            return default
        if isinstance(value, (Mapping, list, tuple)):
            raise LaunchError(f"{self._prefix}{name} is {shown(value)}; it must be one word.")
        return str(value).strip()

    def words(self, name: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Returns a list of words, which may be written with commas, or the default where the key is absent.

        Args:
            name: of the key.
            default: what the framework takes where nothing is said.

        Raises LaunchError where a table stands there.
        """
        value = self._value(name)
        if value is None:
            return default
        if isinstance(value, (list, tuple)):
            return tuple(str(each) for each in value)
        text = self.word(name).strip("[]")
        return tuple(each.strip().strip("'\"") for each in text.replace(",", " ").split())

    def rest(self) -> list[str]:
        """Return the keys that were never read, as they were given."""
        return [name for name in self.given if name not in self.asked]

"""Collecting what is read or written while a configuration is gone through."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from engine.launch.contract import LaunchError, Reading
from models.documents import shown

__all__ = ["Report", "truth", "whole"]

_ON, _OFF = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


def truth(value: Any, name: str) -> bool:
    """Returns a truth value as configurations write it: True, "true", "yes", 1; None is false.

    Args:
        value: as it stands there.
        name: of the flag, for the message.

    Raises `LaunchError` for anything else.
    """
    if value is None or isinstance(value, bool):
        return bool(value)
    word = str(value).strip().lower()
    if word in _ON:
        return True
    if word in (*_OFF, "none", "null", ""):
        return False
    raise LaunchError(f"{name} is {shown(value)}; it must be true or false.")


def whole(value: Any, name: str, least: int = 1) -> int:
    """Returns a whole number as configurations write it: 8, "8", 8.0.

    Args:
        value: as it stands there.
        name: of the flag, for the message.
        least: smallest number that makes sense.

    Raises `LaunchError` for anything else.
    """
    try:
        number = float(str(value).strip()) if not isinstance(value, bool) else float("nan")
        if number == int(number) and least <= number <= 2**31:
            return int(number)
    except (ValueError, OverflowError):
        pass
    raise LaunchError(f"{name} is {shown(value)}; it must be a whole number from {least}.")


class Report:
    """What was found so far: fields, model, and the lists of a `Reading` or `Written`, each said once."""

    def __init__(self) -> None:
        self.execution: dict[str, Any] = {}
        self.model: dict[str, Any] = {}
        self.lists: dict[str, dict[str, None]] = {}
        self.refused = ""

    def _add(self, which: str, words: Iterable[str]) -> None:
        self.lists.setdefault(which, {}).update(dict.fromkeys(words))

    def not_modelled(self, *words: str) -> None:
        """Notes what no field here stands for."""
        self._add("not_modelled", words)

    def not_expressible(self, *words: str) -> None:
        """Notes what the framework has no place for."""
        self._add("not_expressible", words)

    def unread(self, *words: str) -> None:
        """Notes what is not known or not understood."""
        self._add("unread", words)

    def remark(self, *words: str) -> None:
        """Notes what was read or written as the nearest, or corrected."""
        self._add("remarks", words)

    def leave(self, *words: str) -> None:
        """Notes what other sources have to say."""
        self._add("left", words)

    def refuse(self, reason: str) -> None:
        """Notes why the framework would not start this; the first reason counts."""
        self.refused = self.refused or reason.rstrip(".")

    def listed(self, which: str) -> tuple[str, ...]:
        """Returns a list, in the order in which it was noted."""
        return tuple(self.lists.get(which, ()))

    def reading(self, framework: str, version: str, flags: Mapping[str, Any], gpus: int | None) -> Reading:
        """Returns everything as a `Reading`."""
        return Reading(
            framework, version, self.execution, self.model, gpus, self.listed("not_modelled"), self.listed("unread"),
            self.listed("remarks"), self.listed("left"), self.refused, dict(flags),
        )  # fmt: skip

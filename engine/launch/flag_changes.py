"""Flags that differ before and after a step towards the best execution."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.launch.contract import LaunchError
from engine.launch.conversion import write
from engine.launch.standing import Standing
from models import Model

__all__ = ["FlagChange", "flag_changes"]


@dataclass(frozen=True, slots=True)
class FlagChange:
    """A flag, by the framework's name for it, with its values before and after; None where it is not given."""

    flag: str
    old: Any
    new: Any

    def __str__(self) -> str:
        if self.new is None:
            return f"without {self.flag}"
        if self.new is True:
            return self.flag
        listed = isinstance(self.new, list | tuple)
        return f"{self.flag} {' '.join(map(str, self.new)) if listed else json.dumps(self.new).strip(chr(34))}"


def flag_changes(stands: Standing, *, framework: str, nodes: int | None = None) -> tuple[tuple[FlagChange, ...], ...]:
    """Returns, for every step towards the best, the flags that change with it; empty for a step that the framework
    cannot take, or that no flag of it says.

    Args:
        stands: where an execution stands.
        framework: name of the framework that starts it.
        nodes: machines over which the GPUs are spread evenly, as for `engine.launch.write`.

    Raises `LaunchError` for an unknown framework.
    """
    model = stands.scenario.model
    before = _flags_of(stands.row, model, framework, nodes)
    found = []
    for step in stands.steps:
        after = _flags_of(step.execution, model, framework, nodes)
        known = before is not None and after is not None
        found.append(_compare_flags(before or {}, after or {}) if known else ())
        before = after
    return tuple(found)


def _flags_of(
    execution: Mapping[str, Any], model: Model, framework: str, nodes: int | None
) -> Mapping[str, Any] | None:
    """The flags of an execution; None where the framework refuses it."""
    try:
        return write(execution, model, framework=framework, nodes=nodes).flags
    except LaunchError:
        return None


def _compare_flags(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[FlagChange, ...]:
    names = dict.fromkeys((*before, *after))
    return tuple(
        FlagChange(name, before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)
    )

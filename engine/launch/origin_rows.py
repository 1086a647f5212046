"""Every field of a reading with its value and what states it, in words, as commands and pages show them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.columns import ALL_FIELDS, by_name, choice_label
from engine.columns.fields import CHOICE_LABELS
from engine.launch.contract import LaunchReading
from engine.launch.registry import FRAMEWORKS

__all__ = ["assumed_sentence", "origin_rows"]


def origin_rows(found: LaunchReading, file: str) -> list[tuple[str, str, str]]:
    """Returns label, value and source of every field of an execution; "open" where it is.

    Args:
        found: what was read.
        file: name of the file, which sources in it leave out.
    """
    terms = FRAMEWORKS[found.framework].terms
    rows = []
    for column in ALL_FIELDS:
        if column.name in found.execution:
            value = _format_value(found.execution[column.name], CHOICE_LABELS.get(column.name, {}))
        elif column.name in found.origins:
            value = "open"
        else:
            continue
        rows.append((column.label, value, _said_by(found, column.name, file, terms.get(column.name, ""))))
    return rows


def assumed_sentence(assumed: Mapping[str, Any]) -> str:
    """Returns the values that nothing states and that count in figures all the same; empty without any.

    Args:
        assumed: values by field, as `settle` returns them.
    """
    told = [
        f"{by_name(name).label} {'as the system has it' if value is None else choice_label(by_name(name), value)}"
        for name, value in assumed.items()
    ]
    return f"Assumed, as nothing says it: {'; '.join(told)}." if told else ""


def _said_by(found: LaunchReading, name: str, file: str, term: str) -> str:
    """The flag and line that state a value, the framework whose default it is, or why it is open."""
    origin = found.origins.get(name)
    if origin is None:
        return ""
    if name not in found.execution and not origin.words:
        return f"not said ({term})" if term else "not said"
    place = ""
    if origin.line:
        place = f" (line {origin.line}" + (f" of {origin.file})" if origin.file not in ("", file) else ")")
    return f"{origin.words}{place}"


def _format_value(value: Any, labels: Mapping[str, str]) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:,}" if isinstance(value, int) else labels.get(str(value), str(value))

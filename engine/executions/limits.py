"""Limits of a space: what each execution field may be.

A limit is one value, a list of values, or a range `{"min": a, "max": b}` (either end may be left out).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from engine.columns import ALL, ALL_FIELDS, EXTENSIONS, Column, by_name, called, cost_models_with, fields_of
from engine.executions.frameworks.registry import ANY, FRAMEWORK_WORDS
from engine.executions.table import LARGEST
from models.documents import did_you_mean, shown

__all__ = [
    "EXCESS",
    "FRAMEWORK",
    "OPTIONS",
    "LimitError",
    "Limits",
    "capacity_factor",
    "framework_limit",
    "normalise",
    "options_of",
    "permits",
]

Limits = Mapping[str, Any]

EXCESS = "memory_excess"
FRAMEWORK = "framework"
OPTIONS = {"uneven_pipelines": "bool", EXCESS: "int64", FRAMEWORK: "str"}
"""Limits that are no field: `uneven_pipelines` true also tries pipelines that do not divide the blocks; `memory_excess`
counts executions as running whose predicted memory exceeds a capacity by up to so many percent: they may fit;
`framework` leaves the executions that a framework runs. Scenarios state it as a field of their own."""
MOST_EXCESS = 100
"""Largest excess of memory [%]. Source: stated by us; memory was measured within 25 % of predictions."""

_FIXED = tuple(column.name for column in ALL_FIELDS if column.of_scenario)


class LimitError(ValueError):
    """Limit on an unknown field, or without a possible value; the message names it and a valid limit."""


def normalise(limits: Limits | None, cost_model: str) -> dict[str, Any]:
    """Returns the limits on the fields of a cost model in one form: a sorted list of values, or a range with `min` and
    `max`.

    Raises `LimitError`.

    Equal limits written differently become equal, so that scenarios can be compared by content.

    Args:
        limits: a value, a list of values or a range by field; None for none.
        cost_model: whose fields they are.
    """
    if limits is None:
        return {}
    if not isinstance(limits, Mapping):
        raise LimitError(f"Limits must map field names to values, not be {type(limits).__name__}.")
    result: dict[str, Any] = {}
    names = {column.name for column in fields_of(cost_model)} | set(options_of(cost_model))
    for name, limit in limits.items():
        if name not in names or name in _FIXED:
            raise LimitError(_describe_unknown_limit(name, names - set(_FIXED)))
        if name == EXCESS:
            if excess := _check_excess(limit):
                result[name] = excess
            continue
        if name == FRAMEWORK:
            if (word := _check_framework(limit)) != ANY:
                result[name] = word
            continue
        if name in OPTIONS:
            if not isinstance(limit, bool | np.bool_):
                raise LimitError(f"Uneven pipelines ({name}) is {shown(limit)}; it must be true or false.")
            if limit:
                result[name] = True
            continue
        if limit is not None:
            result[name] = _normalise_one(name, limit)
    return dict(sorted(result.items()))


def options_of(cost_model: str) -> tuple[str, ...]:
    """Return the limits that are no field of a cost model: an excess of memory and a framework only where figures are
    predictions of measured runs.

    Args:
        cost_model: name of a cost model.
    """
    further = {column.name for column in EXTENSIONS} & {column.name for column in fields_of(cost_model)}
    return tuple(name for name in OPTIONS if name not in (EXCESS, FRAMEWORK) or further)


def capacity_factor(limits: Limits) -> float:
    """Return the multiple of a capacity up to which executions run: 1.0 unless an excess of memory is allowed.

    Args:
        limits: normalised limits of a scenario.
    """
    return 1.0 + float(limits.get(EXCESS, 0)) / 100.0


def _check_excess(limit: Any) -> int:
    """Return an excess of memory [%]. Raises `LimitError` unless it is a whole number of percent."""
    value = limit[0] if isinstance(limit, list | tuple) and len(limit) == 1 else limit
    value = value.item() if isinstance(value, np.integer) else value
    if type(value) is not int or not 0 <= value <= MOST_EXCESS:
        raise LimitError(
            f"Memory excess ({EXCESS}) is {shown(limit)}; it must be a whole number of percent from 0 to {MOST_EXCESS}."
        )
    return value


def framework_limit(framework: Any, cost_model: str) -> dict[str, Any]:
    """Return the limit that states a framework: empty for any, which every cost model takes.

    Args:
        framework: word of a framework, or `any`.
        cost_model: name of a cost model.

    Raises `LimitError` for an unknown framework, and for one where the cost model predicts no measured runs.
    """
    word = _check_framework(framework)
    if word != ANY and FRAMEWORK not in options_of(cost_model):
        raise LimitError(
            f"The framework is '{word}', but the cost model {cost_model} does not have all settings of a framework. "
            f"Choose the cost model calibrated, or '{ANY}' framework."
        )
    return {FRAMEWORK: word}


def _check_framework(limit: Any) -> str:
    """Return the framework of a limit, `any` for none. Raises `LimitError` for an unknown one."""
    value = limit[0] if isinstance(limit, list | tuple) and len(limit) == 1 else limit
    if value is None or (isinstance(value, str) and value in FRAMEWORK_WORDS):
        return value or ANY
    near = did_you_mean(value, FRAMEWORK_WORDS) if isinstance(value, str) else ""
    raise LimitError(f"The framework is {shown(value)}{near}; it must be one of {', '.join(FRAMEWORK_WORDS)}.")


def _describe_unknown_limit(name: Any, accepted: Collection[str]) -> str:
    """Return the message about an unknown limit, with the limits that exist."""
    if name in _FIXED:
        return f"{called(name)} cannot be limited; it is chosen for the whole scenario."
    if name in (column.name for column in ALL_FIELDS):
        names = cost_models_with(name)
        knowing = (
            f"the {names[0]} cost model knows" if len(names) == 1 else f"the cost models {' and '.join(names)} know"
        )
        return f"{called(name)} cannot be limited here; only {knowing} it."
    listed = f"limits can be set on {', '.join(sorted(accepted))}"
    if name in (column.name for column in ALL):
        return f"{called(name)} cannot be limited, because it is a result; {listed}."
    near = did_you_mean(name, sorted(accepted)) if isinstance(name, str) else ""
    return f"There is no limit on {shown(name)}{near}; {listed}."


def _normalise_one(name: str, limit: Any) -> Any:
    column = by_name(name)
    if isinstance(limit, Mapping):
        if column.dtype != "int64" or not limit or set(limit) - {"min", "max"}:
            raise LimitError(
                f"{called(name)} cannot be limited to {shown(limit)}; a range has min, max or both, for a number."
            )
        low, high = (
            _parse_range_end(column, limit.get(end, default), default)
            for end, default in (("min", 0), ("max", LARGEST))
        )
        if low > high:
            raise LimitError(f"{called(name)} is limited from {low:,} to {high:,}; min must not exceed max.")
        return {"min": low, "max": high}
    values = list(limit) if isinstance(limit, list | tuple | set | frozenset) else [limit]
    if not values:
        raise LimitError(f"{called(name)} is limited to an empty list; leave it out to allow everything.")
    return sorted({_parse_value(name, value) for value in values})


def _parse_value(name: str, value: Any) -> Any:
    column = by_name(name)
    if isinstance(value, np.integer | np.bool_):
        value = value.item()
    if column.open is not None:
        try:
            return column.open.word(column.open.position(value if isinstance(value, str) else shown(value)))
        except ValueError as error:
            raise LimitError(f"{called(name)} cannot be {shown(value)}: {error}") from None
    if column.dtype == "str":
        if not isinstance(value, str) or value not in column.choices:
            raise LimitError(f"{called(name)} cannot be {shown(value)}; it is one of {', '.join(column.choices)}.")
        return value
    if column.dtype == "bool":
        if not isinstance(value, bool):
            raise LimitError(f"{called(name)} cannot be {shown(value)}; it is true or false.")
        return value
    return _parse_whole_number(column, value)


def _parse_range_end(column: Column, value: Any, open_end: int) -> int:
    """An end of a range; links and saved scenarios write one that is left out as 0 or `LARGEST`."""
    return open_end if type(value) is int and value == open_end else _parse_whole_number(column, value)


def _parse_whole_number(column: Column, value: Any) -> int:
    if isinstance(value, np.integer):
        value = value.item()
    most = max(column.numbers) if column.numbers else LARGEST
    if isinstance(value, bool) or not isinstance(value, int) or not column.least <= value <= most:
        raise LimitError(
            f"{called(column.name)} cannot be {shown(value)}; it is a whole number from {column.least} to {most:,}."
        )
    return value


def permits(limits: Mapping[str, Any], name: str) -> Callable[[Any], bool]:
    """Return a test whether normalised limits allow a value of the field.

    Args:
        limits: as `normalise` returns them.
        name: name of the field.
    """
    limit = limits.get(name)
    if limit is None:
        return lambda value: True
    if isinstance(limit, dict):
        return lambda value: bool(limit["min"] <= value <= limit["max"])
    allowed = frozenset(limit)
    return lambda value: value in allowed

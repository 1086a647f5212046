"""Limits and values as commands take them: `field=value`, `field=a,b,..` and `field=lo..hi`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from engine.columns import ALL_FIELDS
from engine.executions.limits import OPTIONS, LimitError
from models.documents import shown

__all__ = ["parse_limits", "parse_values"]

_FLAGS = dict.fromkeys(("true", "on", "yes"), True) | dict.fromkeys(("false", "off", "no"), False)
_BOOLEAN = {column.name for column in ALL_FIELDS if column.dtype == "bool"}
_BOOLEAN |= {name for name, dtype in OPTIONS.items() if dtype == "bool"}
_WHOLE = {column.name for column in ALL_FIELDS if column.dtype == "int64"}
_WHOLE |= {name for name, dtype in OPTIONS.items() if dtype == "int64"}
_KNOWN = {column.name for column in ALL_FIELDS} | set(OPTIONS)
_NUMBERS = re.compile(r"[\d\s.]*")


def parse_limits(texts: Iterable[str]) -> dict[str, Any]:
    """Return limits from texts such as "tensor_par=1,2,4", "pipeline_par=..8", "weight_offload=off".

    Fields that executions do not have, such as `batch` of deployments, are numbers where their values are. Names and
    values themselves are checked where the limits are used.

    Args:
        texts: of an option that may be repeated.

    Raises `LimitError` for malformed texts.
    """
    limits: dict[str, Any] = {}
    for text in texts:
        name, equals, values = (part.strip() for part in text.partition("="))
        if not equals or not name or not values:
            raise LimitError(f"The limit {shown(text)} is not understood; write field=a,b,.. or field=lo..hi.")
        if name in limits:
            raise LimitError(f"There are two limits on {shown(name)[1:-1]}; give all its values in one.")
        ranged = name in _WHOLE - set(OPTIONS) or (name not in _KNOWN and _NUMBERS.fullmatch(values))
        if ".." in values and ranged:
            limits[name] = _parse_range(name, values)
        else:
            found = [_parse_value(name, value.strip()) for value in _split_values(name, values)]
            limits[name] = found[0] if name in OPTIONS and len(found) == 1 else found
    return limits


def parse_values(texts: Iterable[str]) -> dict[str, Any]:
    """Return values by field from texts such as "tensor_par=4"; whole numbers become numbers.

    Args:
        texts: of an option that may be repeated.

    Raises `LimitError` for malformed texts; names and values are checked where they are used.
    """
    found: dict[str, Any] = {}
    for each in texts:
        name, equals, value = (part.strip() for part in each.partition("="))
        if not equals or not name or not value:
            raise LimitError(f"--set is {shown(each)}; it must be FIELD=VALUE, such as tensor_par=4.")
        found[name] = int(value) if value.isdecimal() and len(value) < 12 else value
    return found


def _split_values(name: str, text: str) -> list[str]:
    """The values of a list; one value may have commas of its own where the field has words that no list names."""
    column = next((column for column in ALL_FIELDS if column.name == name), None)
    if column is None or column.open is None:
        return text.split(",")
    found: list[str] = []
    pending = ""
    for piece in text.split(","):
        pending = f"{pending},{piece}" if pending else piece
        if column.position(pending.strip()) >= 0:
            found.append(pending)
            pending = ""
    return [*found, pending] if pending else found


def _parse_range(name: str, text: str) -> dict[str, int]:
    ends = text.split("..")
    if len(ends) != 2 or not any(end.strip() for end in ends):
        raise LimitError(
            f"The limit {name}={shown(text)[1:-1]} is not a range; write {name}=lo..hi, and leave out at most one end."
        )
    return {
        end: _parse_integer(name, part.strip()) for end, part in zip(("min", "max"), ends, strict=True) if part.strip()
    }


def _parse_value(name: str, text: str) -> Any:
    if name in _BOOLEAN:
        if text.lower() not in _FLAGS:
            raise LimitError(f"{name} cannot be {shown(text)}; it is {', '.join(_FLAGS)}.")
        return _FLAGS[text.lower()]
    is_whole = name in _WHOLE or (name not in _KNOWN and text.isdecimal())
    return _parse_integer(name, text) if is_whole else text


def _parse_integer(name: str, text: str) -> int:
    # int() alone would take "1_0" and refuse thousands of digits with a message of its own.
    if not text.isdecimal() or len(text) > 18:
        raise LimitError(f"{name} cannot be {shown(text)}; it is a whole number.")
    return int(text)

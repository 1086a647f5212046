"""Parsing of a store's text: the value that was written, or a ValueError that describes the text found instead.

The caller names the text; the reasons here are the end of a sentence, such as "is not a JSON object".
"""

import datetime
import json
import math
from typing import Any, Final, NoReturn

__all__ = ["counts_of", "list_of", "number_of", "object_of", "seconds_of", "text_of", "time_of"]

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def object_of(text: object) -> dict[str, Any]:
    """Returns the JSON object in a text. Raises ValueError for anything else.

    Args:
        text: what the database keeps.
    """
    found = _parse_json(text)
    if not isinstance(found, dict):
        raise ValueError("is not a JSON object")
    return found


def list_of(text: object) -> list[Any]:
    """Returns the JSON array in a text. Raises ValueError for anything else.

    Args:
        text: what the database keeps.
    """
    found = _parse_json(text)
    if not isinstance(found, list):
        raise ValueError("is not a JSON array")
    return found


def counts_of(text: object) -> dict[str, int]:
    """Returns the JSON object of whole numbers from 0 in a text. Raises ValueError for anything else.

    Args:
        text: what the database keeps.
    """
    return {name: number_of(value) for name, value in object_of(text).items()}


def seconds_of(text: object) -> dict[str, float]:
    """Returns the JSON object of finite numbers in a text. Raises ValueError for anything else.

    Args:
        text: what the database keeps.
    """
    found = object_of(text)
    if not all(isinstance(value, int | float) and math.isfinite(value) for value in found.values()):
        raise ValueError("is not numbers only")
    return {name: float(value) for name, value in found.items()}


def number_of(value: object) -> int:
    """Returns a whole number from 0. Raises ValueError for anything else.

    Args:
        value: what the database keeps.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError("is not a whole number")
    return value


def text_of(value: object) -> str:
    """Returns a text. Raises ValueError for anything else.

    Args:
        value: what the database keeps.
    """
    if not isinstance(value, str):
        raise ValueError("is not text")
    return value


def time_of(microseconds: object) -> datetime.datetime:
    """Return a time, UTC. Raises ValueError for an invalid number.

    Args:
        microseconds: since the beginning of 1970 [us].
    """
    try:
        if isinstance(microseconds, int):
            return _EPOCH + datetime.timedelta(microseconds=microseconds)
    except OverflowError:
        pass
    raise ValueError("is not a time")


def _parse_json(text: object) -> Any:
    try:
        if isinstance(text, str | bytes):
            return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):  # the latter of arrays within arrays without end
        pass
    raise ValueError("is not JSON")


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(constant)

"""Arrays of one length, one element per row: their types, tables of them, and telling rows apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Columns = TypeVar("Columns", bound=DataclassInstance)
else:
    Columns = TypeVar("Columns")

__all__ = ["Flags", "Floats", "Ints", "Positions", "ReasonNumbers", "distinct", "take"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.intp]
ReasonNumbers = npt.NDArray[np.int16]
"""Numbers of `engine.executions.reasons` by row; 0 where nothing is wrong."""

SMALL_TABLE = 4
"""Numbers that packed keys may span per row for a table to tell them apart."""


def take(table: Columns, index: npt.NDArray[Any] | slice) -> Columns:
    """Returns the rows of a dataclass of arrays at `index` (positions, a mask or a slice).

    Args:
        table: a dataclass of arrays, each [rows].
        index: positions, a mask or a slice.
    """
    # Asking the class for its fields costs as much as picking a few thousand rows.
    columns = [getattr(table, name) for name in table.__dataclass_fields__]
    if isinstance(index, np.ndarray) and index.dtype != bool:
        return type(table)(*[column.take(index, axis=0) for column in columns])
    return type(table)(*[column[index] for column in columns])


def pack_keys(*parts: Ints | Flags) -> Ints:
    """Return one whole number per row that differs between rows with different parts."""
    result = np.zeros(len(parts[0]), np.int64)
    most = 0
    for part in parts:
        values = part.astype(np.int64, copy=False)
        low = int(values.min(initial=0))
        span = int(values.max(initial=0)) - low + 1
        if span == 1:  # nothing but zeros
            continue
        if most >= 2**62 // span:
            result = np.unique(result, return_inverse=True)[1].astype(np.int64)
            most = int(result.max(initial=0))
        result = result * span + (values - low)
        most = most * span + span - 1
    return result


def distinct(*parts: Ints | Flags) -> tuple[Positions, Positions]:
    """Returns (position of the first row of each distinct combination, which combination each row is)."""
    keys = pack_keys(*parts)
    most = int(keys.max(initial=0)) + 1
    if most <= SMALL_TABLE * len(keys):
        # A table of all that keys may be is filled several times sooner than keys are sorted.
        rows = np.arange(len(keys))
        seen = np.full(most, -1)
        seen[keys[::-1]] = rows[::-1]
        present = np.flatnonzero(seen >= 0)
        number = np.empty(most, np.intp)
        number[present] = np.arange(len(present))
        return seen[present], number[keys]
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    return first, inverse

"""Tables whose columns are arrays of one length."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Columns = TypeVar("Columns", bound=DataclassInstance)
else:
    Columns = TypeVar("Columns")

__all__ = ["take"]


def take(table: Columns, index: npt.NDArray[Any] | slice) -> Columns:
    """The rows of a dataclass of arrays at `index` (positions, a mask or a slice)."""
    # Asking the class for its fields costs as much as picking a few thousand rows.
    columns = [getattr(table, name) for name in table.__dataclass_fields__]
    if isinstance(index, np.ndarray) and index.dtype != bool:
        return type(table)(*[column.take(index, axis=0) for column in columns])
    return type(table)(*[column[index] for column in columns])

"""Rules on where a field has an effect, as data that editors, tables and tests execute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["EXPERTS", "SECOND_TIER", "FieldCondition", "among", "holds", "more_than"]

EXPERTS: Final = "experts"
"""Name under which rules ask for the number of routed experts of the model."""
SECOND_TIER: Final = "second_tier"
"""Name under which rules ask for the capacity of the second memory tier [GiB]."""


@dataclass(frozen=True, slots=True)
class FieldCondition:
    """A condition that holds where any of some quantities exceeds `above`, or is one of `words` if there are such.

    `names` are fields of an execution, `EXPERTS` or `SECOND_TIER`.
    """

    names: tuple[str, ...]
    above: float = 0.0
    words: tuple[str, ...] = ()


def more_than(above: float, *names: str) -> FieldCondition:
    """Returns the condition that any of some quantities exceeds a number.

    Args:
        above: number that a quantity must exceed [unit of the quantities].
        names: of the quantities.
    """
    return FieldCondition(names, above=above)


def among(name: str, *words: str) -> FieldCondition:
    """Returns the condition that a field is one of some words.

    Args:
        name: of a field.
        words: of which the field must be one.
    """
    return FieldCondition((name,), words=words)


def holds(conditions: tuple[FieldCondition, ...], known: Mapping[Any, Any] | pd.DataFrame) -> Any:
    """Return whether all conditions hold: a truth value, or an array [rows] if `known` has columns of a table.

    A condition on unknown values counts as met.

    Args:
        conditions: all of which must hold.
        known: values by name of field, or a table with a column for each [rows].
    """
    result: Any = True
    for one in conditions:
        asked = [np.asarray(known[name]) for name in one.names if name in known]
        if asked:
            met = [np.isin(values.astype(str), one.words) if one.words else values > one.above for values in asked]
            result = np.logical_or.reduce(met) & result
    return result if np.ndim(result) else bool(result)

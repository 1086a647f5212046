"""Values of fields as people's tables hold them: one conversion for numbers, one for flags, one for words.

A table's column may have any type that pandas and Arrow know, or hold Python objects of several. What a value means is
decided by the value alone, never by the type of the column that it came in: 2, 2.0 and Decimal("2") are the number 2,
while 2.5, "2" and True are no whole numbers, and say so.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from models.documents import shown

__all__ = [
    "MISSING",
    "Fault",
    "column_names",
    "convert",
    "distinct",
    "flag",
    "number_in",
    "objects",
    "quoted",
    "to_flag",
    "to_open_word",
    "to_whole",
    "to_word",
    "whole_number",
]

Codes = npt.NDArray[np.intp]

MISSING: Final = "missing_value"
"""Fault code of a row without a value."""

_PLAIN: Final = (
    bool,
    np.bool_,
    float,
    np.floating,
    complex,
    np.complexfloating,
    Decimal,
    Fraction,
    np.datetime64,
    np.timedelta64,
)
"""Types whose values are shown as they print themselves."""
_NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,6})?")
_EXACT: Final = "biuf"
"""Kinds of NumPy arrays, up to 64 bits, whose distinct values are found without Python objects."""
_FEW: Final = 16
"""Rows up to which a Python loop finds distinct values sooner than pandas starts."""


class Fault(NamedTuple):
    """Rows of a column whose values are not accepted, for one reason: its code in `engine.executions.reasons`."""

    code: str
    rows: npt.NDArray[np.intp]
    values: list[str]
    """The values as a sentence shows them."""


def whole_number(value: Any) -> int | None:
    """Return a value as a whole number, or None for any other value.

    Truth values, text and durations (which NumPy counts among the integers) give None.

    Args:
        value: a cell of a table, of any type.
    """
    if isinstance(value, bool | np.bool_ | np.timedelta64):
        return None
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return int(value) if math.isfinite(value) and value == int(value) else None
    if isinstance(value, Decimal):
        # Looked at before it is converted: 1E+999999999 has as many digits as it says.
        small = value.is_finite() and value.adjusted() < 400
        return int(value) if small and value == value.to_integral_value() else None
    if isinstance(value, Fraction):
        return value.numerator if value.denominator == 1 else None
    return None


def number_in(text: str) -> Decimal | None:
    """Parse a decimal number exactly. None for text that people would not read as a number ("1_0", "nan").

    Args:
        text: a cell of a table.
    """
    return Decimal(text) if _NUMBER.fullmatch(text) else None


def flag(value: Any) -> bool | None:
    """Return a value as a truth value, 0 and 1 included, or None for any other value.

    Args:
        value: a cell of a table, of any type.
    """
    if isinstance(value, bool | np.bool_):
        return bool(value)
    number = whole_number(value)
    return bool(number) if number in (0, 1) else None


def to_whole(largest: int) -> Callable[[Any], tuple[int, str]]:
    """Returns what `convert` needs for a field of whole numbers.

    Args:
        largest: absolute value at most.
    """

    def parse(value: Any) -> tuple[int, str]:
        number = whole_number(value)
        if number is None:
            return 0, "not_an_integer"
        return (number, "") if abs(number) <= largest else (0, "out_of_range")

    return parse


def to_flag(value: Any) -> tuple[bool, str]:
    """Returns what `convert` needs of a value of a field of truth values.

    Args:
        value: a cell of a table, of any type.
    """
    found = flag(value)
    return (False, "not_a_boolean") if found is None else (found, "")


def to_word(words: Sequence[str]) -> Callable[[Any], tuple[int, str]]:
    """Return the parser that `convert` takes for a field of words: positions in `words`, -1 for an unknown word.

    Args:
        words: accepted words, in order.
    """

    def parse(value: Any) -> tuple[int, str]:
        if not isinstance(value, str):
            return -1, "not_a_word"
        return (words.index(value) if value in words else -1), ""

    return parse


def to_open_word(position: Callable[[str], int]) -> Callable[[Any], tuple[int, str]]:
    """Return the parser that `convert` takes for a field of `OpenWords`: positions, -1 for an invalid word.

    Args:
        position: returns the position of a word, -1 for an invalid one.
    """

    def parse(value: Any) -> tuple[int, str]:
        return (position(value), "") if isinstance(value, str) else (-1, "not_a_word")

    return parse


def quoted(value: Any) -> str:
    """Returns a value as a sentence about it shows it: short, on one line, numbers without their type.

    Args:
        value: a cell of a table, of any type.
    """
    if isinstance(value, _PLAIN):
        return str(value)[:60]
    return shown(value.item() if isinstance(value, np.generic) else value)


def column_names(table: pd.DataFrame) -> list[str]:
    """Returns the names of a table's columns; labels that are no text name nothing here.

    Args:
        table: with any labels.
    """
    return [name for name in table.columns if isinstance(name, str)]


def convert(
    series: pd.Series[Any], parse: Callable[[Any], tuple[Any, str]], dtype: npt.DTypeLike
) -> tuple[npt.NDArray[Any], list[Fault]]:
    """Return a column as an array of a type [rows], and its faults.

    Args:
        series: the column [rows].
        parse: returns the value to store, and its fault code ("" for a valid value).
        dtype: type of the array.
    """
    codes, values = distinct(series)
    parsed = [*map(parse, values), (0, MISSING)]  # the last is what rows without a value get: their code is -1
    array = np.array([value for value, _ in parsed], dtype)[codes]
    kinds = sorted({wrong for _, wrong in parsed if wrong})
    if kinds == [MISSING] and not (codes < 0).any():
        return array, []
    kind_of = np.array([kinds.index(wrong) if wrong else -1 for _, wrong in parsed], np.intp)[codes]
    faults = []
    for kind, wrong in enumerate(kinds):
        rows = np.flatnonzero(kind_of == kind)
        if len(rows):
            shown_as = {code: quoted(values[code]) if code >= 0 else "" for code in np.unique(codes[rows]).tolist()}
            faults.append(Fault(wrong, rows, [shown_as[code] for code in codes[rows].tolist()]))
    return array, faults


def objects(series: pd.Series[Any]) -> npt.NDArray[np.object_]:
    """Returns the values of a column of any type as Python objects [rows].

    Args:
        series: the column [rows].
    """
    return np.fromiter(series, object, len(series))


def distinct(series: pd.Series[Any]) -> tuple[Codes, list[Any]]:
    """Return the codes [rows] and the distinct values that they number; -1 is a missing value.

    Values of different types stay apart, though True, 1 and 1.0 are equal.

    Args:
        series: the column [rows].
    """
    codes, values = _told_apart(series)
    missing = np.array([_is_missing(value) for value in values] + [False], bool)
    return np.where(missing[codes], -1, codes), values


def _told_apart(series: pd.Series[Any]) -> tuple[Codes, list[Any]]:
    dtype = series.dtype
    if isinstance(dtype, pd.SparseDtype):
        return _told_apart(pd.Series(np.asarray(series.array)))
    if isinstance(dtype, pd.CategoricalDtype):
        codes, values = _told_apart(pd.Series(dtype.categories))
        return np.append(codes, -1)[series.cat.codes.to_numpy(np.intp)], values
    exact = dtype.kind in _EXACT and dtype.itemsize <= 8 if isinstance(dtype, np.dtype) else True
    if exact and len(series) > _FEW:
        try:
            found, uniques = pd.factorize(series)
            return found, list(uniques)
        except Exception:  # what pandas cannot tell apart, such as lists, it says in many ways
            pass
    cells = objects(series)
    if len(cells) <= _FEW:
        return _values_told_apart(cells)
    # By identity first, which most equal objects of a column share.
    same, _ = pd.factorize(np.fromiter(map(id, cells), np.int64, len(cells)))
    _, first = np.unique(same, return_index=True)
    codes, apart = _values_told_apart(cells[first])
    return codes[same], apart


def _values_told_apart(values: npt.NDArray[np.object_]) -> tuple[Codes, list[Any]]:
    """Return codes and distinct values, by type and value."""
    apart: list[Any] = []
    known: dict[tuple[type, Any], int] = {}
    place = np.empty(len(values), np.intp)
    for number, value in enumerate(values):
        new = len(apart)
        try:
            place[number] = known.setdefault((type(value), value), new)
        except Exception:  # cannot be hashed or compared, by whatever its class does: it is its own
            place[number] = new
        if place[number] == new:
            apart.append(value)
    return place, apart


def _is_missing(value: Any) -> bool:
    if value is None or value is pd.NA or value is pd.NaT:
        return True
    try:
        return bool(pd.api.types.is_scalar(value) and pd.isna(value))
    except Exception:  # a signalling NaN says so when it is compared
        return isinstance(value, Decimal)

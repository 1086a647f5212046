"""Outcome of executions as a table: given fields, status, reason, reason in words, statistics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from engine.columns import Column
from engine.executions import reasons
from engine.executions.arrays import Floats, ReasonNumbers
from engine.executions.field_values import distinct, quoted
from engine.executions.table import Malformed

__all__ = ["Quantities", "given_words", "outcome_table", "running_row", "text_series", "words_array"]


Quantities = Callable[[npt.NDArray[np.intp], str], dict[str, Any]]
"""(rows, reason code) -> the numbers and words that the sentence of the reason uses, for these rows."""

FEW_ROWS = 8192


def words_array(codes: npt.NDArray[Any], words: list[str]) -> pa.Array:
    """Returns a text array [rows] from positions in `words`.

    Args:
        codes: positions [rows].
        words: the word of each position.
    """
    return pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(words, pa.string())).cast(pa.string())


def given_words(series: pd.Series[Any], rows: npt.NDArray[np.intp]) -> pa.Array:
    """Returns the words of a column in these rows as sentences show them: short, on one line, without quotation marks.

    Args:
        series: the column.
        rows: positions of the rows.
    """
    codes, words = distinct(series)
    codes = codes[rows]
    told = [*(quoted(word)[1:-1] if isinstance(word, str) else quoted(word) for word in words), ""]
    return words_array(np.where(codes < 0, len(words), codes), told)


def text_series(array: pa.Array, index: pd.Index[Any]) -> pd.Series[Any]:
    """Returns an Arrow text array as a pandas column of the standard text type.

    Args:
        array: of texts [rows].
        index: of the table that it is for.
    """
    return pd.Series(pd.array(array, dtype="str"), index=index)


def outcome_table(
    given: pd.DataFrame,
    statistics: Sequence[Column],
    reason: ReasonNumbers,
    malformed: list[Malformed],
    values: Floats,
    quantities: Quantities,
) -> pd.DataFrame:
    """Returns the table that `engine.evaluate` returns.

    Args:
        given: the fields as given [rows].
        statistics: the results, in order.
        reason: reason number of each row [rows].
        malformed: faults of malformed rows.
        values: statistics of the executions [statistics, rows].
        quantities: values of the placeholders of sentences.
    """
    index = given.index
    status = ["ok", "infeasible", "invalid"]
    status_of = np.array([0, *(status.index(item.status) for item in reasons.REASONS)], np.int8)
    outcome = {
        "status": words_array(status_of[reason], status),
        "reason": words_array(reason, ["", *(item.code for item in reasons.REASONS)]),
        "reason_text": _write_sentences(reason, malformed, quantities),
    }
    parts = [
        given,
        pd.DataFrame({name: text_series(words, index) for name, words in outcome.items()}, index=index),
        # One block of figures, so that callers may add columns without fragmenting the table.
        pd.DataFrame(values.T, columns=[column.name for column in statistics], index=index, copy=False),
    ]
    return pd.concat(parts, axis=1)


def running_row(given: Mapping[str, Any], statistics: Sequence[Column], values: Floats) -> dict[str, Any]:
    """Returns the row that `outcome_table` has of one execution that runs, by column name.

    Args:
        given: its fields by name, in order.
        statistics: the results, in order.
        values: of the results [statistics].
    """
    names = (column.name for column in statistics)
    return {**given, "status": "ok", "reason": "", "reason_text": "", **dict(zip(names, values.tolist(), strict=True))}


def _write_sentences(reason: ReasonNumbers, malformed: list[Malformed], quantities: Quantities) -> pa.Array:
    """The sentence of every row, "" where nothing is wrong."""
    parts: list[pa.Array] = [pa.array([""], pa.string())]
    place = np.zeros(len(reason), np.int64)
    filled = 1
    told = set()
    for item in malformed:
        rows = item.rows[reason[item.rows] == item.number]
        code = reasons.code_of(item.number)
        told.add(item.number)
        found = {"field": item.field, "value": item.values, "accepted": item.accepted}
        parts.append(reasons.sentence(code, found, len(item.rows)))
        place[rows] = filled + np.flatnonzero(reason[item.rows] == item.number)
        filled += len(item.rows)
    for number in np.unique(reason[reason != reasons.FITS]).tolist():
        if number in told:
            continue
        here = np.flatnonzero(reason == number)
        code = reasons.code_of(number)
        parts.append(reasons.sentence(code, quantities(here, code), len(here)))
        place[here] = filled + np.arange(len(here))
        filled += len(here)
    if filled == 1:
        return pa.array([""] * len(reason), pa.string()) if len(reason) < FEW_ROWS else words_array(place, [""])
    return pa.concat_arrays([part.cast(pa.string()) for part in parts]).take(pa.array(place))

"""Tables of executions: headers, units and help from the register, one unit per column, digits that align."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import pandas as pd
import streamlit as st

from dashboard.compat.front_end import LINE
from dashboard.compat.types import StyledTable
from dashboard.words.numbers import ABSENT, decimals_for, header, scale_for
from engine.columns import Column, applies, by_name, choice_label

__all__ = ["ROW", "arranged", "fitting", "grouped", "height_of", "signed", "table", "width_of_words"]

_WIDTHS: Final = {"id": 90, "selective_recompute": 128, "bool": 72, "str": 92, "int64": 66, "float64": 104}


ROW: Final = LINE
"""Height of a row, the header among them [px]."""


_MARK: Final = "rgba(91, 141, 239, 0.22)"
ROOM: Final = 1_180
"""Widths of columns that a window 1,280 wide shows without scrolling, beside the boxes that choose rows [px]."""


def height_of(rows: int, most: int = 1_000_000) -> int:
    """Returns height of a table that shows so many rows without a gap below them, at most `most` [px]."""
    return min(most, ROW * (rows + 1) + 2)


def width_of_words(words: Iterable[str]) -> int:
    """Returns width of a column in which every one of some words can be read [px]."""
    return math.ceil(6 * max(map(len, words), default=0)) + 20


def fitting(
    shown: pd.DataFrame, settings: Mapping[str, Any], first: Sequence[str], others: Sequence[str], room: int = ROOM
) -> list[str]:
    """Returns the columns that fit into the width: `first` in any case, then the `others`, in order, that distinguish
    rows.

    settings: the column settings, with widths. room: for all columns together [px].
    """
    left = room - sum(settings[name]["width"] for name in first)
    kept = []
    for name in others:
        if settings[name]["width"] <= left and shown[name].nunique(dropna=False) > 1:
            left -= settings[name]["width"]
            kept.append(name)
    return [*first, *kept]


def signed(frame: pd.DataFrame, columns: Collection[str], decimals: int | Mapping[str, int] = 1) -> StyledTable:
    """Returns a table whose numbers in `columns` are written with their sign, a minus rather than a hyphen.

    decimals: of all of these columns, or of each. Rows still sort by the numbers. The settings of those columns must
    have no `format`, which would take precedence.
    """

    def written(value: object, digits: int) -> str:
        if not isinstance(value, float) or not np.isfinite(value):
            return ""
        text = f"{value:+,.{digits}f}".replace("-", "\u2212")
        return text if text.strip("+\u22120.") else f"±{text[1:]}"

    each = decimals if isinstance(decimals, Mapping) else dict.fromkeys(columns, decimals)
    there: Any = [name for name in columns if name in frame]
    return frame.style.format({name: partial(written, digits=each[name]) for name in there}, subset=there)


def arranged(frame: pd.DataFrame, networks: Sequence[str] = ()) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Returns a table of executions as it is shown, and the column settings of `streamlit.dataframe`.

    Every column must be in the register. Quantities are divided by the unit that suits the column's largest value;
    switches and choices become words; fields that make no difference in a row have no value there.

    networks: what the networks of the system are called, innermost first.
    """
    shown, settings = {}, {}
    for name in frame.columns:
        column = by_name(str(name))
        shown[column.name], settings[column.name] = _arrange_column(column, _deciding_values(column, frame), networks)
    return pd.DataFrame(shown), settings


def _deciding_values(column: Column, frame: pd.DataFrame) -> pd.Series[Any]:
    """Returns a column without its values in the rows in which it makes no difference."""
    values: pd.Series[Any] = frame[column.name]
    there = np.broadcast_to(applies(column, frame), len(frame)) if column.applies else np.ones(len(frame), bool)
    if there.all():
        return values
    return values.astype("Int64" if column.dtype == "int64" else object).where(there, None)


def _arrange_column(column: Column, values: pd.Series[Any], networks: Sequence[str]) -> tuple[Any, Any]:
    label, help_text = column.short, f"{column.label}. {column.description}"
    width = max(_WIDTHS.get(column.name, _WIDTHS[column.dtype]), 7 * len(label) + 22)
    if column.dtype in ("bool", "str") or (networks and column.of_network):
        words = [None if pd.isna(value) else choice_label(column, value, networks) for value in values]
        width = max(width, width_of_words(word or "" for word in words))
        return words, st.column_config.TextColumn(label, help=help_text, width=width)
    if column.dtype == "int64":
        return values, st.column_config.NumberColumn(label, help=help_text, format="%,d", width=width)
    numbers = values.to_numpy(dtype=np.float64)
    scale = scale_for(column, numbers)
    decimals = decimals_for(numbers, scale, digits=4)
    text = header(column, scale)
    return numbers / scale.factor, st.column_config.NumberColumn(
        text,
        help=f"{help_text} Unit: {scale.unit or 'none'}.",
        format=f"%,.{decimals}f",
        width=max(width, 8 * len(text) + 26),
    )


def grouped(frame: pd.DataFrame, decimals: Mapping[str, int]) -> StyledTable:
    """Returns a table whose numbers in the columns of `decimals` are written with so many, and with commas between
    thousands.

    Rows still sort by the numbers. The settings of those columns must have no `format`, which would take precedence.
    """
    written: dict[Any, Any] = {name: partial(_format_grouped, digits=digits) for name, digits in decimals.items()}
    return frame.style.format(written, subset=list(written))


def _format_grouped(value: float, digits: int) -> str:
    return f"{value:,.{digits}f}".replace("-", "\u2212") if np.isfinite(value) else ""


def _marked_row(shown: pd.DataFrame, place: int) -> StyledTable:
    """Return the table with a ground under one row that suits both themes."""
    return shown.style.set_properties(subset=pd.IndexSlice[[shown.index[place]], :], **{"background-color": _MARK})


def table(
    frame: pd.DataFrame,
    key: str,
    alt: str,
    *,
    height: int,
    on_select: Callable[[], None] | None = None,
    order: Sequence[str] | None = None,
    networks: Sequence[str] = (),
    marked: int | None = None,
) -> None:
    """Shows a table of executions. on_select: callback when a row is picked
    (`st.session_state[key].selection.rows`). networks: as for `arranged`. marked: place of a row with a ground of its
    own."""
    shown, settings = arranged(frame, networks)
    more: dict[str, Any] = {} if on_select is None else {"on_select": on_select, "selection_mode": "single-row"}
    st.dataframe(
        shown if marked is None else _marked_row(shown, marked),
        hide_index=True,
        height=height,
        row_height=ROW,
        column_config=settings,
        column_order=order,
        key=key,
        placeholder=ABSENT,
        alt=alt,
        **more,
    )

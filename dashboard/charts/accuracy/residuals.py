"""Signed errors of predictions against a field of the runs."""

from __future__ import annotations

import math
import re
from html import escape
from typing import Any, Final

import numpy as np
import pandas as pd

from dashboard.charts.accuracy.measured import BAND, shown_marks
from dashboard.charts.elements.drawing import Drawing
from dashboard.charts.elements.palette import Palette, palette
from dashboard.charts.elements.template import Chart, base, empty, log_ticks, noted
from dashboard.words.names import in_sentence
from dashboard.words.numbers import count, signed_percent

__all__ = ["residuals"]

HEIGHT: Final = 340
MOST_CLASSES: Final = 14
"""Most values of a field with separate columns; above it, numbers get a logarithmic axis and words are joined."""
PARTS: Final = 8
"""Parts of a range of numbers with a median each."""
OTHER: Final = "others"
_BREAKS: Final = re.compile(r"(?<=[ /,+:_-])")
_LINES: Final = 3
"""Lines of the name of a column."""
_SPREAD: Final = 0.32
_GOLDEN: Final = 0.618034
"""Golden ratio: its multiples, modulo 1, fill a width evenly for any number of points."""


def residuals(
    rows: pd.DataFrame, values: pd.Series[Any], label: str, mode: str = "light", *, height: int = HEIGHT
) -> Chart:
    """Draws signed errors against a field, with the median of every value, or of every eighth of a range.

    rows: columns row, id, model, hardware, error [fraction]. values: the field, words or numbers, indexed like rows;
    rows without a value are left out.
    """
    colours = palette(mode)
    known = values.notna()
    shown = shown_marks(rows[known])
    values = values[known]
    if not len(shown):
        return empty(colours, height, f"No run here states {in_sentence(label)}.")
    figure = base(colours, height)
    numeric = values.dtype == np.float64
    if numeric and values.nunique() > MOST_CLASSES:
        places, groups, axis = _place_numbers(values)
    else:
        places, groups, axis = _place_classes(values, numeric)
    bounds = _error_range(rows.loc[values.index, "error"])
    figure.add_shape(
        type="rect",
        x0=0,
        x1=1,
        xref="x domain",
        y0=-100 * BAND,
        y1=100 * BAND,
        yref="y",
        fillcolor=colours.grid,
        opacity=0.6,
        line={"width": 0},
        layer="below",
    )
    figure.add_hline(y=0, line={"color": colours.muted, "width": 1.2}, layer="below")
    close = (shown["error"].abs() <= BAND).to_numpy(bool)
    for which, colour, symbol in ((close, colours.ramp(0.65), "circle"), (~close, colours.worse, "diamond")):
        part = shown[which]
        figure.draw(
            "scatter",
            x=places.loc[part.index].tolist(),
            y=(100 * part["error"]).clip(*bounds).tolist(),
            mode="markers",
            marker={"size": 5, "color": colour, "symbol": symbol, "opacity": 0.6},
            customdata=part[["row"]].to_numpy(int).tolist(),
            hovertext=[
                f"<b>{escape(str(model)[:60] or str(name)[:60])} · {escape(str(hardware)[:40])}</b><br>"
                f"{escape(label)} {escape(_format_field_value(value))}<br>error {signed_percent(error)}"
                for name, model, hardware, error, value in zip(
                    part["id"], part["model"], part["hardware"], part["error"], values.loc[part.index], strict=True
                )
            ],
            hovertemplate="%{hovertext}<extra></extra>",
        )
    medians = _draw_medians(
        rows.loc[values.index, "error"], groups, places, figure, colours, bounds[1], axis.get("type") == "log"
    )
    figure.update_xaxes(title=label, **axis)
    figure.update_yaxes(
        title="Calibrated over measured", ticksuffix=" %", showgrid=True, range=[bounds[0] * 1.05, bounds[1] * 1.3]
    )
    return Chart(figure, _summarize_medians(medians, label))


def _format_field_value(value: Any) -> str:
    return f"{value:,.6g}" if isinstance(value, float) else str(value)


def _error_range(error: pd.Series[Any]) -> tuple[float, float]:
    """The range of the axis [%]; the few errors beyond are drawn at its ends."""
    size = 100 * float(np.quantile(error.abs().to_numpy(np.float64), 0.995))
    far = max(20.0, math.ceil(size / 10) * 10.0)
    return -far, far


def _place_classes(values: pd.Series[Any], numeric: bool) -> tuple[pd.Series[Any], pd.Series[Any], dict[str, Any]]:
    """One column per value: where every row is drawn, its column, and the axis."""
    if numeric:
        words = {value: f"{value:,.6g}" for value in sorted(values.unique())}
        kept = list(words.values())
        column = values.map(words)
    else:
        frequent = values.value_counts()
        kept = sorted(frequent.index[:MOST_CLASSES].astype(str))
        column = values.where(values.isin(kept), OTHER)
        kept += [OTHER] * (OTHER in set(column))
    position = column.map({word: index for index, word in enumerate(kept)}).astype(np.float64)
    # Marks side by side within a column, in the order of the table, so that drawing again changes nothing.
    places = position + _SPREAD * (2 * ((column.groupby(column).cumcount() * _GOLDEN + 0.5) % 1) - 1)
    return (
        places,
        position,
        {
            "tickvals": list(range(len(kept))),
            "ticktext": [_lines(word, 15 if len(kept) > 5 else 30) for word in kept],
            "range": [-0.6, len(kept) - 0.4],
        },
    )


def _lines(word: str, width: int) -> str:
    """Break a value below its column into at most three lines of `width` characters. The end is kept: values differ
    there."""
    pieces = [piece[start : start + width] for piece in _BREAKS.split(word) for start in range(0, len(piece), width)]
    lines = [""]
    for piece in filter(None, pieces):
        if len(lines[-1]) + len(piece) <= width:
            lines[-1] += piece
        else:
            lines.append(piece)
    if len(lines) > _LINES:
        lines = [*lines[: _LINES - 1], f"…{lines[-1]}"]
    return "<br>".join(escape(line.strip()) for line in lines)


def _place_numbers(values: pd.Series[Any]) -> tuple[pd.Series[Any], pd.Series[Any], dict[str, Any]]:
    """A continuous axis; for the medians, rows are grouped into parts of equal width."""
    low, high = float(values.min()), float(values.max())
    logarithmic = low > 0 and high / low > 20
    edges = np.geomspace(low, high, PARTS + 1) if logarithmic else np.linspace(low, high, PARTS + 1)
    part = np.clip(np.searchsorted(edges, values.to_numpy(np.float64), side="right") - 1, 0, PARTS - 1)
    groups = pd.Series(part.astype(np.float64), index=values.index)
    if logarithmic:
        air = 0.03 * math.log10(high / low)
        span = [math.log10(low) - air, math.log10(high) + air]
        return values, groups, {"type": "log", "range": span, **log_ticks(low, high, most=12)}
    air = 0.03 * (high - low)
    year = low > 1_900 and high < 2_200
    return values, groups, {"range": [low - air, high + air], "tickformat": "d" if year else ",~g"}


def _draw_medians(
    error: pd.Series[Any],
    groups: pd.Series[Any],
    places: pd.Series[Any],
    figure: Drawing,
    colours: Palette,
    top: float,
    logarithmic: bool,
) -> list[tuple[float, int]]:
    """Draw the median error of every group and print it above; returns median [fraction] and rows of each."""
    found, notes = [], []
    for index in groups.groupby(groups).groups.values():
        median, where = float(error.loc[index].median()), places.loc[index]
        found.append((median, len(index)))
        ends = [float(where.min()), float(where.max())]
        figure.draw(
            "scatter",
            x=ends,
            y=[100 * median] * 2,
            mode="lines+markers",
            hoverinfo="skip",
            line={"color": colours.text, "width": 2.5},
            marker={"size": 3, "color": colours.text},
        )
        middle = math.log10(ends[0] * ends[1]) / 2 if logarithmic else sum(ends) / 2
        notes.append(
            noted(f"{signed_percent(median)}<br>{count(len(index))}", colours, x=middle, y=top * 1.28, yanchor="top")
        )
    figure.update_layout(annotations=notes)
    return found


def _summarize_medians(medians: list[tuple[float, int]], label: str) -> str:
    low, high = min(medians)[0], max(medians)[0]
    return f"Median errors by {label} lie between {signed_percent(low)} and {signed_percent(high)}."

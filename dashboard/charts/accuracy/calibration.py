"""A calibration: errors of runs before and after a fit, and what the fit did to each parameter."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from dashboard.charts.accuracy.measured import BAND, shown_marks
from dashboard.charts.elements.palette import Palette, palette
from dashboard.charts.elements.template import Chart, base, empty, log_ticks, noted, trace
from dashboard.words.numbers import format_value, percent, signed_percent

__all__ = ["Moved", "before_and_after", "parameters_moved"]

HEIGHT: Final = 400
FARTHEST: Final = 1.0
"""Errors beyond are drawn at the edge [fraction]."""
_ROW: Final = 40
_MOST: Final = 400


class Moved(NamedTuple):
    """A parameter before and after a fit, all as multiples of the value before."""

    label: str
    value: float
    prior_range: tuple[float, float]
    value_range: tuple[float, float]
    told: str
    """Value before and after, with unit."""


def before_and_after(rows: pd.DataFrame, after: str, mode: str = "light", *, height: int = HEIGHT) -> Chart:
    """Draws how far predictions are off, before and after a fit, against the measured step time.

    rows: columns row, label, model (text), measured [s], before, after [predicted over measured minus 1]; `after` may
    be NaN. after: what the errors after are of, such as "left out of the fit".
    """
    colours = palette(mode)
    if not len(rows):
        return empty(colours, height, "No run can be used.")
    shown = shown_marks(rows.assign(error=rows["before"]), _MOST)
    figure = base(colours, height)
    times = shown["measured"].to_numpy(np.float64)
    far = max(float(shown[["before", "after"]].abs().max().max()), 1.5 * BAND)
    edge = min(FARTHEST, far) * 1.12
    old, new = (shown[name].clip(-edge, edge).to_numpy(np.float64) * 100 for name in ("before", "after"))
    figure.add_trace(_draw_error_changes(times, old, new, colours))
    for name, values, look in (
        ("before the fit", old, {"symbol": "circle-open", "size": 8, "color": colours.muted, "line": {"width": 1.6}}),
        (after, new, {"symbol": "circle", "size": 8, "color": colours.ramp(0.65)}),
    ):
        figure.draw(
            "scatter",
            x=times.tolist(),
            y=values.tolist(),
            mode="markers",
            name=name,
            marker=look,
            hovertext=[_run_hover_text(row, after) for row in shown.to_dict("records")],
            hovertemplate="%{hovertext}<extra></extra>",
            customdata=[[int(row)] for row in shown["row"]],
        )
    low, high = math.log10(times.min()), math.log10(times.max())
    air = max(0.06 * (high - low), 0.08)
    figure.update_layout(
        showlegend=True,
        legend={"itemsizing": "constant"},
        margin={"t": 28},
        shapes=[
            {
                "type": "rect",
                "xref": "paper",
                "x0": 0,
                "x1": 1,
                "y0": -100 * BAND,
                "y1": 100 * BAND,
                "layer": "below",
                "fillcolor": colours.grid,
                "opacity": 0.6,
                "line": {"width": 0},
            },
            {
                "type": "line",
                "xref": "paper",
                "x0": 0,
                "x1": 1,
                "y0": 0,
                "y1": 0,
                "layer": "below",
                "line": {"color": colours.muted, "width": 1.2},
            },
        ],
    )
    figure.update_xaxes(
        type="log",
        range=[low - air, high + air],
        showgrid=True,
        title="Step time, measured, s",
        **log_ticks(10 ** (low - air), 10 ** (high + air)),
    )
    figure.update_yaxes(
        range=[-100 * edge, 100 * edge], ticksuffix=" %", showgrid=True, title="Predicted over measured, minus 1"
    )
    return Chart(figure, _summarize_calibration(rows, after, len(shown)))


def _draw_error_changes(
    times: Sequence[float] | np.ndarray[Any, Any], old: Any, new: Any, colours: Palette
) -> dict[str, Any]:
    """Draw a line from every error before to the error after, if known."""
    x: list[float | None] = []
    y: list[float | None] = []
    for time, first, last in zip(times, old, new, strict=True):
        if math.isfinite(last):
            x += [float(time), float(time), None]
            y += [float(first), float(last), None]
    return trace(
        "scatter",
        x=x,
        y=y,
        mode="lines",
        line={"color": colours.muted, "width": 1},
        opacity=0.6,
        hoverinfo="skip",
        showlegend=False,
    )


def _run_hover_text(row: Mapping[Any, Any], after: str) -> str:
    name = escape(f"{str(row['label'])[:60]} · {str(row['model'])[:60]}".rstrip(" ·"))
    told = f"<b>{name}</b><br>measured {format_value('total_time', row['measured'])}<br>" + (
        f"before the fit {signed_percent(row['before'])}"
    )
    return told + (f"<br>{escape(after)} {signed_percent(row['after'])}" if math.isfinite(row["after"]) else "")


def _summarize_calibration(rows: pd.DataFrame, after: str, drawn: int) -> str:
    of = f"{drawn:,} of {len(rows):,} runs drawn" if drawn < len(rows) else f"{len(rows):,} runs"
    before = percent(float(rows["before"].abs().mean()))
    known = rows["after"].dropna()
    told = f", {after} {percent(float(known.abs().mean()))}" if len(known) else ""
    return f"{of}: mean error before the fit {before}{told}."


def parameters_moved(moved: Sequence[Moved], mode: str = "light") -> Chart:
    """Draws every fitted parameter over its value before: the range of its prior, and the value and range after."""
    colours = palette(mode)
    if not moved:
        return empty(colours, 120, "No parameter was fitted.")
    figure = base(colours, 46 + _ROW * len(moved))
    places = [len(moved) - 1 - index for index in range(len(moved))]
    bars = (
        ([item.prior_range for item in moved], colours.grid, 13, "expected beforehand"),
        ([item.value_range for item in moved], colours.ramp(0.45), 5, "after the fit"),
    )
    for ranges, colour, width, name in bars:
        x: list[float | None] = []
        y: list[float | None] = []
        for (low, high), place in zip(ranges, places, strict=True):
            x += [100 * (low - 1), 100 * (high - 1), None]
            y += [place, place, None]
        figure.draw(
            "scatter", x=x, y=y, mode="lines", line={"color": colour, "width": width}, name=name, hoverinfo="skip"
        )
    figure.draw(
        "scatter",
        x=[100 * (item.value - 1) for item in moved],
        y=places,
        mode="markers",
        showlegend=False,
        marker={"color": colours.ramp(0.8), "size": 10, "line": {"color": colours.background, "width": 1.5}},
        hovertext=[f"<b>{escape(item.label)}</b><br>{escape(item.told)}" for item in moved],
        hovertemplate="%{hovertext}<extra></extra>",
    )
    ends = [100 * (end - 1) for item in moved for end in (*item.prior_range, *item.value_range)]
    low, high = min(ends), max(ends)
    air = 0.06 * (high - low)
    labels = [
        noted(
            signed_percent(item.value - 1), colours, x=100 * (item.value - 1), y=place, yshift=13, colour=colours.text
        )
        for item, place in zip(moved, places, strict=True)
    ]
    figure.update_layout(
        showlegend=True,
        margin={"t": 26},
        annotations=labels,
        shapes=[
            {
                "type": "line",
                "x0": 0,
                "x1": 0,
                "y0": -0.6,
                "y1": len(moved) - 0.4,
                "layer": "below",
                "line": {"color": colours.muted, "width": 1},
            }
        ],
    )
    figure.update_xaxes(range=[low - air, high + air], ticksuffix=" %", nticks=6, showgrid=True)
    figure.update_yaxes(
        tickvals=places,
        ticktext=[escape(item.label) for item in moved],
        range=[-0.6, len(moved) - 0.3],
        tickfont={"size": 12, "color": colours.text},
    )
    far = max(moved, key=lambda item: abs(math.log(item.value)))
    return Chart(figure, f"Fitted parameters over their value before; {far.label} moved most: {far.told}.")

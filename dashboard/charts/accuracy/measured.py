"""Predicted against measured step times, and what one predicted step consists of."""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape
from typing import Any, Final

import numpy as np
import pandas as pd

from dashboard.charts.elements.drawing import Drawing
from dashboard.charts.elements.palette import TIME_KINDS, Palette, palette
from dashboard.charts.elements.template import Chart, base, draw_diagonal, empty, log_ticks, note, noted
from dashboard.words.numbers import format_value, percent, signed_percent

__all__ = ["BAND", "MAX_MARKS", "PARTS", "measured", "shown_marks", "step_parts"]

HEIGHT: Final = 460
MAX_MARKS: Final = 2_000
BAND: Final = 0.1
"""Relative error inside which a prediction counts as close."""

PARTS: Final[Mapping[str, tuple[str, str | None]]] = {
    "linear": ("Linear layers", "forward"),
    "attention": ("Attention", "forward"),
    "elementwise": ("Element-wise", "forward"),
    "launch": ("Kernel launches", "forward"),
    "ends": ("Embedding and head", "forward"),
    "optimizer": ("Optimizer step", "optimizer"),
    "recompute": ("Recompute", "recompute"),
    "bubble": ("Pipeline bubble", "bubble"),
    "tensor_exposed": ("TP comm., exposed", "tensor"),
    "context_exposed": ("CP comm., exposed", "context"),
    "expert_exposed": ("EP comm., exposed", "expert"),
    "pipeline_exposed": ("PP comm., exposed", "pipeline"),
    "data_exposed": ("DP comm., exposed", "data"),
    "gather_exposed": ("Weight gathers, exposed", "data"),
    "tied": ("Tied embeddings", "data"),
    "straggler": ("Stragglers", None),
    "fixed": ("Fixed per step", None),
}
"""Parts of a step of the calibrated model: name, and the kind of time whose colour it has."""


def shown_marks(rows: pd.DataFrame, most: int = MAX_MARKS) -> pd.DataFrame:
    """Returns at most `most` rows: the worst half, and an even choice of the others."""
    if len(rows) <= most:
        return rows
    order = rows["error"].abs().sort_values(ascending=False, kind="stable").index
    rest = order[most // 2 :]
    even = rest[np.unique(np.linspace(0, len(rest) - 1, most - most // 2).round().astype(int))]
    return rows.loc[rows.index.isin(order[: most // 2].union(even))]


def measured(rows: pd.DataFrame, mode: str = "light", *, selected: int | None = None, height: int = HEIGHT) -> Chart:
    """Draws predicted against measured step times, logarithmic, with the diagonal and the band of ±10 %.

    rows: columns row (a number that marks return when clicked), model, hardware, measured_step_time_s,
    predicted_step_time_s [s], error [fraction].
    """
    colours = palette(mode)
    if not len(rows):
        return empty(colours, height, "No run here has both a prediction and a measured time.")
    shown = shown_marks(rows)
    figure = base(colours, height)
    times = shown[["measured_step_time_s", "predicted_step_time_s"]].to_numpy(dtype=np.float64)
    low, high = float(times.min()) / 1.4, float(times.max()) * 1.4
    _draw_guides(figure, low, high, colours)
    close = (shown["error"].abs() <= BAND).to_numpy(bool)
    looks = (("within 10 %", close, colours.ramp(0.65), "circle"), ("further off", ~close, colours.worse, "diamond"))
    for name, which, colour, symbol in looks:
        part = shown[which]
        ring = [int(value) == selected for value in part["row"]]
        figure.draw(
            "scatter",
            x=part["measured_step_time_s"].tolist(),
            y=part["predicted_step_time_s"].tolist(),
            mode="markers",
            name=f"{name} ({len(part):,})",
            marker={
                "size": [14 if flag else 6 for flag in ring],
                "color": colour,
                "symbol": symbol,
                "opacity": 0.75,
                "line": {"width": [2.5 if flag else 0 for flag in ring], "color": colours.text},
            },
            customdata=[[int(value)] for value in part["row"]],
            hovertext=[_run_hover_text(row) for row in _row_records(part)],
            hovertemplate="%{hovertext}<extra></extra>",
        )
    span = [math.log10(low), math.log10(high)]
    for update, told in ((figure.update_xaxes, "measured"), (figure.update_yaxes, "calibrated")):
        update(type="log", range=span, title=f"Step time, {told}, s", showgrid=True, **log_ticks(low, high))
    figure.update_layout(showlegend=True, legend={"itemsizing": "constant"}, margin={"t": 28})
    return Chart(figure, _summarize_errors(rows, len(shown)))


def _row_records(rows: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in row.items()} for row in rows.to_dict("records")]


def _draw_guides(figure: Drawing, low: float, high: float, colours: Palette) -> None:
    """The band of ±10 %, the diagonal, and their names at the upper end."""
    figure.draw(
        "scatter",
        x=[low, high, high, low],
        y=[low * (1 - BAND), high * (1 - BAND), high * (1 + BAND), low * (1 + BAND)],
        fill="toself",
        mode="lines",
        line={"width": 0},
        fillcolor=colours.grid,
        hoverinfo="skip",
        showlegend=False,
    )
    draw_diagonal(figure, low, high, colours)
    place = math.log10(low) + 0.6 * math.log10(high / low)
    note(figure, "equal, band ±10 %", colours, x=place, y=place, xanchor="left", yanchor="top", yshift=-14, xshift=14)


def _run_hover_text(row: Mapping[str, Any]) -> str:
    name = escape(str(row["model"])[:60] or str(row["id"])[:60])
    return (
        f"<b>{name} · {escape(str(row['hardware'])[:40])}</b><br>"
        f"measured {format_value('total_time', row['measured_step_time_s'])}<br>"
        f"calibrated {format_value('total_time', row['predicted_step_time_s'])}, {signed_percent(row['error'])}"
    )


def _summarize_errors(rows: pd.DataFrame, drawn: int) -> str:
    size = rows["error"].abs()
    of = f"{drawn:,} of {len(rows):,} runs drawn" if drawn < len(rows) else f"{len(rows):,} runs"
    return (
        f"{of}, predicted against measured step time: {percent(float((size <= BAND).mean()))} within 10 %, "
        f"median error {percent(float(size.median()))}, largest {percent(float(size.max()))}."
    )


def step_parts(parts: Mapping[str, float], taken: float, mode: str = "light") -> Chart:
    """Draws what a predicted step consists of, with the measured step for comparison.

    parts: step and the keys of `PARTS` [s]. taken: measured [s], NaN where it was not measured.
    """
    colours = palette(mode)
    kinds = {kind.key: kind for kind in TIME_KINDS}
    step = float(parts["step"])
    bars: list[tuple[str, float, str | None]] = [("Measured", taken, colours.text)] if math.isfinite(taken) else []
    bars.append(("Calibrated", step, colours.muted))
    wholes = len(bars)
    for key, (name, kind) in PARTS.items():
        seconds = float(parts[key])
        if seconds > 0.0005 * step:
            bars.append((name, seconds, kinds[kind].colour(colours) if kind else colours.muted))
    if not math.isfinite(step):
        return empty(colours, 120, "This run has no prediction.")
    figure = base(colours, 34 + 21 * len(bars))
    figure.draw(
        "bar",
        x=[seconds for _, seconds, _ in bars],
        y=list(range(len(bars))),
        orientation="h",
        width=0.62,
        marker={
            "color": [colour or colours.muted for _, _, colour in bars],
            "pattern": colours.hatch_some([colour is None for _, _, colour in bars], 5, 0.9),
        },
        hoverinfo="skip",
    )
    longest = max(seconds for _, seconds, _ in bars)
    shares = {name: f" · {percent(seconds / step)}" for name, seconds, _ in bars[wholes:]}  # of the predicted step
    labels = [
        noted(
            f"{format_value('total_time', seconds)}{shares.get(name, '')}",
            colours,
            x=seconds,
            y=position,
            xanchor="left",
            xshift=4,
            colour=colours.text,
        )
        for position, (name, seconds, _) in enumerate(bars)
    ]
    figure.update_layout(annotations=labels)
    figure.update_xaxes(range=[0, 1.7 * longest], visible=False)
    figure.update_yaxes(
        tickvals=list(range(len(bars))),
        ticktext=[name for name, _, _ in bars],
        autorange="reversed",
    )
    largest = max(bars[-(len(bars) - (2 if math.isfinite(taken) else 1)) :], key=lambda bar: bar[1], default=bars[0])
    return Chart(figure, f"The predicted step of {format_value('total_time', step)}; most of it is {largest[0]}.")

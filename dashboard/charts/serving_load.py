"""Latencies of a service against its load, up to saturation."""

from __future__ import annotations

from typing import Final

import pandas as pd

from dashboard.charts.elements.drawing import Drawing
from dashboard.charts.elements.palette import palette
from dashboard.charts.elements.template import Chart, base, note
from dashboard.words.numbers import format_value, plain, scale_for
from engine.serving import by_name

__all__ = ["load_curve"]

HEIGHT: Final = 260
LEVELS: Final = ("p50", "p90", "p99")


def load_curve(
    rows: pd.DataFrame,
    figure: str,
    limit: float | None,
    load: float,
    unit: str,
    mode: str = "light",
    mark: str = "your load",
) -> Chart:
    """Draws a latency against the load: its median, p90 and p99, the limit, and the load that is asked for.

    Args:
        rows: of `engine.serving.ServiceSizing.curve`.
        figure: "first_token", "per_token" or "request".
        limit: of the latency [s]; None for none.
        load: that is marked.
        unit: of the load.
        mode: the theme.
        mark: words for the marked load.
    """
    colours = palette(mode)
    columns = [by_name(f"{figure}_{level}") for level in LEVELS]
    values = rows[[column.name for column in columns]]
    # Near saturation latencies grow without bound; beyond three times the limit no one looks.
    highest = float(values.to_numpy(float).max())
    highest = highest if limit is None else min(highest, max(3.0 * limit, 2.0 * float(values.iloc[0].max())))
    scale = scale_for(columns[0], [highest])
    drawing = base(colours, HEIGHT)
    for place, (level, column) in enumerate(zip(LEVELS, columns, strict=True)):
        drawing.draw(
            "scatter",
            x=rows["load"].tolist(),
            y=(rows[column.name] / scale.factor).tolist(),
            mode="lines+markers",
            name=level,
            line={"color": colours.ramp(0.4 + 0.3 * place), "width": 1.6},
            marker={"size": 5, "color": colours.ramp(0.4 + 0.3 * place)},
            hovertext=[
                f"<b>{plain(each['load'])} {unit}</b><br>{column.label} {format_value(column, each[column.name])}"
                for each in rows.to_dict("records")
            ],
            hovertemplate="%{hovertext}<extra></extra>",
        )
    end = float(rows["load"].max())
    if limit is not None:
        _draw_line(drawing, [0.0, end], [limit / scale.factor] * 2, colours.worse)
        note(
            drawing,
            "limit",
            colours,
            x=0,
            y=limit / scale.factor,
            xanchor="left",
            yanchor="bottom",
            colour=colours.worse,
        )
    _draw_line(drawing, [load, load], [0.0, highest / scale.factor], colours.muted)
    # The words are on the side with room.
    side, shift = ("right", -4) if load > end / 2.0 else ("left", 4)
    note(drawing, mark, colours, x=load, y=0, xanchor=side, yanchor="bottom", xshift=shift)
    label = columns[0].label.removesuffix(" (p50)")
    drawing.update_xaxes(title=f"Load, {unit}", range=[0, 1.02 * end])
    drawing.update_yaxes(
        title=scale.title(f"{label}, modelled"), range=[0, 1.05 * highest / scale.factor], showgrid=True
    )
    drawing.update_layout(showlegend=True, margin={"t": 26})
    within = rows[rows["load"] <= load]
    now = within.iloc[-1] if len(within) else rows.iloc[0]
    return Chart(
        drawing,
        f"{label} against load up to {plain(end)} {unit}: median {format_value(columns[0], now[columns[0].name])}, p99 "
        f"{format_value(columns[2], now[columns[2].name])} near {mark} of {plain(load)} {unit}.",
    )


def _draw_line(drawing: Drawing, x: list[float], y: list[float], colour: str) -> None:
    drawing.draw(
        "scatter",
        x=x,
        y=y,
        mode="lines",
        line={"color": colour, "width": 1.2, "dash": "dash"},
        hoverinfo="skip",
        showlegend=False,
    )

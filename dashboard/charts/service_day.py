"""A day of a service: demand with the capacity that follows it, and GPUs over the hours."""

from __future__ import annotations

from typing import Any, Final

import pandas as pd

from dashboard.charts.elements.palette import palette
from dashboard.charts.elements.template import Chart, base, note
from dashboard.words.numbers import plain
from engine.serving.days import ServedDay

__all__ = ["demand_and_capacity", "gpus_over_day"]

HEIGHT: Final = 280
TICKS: Final = (0, 6, 12, 18, 24)


def demand_and_capacity(hours: pd.DataFrame, day: ServedDay, mode: str = "light") -> Chart:
    """Draw the demand of a day and the load that the ready replicas hold within the limits.

    Args:
        hours: of `engine.serving.days.ServingDays`.
        day: the same day.
        mode: the theme.
    """
    colours = palette(mode)
    drawing = base(colours, HEIGHT)
    times, demand = _close_day(hours, "time"), _close_day(hours, "requests_per_second")
    capacity = [each * day.capacity for each in _close_day(hours, "ready")]
    for name, values, shade, width in (
        ("capacity of ready replicas", capacity, colours.ramp(0.45), 1.4),
        ("demand", demand, colours.ramp(0.95), 2.2),
    ):
        words = [f"{name} {plain(value)} requests/s" for value in values]
        _draw_curve(drawing, times, values, name, words, width=width, color=shade)
    highest = max([*demand, *capacity])
    _style_hours(drawing)
    drawing.update_yaxes(title="Requests per second", range=[0, 1.08 * highest], showgrid=True)
    drawing.update_layout(showlegend=True, margin={"t": 30, "r": 18})
    return Chart(
        drawing,
        f"Demand over a day from {plain(min(demand))} to {plain(max(demand))} requests/s, and capacity within the "
        f"limits from {plain(min(capacity))} to {plain(max(capacity))} requests/s.",
    )


def gpus_over_day(hours: pd.DataFrame, day: ServedDay, mode: str = "light") -> Chart:
    """Draw the paid GPUs and the ready GPUs over a day, with the number of reserved ones as a line.

    Args:
        hours: of `engine.serving.days.ServingDays`.
        day: the same day.
        mode: the theme.
    """
    colours = palette(mode)
    drawing = base(colours, HEIGHT)
    times, paid = _close_day(hours, "time"), _close_day(hours, "gpus")
    ready = [each * day.size for each in _close_day(hours, "ready")]
    for name, values, shade in (
        ("paid: ready or starting", paid, colours.ramp(0.95)),
        ("ready", ready, colours.ramp(0.5)),
    ):
        words = [f"{value:,.0f} GPUs {name.split(':')[0]}" for value in values]
        curve: dict[str, Any] = {"fill": "tozeroy", "fillcolor": shade}
        _draw_curve(drawing, times, values, name, words, curve, width=1, color=shade)
    reserved = day.reserved * day.size
    if reserved:
        drawing.draw(
            "scatter",
            x=[0, 24],
            y=[reserved, reserved],
            mode="lines",
            line={"color": colours.text, "width": 1.4, "dash": "dash"},
            hoverinfo="skip",
            showlegend=False,
        )
        # On a ground of its own: the note may lie on the filled areas.
        note(
            drawing,
            "reserved",
            colours,
            x=0,
            y=reserved,
            xanchor="left",
            yanchor="bottom",
            xshift=4,
            yshift=2,
            bgcolor=colours.background,
        )
    _style_hours(drawing)
    drawing.update_yaxes(title="GPUs", range=[0, 1.15 * max([*paid, reserved])], showgrid=True)
    drawing.update_layout(showlegend=True, margin={"t": 30, "r": 18})
    share = f"; {reserved:,} of them reserved" if reserved else ""
    return Chart(drawing, f"GPUs over a day, from {min(paid):,.0f} to {max(paid):,.0f}{share}.")


def _draw_curve(
    drawing: Any,
    times: list[float],
    values: list[float],
    name: str,
    words: list[str],
    curve: dict[str, Any] | None = None,
    **line: Any,
) -> None:
    """Draw steps over the day, with the time and `words` of each value on hover."""
    drawing.draw(
        "scatter",
        x=times,
        y=values,
        mode="lines",
        name=name,
        line={"shape": "hv", **line},
        hovertext=[f"<b>{_format_clock(hour)}</b><br>{each}" for hour, each in zip(times, words, strict=True)],
        hovertemplate="%{hovertext}<extra></extra>",
        **(curve or {}),
    )


def _close_day(hours: pd.DataFrame, name: str) -> list[float]:
    """Return a column with the value of the last interval at its end, the end of the day."""
    values = hours[name].tolist()
    return [*values, 24.0 if name == "time" else values[-1]]


def _style_hours(drawing: Any) -> None:
    drawing.update_xaxes(
        title="Hour of the day", range=[0, 24], tickvals=list(TICKS), ticktext=[f"{each}:00" for each in TICKS]
    )


def _format_clock(hour: float) -> str:
    minutes = round(60 * hour)
    return f"{minutes // 60}:{minutes % 60:02d}"

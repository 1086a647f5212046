"""Days of a training run against its cost, a line per system over the numbers of GPUs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from dashboard.charts.elements.palette import Palette, palette
from dashboard.charts.elements.template import Chart, base, empty, log_ticks, note
from dashboard.words.amounts import format_large
from dashboard.words.numbers import counted, plain

__all__ = ["RunPoint", "days_against_cost"]

HEIGHT: Final = 360
DASHES: Final = ("solid", "dash", "dot", "dashdot", "longdash")
AIR: Final = 0.06
"""Room beyond the outermost points, as a share of an axis."""

NARROW: Final = 1.1
"""Ratio of the ends of an axis below which it is widened."""


class RunPoint(NamedTuple):
    """Run at one size: days and cost with their intervals, None where the error is unknown."""

    system: str
    num_procs: int
    layout: str
    days: float
    cost: float
    days_ends: tuple[float, float] | None
    cost_ends: tuple[float, float] | None
    mark: str
    """"chosen", "knee" or empty."""
    holds: bool
    """True if it holds all limits."""


def days_against_cost(
    points: Sequence[RunPoint],
    unit: str,
    *,
    days: float | None = None,
    cost: float | None = None,
    mode: str = "light",
) -> Chart:
    """Draw the runs of each system, with deadline and budget as lines.

    Args:
        points: of all systems, each by number of GPUs.
        unit: of the cost, "USD" or "GPU-hours".
        days: the deadline; None without one.
        cost: the budget; None without one.
        mode: the theme.
    """
    colours = palette(mode)
    if not points:
        return empty(colours, HEIGHT, "Nothing runs at any size.")
    size, words = _cost_scale(points, unit)
    points = [each._replace(cost=each.cost / size) for each in points]
    cost = None if cost is None else cost / size
    drawing = base(colours, HEIGHT)
    systems = list(dict.fromkeys(each.system for each in points))
    for place, system in enumerate(systems):
        own = [each for each in points if each.system == system]
        shade = colours.ramp(0.9 - 0.5 * place / max(1, len(systems) - 1))
        drawing.draw(
            "scatter",
            x=[each.days for each in own],
            y=[each.cost for each in own],
            mode="lines+markers",
            name=system,
            line={"color": shade, "width": 1.6, "dash": DASHES[place % len(DASHES)]},
            marker={
                "color": shade,
                "size": [11 if each.mark == "chosen" else 8 if each.mark else 5 for each in own],
                "symbol": [
                    "diamond" if each.mark == "knee" else "circle" if each.holds else "circle-open" for each in own
                ],
            },
            hovertext=[_point_words(each, unit, size) for each in own],
            hovertemplate="%{hovertext}<extra></extra>",
        )
    across = _log_axis([each.days for each in points] + ([] if days is None else [days]))
    up = _log_axis([each.cost for each in points] + ([] if cost is None else [cost]))
    drawing.update_xaxes(title="Days", **across)
    drawing.update_yaxes(title=words, showgrid=True, **up)
    for each in points:
        # The knee has a mark of its own; its words would be over an axis on narrow screens.
        if each.mark == "chosen":
            note(
                drawing,
                f"{each.num_procs:,} GPUs",
                colours,
                x=math.log10(each.days),
                y=math.log10(each.cost),
                yanchor="bottom",
                yshift=7,
            )
    if days is not None:
        _draw_limit(drawing, [days, days], [10**end for end in up["range"]], colours)
        note(
            drawing,
            "deadline",
            colours,
            x=math.log10(days),
            y=0,
            yref="paper",
            yanchor="bottom",
            xanchor="left",
            xshift=4,
            colour=colours.worse,
        )
    if cost is not None:
        _draw_limit(drawing, [10**end for end in across["range"]], [cost, cost], colours)
        note(
            drawing,
            "budget",
            colours,
            x=0,
            xref="paper",
            y=math.log10(cost),
            xanchor="left",
            yanchor="bottom",
            colour=colours.worse,
        )
    drawing.update_layout(showlegend=len(systems) > 1, margin={"t": 40 if len(systems) > 1 else 14})
    ends = [min(points, key=lambda each: each.days), max(points, key=lambda each: each.days)]
    told = " to ".join(f"{plain(each.days)} days for {format_large(size * each.cost)} {unit}" for each in ends)
    return Chart(
        drawing, f"Days against {unit} of {counted(len(points), 'size')} on {counted(len(systems), 'system')}: {told}."
    )


def _cost_scale(points: Sequence[RunPoint], unit: str) -> tuple[float, str]:
    """Return the size of the axis's unit and its name, such as (1e6, "million USD")."""
    most = max(each.cost for each in points)
    size, word = next(
        (pair for pair in ((1e9, "bn "), (1e6, "million "), (1e3, "thousand ")) if most >= pair[0]), (1.0, "")
    )
    return size, f"{word}{unit}"


def _draw_limit(drawing: Any, x: list[float], y: list[float], colours: Palette) -> None:
    drawing.draw(
        "scatter",
        x=x,
        y=y,
        mode="lines",
        line={"color": colours.worse, "width": 1.2, "dash": "dash"},
        hoverinfo="skip",
        showlegend=False,
    )


def _log_axis(values: Sequence[float]) -> dict[str, Any]:
    low, high = min(values), max(values)
    if high < NARROW * low:  # room for two ticks
        low, high = low / NARROW, high * NARROW
    air = AIR * math.log10(high / low)
    return {"type": "log", "range": [math.log10(low) - air, math.log10(high) + 2 * air], **log_ticks(low, high)}


def _point_words(point: RunPoint, unit: str, size: float) -> str:
    days = "" if point.days_ends is None else " ({} to {})".format(*map(plain, point.days_ends))
    cost = "" if point.cost_ends is None else " ({} to {})".format(*map(format_large, point.cost_ends))
    mark = {"chosen": "<br>chosen", "knee": "<br>knee: fewer days cost more from here"}.get(point.mark, "")
    return (
        f"<b>{point.num_procs:,} GPUs, {point.system}</b><br>{point.layout}<br>{plain(point.days)} days{days}"
        f"<br>{format_large(size * point.cost)} {unit}{cost}{mark}" + ("" if point.holds else "<br>misses a limit")
    )

"""Phases of a run over time: a bar for each, with its GPUs and the interval of its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from dashboard.charts.elements.palette import palette
from dashboard.charts.elements.template import Chart, base, empty, note
from dashboard.words.numbers import counted, plain

__all__ = ["PhaseBar", "phases_over_time"]

ROW: Final = 46
"""Height of a bar with its name [px]."""
AROUND: Final = 70
"""Height of axis and margins [px]."""
AIR: Final = 1.12
"""Length of the axis over the last end."""


class PhaseBar(NamedTuple):
    """Phase on the axis of days: name, first and last day, and words about it."""

    name: str
    start: float
    end: float
    words: str
    ends: tuple[float, float] | None = None
    """Interval of the last day; None where unknown."""
    is_service: bool = False


def phases_over_time(bars: Sequence[PhaseBar], *, deadline: float | None = None, mode: str = "light") -> Chart:
    """Draw phases over days, the first on top; services are hatched.

    Args:
        bars: in their order.
        deadline: to mark [days]; None without one.
        mode: the theme.
    """
    colours = palette(mode)
    height = AROUND + ROW * max(len(bars), 1)
    if not bars:
        return empty(colours, height, "No phases reach the goal.")
    drawing = base(colours, height)
    last = max([*(each.end for each in bars), *(each.ends[1] for each in bars if each.ends), deadline or 0.0])
    names = list(range(len(bars)))[::-1]
    for place, each in zip(names, bars, strict=True):
        drawing.draw(
            "bar",
            orientation="h",
            y=[place],
            # A phase of an hour in a run of months stays visible.
            x=[max(each.end - each.start, last / 400)],
            base=[each.start],
            width=0.42,
            marker={
                "color": colours.panel
                if each.is_service
                else colours.ramp(0.9 - 0.5 * (len(bars) - 1 - place) / len(bars)),
                **({"pattern": colours.hatch()} if each.is_service else {}),
            },
            hovertext=[f"<b>{each.name}</b><br>{each.words}"],
            hovertemplate="%{hovertext}<extra></extra>",
            showlegend=False,
        )
        if each.ends is not None:
            drawing.draw(
                "scatter",
                x=list(each.ends),
                y=[place, place],
                mode="lines",
                line={"color": colours.text, "width": 1.4},
                hoverinfo="skip",
                showlegend=False,
            )
        note(
            drawing,
            f"<b>{each.name}</b> {each.words}",
            colours,
            x=0,
            xref="paper",
            y=place + 0.27,
            xanchor="left",
            yanchor="bottom",
        )
    if deadline is not None:
        drawing.draw(
            "scatter",
            x=[deadline, deadline],
            y=[-0.5, len(bars) - 0.2],
            mode="lines",
            line={"color": colours.worse, "width": 1.2, "dash": "dash"},
            hoverinfo="skip",
            showlegend=False,
        )
        note(
            drawing,
            "deadline",
            colours,
            x=deadline,
            y=-0.5,
            xanchor="right",
            xshift=-4,
            yanchor="bottom",
            colour=colours.worse,
        )
    drawing.update_xaxes(title="Days", range=[0, AIR * last])
    drawing.update_yaxes(range=[-0.55, len(bars) - 0.1], showticklabels=False, showgrid=False)
    drawing.update_layout(showlegend=False, margin={"t": 10, "r": 18, "l": 8})
    told = "; ".join(f"{each.name} from day {plain(each.start)} to {plain(each.end)}" for each in bars)
    return Chart(drawing, f"{counted(len(bars), 'phase')} over time: {told}.")

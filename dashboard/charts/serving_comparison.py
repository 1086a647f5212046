"""Parts of the decode steps of two deployments, on one axis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dashboard.charts.elements.palette import palette
from dashboard.charts.elements.template import Chart, base, name_rows, noted
from dashboard.words.numbers import format_value
from engine.serving import STEP_PARTS, by_name

__all__ = ["compared_steps"]

_LEAST: Final = 0.002
"""Share of the longer step below which a part is left out."""


def compared_steps(
    one: Mapping[Any, Any], other: Mapping[Any, Any], mode: str = "light", narrow: bool = False
) -> Chart:
    """Draws the parts of two decode steps, a pair of bars each: A above B.

    Args:
        one, other: `decode_step_time` and its parts of A and B [s].
        mode: the theme.
        narrow: whether the window is narrow.
    """
    colours, time = palette(mode), by_name("decode_step_time")
    longest = max(float(row["decode_step_time"]) for row in (one, other))
    parts = [name for name in STEP_PARTS if max(float(one[name]), float(other[name])) > _LEAST * longest]
    figure = base(colours, 34 + 38 * len(parts))
    notes = []
    for shift, letter, row, tone in ((-0.21, "A", one, colours.ramp(0.75)), (0.21, "B", other, colours.ramp(0.4))):
        places = [position + shift for position in range(len(parts))]
        values = [float(row[name]) for name in parts]
        figure.draw(
            "bar",
            x=values,
            y=places,
            orientation="h",
            width=0.36,
            name=letter,
            marker={"color": tone},
            hovertext=[f"<b>{letter}</b> {by_name(name).label}<br>{by_name(name).description}" for name in parts],
            hovertemplate="%{hovertext}<extra></extra>",
        )
        notes += [
            noted(
                f"{letter} {format_value(time, value)}",
                colours,
                x=value,
                y=place,
                xanchor="left",
                xshift=4,
                colour=colours.text,
            )
            for place, value in zip(places, values, strict=True)
        ]
    largest = max(max(float(one[name]), float(other[name])) for name in parts)
    figure.update_layout(annotations=notes, barmode="overlay", showlegend=False)
    figure.update_xaxes(range=[0, (1.8 if narrow else 1.35) * largest], visible=False)
    name_rows(figure, [by_name(name).label for name in parts], colours)
    totals = [format_value(time, row["decode_step_time"]) for row in (one, other)]
    return Chart(figure, f"A decode step takes {totals[0]} in A and {totals[1]} in B, modelled, part by part.")

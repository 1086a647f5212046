"""Response lengths: the share of responses that still run after so many tokens, with the tail shaded."""

from __future__ import annotations

from typing import Final

import numpy as np

from dashboard.charts.elements.palette import palette
from dashboard.charts.elements.template import Chart, base, note
from dashboard.words.numbers import percent, plain
from engine.executions.arrays import Floats

__all__ = ["TAIL", "lengths_with_tail"]

HEIGHT: Final = 200
TAIL: Final = 0.1
"""Share of responses that are the tail: the last to end."""


def lengths_with_tail(tokens: Floats, survival: Floats, mean: float, *, mode: str = "light") -> Chart:
    """Draw the share of responses that are longer than so many tokens.

    Args:
        tokens: lengths, ascending from 0 to the longest [tokens].
        survival: share of responses longer than each [], falling from 1 to 0.
        mean: of the lengths [tokens].
        mode: the theme.
    """
    colours = palette(mode)
    # Where the curve jumps past the tail's share, the tail is the last length alone.
    begin = float(np.interp(TAIL, survival[::-1], tokens[::-1]))
    longest = float(tokens[-1])
    drawing = base(colours, HEIGHT)
    shown = tokens < begin
    parts = (
        ("All", np.append(tokens[shown], begin), np.append(survival[shown], TAIL), colours.accent, 0.25),
        ("Last tenth", np.append(begin, tokens[~shown]), np.append(TAIL, survival[~shown]), colours.worse, 0.6),
    )
    for name, x, y, shade, opacity in parts:
        red, green, blue = (int(shade[place : place + 2], 16) for place in (1, 3, 5))
        drawing.draw(
            "scatter",
            x=x.tolist(),
            y=y.tolist(),
            mode="lines",
            name=name,
            line={"color": shade, "width": 1.6},
            fill="tozeroy",
            fillcolor=f"rgba({red},{green},{blue},{opacity})",
            hovertemplate="%{y:.0%} are longer than %{x:,.0f} tokens<extra></extra>",
        )
    # The curve is above the words on their left, and below them on their right.
    side = "right" if begin > 0.7 * longest else "left"
    note(drawing, "last tenth", colours, x=begin, y=TAIL, xanchor=side, yanchor="bottom", yshift=4)
    drawing.update_layout(showlegend=False, margin={"t": 8, "r": 18})
    drawing.update_xaxes(title="Response, tokens", range=[0, longest])
    drawing.update_yaxes(range=[0, 1.02], tickformat=".0%", showgrid=True)
    at_cap = float(survival[:-1][-1])
    return Chart(
        drawing,
        f"Responses of {plain(mean)} tokens on average; the last tenth is longer than {plain(begin)}, and "
        f"{percent(at_cap, 0)} reach the longest of {plain(longest)} tokens.",
    )

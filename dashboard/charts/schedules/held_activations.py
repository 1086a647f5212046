"""Activations that every rank of a pipeline holds over time, one row per rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pandas as pd

from dashboard.charts.elements.palette import MEMORY_KINDS, palette
from dashboard.charts.elements.template import Chart, base
from dashboard.charts.schedules.gantt import LEFT
from dashboard.words.numbers import plain, scale_for

__all__ = ["held_activations"]

_ROW: Final = 21
_COLOUR: Final = next(kind for kind in MEMORY_KINDS if kind.key == "activations")


def held_activations(
    held: pd.DataFrame,
    ranks: Sequence[int],
    per_rank: int,
    end: float,
    mode: str = "light",
    *,
    until: float | None = None,
    most: float | None = None,
    skipped: bool = False,
) -> Chart:
    """Draws what ranks hold.

    Args:
        held: `rank`, `time` [s] and `held` [chunks] from then on.
        ranks: that are drawn, the first on top.
        per_rank: chunks of a rank's whole share of the model.
        end: of the time axis [s].
        mode: the theme.
        until: end of the axis where that is later, to compare [s].
        most: what a full row stands for, in activations of a rank's whole share; the largest peak if not said.
        skipped: whether repetitions are left out, so that the axis has no numbers.
    """
    colours = palette(mode)
    figure = base(colours, 34 + _ROW * len(ranks))
    scale = scale_for("total_time", [end])
    shown = held[held["rank"].isin(ranks)]
    peaks = shown.groupby("rank")["held"].max() / per_rank
    top = most or float(peaks.max() if len(peaks) else 1.0) or 1.0
    colour = _COLOUR.colour(colours)
    for place, rank in enumerate(ranks):
        own = shown[shown["rank"] == rank]
        row = len(ranks) - 1 - place
        x = [0.0, *(own["time"] / scale.factor), end / scale.factor]
        values = [0.0, *(own["held"] / per_rank), 0.0]
        figure.draw(
            "scatter",
            x=[x[0], x[-1]],
            y=[row - 0.42, row - 0.42],
            mode="lines",
            hoverinfo="skip",
            line={"width": 0.5, "color": colours.grid},
        )
        figure.draw(
            "scatter",
            x=x,
            y=[row - 0.42 + 0.84 * value / top for value in values],
            mode="lines",
            fill="tonexty",
            line={"shape": "hv", "width": 1, "color": colour},
            fillcolor=colour,
            name=f"rank {rank}",
            customdata=values,
            hovertemplate=f"<b>rank {rank}</b><br>holds %{{customdata:.4g}} activations<extra></extra>",
        )
    last = max(end, until or 0.0) / scale.factor
    figure.update_xaxes(
        range=[0, last],
        fixedrange=False,
        nticks=8,
        ticksuffix=scale.suffix,
        showticksuffix="last",
        showticklabels=not skipped,
    )
    figure.update_yaxes(
        range=[-0.55, len(ranks) - 0.45],
        tickvals=list(range(len(ranks))),
        ticklabelstandoff=3,
        ticktext=[f"rank {rank} · {plain(float(peaks.get(rank, 0.0)))}" for rank in reversed(ranks)],
        tickfont={"color": colours.text},
    )
    figure.update_yaxes(automargin=False)
    figure.update_layout(dragmode="zoom", margin={"t": 4, "r": 8, "l": LEFT})
    told = ", ".join(f"{plain(float(peaks.get(rank, 0.0)))} on rank {rank}" for rank in list(ranks)[:4])
    return Chart(figure, f"Most activations held, of a rank's whole share for one microbatch: {told}.")

"""Work of every rank of a pipeline for one microbatch, as bars made of its parts of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from dashboard.charts.elements.palette import TIME_KINDS, Kind, palette
from dashboard.charts.elements.template import Chart, base, name_rows
from dashboard.words.numbers import format_value, scale_for

__all__ = ["stage_bars", "stage_kinds"]

_ROW: Final = 22
_UNIT: Final = "total_time"
_COLOURS: Final = ("forward", "expert", "backward", "context", "tensor", "pipeline", "optimizer", "data")
"""Kinds of time whose colours parts of a model have here, one after the other."""
_KINDS: Final = {kind.key: kind for kind in TIME_KINDS}


def stage_kinds(ranks: Sequence[Mapping[str, float]]) -> list[Kind]:
    """Returns the parts that ranks hold as kinds of a legend, in the order in which they are met.

    ranks: seconds of every rank's parts, by name [s].
    """
    names = list(dict.fromkeys(name for parts in ranks for name in parts))
    found = []
    for place, name in enumerate(names):
        like = _KINDS[_COLOURS[place % len(_COLOURS)]]
        found.append(Kind(name, name, (), like.light, like.dark))
    return found


def stage_bars(ranks: Sequence[Mapping[str, float]], mode: str = "light") -> Chart:
    """Draws a bar per rank.

    Args:
        ranks: seconds of every rank's parts, by name, the first rank on top [s].
        mode: the theme.
    """
    colours = palette(mode)
    figure = base(colours, 40 + _ROW * len(ranks))
    totals = [sum(parts.values()) for parts in ranks]
    scale = scale_for(_UNIT, [max(totals)])
    for kind in stage_kinds(ranks):
        took = [parts.get(kind.key, 0.0) for parts in ranks]
        figure.draw(
            "bar",
            x=[each / scale.factor for each in took],
            y=list(range(len(ranks))),
            orientation="h",
            width=0.8,
            name=kind.name,
            marker={"color": kind.colour(colours), "line": {"color": colours.background, "width": 0.6}},
            hovertext=[
                f"rank {rank}: {kind.name} {format_value(_UNIT, each)} of {format_value(_UNIT, whole)}"
                for rank, (each, whole) in enumerate(zip(took, totals, strict=True))
            ],
            hoverinfo="text",
        )
    mean = sum(totals) / len(totals)
    figure.add_vline(x=mean / scale.factor, line={"color": colours.text, "width": 1, "dash": "dot"})
    figure.update_xaxes(ticksuffix=f" {scale.unit}", rangemode="tozero", tickfont={"color": colours.muted})
    name_rows(figure, [f"rank {rank}" for rank in range(len(ranks))], colours)
    figure.update_layout(barmode="stack", bargap=0, showlegend=False)
    longest = max(range(len(totals)), key=totals.__getitem__)
    return Chart(
        figure,
        f"Work of {len(ranks)} ranks for a microbatch: rank {longest} has most, "
        f"{format_value(_UNIT, totals[longest])}; the mean is {format_value(_UNIT, mean)}.",
    )

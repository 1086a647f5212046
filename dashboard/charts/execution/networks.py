"""Communication partners of one GPU by kind of parallelism, and their time on the links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from dashboard.charts.elements.palette import TIME_KINDS, palette
from dashboard.charts.elements.template import Chart, base, empty, note
from dashboard.words.numbers import format_value, scale_for
from engine.cost_models.account import LinkTime, RankGroup

_UNIT: Final = "total_time"
_MOST: Final = 600
_KINDS: Final = {kind.key: kind for kind in TIME_KINDS}
LOOK: Final = {"TP": "tensor", "CP": "context", "EP": "expert", "PP": "pipeline", "DP": "data"}


MOST_DOMAINS: Final = 128
"""Networks side by side that a reader can distinguish. Source: stated by us."""


def partners(
    groups: Sequence[RankGroup],
    where: Mapping[str, str],
    num_procs: int,
    domain: int,
    mode: str = "light",
    *,
    around: int | None = None,
) -> Chart:
    """Draws which GPUs GPU 0 exchanges data with.

    where: the networks of a group in words, by its name. domain: GPUs of a network, drawn as bands; nothing is drawn
    for more than `MOST_DOMAINS` of them. around: GPUs of a network around these, parted by lines.
    """
    colours = palette(mode)
    figure = base(colours, 66 + 34 * len(groups))
    across = {"y0": 0, "y1": 1, "yref": "paper", "layer": "below"}
    band = {**across, "type": "rect", "line": {"width": 0}, "fillcolor": colours.panel}
    edge = {**across, "type": "line", "line": {"width": 1, "color": colours.muted, "dash": "dot"}}
    starts = range(0, num_procs, 2 * domain) if num_procs / domain <= MOST_DOMAINS else ()
    edges = range(around, num_procs, around) if around is not None else ()
    figure.update_layout(
        shapes=[
            *({**band, "x0": one - 0.5, "x1": min(one + domain, num_procs) - 0.5} for one in starts),
            *({**edge, "x0": one - 0.5, "x1": one - 0.5} for one in edges),
        ]
    )
    rows = list(range(len(groups) - 1, -1, -1))
    for group, row in zip(groups, rows, strict=True):
        shown = group.partners[:: max(1, -(-len(group.partners) // _MOST))]
        if group.degree == 1:
            note(figure, "no partners", colours, x=0, y=row, xanchor="left")
            continue
        figure.draw(
            "scatter",
            x=list(shown),
            y=[row] * len(shown),
            mode="markers",
            marker={
                "symbol": "line-ns",
                "size": 17,
                "line": {"width": 2.5, "color": _KINDS[LOOK[group.name]].colour(colours)},
            },
            hovertext=[f"<b>{group.name}</b><br>GPU 0 and GPU {number:,}" for number in shown],
            hovertemplate="%{hovertext}<extra></extra>",
        )
    figure.update_yaxes(
        range=[-0.6, len(groups) - 0.4],
        tickvals=rows,
        tickfont={"size": 12, "color": colours.text},
        ticktext=[
            f"{group.name} {group.degree:,} · {where[group.name]}" if group.degree > 1 else f"{group.name} 1"
            for group in groups
        ],
    )
    figure.update_xaxes(range=[-0.02 * num_procs, 1.01 * num_procs], nticks=9, title="GPU number", tickformat=",d")
    said = [f"{group.name} over {group.degree:,} GPUs on {where[group.name]}" for group in groups if group.degree > 1]
    return Chart(figure, f"GPU 0 exchanges data in {', '.join(said)}." if said else "No GPU talks to another.")


def traffic(rows: Sequence[LinkTime], where: Mapping[str, str], mode: str = "light") -> Chart:
    """Draws time on the links and the exposed part of it, one bar per kind of communication.

    where: the networks of a group in words, by its name.
    """
    colours = palette(mode)
    if not rows:
        return empty(colours, 80, "No GPU talks to another.")
    scale = scale_for(_UNIT, [row.link for row in rows] + [row.exposed for row in rows])
    figure = base(colours, 40 + 40 * len(rows))
    places = list(range(len(rows) - 1, -1, -1))
    longest = max(max(row.link, row.exposed) for row in rows) or scale.factor
    for row, place in zip(rows, places, strict=True):
        colour = _KINDS[LOOK[row.group]].colour(colours)
        hidden = max(0.0, row.link - row.exposed)
        for size, begin, opacity, word in ((row.exposed, 0.0, 1.0, "exposed"), (hidden, row.exposed, 0.35, "hidden")):
            figure.draw(
                "bar",
                x=[size / scale.factor],
                base=[begin / scale.factor],
                y=[place + 0.14],
                orientation="h",
                width=0.42,
                marker={"color": colour, "opacity": opacity, "line": {"width": 0}},
                hovertext=f"<b>{row.name}, {word}</b><br>{format_value(_UNIT, size)}",
                hovertemplate="%{hovertext}<extra></extra>",
            )
        note(figure, where[row.group], colours, x=0, y=place - 0.27, xanchor="left")
        text = f"<b>{format_value(_UNIT, row.exposed)}</b> of {format_value(_UNIT, row.link)}"
        note(
            figure,
            text,
            colours,
            x=1,
            xref="paper",
            xanchor="right",
            xshift=134,
            y=place + 0.14,
            colour=colours.text,
            font_size=12,
        )
    figure.update_yaxes(
        range=[-0.6, len(rows) - 0.4],
        tickvals=[place + 0.14 for place in places],
        ticktext=[row.name for row in rows],
        tickfont={"size": 12, "color": colours.text},
    )
    figure.update_xaxes(range=[0, 1.02 * longest / scale.factor], ticksuffix=scale.suffix, nticks=5)
    figure.update_layout(barmode="overlay", margin={"r": 138})
    said = ", ".join(
        f"{row.name} {format_value(_UNIT, row.exposed)} of {format_value(_UNIT, row.link)} on the links" for row in rows
    )
    return Chart(figure, f"Exposed per step: {said}.")

"""Who talks to whom: the partners of one GPU by kind of parallelism, and what that costs on the links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import plotly.graph_objects as go

from dashboard.charts.template import Chart, base, empty, note
from dashboard.format import format_value, scale_for
from dashboard.palette import TIME_KINDS, palette
from engine.calibrated.networks import networks_used, shared_by
from hardware import System

_UNIT: Final = "total_time"
_MOST: Final = 600
_KINDS: Final = {kind.key: kind for kind in TIME_KINDS}
LOOK: Final = {"TP": "tensor", "CP": "context", "EP": "expert", "PP": "pipeline", "DP": "data"}


class Group(NamedTuple):
    """One kind of parallelism of an execution: its degree, network tiers, and the GPUs that GPU 0 talks to in it."""

    name: str
    degree: int
    tiers: tuple[int, ...]
    """The network tiers that it exchanges over, innermost first."""
    partners: tuple[int, ...]

    @property
    def tier(self) -> int:
        """The outermost tier that it needs."""
        return self.tiers[-1]

    @property
    def where(self) -> str:
        """Its networks in words: "tier 1", "tiers 0 and 1"."""
        *inner, outer = map(str, self.tiers)
        return f"tiers {', '.join(inner)} and {outer}" if inner else f"tier {outer}"


class Traffic(NamedTuple):
    """Time of one step on the links of a kind of communication, and the part that nothing hides [s]."""

    name: str
    key: str
    """Key of the kind of time that gives the colour."""
    link: float
    exposed: float
    where: str
    """Network in words."""


def placement(execution: Mapping[Any, Any]) -> list[Group]:
    """A placement that agrees with the network tiers: parallelism on inner tiers has neighbouring GPUs.

    Within a tier tensor parallelism is innermost, then pipeline, then data. The cost model knows tiers and degrees
    only, so any placement with the same tiers costs the same. GPU 0 is on the first stage of its pipeline, which hands
    on to the next stage and, when interleaved, gets back from the last.
    """
    order = sorted(
        (
            ("TP", int(execution["tensor_par"]), int(execution["tensor_par_net"])),
            ("PP", int(execution["pipeline_par"]), int(execution["pipeline_par_net"])),
            ("DP", int(execution["data_par"]), int(execution["data_par_net"])),
        ),
        key=lambda one: one[2],
    )
    groups, stride = [], 1
    for name, degree, tier in order:
        members = tuple(stride * number for number in range(degree))
        if name == "PP" and degree > 1:
            last = (members[-1],) if int(execution["pipeline_interleaving"]) > 1 and degree > 2 else ()
            members = (0, members[1], *last)
        groups.append(Group(name, degree, (tier,), members))
        stride *= degree
    names = ["TP", "PP", "DP"]
    return sorted(groups, key=lambda group: names.index(group.name))


def innermost_first(execution: Mapping[Any, Any], system: System) -> list[Group]:
    """The placement of the calibrated cost model on the networks of a system; see `engine.calibrated.networks`.

    Collectives and exchanges of tokens use every network that sets their ranks apart, rings of context parallel ranks
    and messages between stages the outermost of them only.
    """
    tensor, context, data, stages, experts, beside = (
        int(execution[name]) for name in (
            "tensor_par", "context_par", "data_par", "pipeline_par", "expert_par", "expert_tensor_par",
        )
    )  # fmt: skip
    procs = tensor * context * data * stages
    sizes = [np.asarray(float(network.size)) for network in system.networks]
    whole = [np.asarray(float(reach)) for reach in (tensor, tensor * context, experts * beside)]
    outermost = {name: (int(tier),) for name, tier in networks_used(system, execution).items()}

    def over(degree: int, stride: int) -> tuple[int, ...]:
        shared = [1.0, *map(float, shared_by(np.asarray(float(degree)), float(stride), sizes, whole))]
        return tuple(tier for tier, (inner, here) in enumerate(pairwise(shared)) if here > inner) or (0,)

    found = [
        Group("TP", tensor, over(tensor, 1), tuple(range(tensor))),
        Group("CP", context, outermost["context"], tuple(range(0, context * tensor, tensor))),
        # Context and data parallel ranks exchange gradients together.
        Group("DP", data, over(data * context, tensor), tuple(range(0, data * tensor * context, tensor * context))),
        Group("EP", experts, over(experts, beside), tuple(range(0, experts * beside, beside))),
    ]
    last = (procs // stages * (stages - 1),) if int(execution["pipeline_interleaving"]) > 1 and stages > 2 else ()
    onward = (0, procs // stages, *last) if stages > 1 else (0,)
    found.append(Group("PP", stages, outermost["pipeline"], onward))
    return [each for each in found if each.degree > 1 or each.name in ("TP", "PP", "DP")]


def partners(groups: Sequence[Group], num_procs: int, domain: int, mode: str = "light") -> Chart:
    """Draw which GPUs GPU 0 exchanges data with. domain: GPUs of the innermost network, drawn as bands."""
    colours = palette(mode)
    figure = base(colours, 66 + 34 * len(groups))
    if num_procs / domain <= 128:
        band = {"type": "rect", "y0": 0, "y1": 1, "yref": "paper", "layer": "below", "line": {"width": 0},
                "fillcolor": colours.panel}  # fmt: skip
        starts = range(0, num_procs, 2 * domain)
        figure.update_layout(
            shapes=[{**band, "x0": one - 0.5, "x1": min(one + domain, num_procs) - 0.5} for one in starts]
        )
    rows = list(range(len(groups) - 1, -1, -1))
    for group, row in zip(groups, rows, strict=True):
        shown = group.partners[:: max(1, -(-len(group.partners) // _MOST))]
        if group.degree == 1:
            note(figure, "no partners", colours, x=0, y=row, xanchor="left")
            continue
        figure.add_trace(
            go.Scatter(
                x=list(shown), y=[row] * len(shown), mode="markers",
                marker={"symbol": "line-ns", "size": 17,
                        "line": {"width": 2.5, "color": _KINDS[LOOK[group.name]].colour(colours)}},
                hovertext=[f"<b>{group.name}</b><br>GPU 0 and GPU {number:,}" for number in shown],
                hovertemplate="%{hovertext}<extra></extra>",
            )
        )  # fmt: skip
    figure.update_yaxes(
        range=[-0.6, len(groups) - 0.4], tickvals=rows, tickfont={"size": 12, "color": colours.text},
        ticktext=[f"{group.name} {group.degree:,} · {group.where}" if group.degree > 1 else f"{group.name} 1"
                  for group in groups],
    )  # fmt: skip
    figure.update_xaxes(range=[-0.02 * num_procs, 1.01 * num_procs], nticks=9, title_text="GPU number", tickformat=",d")
    said = [
        f"{group.name} over {group.degree:,} GPUs on {group.where}" for group in groups if group.degree > 1
    ]
    return Chart(figure, f"GPU 0 exchanges data in {', '.join(said)}." if said else "No GPU talks to another.")


def traffic(rows: Sequence[Traffic], mode: str = "light") -> Chart:
    """Draw time on the links and the exposed part of it, one bar per kind of communication."""
    colours = palette(mode)
    if not rows:
        return empty(colours, 80, "No GPU talks to another.")
    scale = scale_for(_UNIT, [row.link for row in rows] + [row.exposed for row in rows])
    figure = base(colours, 40 + 40 * len(rows))
    places = list(range(len(rows) - 1, -1, -1))
    longest = max(max(row.link, row.exposed) for row in rows) or scale.factor
    for row, place in zip(rows, places, strict=True):
        colour = _KINDS[row.key].colour(colours)
        hidden = max(0.0, row.link - row.exposed)
        for size, begin, opacity, word in ((row.exposed, 0.0, 1.0, "exposed"), (hidden, row.exposed, 0.35, "hidden")):
            figure.add_trace(
                go.Bar(
                    x=[size / scale.factor], base=[begin / scale.factor], y=[place + 0.14], orientation="h", width=0.42,
                    marker={"color": colour, "opacity": opacity, "line": {"width": 0}},
                    hovertext=f"<b>{row.name}, {word}</b><br>{format_value(_UNIT, size)}",
                    hovertemplate="%{hovertext}<extra></extra>",
                )
            )  # fmt: skip
        note(figure, row.where, colours, x=0, y=place - 0.27, xanchor="left")
        text = f"<b>{format_value(_UNIT, row.exposed)}</b> of {format_value(_UNIT, row.link)}"
        note(figure, text, colours, x=1, xref="paper", xanchor="right", xshift=134, y=place + 0.14,
             colour=colours.text, font_size=12)  # fmt: skip
    figure.update_yaxes(
        range=[-0.6, len(rows) - 0.4], tickvals=[place + 0.14 for place in places], ticktext=[row.name for row in rows],
        tickfont={"size": 12, "color": colours.text},
    )  # fmt: skip
    figure.update_xaxes(range=[0, 1.02 * longest / scale.factor], ticksuffix=scale.suffix, nticks=5)
    figure.update_layout(barmode="overlay", margin={"r": 138})
    said = ", ".join(
        f"{row.name} {format_value(_UNIT, row.exposed)} of {format_value(_UNIT, row.link)} on the links" for row in rows
    )
    return Chart(figure, f"Exposed per step: {said}.")

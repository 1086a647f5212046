"""System size swept: how much of the best throughput per GPU is left at every number of GPUs."""

import math
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

import plotly.graph_objects as go

from dashboard.charts.template import TICK_SIZE, Chart, base, empty, noted, unfading
from dashboard.format import count, format_value, percent, scale_for
from dashboard.palette import palette

HEIGHT: Final = 330
RATE: Final = "sample_rate"
Show = Literal["per GPU", "total"]


class Size(NamedTuple):
    """One number of GPUs; `rate` in samples/s, NaN where nothing runs, for the reason `problem`."""

    procs: int
    rate: float
    efficiency: float
    """Useful arithmetic as a share of the peak of all GPUs."""
    name: str
    """TP and PP of the best execution, such as "8·4"."""
    problem: str = ""


def size_bars(
    sizes: Sequence[Size], mode: str = "light", *, here: int, show: Show = "per GPU", every: Sequence[int] = ()
) -> Chart:
    """Draw one bar per size. Bars carry customdata (procs,).

    here: the scenario's own size, which is highlighted. every: all sizes that there will be, which have their places
    before they are known.
    """
    colours = palette(mode)
    shown = sorted(sizes, key=lambda size: size.procs)
    known = [size for size in shown if math.isfinite(size.rate)]
    if not known:
        sentence = "Nothing runs at any of these sizes." if shown else "Nothing has been computed yet."
        return empty(colours, HEIGHT, sentence)
    best = max(size.rate / size.procs for size in known)
    scale = scale_for(RATE, [size.rate for size in known])
    heights = [
        (size.rate / size.procs / best if show == "per GPU" else size.rate / scale.factor)
        if math.isfinite(size.rate)
        else 0.0
        for size in shown
    ]
    slots = sorted({*every, *(size.procs for size in shown)})
    places = [slots.index(size.procs) for size in shown]
    figure = base(colours, HEIGHT)
    fills = [colours.ramp(0.92) if size.procs == here else colours.ramp(0.55) for size in shown]
    figure.add_trace(
        go.Bar(
            x=places,
            y=heights,
            width=0.86,
            marker={"color": fills, "line": {"width": 0}},
            hovertext=[_hover(size, best) for size in shown],
            hovertemplate="%{hovertext}<extra></extra>",
            customdata=[[size.procs] for size in shown],
            **unfading(),
        )
    )
    top = max(heights)
    notes = []
    for index, size, height in zip(places, shown, heights, strict=True):
        if not math.isfinite(size.rate):
            notes.append(noted("–", colours, x=index, y=0, yanchor="bottom"))
            continue
        text = f"{height * 100:.0f}" if show == "per GPU" else scale.number(size.rate)
        ink = colours.label_on_ramp(0.92 if size.procs == here else 0.55)
        roomy = height > 0.22 * top
        inside = roomy and show == "per GPU"
        notes.append(noted(text, colours, x=index, y=height, yanchor="top" if inside else "bottom",
                           colour=ink if inside else colours.text))  # fmt: skip
        if roomy:
            notes.append(noted(size.name, colours, x=index, y=0, yanchor="bottom", colour=ink, font_size=TICK_SIZE - 1))
    figure.update_layout(annotations=notes)
    figure.update_xaxes(
        tickvals=list(range(len(slots))), ticktext=[_short(procs) for procs in slots],
        range=[-0.6, len(slots) - 0.4], title_text="GPUs (best TP·PP at the foot)",
    )  # fmt: skip
    if show == "per GPU":
        figure.update_yaxes(range=[0, 1.08], tickvals=[0, 0.2, 0.4, 0.6, 0.8, 1],
                             ticktext=["0 %", "20 %", "40 %", "60 %", "80 %", "100 %"], showgrid=True)  # fmt: skip
    else:
        figure.update_yaxes(range=[0, top * 1.1], title_text=scale.unit, showgrid=True, nticks=6)
    figure.update_layout(uniformtext={"mode": False}, bargap=0)
    return Chart(figure, _finding(known, best))


def _short(procs: int) -> str:
    return f"{procs // 1024}k" if procs >= 1024 and procs % 1024 == 0 else f"{procs:,}"


def _hover(size: Size, best: float) -> str:
    if not math.isfinite(size.rate):
        return f"<b>{size.procs:,} GPUs</b><br>{size.problem or 'nothing runs'}"
    each = size.rate / size.procs
    return (
        f"<b>{size.procs:,} GPUs</b><br>{format_value(RATE, size.rate)}, {percent(each / best, 0)} of the best per GPU"
        f"<br>{percent(size.efficiency)} of the peak rate<br>TP·PP {size.name}"
    )


def fall_off(sizes: Sequence[Size], share: float = 0.9) -> int | None:
    """Return the smallest size from which on throughput per GPU stays below a share of the best; None without."""
    known = sorted((size for size in sizes if math.isfinite(size.rate)), key=lambda size: size.procs)
    if not known:
        return None
    best = max(size.rate / size.procs for size in known)
    found = None
    for size in reversed(known):
        if size.rate / size.procs >= share * best:
            break
        found = size.procs
    return found


def _finding(known: Sequence[Size], best: float) -> str:
    top = max(known, key=lambda size: size.rate / size.procs)
    falls = fall_off(known)
    tail = f" From {count(falls)} GPUs on it stays below 90 % of that." if falls else ""
    return (
        f"Throughput per GPU is highest at {count(top.procs)} GPUs, {format_value(RATE, best)} each, among "
        f"{len(known)} sizes from {count(known[0].procs)} to {count(known[-1].procs)} GPUs.{tail}"
    )

"""System size swept: how much of the best throughput per GPU is left at every number of GPUs.

A few sizes are bars. Many are points over the numbers themselves, where those stand out that a smaller machine beats.
"""

import math
from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple

from dashboard.charts.elements.drawing import Drawing
from dashboard.charts.elements.palette import Palette, palette
from dashboard.charts.elements.template import Chart, empty, noted, tick_texts, written
from dashboard.words.numbers import Scale, count, counted, format_value, percent, scale_for

HEIGHT: Final = 330
RATE: Final = "sample_rate"
MOST_BARS: Final = 24
"""Sizes that bars have room for."""
_ABREAST: Final = 8
"""Most sizes whose numbers fit next to each other in a narrow window."""
FALLS: Final = 0.9
"""Share of the best throughput per GPU below which a size counts as less efficient."""
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


def size_chart(
    sizes: Sequence[Size],
    mode: str = "light",
    *,
    here: int,
    show: Show = "per GPU",
    every: Sequence[int] = (),
    narrow: bool = False,
) -> Chart:
    """Draws the sizes as bars, or as points if bars do not fit. Both carry customdata (procs,).

    here: the scenario's own size, which is highlighted. every: all sizes of the study, which have their places before
    they are computed. narrow: for a phone, where labels of bars are written upwards.
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
    if len(slots) <= MOST_BARS:
        figure = _draw_bars(shown, heights, slots, colours, here, show, best, scale, narrow and len(slots) > _ABREAST)
    else:
        figure = _draw_points(shown, heights, slots, colours, here, show, best, scale)
    return Chart(figure, _summarize_sizes(known, best))


def _draw_bars(
    shown: Sequence[Size],
    heights: Sequence[float],
    slots: Sequence[int],
    colours: Palette,
    here: int,
    show: Show,
    best: float,
    scale: Scale,
    upwards: bool,
) -> Drawing:
    places = [slots.index(size.procs) for size in shown]
    fills = [colours.ramp(0.92) if size.procs == here else colours.ramp(0.55) for size in shown]
    bars = {
        "type": "bar",
        "x": places,
        "y": heights,
        "width": 0.86,
        "marker": {"color": fills, "line": {"width": 0}},
        "hovertext": [_size_hover_text(size, best) for size in shown],
        "hovertemplate": "%{hovertext}<extra></extra>",
        "customdata": [[size.procs] for size in shown],
    }
    top = max(heights)
    notes = []
    for index, size, height in zip(places, shown, heights, strict=True):
        if not math.isfinite(size.rate):
            notes.append(noted("–", colours, x=index, y=0, yanchor="bottom"))
            continue
        text = _told_share(height) if show == "per GPU" else scale.number(size.rate)
        ink = colours.label_on_ramp(0.92 if size.procs == here else 0.55)
        roomy = height > 0.22 * top
        inside = roomy and show == "per GPU"
        notes.append(
            noted(
                text,
                colours,
                x=index,
                y=height,
                yanchor="top" if inside else "bottom",
                colour=ink if inside else colours.text,
            )
        )
        if roomy:
            notes.append(noted(size.name, colours, x=index, y=0, yanchor="bottom", colour=ink))
    shares = {
        "range": [0, 1.08],
        "tickvals": [0, 0.2, 0.4, 0.6, 0.8, 1],
        "ticktext": ["0 %", "20 %", "40 %", "60 %", "80 %", "100 %"],
    }
    totals = {"range": [0, top * 1.1], "title": {"text": scale.unit}, "nticks": 6}
    across: dict[str, Any] = {
        "tickvals": list(range(len(slots))),
        "ticktext": [_short_count(procs) for procs in slots],
        "range": [-0.6, len(slots) - 0.4],
        "title": {"text": "GPUs (in each bar: TP·PP of the best)"},
    }
    return written(
        colours,
        HEIGHT,
        [bars],
        {
            "annotations": [{**note, "textangle": -90} for note in notes] if upwards else notes,
            "xaxis": {**across, "tickangle": -90} if upwards else across,
            "yaxis": {"showgrid": True, **(shares if show == "per GPU" else totals)},
            "uniformtext": {"mode": False},
            "bargap": 0,
        },
    )


def _told_share(share: float) -> str:
    """A share of the best in percent, with as many decimals as it takes to stay on its side of `FALLS`."""
    digits = next(digits for digits in range(16) if (round(share, digits + 2) < FALLS) == (share < FALLS))
    return f"{100 * share:.{digits}f}"


def _draw_points(
    shown: Sequence[Size],
    heights: Sequence[float],
    slots: Sequence[int],
    colours: Palette,
    here: int,
    show: Show,
    best: float,
    scale: Scale,
) -> Drawing:
    runs = [math.isfinite(size.rate) for size in shown]
    known = [height for height, fine in zip(heights, runs, strict=True) if fine]
    beaten = set(slower(shown))
    # A line may begin above zero; what does not run stands on its ground.
    ground = 0.1 * math.floor(10 * min(known) - 0.5) if show == "per GPU" and min(known) > 0.15 else 0.0
    line = {
        "type": "scatter",
        "x": [size.procs for size in shown],
        "y": [height if fine else None for height, fine in zip(heights, runs, strict=True)],
        "mode": "lines",
        "line": {"color": colours.grid, "width": 1.2},
        "hoverinfo": "skip",
    }
    looks = [
        ("x-thin-open", colours.muted)
        if not fine
        else ("circle-open", colours.worse)
        if size.procs in beaten
        else ("circle", colours.ramp(0.92) if size.procs == here else colours.ramp(0.55))
        for size, fine in zip(shown, runs, strict=True)
    ]
    points = {
        "type": "scatter",
        "x": [size.procs for size in shown],
        "y": [height if fine else ground for height, fine in zip(heights, runs, strict=True)],
        "mode": "markers",
        "marker": {
            "symbol": [symbol for symbol, _ in looks],
            "color": [colour for _, colour in looks],
            "size": [10 if size.procs == here else 5 for size in shown],
            "line": {"width": 1.5, "color": [colour for _, colour in looks]},
        },
        "hovertext": [_size_hover_text(size, best) for size in shown],
        "hovertemplate": "%{hovertext}<extra></extra>",
        "customdata": [[size.procs] for size in shown],
    }
    notes, shapes = [], []
    margin = 0.03 * (slots[-1] - slots[0])
    if show == "per GPU":
        up: dict[str, Any] = {"range": [ground - 0.02, 1.04], **_share_ticks(ground)}
        if ground < FALLS:
            shapes.append(
                {
                    "type": "line",
                    "x0": 0,
                    "x1": 1,
                    "xref": "paper",
                    "y0": FALLS,
                    "y1": FALLS,
                    "layer": "below",
                    "line": {"color": colours.muted, "width": 1, "dash": "dash"},
                }
            )
    else:
        top = max(heights) * 1.08
        up = {"range": [0, top], "title": {"text": scale.unit}, **tick_texts(0, top)}
    if slots[0] <= here <= slots[-1]:
        shapes.append(
            {
                "type": "line",
                "x0": here,
                "x1": here,
                "y0": 0,
                "y1": 1,
                "yref": "paper",
                "layer": "below",
                "line": {"color": colours.text, "width": 1, "dash": "dot"},
            }
        )
        left = here > (slots[0] + slots[-1]) / 2
        notes.append(
            noted(
                f"{here:,}",
                colours,
                x=here,
                y=0,
                yref="paper",
                yanchor="bottom",
                xanchor="right" if left else "left",
                xshift=-3 if left else 3,
            )
        )
    across = [slots[0] - margin, slots[-1] + margin]
    return written(
        colours,
        HEIGHT,
        [line, points],
        {
            "annotations": notes,
            "shapes": shapes,
            "yaxis": {"showgrid": True, **up},
            "xaxis": {"range": across, "title": {"text": "GPUs"}, **tick_texts(slots[0], slots[-1], 6)},
        },
    )


def _share_ticks(ground: float) -> dict[str, Any]:
    """Ticks of the axis of shares from its ground up to 100 %."""
    step = 0.1 if ground >= 0.45 else 0.2
    ticks = [round(1 - step * number, 1) for number in range(round((1 - ground) / step) + 1)]
    return {"tickvals": ticks, "ticktext": [percent(tick, 0) for tick in ticks]}


def slower(sizes: Sequence[Size]) -> list[int]:
    """Returns the sizes that do less than a smaller one does, ascending."""
    found, most = [], 0.0
    for size in sorted((size for size in sizes if math.isfinite(size.rate)), key=lambda size: size.procs):
        if size.rate < most * (1 - 1e-9):
            found.append(size.procs)
        most = max(most, size.rate)
    return found


def _short_count(procs: int) -> str:
    return f"{procs // 1024}k" if procs >= 1024 and procs % 1024 == 0 else f"{procs:,}"


def _size_hover_text(size: Size, best: float) -> str:
    if not math.isfinite(size.rate):
        return f"<b>{size.procs:,} GPUs</b><br>{size.problem or 'nothing runs'}"
    each = size.rate / size.procs
    return (
        f"<b>{size.procs:,} GPUs</b><br>{format_value(RATE, size.rate)}, {percent(each / best, 0)} of the best per GPU"
        f"<br>{percent(size.efficiency)} of the peak rate<br>TP·PP {size.name}"
    )


def fall_off(sizes: Sequence[Size], share: float = FALLS) -> int | None:
    """Returns the smallest size from which on throughput per GPU stays below a share of the best; None without."""
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


def _summarize_sizes(known: Sequence[Size], best: float) -> str:
    top = max(known, key=lambda size: size.rate / size.procs)
    falls = fall_off(known)
    tail = f" From {count(falls)} GPUs on it stays below {percent(FALLS, 0)} of that." if falls else ""
    beaten = slower(known)
    tail += f" {counted(len(beaten), 'size')} of them do less than a smaller one." if beaten else ""
    return (
        f"Throughput per GPU is highest at {count(top.procs)} GPUs, {format_value(RATE, best)} each, among "
        f"{len(known)} sizes from {count(known[0].procs)} to {count(known[-1].procs)} GPUs.{tail}"
    )

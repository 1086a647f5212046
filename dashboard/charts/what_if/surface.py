"""Two parameters swept: the gain of the best execution at every pair of values, as a map."""

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from dashboard.charts.elements.palette import Palette, palette
from dashboard.charts.elements.template import TICK_SIZE, Chart, empty, written
from dashboard.words.numbers import format_value, plain, signed_percent, signed_quantity

HEIGHT: Final = 330
MOST_LABELS: Final = 130
_SIDE: Final = 0.95
_LEAST_SPAN: Final = 0.05
_RATE: Final = "sample_rate"


class Spot(NamedTuple):
    """One pair of values; `rate` in samples/s, NaN where nothing runs."""

    x: float
    y: float
    rate: float
    name: str = ""
    """The kind of execution that is best there."""


class Side(NamedTuple):
    """One axis: name of the parameter, its unit, all values in order, the base's, and that of the what-if if any."""

    label: str
    unit: str
    values: Sequence[float]
    at_base: float
    whatif: float | None = None


def gain_map(
    spots: Sequence[Spot],
    x: Side,
    y: Side,
    base_rate: float,
    mode: str = "light",
    against: str = "base",
    narrow: bool = False,
) -> Chart:
    """Draws the map: every spot coloured by its gain over `base_rate` [samples/s]; spots not computed yet stay blank.

    against: name of the base of `base_rate`; if that is 0, nothing runs there and the best spot is the base instead.
    Points carry customdata (x, y). Values are printed if there is room. narrow: for a phone, where the colour bar is
    below the map instead of taking width from its cells.
    """
    colours = palette(mode)
    if not spots:
        return empty(colours, HEIGHT, "Nothing has been computed yet.")
    columns = {value: index for index, value in enumerate(x.values)}
    rows = {value: index for index, value in enumerate(y.values)}
    if not base_rate > 0:
        base_rate = max((spot.rate for spot in spots if math.isfinite(spot.rate)), default=math.nan)
        against = "best here"
    gains = [spot.rate / base_rate - 1 for spot in spots]
    known = [abs(gain) for gain in gains if math.isfinite(gain)]
    if not known and len(spots) == len(columns) * len(rows):
        return empty(colours, HEIGHT, _summarize_gains(spots, gains, x, y, against))
    span = max([_LEAST_SPAN, *known])
    labelled = len(columns) * len(rows) <= MOST_LABELS
    places = [(columns[spot.x], rows[spot.y]) for spot in spots]
    hovers = [_spot_hover_text(spot, gain, x, y) for spot, gain in zip(spots, gains, strict=True)]
    custom = [[spot.x, spot.y] for spot in spots]
    if labelled:
        traces = _cell_traces(places, gains, span, hovers, custom, colours)
    else:
        traces = _heatmap_traces(places, gains, span, hovers, custom, (len(columns), len(rows)), colours)
    frames = []
    for at, dash in (((x.at_base, y.at_base), "dot"), ((x.whatif, y.whatif), "solid")):
        place = columns.get(at[0]), rows.get(at[1])  # type: ignore[arg-type]
        if None not in place and not (dash == "solid" and at == (x.at_base, y.at_base)):
            frames.append(_spot_frame(place, dash, colours))
    figure = written(
        colours,
        HEIGHT,
        [*traces, _colour_bar(span, colours, against, narrow)],
        {
            "xaxis": {**_side_axis(x, 9), "range": [-0.52, len(columns) - 0.48]},
            "yaxis": {**_side_axis(y, 10), "range": [-0.52, len(rows) - 0.48]},
            "shapes": frames,
            "uniformtext": {"mode": False},
            "bargap": 0,
            "barmode": "overlay",
        },
    )
    return Chart(figure, _summarize_gains(spots, gains, x, y, against))


def _cell_traces(
    places: Sequence[tuple[int, int]],
    gains: Sequence[float],
    span: float,
    hovers: Sequence[str],
    custom: Sequence[Sequence[float]],
    colours: Palette,
) -> list[dict[str, Any]]:
    fills = [colours.diverge(gain / span) if math.isfinite(gain) else colours.muted for gain in gains]
    cells = {
        "type": "bar",
        "x": [place[0] for place in places],
        "y": [_SIDE] * len(places),
        "base": [place[1] - _SIDE / 2 for place in places],
        "width": _SIDE,
        "marker": {
            "color": fills,
            "line": {"width": 0},
            "pattern": colours.hatch_some([not math.isfinite(gain) for gain in gains]),
        },
        "hovertext": list(hovers),
        "hovertemplate": "%{hovertext}<extra></extra>",
        "customdata": [list(each) for each in custom],
    }
    inks = [colours.ink_on(fill) for fill in fills]
    labels = []
    for ink in dict.fromkeys(inks):
        mine = [index for index, other in enumerate(inks) if other == ink]
        labels.append(
            {
                "type": "scatter",
                "x": [places[index][0] for index in mine],
                "y": [places[index][1] for index in mine],
                "mode": "text",
                "text": [_gain_label(gains[index]) for index in mine],
                "textfont": {"size": TICK_SIZE, "color": ink},
                "hoverinfo": "skip",
            }
        )
    return [cells, *labels]


def _heatmap_traces(
    places: Sequence[tuple[int, int]],
    gains: Sequence[float],
    span: float,
    hovers: Sequence[str],
    custom: Sequence[Sequence[float]],
    size: tuple[int, int],
    colours: Palette,
) -> list[dict[str, Any]]:
    """Return many spots as a heatmap without labels; an invisible scatter over it answers hovers and clicks."""
    grid: list[list[float | None]] = [[None] * size[0] for _ in range(size[1])]
    for (column, row), gain in zip(places, gains, strict=True):
        grid[row][column] = gain if math.isfinite(gain) else None
    drawn = {
        "type": "heatmap",
        "z": grid,
        "zmin": -span,
        "zmax": span,
        "colorscale": _gain_colorscale(colours),
        "showscale": False,
        "hoverinfo": "skip",
        "xgap": 0.5,
        "ygap": 0.5,
    }
    answering = {
        "type": "scatter",
        "x": [place[0] for place in places],
        "y": [place[1] for place in places],
        "mode": "markers",
        "marker": {"symbol": "square", "size": 13, "opacity": 0, "color": colours.text},
        "hovertext": list(hovers),
        "hovertemplate": "%{hovertext}<extra></extra>",
        "customdata": [list(each) for each in custom],
    }
    return [drawn, answering]


def _gain_colorscale(colours: Palette) -> list[list[float | str]]:
    stops = colours.diverging
    return [[index / (len(stops) - 1), colour] for index, colour in enumerate(stops)]


def _colour_bar(span: float, colours: Palette, against: str, narrow: bool) -> dict[str, Any]:
    ticks = [-span, -span / 2, 0, span / 2, span]
    return {
        "type": "scatter",
        "x": [None],
        "y": [None],
        "mode": "markers",
        "hoverinfo": "skip",
        "marker": {
            "color": [0],
            "cmin": -span,
            "cmax": span,
            "colorscale": _gain_colorscale(colours),
            "showscale": True,
            "colorbar": {
                "thickness": 8,
                "outlinewidth": 0,
                "len": 0.98,
                "xpad": 8,
                "ypad": 0,
                "tickvals": ticks,
                "ticktext": [_gain_label(tick) for tick in ticks],
                "tickfont": {"size": TICK_SIZE, "color": colours.muted},
                "title": {
                    "text": f"% against the {against}",
                    "side": "top" if narrow else "right",
                    "font": {"size": TICK_SIZE, "color": colours.muted},
                },
                **({"orientation": "h", "y": 1.0, "yanchor": "bottom", "xpad": 0} if narrow else {}),
            },
        },
    }


def _spot_frame(place: Any, dash: str, colours: Palette) -> dict[str, Any]:
    column, row = place
    return {
        "type": "rect",
        "x0": column - 0.485,
        "x1": column + 0.485,
        "y0": row - 0.485,
        "y1": row + 0.485,
        "layer": "above",
        "line": {"color": colours.text, "width": 2.5 if dash == "solid" else 1.6, "dash": dash},
    }


def _side_axis(side: Side, most: int) -> dict[str, Any]:
    """Returns the axis's title, and ticks at some of the values, the base's among them where it is one."""
    every = max(1, math.ceil(len(side.values) / most))
    start = list(side.values).index(side.at_base) % every if side.at_base in side.values else 0
    shown = range(start, len(side.values), every)
    return {
        "tickvals": list(shown),
        "ticktext": [plain(side.values[index]) for index in shown],
        "title": {"text": f"{side.label}, {side.unit}"},
    }


def _gain_label(gain: float) -> str:
    if not math.isfinite(gain):
        return "–"
    return signed_quantity(gain).number


def _spot_hover_text(spot: Spot, gain: float, x: Side, y: Side) -> str:
    lines = [f"<b>{x.label} {plain(spot.x)} {x.unit}</b>", f"<b>{y.label} {plain(spot.y)} {y.unit}</b>"]
    if not math.isfinite(gain):
        return "<br>".join([*lines, "nothing runs"])
    return "<br>".join([*lines, f"{format_value(_RATE, spot.rate)}, {signed_percent(gain)}", spot.name])


def _summarize_gains(spots: Sequence[Spot], gains: Sequence[float], x: Side, y: Side, against: str) -> str:
    known = [(gain, index) for index, gain in enumerate(gains) if math.isfinite(gain)]
    if not known:
        return f"{x.label} by {y.label}: nothing runs anywhere."
    low, high = min(known), max(known)

    def told(which: tuple[float, int]) -> str:
        spot = spots[which[1]]
        return f"{signed_percent(which[0])} at {plain(spot.x)} {x.unit} and {plain(spot.y)} {y.unit}"

    return f"Best throughput against the {against} over {x.label} by {y.label}: from {told(low)} to {told(high)}."

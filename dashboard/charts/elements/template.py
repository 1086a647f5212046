"""Common parts of all charts: the empty figure, the hover box, the swatches, and the format of cells' names."""

import math
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any, Final, NamedTuple

import plotly.graph_objects as go

from dashboard.charts.elements.drawing import Drawing, merged
from dashboard.charts.elements.palette import Palette

CONFIG: Final[dict[str, Any]] = {
    "displayModeBar": "hover",
    "displaylogo": False,
    "modeBarButtons": [["toImage"]],
    "scrollZoom": False,
    "doubleClick": False,
    "toImageButtonOptions": {"format": "png", "scale": 2, "filename": "shardscape"},
}
"""Plotly options for every chart: of its tool bar only the picture, as PNG at twice the size; data are exported by the
page's own menu."""

LEGEND_BELOW: Final = {"orientation": "h", "x": 0, "y": 0, "yref": "container", "yanchor": "bottom"}
"""Legend below the plot, from its left edge."""
TICK_SIZE: Final = 11
_LINE: Final = 16
"""Height of a line of names and figures above a bar [px]."""
_FOOT: Final = 24
"""Height of the ticks below a plot [px]."""
TEXT_SIZE: Final = 12
_TEMPLATE: Final = {"data": {"scatter": [{"marker": {"line": {"width": 0}}}]}}
"""No rings around markers whose sizes differ, which Plotly's JavaScript draws unasked."""


class Chart(NamedTuple):
    """A drawing and a sentence with its main finding."""

    drawing: Drawing
    alt: str
    rows: bool = False
    """True for a chart of named rows with figures behind them, which `stacked` puts above the bars."""

    @property
    def figure(self) -> go.Figure:
        """Return the drawing as a validated Plotly figure."""
        return self.drawing.figure


def written(colours: Palette, height: int, traces: Iterable[Mapping[str, Any]], layout: Mapping[str, Any]) -> Drawing:
    """Returns a drawing of `height` [px] in the house style from all that is on it.

    layout: what differs from the house style, at any depth.
    """
    return Drawing(traces, merged(_house_layout(colours, height), layout))


def base(colours: Palette, height: int) -> Drawing:
    """Returns an empty drawing of `height` [px] in the house style: no grid, no zero line, nothing to drag."""
    return Drawing(layout=_house_layout(colours, height))


def trace(kind: str, **parts: Any) -> dict[str, Any]:
    """Return a trace, such as "bar"; parts without a value are left out."""
    return {"type": kind} | {name: part for name, part in parts.items() if part is not None}


def _house_layout(colours: Palette, height: int) -> dict[str, Any]:
    """The layout of every chart."""
    return {
        "template": _TEMPLATE,
        "height": height,
        "margin": {"l": 0, "r": 0, "t": 8, "b": 0, "pad": 2},
        "minreducedheight": 16,  # else the labels of an axis below one or two bars get no room
        "font": {"size": TEXT_SIZE, "color": colours.text},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "dragmode": False,
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": colours.muted, "activecolor": colours.text},
        "showlegend": False,
        "hoverlabel": {
            "font": {"size": TEXT_SIZE, "color": colours.text},
            "align": "left",
            "bgcolor": colours.background,
            "bordercolor": colours.grid,
        },
        "legend": {
            "orientation": "h",
            "y": 1.02,
            "yanchor": "bottom",
            "x": 0,
            "font": {"size": TICK_SIZE},
            "title": {"text": ""},
        },
        "uniformtext": {"minsize": TICK_SIZE, "mode": "hide"},
        "xaxis": axis_style(colours, 10),
        "yaxis": {**axis_style(colours, 12), "ticklabelstandoff": 3},
    }


def style_axes(figure: Drawing, colours: Palette) -> None:
    """Gives every axis of a figure the house style; call after axes were added."""
    figure.update_xaxes(axis_style(colours, 10))
    figure.update_yaxes(axis_style(colours, 12), ticklabelstandoff=3)


def axis_style(colours: Palette, standoff: int) -> dict[str, Any]:
    """Returns the house style of an axis. standoff: room between its title and its ticks [px]."""
    return {
        "showgrid": False,
        "zeroline": False,
        "showline": False,
        "fixedrange": True,
        "automargin": True,
        "gridcolor": colours.grid,
        "tickfont": {"size": TICK_SIZE, "color": colours.muted},
        "title": {"font": {"size": TICK_SIZE, "color": colours.muted}, "standoff": standoff},
        "tickangle": 0,
    }


def stacked(figure: Drawing) -> Drawing:
    """Return the narrow form of a chart of named rows: names and figures above the bars instead of next to them.

    The names are the ticks of the vertical axes, the figures are notes right of the plot at the height of a row. Bars
    keep their thickness, and rows become higher by a line of text.
    """
    traces = [dict(each) for each in figure.traces]
    layout = deepcopy(figure.layout)
    margin = layout["margin"]
    axes = {name: axis for name, axis in layout.items() if name.startswith("yaxis")}
    plot = layout["height"] - margin["t"] - margin["b"] - (0 if len(axes) > 1 else _FOOT)
    notes: list[dict[str, Any]] = layout.get("annotations", [])
    heads = [note for note in notes if note.get("xref") == "paper" and note.get("xshift") and note["x"] == 1]
    ground = {"bgcolor": layout["hoverlabel"]["bgcolor"], "borderpad": 0}  # lines at limits run through the rows
    grown, above = 1.0, 0.0
    for name, axis in axes.items():
        reference = name.replace("axis", "")
        low, high = axis["range"]
        share = axis.get("domain", (0.0, 1.0))
        row = plot * (share[1] - share[0]) / (high - low)
        scale = (row + _LINE) / row
        grown = max(grown, scale)
        bars = [trace for trace in traces if trace["type"] == "bar" and trace.get("yaxis", "y") == reference]
        for bar in bars:
            bar["width"] /= scale
        reach = max(
            (
                max(place - round(place) for place in bar["y"]) * (row + _LINE) + bar["width"] * (row + _LINE) / 2
                for bar in bars
            ),
            default=0.0,
        )
        for mark in layout.get("shapes", []):  # marks of one row keep their length, as its bars do
            if mark.get("yref", "y") == reference and abs(mark["y1"] - mark["y0"]) <= 1:
                mark.update({end: round(mark[end]) + (mark[end] - round(mark[end])) / scale for end in ("y0", "y1")})
        mine = [note for note in notes if note.get("yref", "y") == reference]
        reach = max([reach, *(note.get("yshift", 0) + _LINE / 2 for note in mine if note.get("yanchor") != "bottom")])
        over = max(0.0, reach + _LINE - (row + _LINE) / 2)  # how far the first row's name is above the plot
        above = max(above, over)
        for note in [note for note in notes if note.get("yanchor") == "bottom"]:
            if note in mine or (note.get("yref") == "paper" and len(axes) == 1):
                note["yshift"] = note.get("yshift", 0) + over
        for note in mine:
            if note in heads:
                note.update(yshift=reach + _LINE / 2 + 2, **ground)
        notes += [
            {
                "text": text,
                "x": 0,
                "xref": "paper",
                "xanchor": "left",
                "y": place,
                "yref": reference,
                "showarrow": False,
                "yshift": reach + _LINE / 2 + 2,
                "font": axis["tickfont"],
                **ground,
            }
            for place, text in zip(axis["tickvals"], axis["ticktext"], strict=True)
        ]
        axis["showticklabels"] = False
    for head in heads:
        head["xshift"] -= margin["r"]
    layout["annotations"] = notes
    layout["height"] += round(plot * (grown - 1) + above)
    margin.update(l=0, r=0 if heads else margin["r"], t=margin["t"] + above)
    return Drawing(traces, layout)


def noted(
    text: str,
    colours: Palette,
    *,
    x: float,
    y: float,
    colour: str | None = None,
    font_size: int = TICK_SIZE,
    **more: Any,
) -> dict[str, Any]:
    """Returns a small annotation without an arrow."""
    return {
        "x": x,
        "y": y,
        "text": text,
        "showarrow": False,
        "font": {"size": font_size, "color": colour or colours.muted},
        **more,
    }


def note(
    figure: Drawing, text: str, colours: Palette, *, x: float, y: float, colour: str | None = None, **more: Any
) -> None:
    """Adds a small annotation without an arrow."""
    figure.notes.append(noted(text, colours, x=x, y=y, colour=colour, **more))


def name_rows(figure: Drawing, labels: Sequence[str], colours: Palette) -> None:
    """Name the rows of bars at 0, 1, 2 and so on; the first is on top."""
    figure.update_yaxes(
        autorange="reversed",
        tickvals=list(range(len(labels))),
        ticktext=list(labels),
        tickfont={"color": colours.text},
    )


def draw_capacity(
    figure: Drawing, place: float, rows: int, text: str, colours: Palette, side: str = "right", **axis: Any
) -> dict[str, Any]:
    """Draw a line across rows of bars at a capacity, and return the note that names it.

    Args:
        figure: the figure with the bars.
        place: the capacity, in the unit of the axis.
        rows: number of rows.
        text: text of the note.
        colours: the theme's.
        side: side of the note that the line is at, "left" or "right".
        axis: references of the axes, if not the first ones.
    """
    line = {"color": colours.worse, "width": 2}
    figure.add_shape(type="line", x0=place, x1=place, y0=-0.5, y1=rows - 0.5, layer="above", line=line, **axis)
    return noted(
        text, colours, x=place, y=rows - 0.5, yanchor="bottom", yshift=1, xanchor=side, colour=colours.worse, **axis
    )


def draw_diagonal(figure: Drawing, low: float, high: float, colours: Palette) -> None:
    """Draw the line on which both axes are equal."""
    figure.draw(
        "scatter",
        x=[low, high],
        y=[low, high],
        mode="lines",
        line={"color": colours.muted, "width": 1.2},
        hoverinfo="skip",
        showlegend=False,
    )


def empty(colours: Palette, height: int, sentence: str) -> Chart:
    """Return an empty chart with the reason."""
    figure = base(colours, height)
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False)
    note(figure, sentence, colours, x=0.5, y=0.5, xref="paper", yref="paper", font_size=TEXT_SIZE)
    return Chart(figure, sentence)


def wrapped(text: str, width: int = 60) -> str:
    """Break a long sentence for the hover box, which does not wrap text."""
    lines: list[str] = []
    line = ""
    for word in text.split(" "):
        if line and len(line) + 1 + len(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    return "<br>".join([*lines, line] if line else lines)


def nice_steps(low: float, high: float, wanted: int = 5, fewest: int = 0) -> list[float]:
    """Returns round numbers (1, 2, 2.5 or 5 times a power of ten) that divide low..high into about `wanted` steps.

    As steps are rounded up there may be fewer numbers; where they are less than `fewest`, more steps are wanted.
    """
    if not high > low:
        return [low]
    rough = (high - low) / wanted
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    found = [round(index * step, 12) for index in range(first, math.floor(high / step + 1e-9) + 1)]
    return found if len(found) >= fewest or wanted >= 20 else nice_steps(low, high, wanted + 1, fewest)


def log_ticks(low: float, high: float, most: int = 8) -> dict[str, Any]:
    """Returns the ticks of a logarithmic axis from low to high, which stay right while it is zoomed: 1, 2, 5 and their
    tenfolds where these are neither few nor more than `most`, else powers of ten or round numbers at equal steps."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = sum(low <= factor * 10.0**power <= high for power in powers for factor in (1, 2, 5))
    if ticks >= 3:
        return {"dtick": 1 if ticks > most else "D2", "tickformat": ",~g"}
    first, second, *_ = nice_steps(low, high, fewest=3)
    return {"dtick": f"L{second - first:.6g}", "tickformat": ",~g"}


def tick_texts(low: float, high: float, wanted: int = 5, fewest: int = 0) -> dict[str, list[Any]]:
    """Returns ticks at round numbers between two ends, all written with as many decimals; see `nice_steps`."""
    ticks = nice_steps(low, high, wanted, fewest)
    step = ticks[1] - ticks[0] if len(ticks) > 1 else abs(ticks[0]) or 1.0
    digits = next(digits for digits in range(13) if digits == 12 or abs(round(step, digits) - step) < 1e-6 * step)
    return {"tickvals": ticks, "ticktext": [f"{tick:,.{digits}f}".replace("-", "\u2212") for tick in ticks]}


def finite(values: Iterable[float]) -> list[float]:
    """Returns the values that are neither NaN nor infinite."""
    return [value for value in values if math.isfinite(value)]

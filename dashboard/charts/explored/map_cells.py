"""Cells of the map of the best executions: bars, or a heatmap where they are many, and their texts."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from dashboard.charts.elements.colour_scale import Ramp
from dashboard.charts.elements.palette import Palette
from dashboard.charts.elements.template import noted, wrapped
from dashboard.words.numbers import ABSENT, Scale, format_value, percent
from engine.columns import Column

__all__ = ["MAY_FIT_SIGN", "Axes", "MapLook", "MapPanel", "bar_traces", "best_cell_mark", "heatmap_traces"]

_SIDE: Final = 0.95
MAY_FIT_SIGN: Final = "?"
"""Sign of cells whose best execution only may fit."""


Axes = tuple[Sequence[Any], Sequence[Any]]
"""Values across and up."""


@dataclass(frozen=True, slots=True)
class MapPanel:
    """One map among the small multiples."""

    number: int
    rows: list[dict[Any, Any]]
    title: str
    places: list[tuple[int, int]]
    """Column and row of each cell."""

    @property
    def suffix(self) -> str:
        """Suffix of the panel's axes after x and y."""
        return "" if self.number == 0 else str(self.number + 1)

    @property
    def on(self) -> dict[str, str]:
        """The axes of its traces."""
        return {"xaxis": f"x{self.suffix}", "yaxis": f"y{self.suffix}"}

    @property
    def on_notes(self) -> dict[str, Any]:
        """The axes of its annotations and frames."""
        return {"xref": f"x{self.suffix}", "yref": f"y{self.suffix}"}


@dataclass(frozen=True, slots=True)
class MapLook:
    """Settings that all panels share."""

    axes: Axes
    metric: Column
    best: int | None
    """Position of the best of all cells."""
    best_value: float
    ramp: Ramp
    scale: Scale
    colours: Palette
    grid: tuple[int, int]
    """Columns and rows of panels."""
    height: int
    """Height of the chart [px]."""
    size: int
    """Size of the numbers in the cells [px]; 0 if they do not fit."""
    networks: Sequence[str]
    """Names of networks, innermost first."""


def bar_traces(panel: MapPanel, look: MapLook) -> list[dict[str, Any]]:
    """Returns the traces of a panel with numbers: every cell a bar of one trace, on the lower edge of its row."""
    colours, rows, places = look.colours, panel.rows, panel.places
    on_ramp = [None if math.isnan(row["value"]) else look.ramp.position(row["value"]) for row in rows]
    hatched = [place is None and bool(row["label"]) for place, row in zip(on_ramp, rows, strict=True)]
    absent = {(a, b) for a in range(len(look.axes[0])) for b in range(len(look.axes[1]))} - set(places)
    traces: list[dict[str, Any]] = [
        {
            "type": "bar",
            "x": [place[0] for place in places],
            "y": [_SIDE] * len(rows),
            "base": [place[1] - _SIDE / 2 for place in places],
            "width": _SIDE,
            "marker": {
                # Where bars have a colour each, Plotly draws the hatch in that colour from the second drawing on.
                "color": [
                    colours.ramp(place) if place is not None else colours.muted if hatch else colours.panel
                    for place, hatch in zip(on_ramp, hatched, strict=True)
                ],
                "line": {"width": 0},
                "pattern": colours.hatch_some(hatched),
            },
            **_cell_responses(panel, look),
            **panel.on,
        },
        {
            "type": "scatter",
            "x": [place[0] for place in absent],
            "y": [place[1] for place in absent],
            "mode": "markers",
            "hoverinfo": "skip",
            "marker": {"size": 2.5, "color": colours.muted, "opacity": 0.7},
            **panel.on,
        },
    ]
    # Labels are traces of their own, one per colour: text of bars would fade on a selection whatever the settings.
    inks = [colours.text if place is None else colours.label_on_ramp(place) for place in on_ramp]
    for ink in dict.fromkeys(inks):
        mine = [index for index, other in enumerate(inks) if other == ink]
        traces.append(
            {
                "type": "scatter",
                "x": [places[index][0] for index in mine],
                "y": [places[index][1] for index in mine],
                "mode": "text",
                "text": [_cell_label(rows[index], look.scale) for index in mine],
                "hoverinfo": "skip",
                "textfont": {"size": look.size, "color": ink},
                **panel.on,
            }
        )
    return traces


def heatmap_traces(panel: MapPanel, look: MapLook) -> list[dict[str, Any]]:
    """Returns the traces of a panel without numbers; an invisible scatter over it answers hovers and clicks."""
    colours, rows, places = look.colours, panel.rows, panel.places
    grid: list[list[float | None]] = [[None] * len(look.axes[0]) for _ in look.axes[1]]
    for row, (column, line) in zip(rows, places, strict=True):
        if not math.isnan(row["value"]):
            grid[line][column] = look.ramp.position(row["value"])
    misses = [place for row, place in zip(rows, places, strict=True) if math.isnan(row["value"]) and row["label"]]
    signed = [(row, place) for row, place in zip(rows, places, strict=True) if row["may_fit"]]
    return [
        {
            "type": "heatmap",
            "z": grid,
            "zmin": 0,
            "zmax": 1,
            "colorscale": colours.colorscale(),
            "showscale": False,
            "hoverinfo": "skip",
            "xgap": 1,
            "ygap": 1,
            **panel.on,
        },
        {
            "type": "scatter",
            "x": [place[0] for place in misses],
            "y": [place[1] for place in misses],
            "mode": "markers",
            "hoverinfo": "skip",
            "marker": {"symbol": "line-ne-open", "size": 8, "color": colours.muted, "line": {"width": 1}},
            **panel.on,
        },
        {
            "type": "scatter",
            "x": [place[0] for _, place in signed],
            "y": [place[1] for _, place in signed],
            "mode": "text",
            "text": [MAY_FIT_SIGN] * len(signed),
            "hoverinfo": "skip",
            "textfont": {
                "size": 9,
                "color": [colours.label_on_ramp(look.ramp.position(row["value"])) for row, _ in signed],
            },
            **panel.on,
        },
        {
            "type": "scatter",
            "x": [place[0] for place in places],
            "y": [place[1] for place in places],
            "mode": "markers",
            "marker": {"symbol": "square", "size": 12, "opacity": 0, "color": colours.text},
            **_cell_responses(panel, look),
            **panel.on,
        },
    ]


def _cell_responses(panel: MapPanel, look: MapLook) -> dict[str, Any]:
    """Return the hover texts and click data of cells."""
    return {
        "hovertext": [_cell_hover_text(row, look) for row in panel.rows],
        "hovertemplate": "%{hovertext}<extra></extra>",
        "customdata": [
            [*(row["at"] if isinstance(row["at"], tuple) else (row["at"],)), int(row["id"])] for row in panel.rows
        ],
    }


def best_cell_mark(panel: MapPanel, look: MapLook) -> list[dict[str, Any]]:
    """Returns the mark of the best cell if it is in this panel: in its upper right corner, clear of the number."""
    place = next((place for row, place in zip(panel.rows, panel.places, strict=True) if row["best"]), None)
    if place is None:
        return []
    colours, on = look.colours, panel.on_notes
    if look.size:
        ink = colours.label_on_ramp(look.ramp.position(look.best_value))
        return [
            noted(
                "★",
                colours,
                x=place[0] + 0.44,
                y=place[1] + 0.46,
                colour=ink,
                borderpad=0,
                xanchor="right",
                yanchor="top",
                **on,
            )
        ]
    return [
        noted(
            f"★ {_cell_label(next(row for row in panel.rows if row['best']), look.scale)}",
            colours,
            x=place[0],
            y=place[1],
            colour=colours.text,
            font_size=11,
            borderpad=2,
            bgcolor=colours.background,
            yanchor="bottom",
            xshift=4,
            yshift=4,
            xanchor="left" if place[0] < len(look.axes[0]) / 2 else "right",
            **on,
        )
    ]


def _cell_label(row: dict[Any, Any], scale: Scale) -> str:
    """Return the text in a cell: its value without unit, with a sign if it only may fit, or the memory it lacks."""
    if math.isnan(row["value"]):
        return str(row["label"]) or ABSENT
    return scale.number(row["value"]) + (MAY_FIT_SIGN if row["may_fit"] else "")


def _cell_hover_text(row: dict[Any, Any], look: MapLook) -> str:
    value, best, metric = row["value"], look.best_value, look.metric
    if math.isnan(value):
        said = wrapped(str(row["why"]))
    else:
        said = f"{metric.label} {format_value(metric, value)}"
        if best > 0 and math.isfinite(best) and math.isfinite(value):
            ratio = value / best
            said += f", {ratio:.2f} × the best" if metric.better == "lower" else f", {percent(ratio, 0)} of the best"
    return "<br>".join(part for part in (f"<b>{row['name']}</b>", said, str(row["tally"])) if part)

"""A map of any two fields, and small multiples of it by a third: each cell shows the best execution of a pair.

Cells are bars for the reasons given in `charts.cell_map`, all of one figure in one trace per panel. Panels share axes,
colours and unit, so that they can be read against each other. Where cells are too small or too many to be numbered they
are a heatmap: colour alone, the best value of each panel in words, and every figure on hovering.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd

from dashboard.charts.cell_map import HEIGHT
from dashboard.charts.elements.colour_scale import Domain, Ramp, colour_bar, ramp_for
from dashboard.charts.elements.palette import Palette, palette
from dashboard.charts.elements.template import Chart, axis_style, empty, noted, unfading, wrapped, written
from dashboard.words.names import in_sentence
from dashboard.words.numbers import ABSENT, Scale, counted, format_value, percent, scale_for
from engine.columns import Column, choice_label

__all__ = ["COLUMNS", "numbered", "pair_map"]

COLUMNS: Final = ("x", "y", "facet", "value", "rows", "id", "at", "name", "label", "why")
"""Columns that `pair_map` reads."""
_SIDE: Final = 0.95
_GAP: Final = 0.03
_MOST_LABELS: Final = 420
"""Cells that are labelled; with more of them drawing is slow."""
_WIDTH: Final = 640
"""Room for the cells across, of the narrowest window the pages are made for [px]."""
_LEAST_CELL: Final = (25, 15)
"""Width and height of a cell that holds three digits [px]."""
_ROOMY: Final = 34
"""Width of a cell from which its number is written in full size [px]."""


@dataclass(frozen=True, slots=True)
class _Panel:
    """One map among the small multiples."""

    number: int
    cells: pd.DataFrame
    title: str

    @property
    def suffix(self) -> str:
        """What follows x and y in the names of the panel's axes."""
        return "" if self.number == 0 else str(self.number + 1)


def pair_map(
    cells: pd.DataFrame,
    x: Column,
    y: Column,
    metric: Column,
    mode: str = "light",
    *,
    facet: Column | None = None,
    selected: str | None = None,
    domain: Domain = "near best",
    height: int = HEIGHT,
) -> Chart:
    """Draw the map.

    cells: one row per cell, columns `COLUMNS`: the values of the two fields and of the third (any value without one),
    best value of the metric (NaN where there is none), number of executions behind it, id of the best, `at` as what a
    click reports, and for cells without a value the `label` that they print and the sentence `why`; a label of "" is
    drawn as an empty cell, any other one hatched. x, y, facet: the fields. selected: the `at` that is framed.
    height: at most [px].
    Points carry customdata (at, id).
    """
    colours = palette(mode)
    values = [float(value) for value in cells["value"]]
    lower = metric.better == "lower"
    best = _best(values, lower)
    if best is None:
        return empty(colours, height, "No execution to show.")
    ramp, scale = ramp_for(values, lower_is_better=lower, domain=domain), scale_for(metric, values)
    across, down = _ordered(cells["x"], x), _ordered(cells["y"], y)
    panels = [_Panel(0, cells, "")]
    if facet is not None:
        panels = [
            _Panel(number, cells[cells["facet"] == value], f"{facet.label} {choice_label(facet, value)}")
            for number, value in enumerate(_ordered(cells["facet"], facet))
        ]
    star = str(cells["at"].iloc[best])
    traces: list[dict[str, Any]] = []
    notes: list[dict[str, Any]] = []
    frames: list[dict[str, Any]] = []
    size = _label_size(cells, height)
    draw = _draw if size else _draw_heatmap
    for panel in panels:
        drawn, noticed = draw(panel, (across, down), metric, values[best], ramp, scale, colours, star=star, size=size)
        traces += drawn
        notes += noticed
        if selected in set(panel.cells["at"]):
            frames += _frames(panel, selected, (across, down), colours)
    traces.append(_carrier(ramp, scale, colours))
    told = [_title(panel, len(panels), colours, "" if size else _best_of(panel, metric, scale)) for panel in panels]
    told = [one for one in told if one["text"]]
    layout = {
        **_arranged(panels, (across, down), (x, y), colours, bool(told)),
        "annotations": notes + told, "shapes": frames, "uniformtext": {"mode": False}, "bargap": 0,
        "barmode": "overlay",
    }  # fmt: skip
    # Few rows are not stretched to the whole height.
    height = min(height, 90 + 110 * len(down) * _grid(len(panels))[1])
    return Chart(written(colours, height, traces, layout), _alt(cells, x, y, facet, metric, best))


def numbered(cells: pd.DataFrame) -> bool:
    """Return whether the cells of a map are large and few enough to print their values."""
    return _label_size(cells, HEIGHT) > 0


def _label_size(cells: pd.DataFrame, height: int) -> int:
    """Return the size of the numbers in the cells [px], 0 where there is no room for them."""
    columns, rows = _grid(cells["facet"].nunique())
    width = _WIDTH / columns / max(1, cells["x"].nunique())
    if len(cells) > _MOST_LABELS or width < _LEAST_CELL[0] or height / rows / cells["y"].nunique() < _LEAST_CELL[1]:
        return 0
    return 12 if width >= _ROOMY else 11


def _best_of(panel: _Panel, metric: Column, scale: Scale) -> str:
    """Return what a panel without numbers says of itself: "best 147"."""
    known = panel.cells["value"].dropna()
    if not len(known):
        return "no execution"
    return f"best {scale.number(known.min() if metric.better == 'lower' else known.max())}{scale.suffix}"


def _draw_heatmap(
    panel: _Panel,
    axes: tuple[Sequence[Any], Sequence[Any]],
    metric: Column,
    best: float,
    ramp: Ramp,
    scale: Scale,
    colours: Palette,
    *,
    star: str,
    size: int,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Draw one panel without numbers; an invisible scatter over the colours answers hovers and clicks. See `_draw`."""
    del size
    rows = panel.cells.to_dict("records")
    on: dict[str, Any] = {"xaxis": f"x{panel.suffix}", "yaxis": f"y{panel.suffix}"}
    places = [(axes[0].index(row["x"]), axes[1].index(row["y"])) for row in rows]
    grid: list[list[float | None]] = [[None] * len(axes[0]) for _ in axes[1]]
    for row, place in zip(rows, places, strict=True):
        if not math.isnan(row["value"]):
            grid[place[1]][place[0]] = ramp.position(row["value"])
    misses = [place for row, place in zip(rows, places, strict=True) if math.isnan(row["value"]) and row["label"]]
    traces = [
        {
            "type": "heatmap", "z": grid, "zmin": 0, "zmax": 1, "colorscale": colours.colorscale(), "showscale": False,
            "hoverinfo": "skip", "xgap": 1, "ygap": 1, **on,
        },
        {
            "type": "scatter", "x": [place[0] for place in misses], "y": [place[1] for place in misses],
            "mode": "markers", "hoverinfo": "skip",
            "marker": {"symbol": "line-ne-open", "size": 8, "color": colours.muted, "line": {"width": 1}},
            **unfading(), **on,
        },
        {
            "type": "scatter", "x": [place[0] for place in places], "y": [place[1] for place in places],
            "mode": "markers", "marker": {"symbol": "square", "size": 12, "opacity": 0, "color": colours.text},
            "hovertext": [_hover(row, panel, metric, best) for row in rows],
            "hovertemplate": "%{hovertext}<extra></extra>",
            "customdata": [[row["at"], int(row["id"])] for row in rows], **unfading(0), **on,
        },
    ]  # fmt: skip
    return traces, [
        noted(f"★ {scale.number(row['value'])}", colours, x=place[0], y=place[1], colour=colours.text, font_size=11,
              borderpad=2, bgcolor=colours.background, xref=on["xaxis"], yref=on["yaxis"],
              xanchor="left" if place[0] < len(axes[0]) / 2 else "right", yanchor="bottom", xshift=4, yshift=4)
        for row, place in zip(rows, places, strict=True)
        if row["at"] == star
    ]  # fmt: skip


def _draw(
    panel: _Panel,
    axes: tuple[Sequence[Any], Sequence[Any]],
    metric: Column,
    best: float,
    ramp: Ramp,
    scale: Scale,
    colours: Palette,
    *,
    star: str,
    size: int,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Draw one panel; returns its traces, and the annotation of the best cell if it is here."""
    rows = panel.cells.to_dict("records")
    on: dict[str, Any] = {"xaxis": f"x{panel.suffix}", "yaxis": f"y{panel.suffix}"}
    places = [(axes[0].index(row["x"]), axes[1].index(row["y"])) for row in rows]
    colour, ink, hatched = [], [], []
    for row in rows:
        if math.isnan(row["value"]):
            hatched.append(bool(row["label"]))
            colour.append(colours.muted if row["label"] else colours.panel)
            ink.append(colours.text)
        else:
            position = ramp.position(row["value"])
            hatched.append(False)
            colour.append(colours.ramp(position))
            ink.append(colours.label_on_ramp(position))
    absent = {(a, b) for a in range(len(axes[0])) for b in range(len(axes[1]))} - set(places)
    traces: list[dict[str, Any]] = [
        {
            "type": "bar", "x": [place[0] for place in places], "y": [_SIDE] * len(rows),
            "base": [place[1] - _SIDE / 2 for place in places], "width": _SIDE,
            "hovertext": [_hover(row, panel, metric, best) for row in rows],
            "hovertemplate": "%{hovertext}<extra></extra>",
            "customdata": [[row["at"], int(row["id"])] for row in rows],
            "marker": {"color": colour, "line": {"width": 0}, "pattern": colours.hatch_some(hatched)},
            **unfading(), **on,
        },
        {
            "type": "scatter", "x": [place[0] for place in absent], "y": [place[1] for place in absent],
            "mode": "markers", "hoverinfo": "skip",
            "marker": {"size": 2.5, "color": colours.muted, "opacity": 0.7}, **unfading(0.7), **on,
        },
    ]  # fmt: skip
    for one in dict.fromkeys(ink):
        mine = [index for index, other in enumerate(ink) if other == one]
        traces.append(
            {
                "type": "scatter", "x": [places[index][0] for index in mine],
                "y": [places[index][1] for index in mine], "mode": "text",
                "text": [_label(rows[index], scale) for index in mine], "hoverinfo": "skip",
                "textfont": {"size": size, "color": one}, **unfading(text=one), **on,
            }
        )  # fmt: skip
    return traces, [
        noted("★", colours, x=place[0] + 0.44, y=place[1] + 0.46, colour=shade, borderpad=0,
              xanchor="right", yanchor="top", xref=on["xaxis"], yref=on["yaxis"])
        for row, place, shade in zip(rows, places, ink, strict=True)
        if row["at"] == star
    ]  # fmt: skip


def _frames(
    panel: _Panel, selected: str | None, axes: tuple[Sequence[Any], Sequence[Any]], colours: Palette
) -> list[dict[str, Any]]:
    """Frame the selected cell twice: one line alone vanishes on cells of its own colour."""
    row = panel.cells[panel.cells["at"] == selected].iloc[0]
    x, y = axes[0].index(row["x"]), axes[1].index(row["y"])
    return [
        {
            "type": "rect", "x0": x - half, "x1": x + half, "y0": y - half, "y1": y + half, "layer": "above",
            "line": {"color": colour, "width": width}, "xref": f"x{panel.suffix}", "yref": f"y{panel.suffix}",
        }
        for colour, width, half in ((colours.text, 2.5, 0.5), (colours.background, 1.6, 0.455))
    ]  # fmt: skip


def _arranged(
    panels: Sequence[_Panel],
    axes: tuple[Sequence[Any], Sequence[Any]],
    fields: tuple[Column, Column],
    colours: Palette,
    titled: bool,
) -> dict[str, Any]:
    """The axes of the panels: in a grid, the outer ones labelled."""
    columns, rows = _grid(len(panels))
    layout: dict[str, Any] = {}
    for panel in panels:
        left, top = panel.number % columns, panel.number // columns
        last = panel.number + columns >= len(panels)
        across, up = axis_style(colours, 10), {**axis_style(colours, 12), "ticklabelstandoff": 3}
        layout[f"xaxis{panel.suffix}"] = {
            **across, **_ticks(axes[0], fields[0], 28 // columns), "ticks": "", "showticklabels": last,
            "domain": _span(left, columns), "anchor": f"y{panel.suffix}", "range": [-0.52, len(axes[0]) - 0.48],
            "title": {**across["title"], "text": f"{fields[0].label} ({fields[0].short})" if last else ""},
        }  # fmt: skip
        layout[f"yaxis{panel.suffix}"] = {
            **up, **_ticks(axes[1], fields[1], 32 // rows), "ticks": "", "showticklabels": left == 0,
            "domain": _span(rows - 1 - top, rows, 0.09 if rows > 1 else 0.04 * titled), "anchor": f"x{panel.suffix}",
            "range": [-0.52, len(axes[1]) - 0.48],
            "title": {**up["title"], "text": f"{fields[1].label} ({fields[1].short})" if left == 0 else ""},
        }  # fmt: skip
    return layout


def _grid(panels: int) -> tuple[int, int]:
    """(columns, rows) of so many panels."""
    columns = panels if panels <= 3 else math.ceil(panels / 2)
    return columns, math.ceil(panels / columns)


def _span(position: int, of: int, gap: float = _GAP) -> list[float]:
    """Share of the figure that a panel takes along one direction, with a gap after it."""
    return [position / of, (position + 1) / of - (gap if of > 1 or gap > _GAP else 0.0)]


def _title(panel: _Panel, panels: int, colours: Palette, best: str) -> dict[str, Any]:
    text = " · ".join(part for part in (f"<b>{panel.title}</b>" if panel.title else "", best) if part)
    return noted(
        text, colours, x=0, y=1, colour=colours.text, xref=f"x{panel.suffix} domain",
        yref=f"y{panel.suffix} domain", xanchor="left", yanchor="bottom", font_size=11 if panels > 3 else 12,
    )  # fmt: skip


def _ticks(values: Sequence[Any], field: Column, most: int) -> dict[str, Any]:
    every = max(1, math.ceil(len(values) / max(most, 4)))
    return {
        "tickvals": list(range(0, len(values), every)),
        "ticktext": [choice_label(field, v) if field.dtype != "int64" else f"{v:,}" for v in values[::every]],
    }


def _ordered(values: pd.Series, field: Column) -> list[Any]:
    """The distinct values of a field in the order in which they are shown."""
    found = values.drop_duplicates().tolist()
    return sorted(found, key=field.choices.index) if field.choices else sorted(found)


def _carrier(ramp: Ramp, scale: Scale, colours: Palette) -> dict[str, Any]:
    """An empty trace that brings the colour bar."""
    marker = {"color": [0.5], "cmin": 0, "cmax": 1, "colorscale": colours.colorscale(), "showscale": True,
              "colorbar": colour_bar(ramp, scale, colours)}  # fmt: skip
    return {"type": "scatter", "x": [None], "y": [None], "mode": "markers", "hoverinfo": "skip", "marker": marker}


def _label(row: dict[Any, Any], scale: Scale) -> str:
    return str(row["label"]) or ABSENT if math.isnan(row["value"]) else scale.number(row["value"])


def _hover(row: dict[Any, Any], panel: _Panel, metric: Column, best: float) -> str:
    name = f"<b>{row['name']}</b>"
    if math.isnan(row["value"]):
        return f"{name}<br>{wrapped(str(row['why']))}"
    share = ""
    if best > 0 and math.isfinite(row["value"]):
        ratio = row["value"] / best
        share = f", {ratio:.2f} × the best" if metric.better == "lower" else f", {percent(ratio, 0)} of the best"
    number = counted(row["rows"], "execution")
    return f"{name}<br>{metric.label} {format_value(metric, row['value'])}{share}<br>{number}"


def _best(values: list[float], lower: bool) -> int | None:
    known = [(value if lower else -value, index) for index, value in enumerate(values) if math.isfinite(value)]
    return min(known)[1] if known else None


def _alt(cells: pd.DataFrame, x: Column, y: Column, facet: Column | None, metric: Column, best: int) -> str:
    row = cells.iloc[best]
    fields = [y, x, *([] if facet is None else [facet])]
    by = " and ".join(in_sentence(field.label) for field in fields)
    fitting = int(cells["value"].notna().sum())
    return (
        f"{metric.label} by {by}: the best is {format_value(metric, row['value'])} at {row['name']}; "
        f"{fitting} of {len(cells)} cells have an execution."
    )

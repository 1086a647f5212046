"""A map of any two fields, and small multiples of it by a third: each cell shows the best execution of a pair.

Cells are bars for the reasons given in `charts.cell_map`, all of one figure in one trace per panel. Panels share axes,
colours and unit, so that they can be read against each other.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd
import plotly.graph_objects as go

from dashboard.charts.cell_map import HEIGHT
from dashboard.charts.ramp import Domain, Ramp, colour_bar, ramp_for
from dashboard.charts.template import (
    Chart,
    base,
    empty,
    in_sentence,
    noted,
    style_axes,
    unfading,
    wrapped,
)
from dashboard.format import ABSENT, Scale, count, format_value, percent, scale_for
from dashboard.palette import Palette, palette
from engine.columns import Column, choice_label

__all__ = ["COLUMNS", "pair_map"]

COLUMNS: Final = ("x", "y", "facet", "value", "rows", "id", "at", "name", "label", "why")
"""Columns that `pair_map` reads."""
_SIDE: Final = 0.95
_GAP: Final = 0.03
_MOST_LABELS: Final = 180
"""Cells that are labelled; with more of them the numbers would not fit, and drawing them is slow."""


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
    # Few rows are not stretched to the whole height.
    figure = base(colours, min(height, 90 + 110 * len(down) * _grid(len(panels))[1]))
    star = str(cells["at"].iloc[best])
    notes: list[dict[str, Any]] = []
    for panel in panels:
        notes += _draw(figure, panel, (across, down), metric, values[best], ramp, scale, colours, star=star,
                       named=len(cells) <= _MOST_LABELS)  # fmt: skip
        if selected in set(panel.cells["at"]):
            _frame(figure, panel, selected, (across, down), colours)
    figure.add_trace(_carrier(ramp, scale, colours))
    _arrange(figure, panels, (across, down), (x, y), colours)
    notes += [_title(panel, len(panels), colours) for panel in panels if panel.title]
    figure.update_layout(annotations=notes, uniformtext={"mode": False}, bargap=0, barmode="overlay")
    return Chart(figure, _alt(cells, x, y, facet, metric, best))


def _draw(
    figure: go.Figure,
    panel: _Panel,
    axes: tuple[Sequence[Any], Sequence[Any]],
    metric: Column,
    best: float,
    ramp: Ramp,
    scale: Scale,
    colours: Palette,
    *,
    star: str,
    named: bool,
) -> list[dict[str, Any]]:
    """Draw one panel; returns the annotation of the best cell if it is here."""
    rows = panel.cells.to_dict("records")
    on: dict[str, Any] = {"xaxis": f"x{panel.suffix}", "yaxis": f"y{panel.suffix}"}
    places = [(axes[0].index(row["x"]), axes[1].index(row["y"])) for row in rows]
    colour, ink, hatched = [], [], []
    for row in rows:
        if math.isnan(row["value"]):
            hatched.append(bool(row["label"]))
            colour.append(colours.muted if row["label"] else colours.panel)
            ink.append(colours.muted)
        else:
            position = ramp.position(row["value"])
            hatched.append(False)
            colour.append(colours.ramp(position))
            ink.append(colours.label_on_ramp(position))
    figure.add_trace(
        go.Bar(
            x=[place[0] for place in places], y=[_SIDE] * len(rows), base=[place[1] - _SIDE / 2 for place in places],
            width=_SIDE, hovertext=[_hover(row, panel, metric, best) for row in rows],
            hovertemplate="%{hovertext}<extra></extra>", customdata=[[row["at"], int(row["id"])] for row in rows],
            marker={"color": colour, "line": {"width": 0}, "pattern": colours.hatch_some(hatched)}, **unfading(), **on,
        )
    )  # fmt: skip
    absent = {(a, b) for a in range(len(axes[0])) for b in range(len(axes[1]))} - set(places)
    figure.add_trace(
        go.Scatter(
            x=[place[0] for place in absent], y=[place[1] for place in absent], mode="markers", hoverinfo="skip",
            marker={"size": 2.5, "color": colours.muted, "opacity": 0.7}, **unfading(0.7), **on,
        )
    )  # fmt: skip
    for one in dict.fromkeys(ink) if named else ():
        mine = [index for index, other in enumerate(ink) if other == one]
        figure.add_trace(
            go.Scatter(
                x=[places[index][0] for index in mine], y=[places[index][1] for index in mine], mode="text",
                text=[_label(rows[index], scale) for index in mine], hoverinfo="skip",
                textfont={"size": 12 if panel.title == "" else 10, "color": one}, **unfading(text=one), **on,
            )
        )  # fmt: skip
    for row, place, shade in zip(rows, places, ink, strict=True):
        if row["at"] == star:
            return [noted("★", colours, x=place[0] + 0.44, y=place[1] + 0.46, colour=shade, font_size=9, borderpad=0,
                          xanchor="right", yanchor="top", xref=on["xaxis"], yref=on["yaxis"])]  # fmt: skip
    return []


def _frame(
    figure: go.Figure, panel: _Panel, selected: str | None, axes: tuple[Sequence[Any], Sequence[Any]], colours: Palette
) -> None:
    """Frame the selected cell twice: one line alone vanishes on cells of its own colour."""
    row = panel.cells[panel.cells["at"] == selected].iloc[0]
    x, y = axes[0].index(row["x"]), axes[1].index(row["y"])
    for colour, width, half in ((colours.text, 2.5, 0.5), (colours.background, 1.6, 0.455)):
        figure.add_shape(
            type="rect", x0=x - half, x1=x + half, y0=y - half, y1=y + half, layer="above",
            line={"color": colour, "width": width}, xref=f"x{panel.suffix}", yref=f"y{panel.suffix}",
        )  # fmt: skip


def _arrange(
    figure: go.Figure,
    panels: Sequence[_Panel],
    axes: tuple[Sequence[Any], Sequence[Any]],
    fields: tuple[Column, Column],
    colours: Palette,
) -> None:
    """Place the panels in a grid and label their outer axes."""
    columns, rows = _grid(len(panels))
    for panel in panels:
        left, top = panel.number % columns, panel.number // columns
        last = panel.number + columns >= len(panels)
        figure.update_layout(
            {
                f"xaxis{panel.suffix}": {
                    "domain": _span(left, columns), "anchor": f"y{panel.suffix}", "range": [-0.52, len(axes[0]) - 0.48],
                    **_ticks(axes[0], fields[0], 28 // columns), "showticklabels": last,
                    "title": {"text": f"{fields[0].label} ({fields[0].short})" if last else ""},
                },
                f"yaxis{panel.suffix}": {
                    "domain": _span(rows - 1 - top, rows, 0.09 if rows > 1 else 0.04 * bool(panel.title)),
                    "anchor": f"x{panel.suffix}", "range": [-0.52, len(axes[1]) - 0.48],
                    **_ticks(axes[1], fields[1], 32 // rows), "showticklabels": left == 0,
                    "title": {"text": f"{fields[1].label} ({fields[1].short})" if left == 0 else ""},
                },
            }
        )  # fmt: skip
    style_axes(figure, colours)


def _grid(panels: int) -> tuple[int, int]:
    """(columns, rows) of so many panels."""
    columns = panels if panels <= 3 else math.ceil(panels / 2)
    return columns, math.ceil(panels / columns)


def _span(position: int, of: int, gap: float = _GAP) -> list[float]:
    """Share of the figure that a panel takes along one direction, with a gap after it."""
    return [position / of, (position + 1) / of - (gap if of > 1 or gap > _GAP else 0.0)]


def _title(panel: _Panel, panels: int, colours: Palette) -> dict[str, Any]:
    return noted(
        f"<b>{panel.title}</b>", colours, x=0, y=1, colour=colours.text, xref=f"x{panel.suffix} domain",
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


def _carrier(ramp: Ramp, scale: Scale, colours: Palette) -> go.Scatter:
    """An empty trace that brings the colour bar."""
    marker = {"color": [0.5], "cmin": 0, "cmax": 1, "colorscale": colours.colorscale(), "showscale": True,
              "colorbar": colour_bar(ramp, scale, colours)}  # fmt: skip
    return go.Scatter(x=[None], y=[None], mode="markers", hoverinfo="skip", marker=marker)


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
    return f"{name}<br>{metric.label} {format_value(metric, row['value'])}{share}<br>{count(row['rows'])} executions"


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

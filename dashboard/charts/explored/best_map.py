"""The map: a cell per pair of two fields, each showing the best execution of the pair; small multiples by a third.

Cells are bars rather than a heatmap because bars report clicks, take a hatch each and a text colour each. Panels share
axes, colours and unit, so that they can be read against each other. Where cells are too small or too many to be
numbered they are a heatmap under an invisible scatter that reports clicks: colour alone, the best value of each panel
in words, and every figure on hovering.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

import pandas as pd

from dashboard.charts.elements.colour_scale import Domain, colour_bar, ramp_for
from dashboard.charts.elements.palette import Palette, palette
from dashboard.charts.elements.template import TICK_SIZE, Chart, axis_style, empty, noted, written
from dashboard.charts.explored.map_cells import (
    MAY_FIT_SIGN,
    Axes,
    MapLook,
    MapPanel,
    bar_traces,
    best_cell_mark,
    heatmap_traces,
)
from dashboard.words.names import in_sentence, named_value
from dashboard.words.numbers import format_value, scale_for
from engine.columns import Column

__all__ = ["COLUMNS", "HEIGHT", "MOST_LABELS", "best_map", "numbered"]

COLUMNS: Final = ("x", "y", "facet", "value", "id", "at", "name", "label", "why", "tally")
"""Columns that `best_map` reads."""
HEIGHT: Final = 532
MOST_LABELS: Final = 420
"""Cells that are labelled; with more of them drawing is slow."""
_GAP: Final = 0.03
_WIDTH: Final = {False: 640, True: 230}
"""Room for the cells across, by whether the window is narrow, of the narrowest window of either kind [px]."""
_LEAST_CELL: Final = (25, 15)
"""Width and height of a cell that holds three digits [px]."""
_LOW: Final = 28
"""Height of a row of cells with stacked panels in a narrow window [px]."""
_ABOVE: Final = 48
"""Room above a panel below another [px]."""
_ROOMY: Final = 34
"""Width of a cell from which its number is written in full size [px]."""

At = str | tuple[int, int]
"""First part of the customdata that a click on a cell reports."""


def best_map(
    cells: pd.DataFrame,
    x: Column,
    y: Column,
    metric: Column,
    mode: str = "light",
    *,
    facet: Column | None = None,
    selected: At | None = None,
    base_cell: At | None = None,
    domain: Domain = "near best",
    height: int = HEIGHT,
    axes: Axes | None = None,
    among: Sequence[float] | None = None,
    bar: bool = True,
    narrow: bool = False,
    networks: Sequence[str] = (),
) -> Chart:
    """Draws the map; its points carry customdata (all of `at`, id).

    Args:
        cells: one row per cell, columns `COLUMNS`: the values of the two fields and of the third (any value without
            one), best value of the metric (NaN if none is feasible), id of the best, `at` for clicks, the cell's
            `name`, for cells without a value their printed `label` and the sentence `why`, and the `tally` of
            executions behind it; a label of "" is drawn as an empty cell, any other one hatched. Optional: `may_fit`,
            whether the best exceeds a capacity within the limit, which is marked.
        x, y, facet: the fields. metric: metric of `value`.
        selected, base_cell: the `at` of the cells that are framed, by a solid and by a dotted line.
        height: at most [px].
        axes, among: values of the axes, and values that decide colours and unit; those in `cells` unless charts are
            compared.
        bar: whether there is a colour bar; charts that share their colours do better with one for all.
        narrow: whether it is drawn in a narrow window.
        networks: names of the system's networks, shown instead of their numbers.
    """
    colours = palette(mode)
    if not len(cells):
        return empty(colours, height, "No execution to show.")
    if "may_fit" not in cells:
        cells = cells.assign(may_fit=False)
    values = [float(value) for value in cells["value"]]
    lower = metric.better == "lower"
    across, up = axes or (_ordered_values(cells["x"], x), _ordered_values(cells["y"], y))
    chosen_for = values if among is None else among
    best = _best_index(values, lower)
    grid, height = _panel_grid(cells, len(up), height, narrow)
    look = MapLook(
        (across, up),
        metric,
        best,
        math.nan if best is None else values[best],
        ramp_for(chosen_for, lower_is_better=lower, domain=domain),
        scale_for(metric, chosen_for),
        colours,
        grid,
        height,
        _label_size(cells, len(across), len(up), grid, height, narrow),
        networks,
    )
    panels = _make_panels(cells.assign(best=[place == best for place in range(len(cells))]), facet, look)
    traces: list[dict[str, Any]] = []
    notes: list[dict[str, Any]] = []
    frames: list[dict[str, Any]] = []
    for panel in panels:
        traces += bar_traces(panel, look) if look.size else heatmap_traces(panel, look)
        notes += best_cell_mark(panel, look)
        frames += _cell_frames(panel, base_cell, ((colours.text, 1.6, 0.475, "dot"),), "base")
        # Two lines: one alone vanishes on cells of its own colour.
        twice = (colours.text, 2.5, 0.5, "solid"), (colours.background, 1.6, 0.455, "solid")
        frames += _cell_frames(panel, selected, twice, "clicked")
    titles = [_panel_title(panel, len(panels), look) for panel in panels]
    notes += [title for title in titles if title["text"]]
    drawn = colour_bar(look.ramp, look.scale, colours, x=1.0) if bar and best is not None else None
    if drawn is not None:
        traces.append(_colour_bar_trace(drawn, colours))
    layout = {
        **_axes_layout(panels, look, (x, y), drawn, bool(any(title["text"] for title in titles))),
        "annotations": notes,
        "shapes": frames,
        "uniformtext": {"mode": False},
        "bargap": 0,
        "barmode": "overlay",
    }
    return Chart(written(colours, height, traces, layout), _summarize_map(cells, (y, x, facet), look))


def numbered(cells: pd.DataFrame, *, narrow: bool = False) -> bool:
    """Returns whether the cells of a map are large and few enough to print their values. narrow: see `best_map`."""
    across, up = cells["x"].nunique(), cells["y"].nunique()
    return _label_size(cells, across, up, *_panel_grid(cells, up, HEIGHT, narrow), narrow) > 0


def _panel_grid(cells: pd.DataFrame, up: int, height: int, narrow: bool) -> tuple[tuple[int, int], int]:
    """Return the columns and rows of panels, and the height of the chart [px]."""
    panels = cells["facet"].nunique()
    if narrow and panels > 1:
        return (1, panels), panels * (90 + _LOW * up)
    columns = panels if panels <= 3 else math.ceil(panels / 2)
    rows = math.ceil(panels / columns)
    return (columns, rows), min(height, 90 + 110 * up * rows)  # few rows are not stretched to the whole height


def _label_size(cells: pd.DataFrame, across: int, up: int, grid: tuple[int, int], height: int, narrow: bool) -> int:
    """Returns the size of the numbers in the cells [px], 0 where there is no room for them."""
    columns, rows = grid
    width = _WIDTH[narrow] / columns / across
    if len(cells) > MOST_LABELS or width < _LEAST_CELL[0] or height / rows / up < _LEAST_CELL[1]:
        return 0
    return 12 if width >= _ROOMY else 11


def _make_panels(cells: pd.DataFrame, facet: Column | None, look: MapLook) -> list[MapPanel]:
    across, up = ({value: place for place, value in enumerate(values)} for values in look.axes)
    titles = (
        {"": cells}
        if facet is None
        else {
            f"{facet.label} {named_value(facet, value, look.networks)}": cells[cells["facet"] == value]
            for value in _ordered_values(cells["facet"], facet)
        }
    )
    return [
        MapPanel(
            number,
            part.to_dict("records"),
            title,
            [(across[x], up[y]) for x, y in zip(part["x"], part["y"], strict=True)],
        )
        for number, (title, part) in enumerate(titles.items())
    ]


def _cell_frames(
    panel: MapPanel, at: At | None, lines: Iterable[tuple[str, float, float, str]], name: str
) -> list[dict[str, Any]]:
    """Returns frames around a cell if it is in this panel: colour, width [px], half of the side, dash.

    name: "clicked" for frames that the browser moves to a cell as soon as it is clicked.
    """
    place = next((place for row, place in zip(panel.rows, panel.places, strict=True) if row["at"] == at), None)
    return (
        []
        if place is None
        else [
            {
                "type": "rect",
                "x0": place[0] - half,
                "x1": place[0] + half,
                "y0": place[1] - half,
                "y1": place[1] + half,
                "name": name,
                "layer": "above",
                "line": {"color": colour, "width": width, "dash": dash},
                **panel.on_notes,
            }
            for colour, width, half, dash in lines
        ]
    )


def _axes_layout(
    panels: Sequence[MapPanel], look: MapLook, fields: tuple[Column, Column], bar: dict[str, Any] | None, titled: bool
) -> dict[str, Any]:
    """Returns the axes of the panels: in a grid, the outer ones labelled."""
    columns, rows = look.grid
    most = 28 // columns, int(look.height / rows / 16)
    ticks = [_axis_ticks(*each, look.networks) for each in zip(look.axes, fields, most, strict=True)]
    layout: dict[str, Any] = {}
    room: dict[str, Any] = {}
    if len(panels) == 1:
        # Room enough: to find out Plotly would measure every label, and draw the map twice.
        room = {"automargin": False, "ticklabeloverflow": "allow"}
        right = 8.0 if bar is None else 34 + _label_width(bar["ticktext"])
        layout["margin"] = {"l": 27 + _label_width(ticks[1]["ticktext"]), "r": right, "b": 36, "autoexpand": False}
    for panel in panels:
        left, top = panel.number % columns, panel.number // columns
        last = panel.number + columns >= len(panels)
        across, up = axis_style(look.colours, 10), {**axis_style(look.colours, 12), "ticklabelstandoff": 3}
        layout[f"xaxis{panel.suffix}"] = {
            **across,
            **ticks[0],
            "ticks": "",
            "showticklabels": last,
            "domain": _panel_domain(left, columns),
            "anchor": f"y{panel.suffix}",
            "range": [-0.52, len(look.axes[0]) - 0.48],
            "title": {**across["title"], "text": f"{fields[0].label} ({fields[0].short})" if last else ""},
            **room,
        }
        layout[f"yaxis{panel.suffix}"] = {
            **up,
            **ticks[1],
            "ticks": "",
            "showticklabels": left == 0,
            "domain": _panel_domain(rows - 1 - top, rows, _ABOVE / look.height if rows > 1 else 0.04 * titled),
            "anchor": f"x{panel.suffix}",
            "range": [-0.52, len(look.axes[1]) - 0.48],
            "title": {**up["title"], "text": f"{fields[1].label} ({fields[1].short})" if left == 0 else ""},
            **room,
        }
    return layout


def _label_width(labels: Iterable[str]) -> float:
    """Returns the room for the longest of some labels of ticks [px]."""
    return 0.58 * TICK_SIZE * max(map(len, labels), default=0)


def _panel_domain(position: int, of: int, gap: float = _GAP) -> list[float]:
    """Returns the share of the figure that a panel takes along one direction, with a gap after it."""
    return [position / of, (position + 1) / of - (gap if of > 1 or gap > _GAP else 0.0)]


def _panel_title(panel: MapPanel, panels: int, look: MapLook) -> dict[str, Any]:
    """Returns the title above a panel; without numbers in the cells it includes the best value: "best 147"."""
    best = ""
    if not look.size:
        found = _best_index(values := [row["value"] for row in panel.rows], look.metric.better == "lower")
        best = "no execution" if found is None else f"best {look.scale.number(values[found])}{look.scale.suffix}"
    text = " · ".join(part for part in (f"<b>{panel.title}</b>" if panel.title else "", best) if part)
    return noted(
        text,
        look.colours,
        x=0,
        y=1,
        colour=look.colours.text,
        xref=f"x{panel.suffix} domain",
        yref=f"y{panel.suffix} domain",
        xanchor="left",
        yanchor="bottom",
        font_size=11 if panels > 3 else 12,
    )


def _axis_ticks(values: Sequence[Any], field: Column, most: int, networks: Sequence[str]) -> dict[str, Any]:
    """Returns the names at an axis: every one, or every second, third, ... where more than `most` would overlap."""
    every = max(1, math.ceil(len(values) / max(most, 4)))
    return {
        "tickvals": list(range(0, len(values), every)),
        "ticktext": [named_value(field, v, networks) for v in values[::every]],
    }


def _ordered_values(values: pd.Series, field: Column) -> list[Any]:
    """Returns the distinct values of a field in the order in which they are shown."""
    found = values.drop_duplicates().tolist()
    return sorted(found, key=field.rank if field.choices else None)


def _colour_bar_trace(bar: dict[str, Any], colours: Palette) -> dict[str, Any]:
    """Return an empty trace with the colour bar, since cells have fixed colours."""
    marker = {
        "color": [0.5],
        "cmin": 0,
        "cmax": 1,
        "colorscale": colours.colorscale(),
        "showscale": True,
        "colorbar": bar,
    }
    return {"type": "scatter", "x": [None], "y": [None], "mode": "markers", "hoverinfo": "skip", "marker": marker}


def _best_index(values: Sequence[float], lower: bool) -> int | None:
    """Returns the index of the best finite value, the first of equals."""
    known = [(value if lower else -value, index) for index, value in enumerate(values) if math.isfinite(value)]
    return min(known)[1] if known else None


def _summarize_map(cells: pd.DataFrame, fields: Sequence[Column | None], look: MapLook) -> str:
    by = " and ".join(in_sentence(field.label) for field in fields if field is not None)
    if look.best is None:
        return f"{look.metric.label} by {by}: nothing fits in any of {len(cells)} cells."
    row, fitting = cells.iloc[look.best], int(cells["value"].notna().sum())
    return (
        f"{look.metric.label} by {by}: the best is {format_value(look.metric, row['value'])} at {row['name']}; "
        f"{fitting} of {len(cells)} cells have an execution{_summarize_may_fit(cells)}."
    )


def _summarize_may_fit(cells: pd.DataFrame) -> str:
    number = int(cells["may_fit"].sum())
    return f"; in {number} of them the best only may fit, marked {MAY_FIT_SIGN}" if number else ""

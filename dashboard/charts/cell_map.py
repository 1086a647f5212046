"""The map of tensor by pipeline parallel degree: one cell per pair, each showing the best execution in it.

Cells are bars rather than a heatmap because bars report clicks, take a hatch each and a text colour each. Above
`MAX_BARS` cells drawing bars becomes slow; the map then is a heatmap under an invisible scatter that reports clicks.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

import pandas as pd

from dashboard.charts.elements.colour_scale import Domain, Ramp, colour_bar, ramp_for
from dashboard.charts.elements.palette import Palette, palette
from dashboard.charts.elements.template import TICK_SIZE, Chart, empty, noted, unfading, wrapped, written
from dashboard.words.names import degrees
from dashboard.words.numbers import ABSENT, Scale, column_of, count, format_value, percent, scale_for
from engine.columns import Column
from hardware import GIB

MAX_BARS: Final = 600
HEIGHT: Final = 532
_SIDE: Final = 0.95
_ROOM_KNOWN: Final[dict[str, Any]] = {"automargin": False, "ticklabeloverflow": "allow"}
"""Of axes for which there is room enough: to find out Plotly would measure every label, and draw the map twice."""

COLUMNS: Final = (
    "tensor_par", "pipeline_par", "value", "total", "feasible", "id", "reason", "reason_text", "shortfall_bytes",
)  # fmt: skip
"""Columns that `cell_map` reads; `data_par` is optional and only named in hovers."""


def cell_map(
    cells: pd.DataFrame,
    metric: Column | str,
    mode: str = "light",
    *,
    selected: tuple[int, int] | None = None,
    base_cell: tuple[int, int] | None = None,
    domain: Domain = "near best",
    height: int = HEIGHT,
    axes: tuple[Sequence[int], Sequence[int]] | None = None,
    among: Sequence[float] | None = None,
    bar: bool = True,
) -> Chart:
    """Draw the map.

    cells: one row per pair with at least one execution, columns `COLUMNS`: value in the metric's unit (NaN where
    nothing fits), total and feasible [executions], id of the best execution, reason (code) and reason_text of the
    nearest miss, shortfall_bytes [bytes] by which it misses the memory (0 or NaN where memory is not the reason).
    metric: what `value` holds. selected, base_cell: (tensor_par, pipeline_par) to frame with a solid or dotted line.
    axes, among: tensor and pipeline degrees of the axes, and the values that colours and unit are chosen for; those of
    `cells` unless maps are to be compared.
    bar: whether the map has a colour bar of its own; maps that share their colours do better with one for all.
    Points carry customdata (tensor_par, pipeline_par, id), id -1 where nothing fits.
    """
    column, colours = column_of(metric), palette(mode)
    cells = cells[cells["total"] > 0].reset_index(drop=True) if len(cells) else cells
    if not len(cells):
        return empty(colours, height, "No pair of tensor and pipeline parallel degrees divides this system.")
    tensors = list(axes[0]) if axes else sorted({int(value) for value in cells["tensor_par"]})
    pipelines = list(axes[1]) if axes else sorted({int(value) for value in cells["pipeline_par"]})
    values = [float(value) for value in cells["value"]]
    lower = column.better == "lower"
    ramp = ramp_for(values if among is None else among, lower_is_better=lower, domain=domain)
    scale = scale_for(column, values if among is None else among)
    row_of = {degree: index for index, degree in enumerate(tensors)}
    column_index = {degree: index for index, degree in enumerate(pipelines)}
    x = [column_index[int(value)] for value in cells["pipeline_par"]]
    y = [row_of[int(value)] for value in cells["tensor_par"]]
    best = _best(values, lower)
    rows = cells.to_dict("records")
    hovers = [_hover(row, column, values, best) for row in rows]
    custom = [
        [int(row["tensor_par"]), int(row["pipeline_par"]), -1 if pd.isna(row["id"]) else int(row["id"])]
        for row in rows
    ]
    few = len(cells) <= MAX_BARS
    draw = _bars if few else _heatmap
    traces = draw(x, y, values, [_label(row, scale) for row in rows], hovers, custom, ramp, colours)
    if few:
        traces.append(_gaps(x, y, len(pipelines), len(tensors), colours))
    notes, frames = [], []
    right = 8.0
    if best is not None:
        if bar:
            drawn = colour_bar(ramp, scale, colours, x=1.0)
            traces.append(_colour_bar_carrier(drawn, colours))
            right = 34 + _wide(drawn["ticktext"])
        on_best = colours.label_on_ramp(ramp.position(values[best]))
        # In the upper right corner, clear of the value.
        notes.append(noted("★", colours, x=x[best] + 0.44, y=y[best] + 0.46, colour=on_best, xanchor="right",
                           yanchor="top", borderpad=0))  # fmt: skip
    places = {(row[0], row[1]): (x[index], y[index]) for index, row in enumerate(custom)}
    if base_cell in places:
        frames.append(_frame(places[base_cell], colours.text, 1.6, 0.475, dash="dot"))
    if selected in places:
        # Two lines: one alone vanishes on cells of its own colour.
        frames.append(_frame(places[selected], colours.text, 2.5, 0.5))
        frames.append(_frame(places[selected], colours.background, 1.6, 0.455))

    left = 27 + _wide(f"{value:,}" for value in tensors)
    layout = {
        "margin": {"l": left, "r": right, "b": 36, "autoexpand": False},
        "xaxis": {**_ticks(pipelines, 28), "range": [-0.52, len(pipelines) - 0.48], **_ROOM_KNOWN,
                  "title": {"text": "Pipeline parallel (PP)"}},
        "yaxis": {**_ticks(tensors, 32), "range": [-0.52, len(tensors) - 0.48], **_ROOM_KNOWN,
                  "title": {"text": "Tensor parallel (TP)"}},
        "uniformtext": {"mode": False}, "bargap": 0, "barmode": "overlay", "annotations": notes, "shapes": frames,
    }  # fmt: skip
    return Chart(written(colours, height, traces, layout), _alt(cells, column, values, best))


def _wide(labels: Iterable[str]) -> float:
    """Room for the longest of some labels of ticks [px]."""
    return 0.58 * TICK_SIZE * max(map(len, labels), default=0)


def _bars(
    x: list[int],
    y: list[int],
    values: list[float],
    labels: list[str],
    hovers: list[str],
    custom: list[list[int]],
    ramp: Ramp,
    colours: Palette,
) -> list[dict[str, Any]]:
    """Draw every cell as one bar of a single trace, standing on the lower edge of its row."""
    places = [None if math.isnan(value) else ramp.position(value) for value in values]
    traces: list[dict[str, Any]] = [
        {
            "type": "bar",
            "x": x,
            "y": [_SIDE] * len(x),
            "base": [row - _SIDE / 2 for row in y],
            "width": _SIDE,
            "marker": {
                # Where bars have a colour each, Plotly draws the hatch in that colour from the second drawing on.
                "color": [colours.muted if place is None else colours.ramp(place) for place in places],
                "line": {"width": 0},
                "pattern": colours.hatch_some([place is None for place in places]),
            },
            "hovertext": hovers,
            "hovertemplate": "%{hovertext}<extra></extra>",
            "customdata": custom,
            **unfading(),
        }
    ]
    # Labels are traces of their own, one per colour: text of bars would fade on a selection whatever the settings.
    inks = [colours.text if place is None else colours.label_on_ramp(place) for place in places]
    for ink in dict.fromkeys(inks):
        mine = [index for index, other in enumerate(inks) if other == ink]
        traces.append(
            {
                "type": "scatter",
                "x": [x[index] for index in mine],
                "y": [y[index] for index in mine],
                "mode": "text",
                "text": [labels[index] for index in mine],
                "textfont": {"size": 12 if len(set(x)) <= 16 else TICK_SIZE, "color": ink},
                "hoverinfo": "skip",
                **unfading(text=ink),
            }
        )
    return traces


def _heatmap(
    x: list[int],
    y: list[int],
    values: list[float],
    labels: list[str],
    hovers: list[str],
    custom: list[list[int]],
    ramp: Ramp,
    colours: Palette,
) -> list[dict[str, Any]]:
    """Draw many cells as a heatmap without labels; an invisible scatter over it answers hovers and clicks."""
    del labels
    grid: list[list[float | None]] = [[None] * (max(x) + 1) for _ in range(max(y) + 1)]
    for column, row, value in zip(x, y, values, strict=True):
        if not math.isnan(value):
            grid[row][column] = ramp.position(value)
    misses = [index for index, value in enumerate(values) if math.isnan(value)]
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
        },
        {
            "type": "scatter",
            "x": [x[index] for index in misses],
            "y": [y[index] for index in misses],
            "mode": "markers",
            "marker": {"symbol": "line-ne-open", "size": 9, "color": colours.muted, "line": {"width": 1}},
            "hoverinfo": "skip",
            **unfading(),
        },
        {
            "type": "scatter",
            "x": x,
            "y": y,
            "mode": "markers",
            "marker": {"symbol": "square", "size": 14, "opacity": 0, "color": colours.text},
            "hovertext": hovers,
            "hovertemplate": "%{hovertext}<extra></extra>",
            "customdata": custom,
            **unfading(0),
        },
    ]


def _gaps(x: Sequence[int], y: Sequence[int], columns: int, rows: int, colours: Palette) -> dict[str, Any]:
    """Mark the pairs without any execution with a small dot."""
    present = set(zip(x, y, strict=True))
    gaps = [(a, b) for a in range(columns) for b in range(rows) if (a, b) not in present]
    return {
        "type": "scatter",
        "x": [gap[0] for gap in gaps],
        "y": [gap[1] for gap in gaps],
        "mode": "markers",
        "marker": {"size": 2.5, "color": colours.muted, "opacity": 0.7},
        "hoverinfo": "skip",
        **unfading(0.7),
    }


def _colour_bar_carrier(bar: dict[str, Any], colours: Palette) -> dict[str, Any]:
    """Return an empty trace that brings the colour bar, since cells carry colours of their own."""
    return {
        "type": "scatter",
        "x": [None],
        "y": [None],
        "mode": "markers",
        "hoverinfo": "skip",
        "marker": {
            "color": [0.5],
            "cmin": 0,
            "cmax": 1,
            "colorscale": colours.colorscale(),
            "showscale": True,
            "colorbar": bar,
        },
    }


def _frame(
    place: tuple[int, int], colour: str, width: float, half: float, dash: str = "solid"
) -> dict[str, Any]:
    column, row = place
    return {
        "type": "rect", "x0": column - half, "x1": column + half, "y0": row - half, "y1": row + half, "layer": "above",
        "line": {"color": colour, "width": width, "dash": dash},
    }  # fmt: skip


def _ticks(degrees_shown: list[int], most: int) -> dict[str, Any]:
    """Return the axis labels, every one or every second, third, ... where more than `most` would overlap."""
    every = math.ceil(len(degrees_shown) / most)
    return {
        "tickvals": list(range(0, len(degrees_shown), every)),
        "ticktext": [f"{value:,}" for value in degrees_shown[::every]],
    }


def _best(values: list[float], lower: bool) -> int | None:
    """Return the index of the best finite value, the first of equals."""
    known = [(value if lower else -value, index) for index, value in enumerate(values) if math.isfinite(value)]
    return min(known)[1] if known else None


def _label(row: dict[Any, Any], scale: Scale) -> str:
    """Return what a cell prints: its value without unit, or by how many GiB it misses the memory."""
    if not pd.isna(row["value"]):
        return scale.number(row["value"])
    return shortfall_label(row["shortfall_bytes"])


def shortfall_label(missing: Any) -> str:
    """Return missing memory [bytes] as the cell prints it [GiB]: "+95", "+0.4"; "–" where memory is not the reason."""
    if pd.isna(missing) or missing <= 0 or math.isinf(missing):
        return ABSENT
    gib = float(missing) / GIB
    # As sentences say it; never "+0", which would say that nothing is missing.
    return f"+{gib:,.0f}" if gib >= 9.95 else f"+{max(gib, 0.05 + 1e-9):.1f}"


def _hover(row: dict[Any, Any], column: Column, values: list[float], best: int | None) -> str:
    name = f"<b>{degrees(row['tensor_par'], row['pipeline_par'], row.get('data_par'))}</b>"
    tally = f"{count(row['feasible'])} of {count(row['total'])} executions fit"
    if pd.isna(row["value"]):
        why = str(row["reason_text"]) if not pd.isna(row["reason_text"]) else "Nothing fits."
        return f"{name}<br>{wrapped(why)}<br>{tally}"
    line = f"{column.label} {format_value(column, row['value'])}"
    reference = values[best] if best is not None else math.nan
    share = _share_of_best(float(row["value"]), reference, column.better == "lower")
    return f"{name}<br>{line}{share}<br>{tally}"


def _share_of_best(value: float, best: float, lower: bool) -> str:
    if not (math.isfinite(best) and math.isfinite(value)) or best <= 0:
        return ""
    return f", {value / best:.2f} × the best" if lower else f", {percent(value / best, 0)} of the best"


def _alt(cells: pd.DataFrame, column: Column, values: list[float], best: int | None) -> str:
    if best is None:
        return f"{column.label} by tensor and pipeline parallel degree: nothing fits in any of {len(cells)} cells."
    row = cells.iloc[best]
    fitting = sum(not math.isnan(value) for value in values)
    where = degrees(row["tensor_par"], row["pipeline_par"])
    return (
        f"{column.label} by tensor and pipeline parallel degree: the best is {format_value(column, values[best])} at "
        f"{where}; {fitting} of {len(cells)} cells hold an execution that fits."
    )

"""Scenarios side by side: how much better or worse one is than another cell by cell, and steps on one time axis."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pandas as pd

from dashboard.charts.elements.palette import palette
from dashboard.charts.elements.template import Chart, axis_style, base, empty, noted
from dashboard.charts.execution.time_bar import time_kinds, time_pieces
from dashboard.charts.what_if.surface import MOST_LABELS
from dashboard.words.differences import gain_tone
from dashboard.words.names import cell_name
from dashboard.words.numbers import column_of, format_value, scale_for, signed_percent, signed_quantity
from engine.columns import Column

HEIGHT: Final = 420
_SIDE: Final = 0.95
_LEAST_SPAN: Final = 0.05

Cell = tuple[int, int]


def difference_map(
    first: pd.DataFrame,
    second: pd.DataFrame,
    metric: Column | str,
    mode: str = "light",
    *,
    names: tuple[str, str] = ("A", "B"),
    axes: tuple[list[int], list[int]] | None = None,
    height: int = HEIGHT,
) -> Chart:
    """Draws the map.

    first, second: columns tensor_par, pipeline_par and value (NaN if nothing fits), one row per cell. axes: tensor and
    pipeline degrees to show, by default all of both. A cell that is feasible in only one of them says so in words.
    """
    column, colours = column_of(metric), palette(mode)
    a, b = _cell_values(first), _cell_values(second)
    cells = sorted({*a, *b})
    if not cells:
        return empty(colours, height, "Neither scenario has a cell.")
    tensors, pipelines = axes or (sorted({cell[0] for cell in cells}), sorted({cell[1] for cell in cells}))
    lower = column.better == "lower"
    gains = {cell: _relative_gain(a.get(cell, math.nan), b.get(cell, math.nan), lower) for cell in cells}
    span = max([_LEAST_SPAN, *(abs(gain) for gain in gains.values() if math.isfinite(gain))])
    # A few cells that are many times better would leave the others without colour.
    span = min(span, 1.0)
    fills, labels, hatched = [], [], []
    for cell in cells:
        only = _only_feasible_in(a, b, cell, names)
        labels.append(only or signed_quantity(gains[cell]).number)
        hatched.append(bool(only))
        fills.append(colours.muted if only else colours.diverge(gains[cell] / span))
    figure = base(colours, height)
    x = [pipelines.index(cell[1]) for cell in cells]
    y = [tensors.index(cell[0]) for cell in cells]
    figure.draw(
        "bar",
        x=x,
        y=[_SIDE] * len(cells),
        base=[row - _SIDE / 2 for row in y],
        width=_SIDE,
        marker={"color": fills, "line": {"width": 0}, "pattern": colours.hatch_some(hatched)},
        hovertext=[_cell_hover_text(cell, a, b, column, gains[cell], names) for cell in cells],
        hovertemplate="%{hovertext}<extra></extra>",
        customdata=[list(cell) for cell in cells],
    )
    if len(cells) <= MOST_LABELS:
        notes = []
        for index, label in enumerate(labels):
            ink = colours.text if hatched[index] else colours.ink_on(fills[index])
            notes.append(noted(label, colours, x=x[index], y=y[index], colour=ink))
        figure.update_layout(annotations=notes)
    figure.update_xaxes(
        tickvals=list(range(len(pipelines))),
        ticktext=[f"{value:,}" for value in pipelines],
        range=[-0.52, len(pipelines) - 0.48],
        title="Pipeline parallel (PP)",
    )
    figure.update_yaxes(
        tickvals=list(range(len(tensors))),
        ticktext=[f"{value:,}" for value in tensors],
        range=[-0.52, len(tensors) - 0.48],
        title="Tensor parallel (TP)",
    )
    figure.update_layout(uniformtext={"mode": False}, bargap=0, barmode="overlay")
    return Chart(figure, _summarize_gains(gains, names, column))


def _cell_values(cells: pd.DataFrame) -> dict[Cell, float]:
    rows = zip(cells["tensor_par"], cells["pipeline_par"], cells["value"], strict=True)
    return {(int(tensor), int(pipeline)): float(value) for tensor, pipeline, value in rows}


def _relative_gain(before: float, after: float, lower_is_better: bool) -> float:
    """Returns how much better `after` is, as a fraction of `before`."""
    if not (math.isfinite(before) and math.isfinite(after)) or before == 0:
        return math.nan
    return before / after - 1 if lower_is_better and after else after / before - 1


def _only_feasible_in(a: Mapping[Cell, float], b: Mapping[Cell, float], cell: Cell, names: tuple[str, str]) -> str:
    """Return "only B" if one scenario alone is feasible in a cell, "–" if neither is, "" if both are."""
    runs = [math.isfinite(values.get(cell, math.nan)) for values in (a, b)]
    if all(runs):
        return ""
    return f"only {names[runs.index(True)]}" if any(runs) else "–"


def _cell_hover_text(
    cell: Cell, a: Mapping[Cell, float], b: Mapping[Cell, float], column: Column, gain: float, names: tuple[str, str]
) -> str:
    lines = [f"<b>{cell_name(*cell)}</b>"]
    for name, values in zip(names, (a, b), strict=True):
        value = values.get(cell)
        told = "no such cell" if value is None else "nothing fits" if math.isnan(value) else format_value(column, value)
        lines.append(f"{name}: {told}")
    if math.isfinite(gain):
        lines.append(f"{names[1]} is {signed_percent(gain)} against {names[0]}")
    return "<br>".join(lines)


def _summarize_gains(gains: Mapping[Cell, float], names: tuple[str, str], column: Column) -> str:
    known = [gain for gain in gains.values() if math.isfinite(gain)]
    better, worse = (sum(gain_tone(gain) == tone for gain in known) for tone in ("better", "worse"))
    return (
        f"{column.label}, {names[1]} against {names[0]}: better in {better} cells, worse in {worse}, equal in "
        f"{len(known) - better - worse}; {len(gains) - len(known)} cells run in at most one of them."
    )


def aligned_steps(
    executions: Sequence[Mapping[Any, Any]], names: Sequence[str], mode: str = "light", *, narrow: bool = False
) -> Chart:
    """Draw the steps of several executions as waterfalls side by side on equal axes.

    executions: rows with the columns of `dashboard.charts.execution.time_bar`. names: what to call them, as "A".
    narrow: for a phone, where they stand one below the other.
    """
    colours = palette(mode)
    kinds = time_kinds(*executions)
    rows = ["Step", *(kind.name for kind in kinds)]
    totals = [float(each["total_time"]) for each in executions]
    scale = scale_for("total_time", totals)
    count = len(executions)
    high = 46 + 27 * len(rows)
    figure = base(colours, 24 + high * (count if narrow else 1))
    places = [len(rows) - 1 - index for index in range(len(rows))]
    notes: list[dict[str, Any]] = []
    for number, (execution, name) in enumerate(zip(executions, names, strict=True)):
        parts = time_pieces(execution)
        pieces = [totals[number], *(parts[kind.key] for kind in kinds)]
        starts = [0.0, 0.0]
        for piece in pieces[1:-1]:
            starts.append(starts[-1] + piece)
        drawn = [colours.text, *(kind.colour(colours) for kind in kinds)]
        axis = "" if number == 0 else str(number + 1)
        figure.draw(
            "bar",
            x=[piece / scale.factor for piece in pieces],
            base=[start / scale.factor for start in starts],
            y=places,
            xaxis=f"x{axis}",
            yaxis=f"y{axis if narrow else ''}",
            orientation="h",
            width=0.58,
            marker={
                "color": [colour or colours.muted for colour in drawn],
                "line": {"width": 0},
                "pattern": colours.hatch_some([colour is None for colour in drawn], size=5, opacity=0.9),
            },
            hovertext=[
                f"<b>{name}: {row}</b><br>{format_value('total_time', piece)}"
                for row, piece in zip(rows, pieces, strict=True)
            ],
            hovertemplate="%{hovertext}<extra></extra>",
        )
        gap = 0.03
        width = (1 - gap * (count - 1)) / count
        left = number * (width + gap)
        foot, top = (1 - (number + 1) / count) + 46 / (high * count), 1 - number / count
        figure.update_layout(
            {
                f"xaxis{axis}": {
                    **axis_style(colours, 10),
                    "domain": [0, 1] if narrow else [left, min(1.0, left + width)],
                    "range": [0, max(totals) * (1.5 if narrow else 1.28) / scale.factor],
                    "ticksuffix": scale.suffix,
                    "nticks": 4,
                    "showgrid": True,
                    "anchor": f"y{axis}" if narrow else "y",
                }
            }
        )
        if narrow or not number:
            figure.update_layout(
                {
                    f"yaxis{axis}": {
                        **axis_style(colours, 12),
                        "ticklabelstandoff": 3,
                        "anchor": f"x{axis}",
                        "domain": [foot, top] if narrow else [0, 1],
                        "tickvals": places,
                        "ticktext": rows,
                        "range": [-0.55, len(rows) - 0.45],
                        "tickfont": {"size": 12, "color": colours.text},
                    }
                }
            )
        notes.append(
            noted(
                f"<b>{name}</b>",
                colours,
                x=0,
                xref=f"x{axis}",
                y=top if narrow else 1,
                yref="paper",
                xanchor="left",
                yanchor="bottom",
                colour=colours.text,
                font_size=12,
            )
        )
        notes += [
            noted(
                format_value("total_time", piece),
                colours,
                x=(start + piece) / scale.factor,
                xref=f"x{axis}",
                y=row,
                yref=f"y{axis if narrow else ''}",
                xanchor="left",
                xshift=3,
                colour=colours.text if index == 0 else None,
            )
            for index, (piece, start, row) in enumerate(zip(pieces, starts, places, strict=True))
        ]
    figure.update_layout(annotations=notes, margin={"t": 24}, uniformtext={"mode": False}, bargap=0)
    told = ", ".join(f"{name} {format_value('total_time', total)}" for name, total in zip(names, totals, strict=True))
    return Chart(figure, f"Step times on one axis: {told}.")

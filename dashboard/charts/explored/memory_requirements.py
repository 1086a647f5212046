"""Least memory of each cell: one bar per cell against the capacity, and the change that would make it fit."""

from collections.abc import Sequence
from typing import Any, Final

import pandas as pd

from dashboard.charts.elements.drawing import Drawing
from dashboard.charts.elements.palette import Palette, palette
from dashboard.charts.elements.template import Chart, base, draw_capacity, empty, note
from dashboard.words.names import cell_name
from dashboard.words.numbers import UNLIMITED, gibibytes, scale_for
from engine.executions.execution_names import execution_name

_NEED: Final = "proc_mem_tier1_cap_req"
_ROW: Final = 24
_TONE: Final = 0.5
_FAR: Final = 4.0
"""Bars beyond this multiple of the capacity are cut off, so that the others stay readable."""
_BEYOND: Final = 1.5
"""Multiple of the least need beyond which every cell counts as far off."""


def memory_needs(cells: pd.DataFrame, capacity: float, mode: str = "light", *, name: str = "HBM") -> Chart:
    """Draws the least memory with which each cell would have an execution, in the order of the rows (first on top).

    cells: columns tensor_par, pipeline_par, need [bytes], remedy (a few words, empty where the cell fits or only more
    memory would help). capacity
    [bytes]. Cells above the capacity are hatched. Bars carry customdata (tensor_par, pipeline_par).
    """
    colours = palette(mode)
    if not len(cells):
        return empty(colours, 120, "No amount of memory would let an execution run.")
    needs = [float(value) for value in cells["need"]]
    bounded = capacity < UNLIMITED
    # Cut bars differ in nothing; the nearest to fitting are the ones to tell apart.
    reach = min(max(*needs, capacity), max(_FAR * capacity, _BEYOND * min(needs))) if bounded else max(needs)
    scale = scale_for(_NEED, [reach])
    rows = list(range(len(needs) - 1, -1, -1))
    over = [need > capacity for need in needs]
    figure = base(colours, 34 + _ROW * len(needs) + 26)
    figure.draw(
        "bar",
        x=[min(need, reach) / scale.factor for need in needs],
        y=rows,
        orientation="h",
        width=0.72,
        marker={
            "color": [colours.muted if flag else colours.ramp(_TONE) for flag in over],
            "line": {
                "color": [colours.muted if flag else colours.background for flag in over],
                "width": [1 if flag else 0 for flag in over],
            },
            "pattern": colours.hatch_some(over, size=5, opacity=0.9),
        },
        customdata=[[int(t), int(p)] for t, p in zip(cells["tensor_par"], cells["pipeline_par"], strict=True)],
        hovertext=_cell_hover_texts(cells, capacity, name),
        hovertemplate="%{hovertext}<extra></extra>",
    )
    if bounded:
        place = capacity / scale.factor
        side = "right" if place > 0.25 * reach / scale.factor else "left"
        figure.notes.append(draw_capacity(figure, place, len(needs), f"{name} {gibibytes(capacity)}", colours, side))
    cut = [row for row, need in zip(rows, needs, strict=True) if need > reach]
    for row in cut:
        note(figure, "»", colours, x=reach / scale.factor, y=row, xanchor="left", xshift=-1)
    if cut:
        note(
            figure,
            "» longer than drawn",
            colours,
            x=1,
            xref="paper",
            y=len(needs) - 0.5,
            yanchor="bottom",
            yshift=1,
            xanchor="right",
        )
    _write_values(figure, needs, over, [str(word) for word in cells["remedy"]], rows, colours)
    right = 250 if cells["remedy"].any() else 74
    figure.update_layout(bargap=0, margin={"t": 24, "l": 16, "r": right}, uniformtext={"mode": False})
    figure.update_xaxes(range=[0, reach * 1.02 / scale.factor], ticksuffix=scale.suffix, nticks=6, tickformat=",~g")
    figure.update_yaxes(
        range=[-0.5, len(needs) - 0.5],
        tickvals=rows,
        ticktext=[cell_name(t, p) for t, p in zip(cells["tensor_par"], cells["pipeline_par"], strict=True)],
        tickfont={"size": 12, "color": colours.text},
    )
    return Chart(figure, _summarize_needs(cells, needs, over, capacity, name), rows=True)


def _write_values(
    figure: Drawing,
    needs: Sequence[float],
    over: Sequence[bool],
    remedies: Sequence[str],
    rows: Sequence[int],
    colours: Palette,
) -> None:
    """Writes the need and the remedy at the right of every bar."""
    notes = figure.notes
    place: dict[str, Any] = {"x": 1, "xref": "paper", "showarrow": False}
    for need, flag, remedy, row in zip(needs, over, remedies, rows, strict=True):
        tone = colours.worse if flag else colours.text
        notes.append(
            {
                **place,
                "text": f"<b>{gibibytes(need)}</b>",
                "xanchor": "right",
                "xshift": 66,
                "y": row,
                "font": {"size": 12, "color": tone},
            }
        )
        if remedy:
            notes.append(
                {
                    **place,
                    "text": remedy,
                    "xanchor": "left",
                    "xshift": 80,
                    "y": row,
                    "font": {"size": 12, "color": colours.muted},
                }
            )


def _cell_hover_texts(cells: pd.DataFrame, capacity: float, name: str) -> list[str]:
    found = []
    for row in cells.to_dict("records"):
        need = float(row["need"])
        lines = [f"<b>{execution_name(row)}</b>"]
        lines.append(f"at least {gibibytes(need)} of {name}")
        if need > capacity:
            lines.append(f"{gibibytes(need - capacity)} too much")
            lines += [str(row["remedy"])] if row["remedy"] else []
        else:
            lines.append("memory is unlimited" if capacity >= UNLIMITED else f"{gibibytes(capacity - need)} to spare")
        found.append("<br>".join(lines))
    return found


def _summarize_needs(cells: pd.DataFrame, needs: list[float], over: list[bool], capacity: float, name: str) -> str:
    low, high = min(needs), max(needs)
    fits = len(needs) - sum(over)
    within = f"{gibibytes(capacity)} of {name}" if capacity < UNLIMITED else f"unlimited {name}"
    sentence = (
        f"{fits} of {len(needs)} cells have an execution that fits in {within}. The least "
        f"demanding cell needs {gibibytes(low)}, the most demanding {gibibytes(high)}."
    )
    if any(over):
        nearest = min((need, index) for index, (need, flag) in enumerate(zip(needs, over, strict=True)) if flag)
        row = cells.iloc[nearest[1]]
        sentence += f" Nearest to fitting is {cell_name(row['tensor_par'], row['pipeline_par'])}."
    return sentence

"""Cost of each choice: the best execution with one option fixed and everything else free."""

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, Final

import pandas as pd

from dashboard.charts.elements.palette import Palette, palette
from dashboard.charts.elements.template import Chart, empty, noted, written
from dashboard.words.names import in_sentence
from dashboard.words.numbers import column_of, format_value, percent
from engine.columns import Column, by_name, choice_label

COLUMNS: Final = ("field", "choice", "value")
"""Columns that `choices` reads."""

_ROW: Final = 40
"""Height of a row [px]."""
_AIR: Final = 0.3
"""Free space under a row with labels below its rail [rows]; else they seem to belong to the next row."""
_ASIDE: Final = 13
"""Distance of a label from its rail [px]."""
_LEAST: Final = 0.4
"""Options below this share of the best are drawn at the left end, as exact values would squeeze the others."""
_CHARACTER: Final = 0.011
"""Width of a character of a label as a share of the axis, in the narrowest window that is not narrow."""
_WIDER: Final = 1.9
"""Factor on that share in a narrow window."""
_LONG: Final = 6
"""Longest label that may be shifted [characters]."""
_APART: Final = 0.012
"""Least distance of two labels on one line as a share of the axis: without it 2 and 8 would read as 28."""
_MARGIN: Final = 0.09
"""Largest reach of a label right of the best, as a share of the axis: the end of the axis and the margin."""


def choices(
    table: pd.DataFrame,
    metric: Column | str,
    mode: str = "light",
    *,
    networks: tuple[str, ...] = (),
    narrow: bool = False,
) -> Chart:
    """Draws one rail per field with a dot per option, at the share of the overall best that the option can reach.

    table: columns field (name of an execution field), choice (its value), value (best of the metric with that choice
    fixed, NaN where then none runs). Fields appear in the order of the table. networks: names of the network
    tiers, used in place of their index. narrow: for a phone, where fewer labels have room.
    """
    column, colours = column_of(metric), palette(mode)
    values = [float(value) for value in table["value"]] if len(table) else []
    known = [value for value in values if math.isfinite(value) and value > 0]
    if not known:
        return empty(colours, 120, "No execution runs, so no choice can be compared.")
    lower = column.better == "lower"
    best = min(known) if lower else max(known)
    shares = [_share_of_best(value, best, lower) for value in values]
    rows = [{**row, "share": share} for row, share in zip(table.to_dict("records"), shares, strict=True)]
    fields = list(dict.fromkeys(row["field"] for row in rows))
    left = min(share for share in shares if not math.isnan(share))
    # Start at a round tenth below the worst; a rail shorter than 10 points would exaggerate noise.
    start = max(_LEAST, min(math.floor(left * 10) / 10, 0.9))
    width = 1.0 - start
    costly: tuple[float, str] = (1.0, "")
    rails: list[dict[str, Any]] = []
    notes: list[dict[str, Any]] = []
    places: dict[str, float] = {}
    place = 0.0
    for field in fields:
        places[field] = place
        before = len(notes)
        part = [row for row in rows if row["field"] == field]
        fitting = sorted((row for row in part if not math.isnan(row["share"])), key=lambda row: row["share"])
        names = [choice_label(field, row["choice"], networks) for row in fitting]
        missing = [choice_label(field, row["choice"], networks) for row in part if math.isnan(row["share"])]
        remark = f"{', '.join(missing)}: none runs" if missing else ""
        if fitting:
            spread = [max(row["share"], start) for row in fitting]
            rails.append(_rail_shape(place, spread, colours))
            notes += _option_labels(
                place, spread, names, start, remark, colours, _CHARACTER * (_WIDER if narrow else 1.0)
            )
            worst = (fitting[0]["share"], f"{in_sentence(by_name(field).label)} {names[0]}")
            costly = min(costly, worst)
        if remark:
            notes.append(noted(remark, colours, x=start, y=place, xanchor="left", yshift=-_ASIDE))
        place -= 1.0 + (_AIR if any(note["yshift"] < 0 for note in notes[before:]) else 0.0)
    layout = {
        # Labels are centred on their dots, so the one of the best reaches past the axis.
        "margin": {"r": 38},
        "shapes": rails,
        "annotations": notes,
        "xaxis": {"range": [start - 0.03 * width, 1 + 0.02 * width], **_percent_ticks(start)},
        "yaxis": {
            "tickvals": list(places.values()),
            "ticktext": [by_name(field).label for field in fields],
            "range": [place + 0.4, 0.6],
            "tickfont": {"size": 12, "color": colours.text},
        },
    }
    dots = _option_dots([row for row in rows if not math.isnan(row["share"])], start, column, places, networks, colours)
    return Chart(
        written(colours, round(34 - _ROW * place), [dots], layout), _summarize_choices(column, best, costly), rows=True
    )


def _share_of_best(value: float, best: float, lower: bool) -> float:
    """Return what share of the best a value is, 1 for the best itself; NaN where none runs."""
    if math.isnan(value):
        return math.nan
    if not math.isfinite(value) or value <= 0:
        return 0.0
    return best / value if lower else value / best


def _percent_ticks(start: float) -> dict[str, Any]:
    step = 0.1 if start >= 0.5 else 0.2
    ticks = [1 - step * index for index in range(round((1 - start) / step + 1e-9) + 1)]
    return {"tickvals": ticks, "ticktext": [f"{tick * 100:.0f} %" for tick in ticks]}


def _rail_shape(row: float, shares: list[float], colours: Palette) -> dict[str, Any]:
    return {
        "type": "line",
        "x0": shares[0],
        "x1": shares[-1],
        "y0": row,
        "y1": row,
        "layer": "below",
        "line": {"color": colours.grid, "width": 3},
    }


def _option_labels(
    row: float,
    shares: list[float],
    names: list[str],
    start: float,
    remark: str,
    colours: Palette,
    character: float,
) -> list[dict[str, Any]]:
    """Return labels of options next to their dots, above or below the rail; an option with room in neither has only its
    hover text. Options at the same place share one label. The best are placed first. remark: text below the rail's left
    end. character: width of a character as a share of the axis."""
    width = 1.0 - start
    groups: list[tuple[float, list[str]]] = []
    for share, name in zip(shares, names, strict=True):
        if groups and share - groups[-1][0] < 0.004 * width:
            groups[-1][1].append(name)
        else:
            groups.append((share, [name]))
    floors = {_ASIDE: -1.0, -_ASIDE: start + len(remark) * character * width if remark else -1.0}
    ends = {_ASIDE: 2.0, -_ASIDE: 2.0}  # how far left each line of labels is taken, by its distance from the rail [px]
    found = []
    for share, together in reversed(groups):
        clipped = share <= start == _LEAST
        few = together if len(together) < 4 else [together[-1], "…", together[0]]
        text = (" · " if few is together else " ").join(few) + (f" ≤ {_LEAST * 100:.0f} %" if clipped else "")
        half = len(text) * character * width / 2
        left, right = (share, share + 2 * half) if clipped else (share - half, share + half)
        over = 0.0 if clipped else max(0.0, right - (1.0 + _MARGIN * width))
        left, right = left - over, right - over
        # A long one may stand a little left of its dot where there is no room at it.
        for most, shift in product((0.0, half / 2 if len(text) > _LONG and not clipped else 0.0), ends):
            aside = max(0.0, right - ends[shift])
            if aside <= most and left - aside > floors[shift]:
                anchor = "left" if clipped else "center"
                found.append(noted(text, colours, x=share - over - aside, y=row, yshift=shift, xanchor=anchor))
                ends[shift] = left - aside - _APART * width
                break
    return found


def _option_dots(
    rows: Sequence[Mapping[Any, Any]],
    start: float,
    column: Column,
    places: dict[str, float],
    networks: tuple[str, ...],
    colours: Palette,
) -> dict[str, Any]:
    shares = [row["share"] for row in rows]
    return {
        "type": "scatter",
        "x": [max(share, start) for share in shares],
        "y": [places[row["field"]] for row in rows],
        "mode": "markers",
        "marker": {
            "size": 9,
            "color": [colours.ramp((share - 0.4) / 0.6) for share in shares],
            "line": {"width": 1, "color": colours.muted},
        },
        "hovertext": [
            f"<b>{by_name(row['field']).label}: {choice_label(row['field'], row['choice'], networks)}</b><br>"
            f"best {in_sentence(column.label)} {format_value(column, row['value'])}<br>"
            f"{percent(row['share'])} of the best"
            for row in rows
        ],
        "hovertemplate": "%{hovertext}<extra></extra>",
    }


def _summarize_choices(column: Column, best: float, costly: tuple[float, str]) -> str:
    share, name = costly
    reached = f"{in_sentence(column.label)} of {format_value(column, best)}"
    if not name or share >= 0.9995:
        return f"Every option of every choice reaches the best {reached}."
    return f"Against the best {reached}, the costliest option is {name}: it leaves {percent(share)}."

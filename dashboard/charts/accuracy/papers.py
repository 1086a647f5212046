"""A figure of a paper: our values as bars or lines, and the published ones as marks over them."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any, Final

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

from dashboard.charts.elements.palette import SCENARIOS, Palette, palette
from dashboard.charts.elements.template import Chart, base, empty, trace
from dashboard.words.numbers import plain, signed_percent

__all__ = ["largest_deviation", "paper_chart"]

HEIGHT: Final = 400
_LETTER: Final = 6.2
"""Width of a letter below the plot [px]."""
_ROOM: Final = {False: 700.0, True: 330.0}
"""Width of the plot in a window 1,280 wide and on a phone [px]."""
_GROUP: Final = 0.8
"""Width of a group of bars [categories]."""
_VALUES: Final = ("ours", "published", "deviation_percent")
_DASHES: Final = ("solid", "dash", "dot", "dashdot", "longdash")


def paper_chart(
    table: pd.DataFrame,
    horizontal: str,
    unit: str,
    mode: str = "light",
    *,
    details: Sequence[str] = (),
    narrow: bool = False,
) -> Chart:
    """Draw a figure of a paper.

    Args:
        table: labels, `ours`, `published` [unit] and `deviation_percent`.
        horizontal: label along the axis: numbers are drawn as lines, words as groups of bars.
        unit: of the values.
        mode: the theme.
        details: labels that tell no series apart.
        narrow: whether the window is that of a phone.
    """
    colours = palette(mode)
    if not len(table):
        return empty(colours, HEIGHT, "This figure has no values.")
    labels = [str(name) for name in table.columns if name not in (*_VALUES, *details, horizontal)]
    names = table[labels].astype(str).agg(" · ".join, axis=1) if labels else pd.Series("ours", index=table.index)
    series = list(dict.fromkeys(names))
    figure = base(colours, HEIGHT)
    lines = is_numeric_dtype(table[horizontal])
    places, width = _positions(table[horizontal], names, series, lines=lines)
    for number, name in enumerate(series):
        own = table[names == name]
        colour = _series_colour(colours, number, len(series))
        shape: dict[str, Any] = (
            {"mode": "lines+markers", "line": {"color": colour, "width": 2, "dash": _DASHES[number % len(_DASHES)]}}
            if lines
            else {"width": width * 0.94, "marker": {"color": colour}}
        )
        figure.add_trace(
            trace(
                "scatter" if lines else "bar",
                x=places[own.index].tolist(),
                y=own["ours"].tolist(),
                name=name,
                hovertext=_hover_texts(own, horizontal, name, unit),
                hovertemplate="%{hovertext}<extra></extra>",
                **shape,
            )
        )
    known = table.dropna(subset=["published"])
    if len(known):
        figure.add_trace(
            trace(
                "scatter",
                x=places[known.index].tolist(),
                y=known["published"].tolist(),
                mode="markers",
                name="published",
                marker={
                    "symbol": "diamond",
                    "size": 8,
                    "color": colours.background,
                    "line": {"color": colours.text, "width": 1.6},
                },
                hovertext=[
                    text
                    for name, own in known.groupby(names[known.index], sort=False)
                    for text in _hover_texts(own, horizontal, str(name), unit)
                ]
                if lines
                else _hover_texts(known, horizontal, "", unit),
                hovertemplate="%{hovertext}<extra></extra>",
            )
        )
    title = horizontal.replace("_", " ").capitalize()
    if lines:
        figure.update_xaxes(title=title)
    else:
        figure.update_xaxes(_category_axis(list(dict.fromkeys(table[horizontal].astype(str))), narrow=narrow))
    figure.update_yaxes(title=unit, showgrid=True, rangemode="tozero")
    figure.update_layout(showlegend=True, margin={"t": 28}, bargap=0)
    return Chart(figure, _summarize(table))


def largest_deviation(table: pd.DataFrame) -> tuple[str, float]:
    """Return the labels of the row that deviates most, and its deviation [%]."""
    row = table.iloc[int(np.nanargmax(table["deviation_percent"].abs().to_numpy(float)))]
    return ", ".join(str(row[name]) for name in table.columns if name not in _VALUES), float(row["deviation_percent"])


def _positions(
    across: pd.Series[Any], names: pd.Series[str], series: Sequence[str], *, lines: bool
) -> tuple[pd.Series[float], float]:
    """Return the place of every row along the axis, and the width of a bar."""
    if lines:
        return across.astype(float), 0.0
    categories = {name: at for at, name in enumerate(dict.fromkeys(across.astype(str)))}
    width = _GROUP / len(series)
    order = {name: at for at, name in enumerate(series)}
    offsets = names.map(order).astype(float) - (len(series) - 1) / 2
    return across.astype(str).map(categories).astype(float) + width * offsets, width


def _series_colour(colours: Palette, number: int, many: int) -> str:
    own = (*SCENARIOS[colours.mode], colours.muted)
    return own[number] if many <= len(own) else colours.ramp(number / (many - 1))


def _category_axis(categories: Sequence[str], *, narrow: bool) -> dict[str, Any]:
    room = _ROOM[narrow] / len(categories)
    fits = max(map(len, categories)) * _LETTER <= room
    return {
        "tickvals": list(range(len(categories))),
        "ticktext": [escape(name) for name in categories],
        "tickangle": 0 if fits else -40,
        "range": [-0.5, len(categories) - 0.5],
    }


def _hover_texts(rows: pd.DataFrame, horizontal: str, name: str, unit: str) -> list[str]:
    texts = []
    for row in rows.to_dict("records"):
        across = row[horizontal]
        head = escape(f"{plain(across) if isinstance(across, float) else across}{f' · {name}' if name else ''}")
        lines = [f"<b>{head}</b>", f"ours {plain(float(row['ours']))} {unit}".rstrip()]
        if np.isfinite(row["published"]):
            lines.append(f"published {plain(float(row['published']))} {unit}".rstrip())
        if np.isfinite(row["deviation_percent"]):
            lines.append(f"deviation {signed_percent(row['deviation_percent'] / 100)}")
        texts.append("<br>".join(lines))
    return texts


def _summarize(table: pd.DataFrame) -> str:
    known = table["deviation_percent"].dropna()
    if not len(known):
        return f"{len(table):,} values; none of them is published."
    where, worst = largest_deviation(table)
    return (
        f"{len(table):,} values, {len(known):,} of them published: mean deviation "
        f"{plain(float(known.abs().mean()))} %, largest {signed_percent(worst / 100)} ({where})."
    )

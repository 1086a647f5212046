"""A figure of a paper: our values as bars or lines, and the published ones as marks over them."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any, Final

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

from dashboard.charts.elements.palette import SCENARIOS, Palette, palette
from dashboard.charts.elements.template import Chart, base, empty, trace, wrapped
from dashboard.words.numbers import plain

__all__ = ["deviation_text", "largest_deviation", "paper_chart"]

HEIGHT: Final = 400
_LETTER: Final = 6.2
"""Width of a letter below the plot [px]."""
_ROOM: Final = {False: 700.0, True: 330.0}
"""Width of the plot in a window 1,280 wide and on a phone [px]."""
_GAP: Final = 8.0
"""Room between two names [px]."""
_ONE_LINE: Final = 20
"""Height of a name below the plot [px]."""
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
    names = _name_series(table, labels)
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
    title = f"{horizontal[:1].upper()}{horizontal[1:]}".replace("_", " ")
    if lines:
        figure.update_xaxes(title=title)
    else:
        categories = list(dict.fromkeys(table[horizontal].astype(str)))
        axis = _category_axis(categories, narrow=narrow)
        figure.update_xaxes(axis)
        if axis["tickangle"]:
            figure.update_layout(height=HEIGHT + int(_LETTER * max(map(len, categories))) - _ONE_LINE)
    figure.update_yaxes(title=unit, showgrid=True, rangemode="tozero")
    figure.update_layout(showlegend=True, margin={"t": 28}, bargap=0)
    return Chart(figure, _summarize(table))


def deviation_text(deviation_percent: float) -> str:
    """Return a deviation with sign and three digits, such as "−8.87 %"."""
    sign = "" if deviation_percent == 0.0 else "−" if deviation_percent < 0.0 else "+"
    return f"{sign}{plain(abs(deviation_percent))} %"


def largest_deviation(table: pd.DataFrame) -> tuple[str, float]:
    """Return the labels of the row that deviates most, and its deviation [%]."""
    at = int(np.nanargmax(table["deviation_percent"].abs().to_numpy(float)))
    row = table.iloc[[at]].to_dict("records")[0]
    labels = [_label_text(str(name), value) for name, value in row.items() if name not in _VALUES]
    return ", ".join(labels), float(row["deviation_percent"])


def _label_text(name: str, value: Any) -> str:
    """Return a label in words: numbers with their name."""
    if isinstance(value, str):
        return value
    return f"{name.replace('_', ' ')} {f'{value:,}' if isinstance(value, int) else plain(float(value))}"


def _name_series(table: pd.DataFrame, labels: Sequence[str]) -> pd.Series[str]:
    """Return the name of each row's series; "ours" without labels."""
    if not labels:
        return pd.Series("ours", index=table.index)
    rows = table[list(labels)].to_dict("records")
    return pd.Series(
        [" · ".join(_label_text(str(name), value) for name, value in row.items()) for row in rows], index=table.index
    )


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
    return own[number] if many <= len(own) else colours.ramp(0.25 + 0.75 * number / (many - 1))


def _category_axis(categories: Sequence[str], *, narrow: bool) -> dict[str, Any]:
    """Return the axis: names in lines below each other where their words fit, otherwise upright."""
    room = _ROOM[narrow] / len(categories) - _GAP
    words = [word for name in categories for word in name.split()]
    fits = max(map(len, words)) * _LETTER <= room
    return {
        "tickvals": list(range(len(categories))),
        "ticktext": [wrapped(escape(name), int(room / _LETTER)) if fits else escape(name) for name in categories],
        "tickangle": 0 if fits else -90,
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
            lines.append(f"deviation {deviation_text(row['deviation_percent'])}")
        texts.append("<br>".join(lines))
    return texts


def _summarize(table: pd.DataFrame) -> str:
    known = table["deviation_percent"].dropna()
    if not len(known):
        return f"{len(table):,} values; none of them is published."
    where, worst = largest_deviation(table)
    if worst == 0.0:
        return f"{len(table):,} values, {len(known):,} of them published, all equal to ours."
    return (
        f"{len(table):,} values, {len(known):,} of them published: mean deviation "
        f"{plain(float(known.abs().mean()))} %, largest {deviation_text(worst)} ({where})."
    )

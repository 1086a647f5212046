"""Errors of the calibrated model by release."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Final

import pandas as pd

from dashboard.charts.elements.palette import SCENARIOS, palette
from dashboard.charts.elements.template import Chart, base, empty

__all__ = ["release_errors"]

HEIGHT: Final = 260
SYMBOLS: Final = ("circle", "square", "diamond", "triangle-up")
"""Marks of the sets, which colours alone would not tell apart."""


def release_errors(
    table: pd.DataFrame, names: Mapping[str, str], mode: str = "light", *, height: int = HEIGHT
) -> Chart:
    """Draw mean errors by release: filled marks of the fit, open marks of fits without the source of the run.

    Args:
        table: columns date, name, mean and sources [%]; a row per release and set of runs, oldest first.
        names: sets that are drawn, each with its name on screen; at most as many as there are scenario colours.
        mode: theme, "light" or "dark".
        height: of the chart [px].
    """
    colours = palette(mode)
    if not len(table):
        return empty(colours, height, "No release is stored.")
    figure = base(colours, height)
    dates = list(dict.fromkeys(table["date"].astype(str)))
    looks = zip(names.items(), SCENARIOS["dark" if mode == "dark" else "light"], SYMBOLS, strict=False)
    for (name, label), colour, mark in looks:
        rows = table[table["name"] == name]
        for column, said, symbol, dash in (
            ("mean", label, mark, "solid"),
            ("sources", f"{label}, source left out", f"{mark}-open", "dot"),
        ):
            figure.draw(
                "scatter",
                x=rows["date"].astype(str).tolist(),
                y=rows[column].tolist(),
                mode="lines+markers",
                name=said,
                line={"color": colour, "width": 1.6, "dash": dash},
                marker={"color": colour, "symbol": symbol, "size": 8, "line": {"width": 1.6, "color": colour}},
                hovertext=[
                    f"<b>{escape(said)}</b><br>{escape(str(date))}<br>mean error {error:.1f} %"
                    for date, error in zip(rows["date"], rows[column], strict=True)
                ],
                hovertemplate="%{hovertext}<extra></extra>",
            )
    figure.update_xaxes(title="Date of the fit", type="category", categoryorder="array", categoryarray=dates)
    figure.update_yaxes(title="Mean error", ticksuffix=" %", rangemode="tozero", showgrid=True)
    figure.update_layout(showlegend=True, legend={"itemsizing": "constant"}, margin={"t": 28})
    return Chart(figure, _describe(table, names, dates))


def _describe(table: pd.DataFrame, names: Mapping[str, str], dates: list[str]) -> str:
    last = table[table["date"].astype(str) == dates[-1]].set_index("name")["mean"]
    said = ", ".join(f"{label} {last[name]:.1f} %" for name, label in names.items() if name in last.index)
    return f"Mean errors of {len(dates)} releases; on {dates[-1]}: {said}."

"""Tables of the Elastic page, with their columns in words, and as files."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from dashboard.charts.elements.template import Chart
from dashboard.widgets.file_download import draw_download
from dashboard.widgets.tables import height_of
from engine.planners.elastic.plan_names import PLAN_COLUMNS, plan_titles

__all__ = ["downloads", "worded"]

"""Columns that hold names of plans; files have them as in commands and links."""


def worded(table: pd.DataFrame, columns: Mapping[str, str], key: str, alt: str) -> None:
    """Draws columns of a table with readable titles, numbers to four digits, and plans by their titles.

    Args:
        table: a table with any of the columns.
        columns: column -> title, in order.
        key: key of the widget.
        alt: description of the table for screen readers.
    """
    kept = {name: title for name, title in columns.items() if name in table}
    shown: Any = table[list(kept)].copy()
    for name in kept:
        if shown[name].dtype.kind == "f":
            shown[name] = [float(f"{value:.4g}") if abs(value) < 1e3 else round(value, 1) for value in shown[name]]
        elif name in PLAN_COLUMNS:
            shown[name] = plan_titles(table, name)
        elif name == "is_sla":
            shown[name] = shown[name] > 0
    st.dataframe(
        shown.rename(columns=kept),
        hide_index=True,
        height=height_of(len(shown), 380),
        placeholder="–",
        key=key,
        alt=alt,
    )


def downloads(tables: Mapping[str, pd.DataFrame], name: str, charts: Mapping[str, Chart] | None = None) -> None:
    """Draws the menu of tables to download as CSV, and of charts as pictures in HTML.

    Args:
        tables: tables by title.
        name: prefix of the menu's keys and of file names.
        charts: charts by title.
    """
    with st.popover("Download", icon=":material/download:", help="Tables of this page as CSV, charts as HTML."):
        for title, table in tables.items():
            file = f"{name}_{title.lower().replace(' ', '_')}.csv"
            draw_download(
                f"{title} (CSV)",
                partial(_table_csv, table),
                file,
                "text/csv",
                key=f"elastic_{file}",
            )
        for title, chart in (charts or {}).items():
            file = f"{name}_{title.lower().replace(' ', '_')}.html"
            draw_download(
                f"{title} (picture, HTML)",
                partial(_chart_html, chart),
                file,
                "text/html",
                key=f"elastic_{file}",
            )


def _chart_html(chart: Chart) -> str:
    return str(chart.figure.to_html(include_plotlyjs=True))


def _table_csv(table: pd.DataFrame) -> str:
    return table.to_csv(index=False)

"""The maps of the Explore page as tables: for the keyboard, for copying, and for more cells than a map can number."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd
import streamlit as st

from dashboard.link import state
from dashboard.pages.explore.axes import Axes
from dashboard.queries.economics import Metric
from dashboard.words.numbers import decimals_for, scale_for
from engine.columns import by_name, choice_label

__all__ = ["cells_table", "pairs_table"]


def cells_table(cells: pd.DataFrame, metric: Metric) -> None:
    """Draws the map as a table; a row is a cell."""
    scale = scale_for(metric.column, cells["value"])
    name = scale.title(metric.column.label)
    shown = pd.DataFrame(
        {
            "TP": cells["tensor_par"],
            "PP": cells["pipeline_par"],
            "DP": cells["data_par"],
            name: cells["value"] / scale.factor,
            **_fit_column(cells),
            "feasible": cells["feasible"],
            "executions": cells["total"],
            "why nothing fits": cells["reason_text"].fillna(""),
        }
    )
    digits = decimals_for(cells["value"], scale)

    def select_picked() -> None:
        rows = st.session_state["explore_cells"]["selection"]["rows"]
        if rows:
            state.select_cell(int(shown["TP"].iloc[rows[0]]), int(shown["PP"].iloc[rows[0]]))

    st.dataframe(
        shown,
        key="explore_cells",
        on_select=select_picked,
        selection_mode="single-row",
        hide_index=True,
        height=560,
        column_config={
            name: st.column_config.NumberColumn(format=f"%.{digits}f", help=metric.column.description),
            "feasible": st.column_config.NumberColumn(format="localized"),
            "executions": st.column_config.NumberColumn(format="localized"),
        },
        alt=f"{metric.column.label} of every cell",
    )


def _fit_column(cells: pd.DataFrame) -> dict[str, list[str]]:
    """Return the column that marks cells whose best execution only may fit; none without such cells."""
    if not cells["may_fit"].any():
        return {}
    return {"fit of the best": ["may fit" if mark else "" for mark in cells["may_fit"]]}


def pairs_table(
    cells: pd.DataFrame, metric: Metric, axes: Axes, pick: Callable[[str, int], None], networks: Sequence[str]
) -> None:
    """Draws the map along any axes as a table; a row is a cell.

    pick: selects a cell, with its best execution. networks: names of the system's networks.
    """
    scale = scale_for(metric.column, cells["value"])
    name = scale.title(metric.column.label)
    fields = {field: by_name(field) for field in axes.fields}
    shown = pd.DataFrame(
        {
            **{
                column.label: cells[field]
                if column.dtype == "int64" and not column.of_network
                else [choice_label(column, value, networks) for value in cells[field]]
                for field, column in fields.items()
            },
            name: cells["value"] / scale.factor,
            **_fit_column(cells),
            "executions": cells["rows"],
            "why nothing runs": cells["why"],
        }
    )

    def select_picked() -> None:
        rows = st.session_state["explore_pairs_table"]["selection"]["rows"]
        if rows:
            pick(str(cells["at"].iloc[rows[0]]), int(cells["id"].iloc[rows[0]]))

    st.dataframe(
        shown,
        key="explore_pairs_table",
        on_select=select_picked,
        selection_mode="single-row",
        hide_index=True,
        height=560,
        column_config={
            name: st.column_config.NumberColumn(
                format=f"%.{decimals_for(cells['value'], scale)}f", help=metric.column.description
            ),
            "executions": st.column_config.NumberColumn(format="localized"),
        },
        alt=f"{metric.column.label} of every cell",
    )

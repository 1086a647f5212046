"""Explore: the whole space as a map."""

import streamlit as st

from dashboard import state
from dashboard.charts import CONFIG
from dashboard.charts.cell_map import cell_map

exploration = state.require_exploration()
chart = cell_map(exploration.by_cell(), "sample_rate", state.theme_mode(), selected=state.selected_cell())


def _clicked() -> None:
    points = st.session_state["explore_map"]["selection"]["points"]
    if points and points[0].get("customdata"):
        tensor_par, pipeline_par, _ = points[0]["customdata"]
        state.select_cell(tensor_par, pipeline_par)


st.plotly_chart(
    chart.figure, config=CONFIG, alt=chart.alt, key="explore_map", on_select=_clicked, selection_mode="points"
)

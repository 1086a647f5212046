"""The execution whose figures all pages show, on the Results page: its line, its place in the order, and its row."""

from __future__ import annotations

from typing import Any

import streamlit as st

from dashboard.link import state
from dashboard.link.figures import FiguresView
from dashboard.pages.results.queries import has_row, place_of
from dashboard.queries.figures import WORKING, choose_execution
from dashboard.widgets.figures import draw_doubts, patience_s, watch_figures
from dashboard.widgets.filters.in_force import PAGE, ignore_cell, parse_cell_filter
from dashboard.words.markdown import literal
from dashboard.words.numbers import count, format_value
from engine import Exploration
from engine.executions.execution_names import execution_name
from engine.recommendation import FIGURES_OF

__all__ = ["draw_shown"]


def draw_shown(
    exploration: Exploration, figures: FiguresView, where: tuple[Any, ...], by: str, order: str, size: int
) -> int | None:
    """Draw the line of the recommended or fastest execution, with its place in the table; return its id.

    While the recommendation is worked out, the line says so.

    Args:
        exploration: with stored rows.
        figures: the choice.
        where: frozen conditions of the table's rows.
        by: sorted column.
        order: "best" or "worst" first.
        size: rows per page.
    """
    found = choose_execution(exploration, figures.question, patience_s=patience_s())
    if found.is_pending:
        st.caption(WORKING)
        watch_figures(exploration, figures.question, (), None, (), "results_figures")
        return None
    shown = found.shown
    if shown is None:
        return None
    there = has_row(exploration, exploration.key, where, shown.id)
    place = place_of(exploration, exploration.key, where, by, order, shown.id) if there else None
    row = "not among these rows" if not there else "marked" if place is None else f"row {count(place + 1)}, marked"
    with st.container(horizontal=True, gap="small", vertical_alignment="center", key="results_shown"):
        st.markdown(
            f"**{FIGURES_OF[shown.figures_of]}**: {literal(execution_name(shown.execution))} · "
            f"step {format_value('total_time', shown.execution['total_time'])} · "
            f"{format_value('sample_rate', shown.execution['sample_rate'])} · {row}",
            width="content",
        )
        st.button(
            "Select it",
            key="results_select_shown",
            type="tertiary",
            icon=":material/check:",
            on_click=_select_shown,
            args=(shown.id, None if place is None else place // size + 1),
            help="Selects this execution, and turns to its row.",
        )
    draw_doubts(exploration.scenario, shown.execution, shown.remark)
    return shown.id


def _select_shown(execution: int, page: int | None) -> None:
    filtered = parse_cell_filter() is not None
    with state.one_step():
        state.select(execution)
        if not filtered:  # selecting an execution selects its cell, which must not change the table
            ignore_cell()
        if page is not None:
            state.set_url_value(PAGE, None if page == 1 else str(page))

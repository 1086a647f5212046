"""The line above the map as one sentence: the metric, the fields and the filters.

Removable words are buttons.
"""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from dashboard.pages.explore.axes import Axes, without_facet
from dashboard.queries.economics import Metric
from dashboard.queries.filters import FILTERABLE, Filter
from dashboard.widgets.filters.chips import words_of
from dashboard.widgets.filters.in_force import OF_LINK
from dashboard.words.markdown import literal
from dashboard.words.names import in_sentence
from engine import Exploration

__all__ = ["sentence"]


def sentence(exploration: Exploration, metric: Metric, axes: Axes, filters: Sequence[Filter], left: int) -> None:
    """Draws the sentence.

    left: number of executions that run and meet the filters.
    """
    up, across = (in_sentence(FILTERABLE[name].label) for name in (axes.y, axes.x))
    with st.container(horizontal=True, gap="xsmall", vertical_alignment="center", key="explore_filters"):
        name = metric.column.label
        what = f"**{literal(name)}** of the fastest" if metric.of_fastest else f"Best **{literal(in_sentence(name))}**"
        _draw_words(f"{what} by {up} and {across}")
        if axes.facet is not None:
            _draw_words("in a map per")
            st.button(
                literal(in_sentence(FILTERABLE[axes.facet].label)),
                key="explore_drop_facet",
                icon=":material/close:",
                on_click=without_facet,
                help="One map for all",
            )
        words_of(filters, "of those with", "explore", OF_LINK, (left, exploration.feasible))


def _draw_words(text: str) -> None:
    st.markdown(text, width="content")

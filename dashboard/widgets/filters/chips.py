"""Active filters as words of a sentence, each a button that removes it."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from dashboard.queries.filters import Filter
from dashboard.widgets.filters.in_force import InForce
from dashboard.words.markdown import literal
from dashboard.words.numbers import count

__all__ = ["line", "words_of"]


def line(filters: Sequence[Filter], page: str, within: InForce, left: tuple[int, int] | None = None) -> None:
    """Draw the active filters in a line; nothing without filters.

    page: begins the keys of the buttons. left: (executions that meet them, executions that run), where it is known.
    """
    if not filters:
        return
    with st.container(horizontal=True, gap="xsmall", vertical_alignment="center", key=f"{page}_filters"):
        words_of(filters, "Of executions with", page, within, left)


def words_of(
    filters: Sequence[Filter], beginning: str, page: str, within: InForce, left: tuple[int, int] | None
) -> None:
    """Draws filters as the end of a sentence whose words are buttons that remove them; nothing without filters.

    beginning: text before the first filter. page: begins the keys of the buttons. left: (executions that meet them,
    feasible executions), shown at the end.
    """
    for number, one in enumerate(filters):
        st.markdown("and" if number else beginning, width="content")
        st.button(
            literal(one.words),
            key=f"{page}_drop_{one.column.name}",
            icon=":material/close:",
            on_click=within.drop,
            args=(one.column.name,),
            help="Remove this filter",
        )
    if filters:
        st.button("Clear", key=f"{page}_clear", type="tertiary", on_click=within.clear, help="Remove every filter")
        if left is not None:
            st.markdown(f":gray[{count(left[0])} of {count(left[1])} that run]", width="content")

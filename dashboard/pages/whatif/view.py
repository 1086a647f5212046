"""The What-if page: sliders at the left, answer and studies at the right, each redrawn as a fragment."""

from __future__ import annotations

from typing import Final

import streamlit as st

from dashboard.compat.session import run_again
from dashboard.jobs.board import BoardFull
from dashboard.jobs.questions import Unanswered
from dashboard.jobs.server import explorations
from dashboard.link import state
from dashboard.pages.whatif import answer as whatif_answer
from dashboard.pages.whatif import sliders as whatif_hardware
from dashboard.pages.whatif import studies as whatif_cards
from dashboard.pages.whatif.inputs import WhatIfView, parse
from dashboard.queries import waiting_times
from dashboard.widgets.fragment_views import FragmentView
from dashboard.widgets.job_card import job_card
from dashboard.words.markdown import literal

__all__ = ["WhatIfView", "parse", "render"]

POLL: Final = 0.7
"""Interval at which running studies are polled [s]."""
_POLLING: Final = "_whatif_polling"
_SEARCHED: Final = "_whatif_searched"
_SLOW: Final = "_whatif_slow"


def render(view: WhatIfView) -> None:
    """Draws the page."""
    refusal = explorations().refusal(view.scenario)
    if refusal:  # a search occupies a thread of the server until it ends, even unwatched
        st.error(literal(refusal), icon=":material/error:")
        return
    with st.container(key="whatif_parts"):  # the style sheet orders them on a phone
        left, right = st.columns([1, 3.55], gap="medium")
    with left:
        _draw_hardware(FragmentView(view, parse))
    with right:
        _draw_answer(FragmentView(view, parse))
        _draw_studies(FragmentView(view, parse))


def _draw_again() -> None:
    """Redraw all parts, the answer first; call it in a widget's callback."""
    run_again(whatif_hardware.PARTS)


@st.fragment(key="whatif_hardware")
def _draw_hardware(part: FragmentView[WhatIfView]) -> None:
    whatif_hardware.card(part.current(), _draw_again)


@st.fragment(key="whatif_answer")
def _draw_answer(part: FragmentView[WhatIfView]) -> None:
    try:
        _search_and_draw(part.current())
    except Unanswered as problem:
        job_card(problem.job, state.watcher())
    except BoardFull as problem:
        st.warning(literal(str(problem)), icon=":material/hourglass_empty:")


def _search_and_draw(view: WhatIfView) -> None:
    scenario = view.scenario
    if st.session_state.get(_SEARCHED) != scenario.key:
        # Only for the first answer: at every move of a slider it would make the page jump.
        with st.spinner(waiting_times.searching(scenario), show_time=True):
            first = whatif_answer.answer(view.base_question)
        st.session_state[_SEARCHED] = scenario.key
        st.session_state[_SLOW] = waiting_times.is_slow(first)
    if st.session_state[_SLOW]:
        place = st.empty()  # always one line, so nothing below moves
        with place, st.spinner("Searching again", show_time=True):
            found = whatif_answer.answer(view.question)
        place.caption(waiting_times.searching_again(found))
    else:
        st.session_state[_SLOW] = waiting_times.is_slow(whatif_answer.answer(view.question))
    whatif_answer.draw(view, _draw_again)


@st.fragment(key="whatif_studies")
def _draw_studies(part: FragmentView[WhatIfView]) -> None:
    """Draw the studies, polled while any is running."""
    view = part.current()
    try:
        polling = whatif_cards.pending(view, _draw_again)
    except (Unanswered, BoardFull):  # the answer says so
        return
    st.session_state[_POLLING] = polling
    st.fragment(_draw_cards, run_every=POLL if polling else None)(FragmentView(view, parse))
    whatif_hardware.search_ahead(view)


def _draw_cards(part: FragmentView[WhatIfView]) -> None:
    pending = whatif_cards.draw(part.current(), _draw_again)
    if pending != st.session_state.get(_POLLING):
        st.rerun()  # a fragment's interval can only change from outside

"""What leans on how Streamlit runs a page: its script context, its runtime, and what a browser is told by.

Checked with Streamlit 1.67.0. Publicly there is no name of a session, no way to ask whether it is still there, and no
word on whether the browser went back; `tests/dashboard/compat/test_compat.py` fails where one of the names is gone.
"""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st
from streamlit import runtime
from streamlit.errors import StreamlitAPIException
from streamlit.runtime.scriptrunner import get_script_run_ctx

__all__ = ["identifier", "in_browser", "is_active", "run_again", "runs_page", "went_back"]


def runs_page() -> bool:
    """Returns whether a page is being run, rather than the server started, which runs the same file."""
    return get_script_run_ctx(suppress_warning=True) is not None


def identifier() -> str | None:
    """Returns what tells the session from all others of the server; None where there is no server, as in a test."""
    context = get_script_run_ctx(suppress_warning=True)
    return context.session_id if context is not None and runtime.exists() else None


def is_active(session: str) -> bool:
    """Returns whether somebody still has a page of the session open. session: see `identifier`."""
    return not runtime.exists() or runtime.get_instance().is_active_session(session)


def went_back() -> bool:
    """Returns whether the browser asked for this run by going back or forward in its history."""
    context = get_script_run_ctx(suppress_warning=True)
    return context is not None and context.is_history_navigation


def in_browser() -> bool:
    """Returns whether a browser draws the page: a test or a program that reads pages opens no WebSocket."""
    return "Sec-Websocket-Key" in st.context.headers


def run_again(parts: Sequence[str]) -> None:
    """Has parts of the page run again, which are fragments by their keys; to be called last in a widget's callback.

    All of the page runs where Streamlit does not know them all: a click came before they were drawn, or after somebody
    came back to the page. Streamlit would answer with an error.
    """
    try:
        st.rerun(list(parts))
    except StreamlitAPIException:
        st.rerun()

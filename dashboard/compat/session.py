"""State of Streamlit's runs: script context, runtime, and requests of the browser.

Checked with Streamlit 1.67.0. No public API gives the name of a session, whether it is open, or whether the browser
went back; `tests/dashboard/compat/test_compat.py` fails where one of the names is gone.
"""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st
from streamlit import runtime
from streamlit.errors import StreamlitAPIException
from streamlit.runtime.scriptrunner import get_script_run_ctx

__all__ = ["identifier", "in_browser", "is_active", "run_again", "runs_page", "went_back"]


def runs_page() -> bool:
    """Return whether a page runs. The start of the server runs the same file."""
    return get_script_run_ctx(suppress_warning=True) is not None


def identifier() -> str | None:
    """Return the identifier of the session; None without a server, as in a test."""
    context = get_script_run_ctx(suppress_warning=True)
    return context.session_id if context is not None and runtime.exists() else None


def is_active(session: str) -> bool:
    """Return whether a page of the session is open in a browser. session: its `identifier`."""
    return not runtime.exists() or runtime.get_instance().is_active_session(session)


def went_back() -> bool:
    """Returns whether the browser asked for this run by going back or forward in its history."""
    context = get_script_run_ctx(suppress_warning=True)
    return context is not None and context.is_history_navigation


def in_browser() -> bool:
    """Returns whether a browser draws the page: a test or a program that reads pages opens no WebSocket."""
    return "Sec-Websocket-Key" in st.context.headers


def run_again(parts: Sequence[str]) -> None:
    """Run fragments of the page again, by their keys; call it last in a widget's callback.

    The whole page runs if Streamlit does not know one of them, which would be an error: after a click before they were
    drawn, or after a return to the page.
    """
    try:
        st.rerun(list(parts))
    except StreamlitAPIException:
        st.rerun()

"""Requests of the browser: navigation in its history, whether one draws the page, and runs of fragments.

Checked with Streamlit 1.67.0. No public API says that the browser went back;
`tests/dashboard/compat/test_compat.py` fails where the name is gone.
"""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st
from streamlit.errors import StreamlitAPIException
from streamlit.runtime.scriptrunner import get_script_run_ctx

__all__ = ["give_way", "in_browser", "run_again", "went_back"]


def went_back() -> bool:
    """Returns whether the browser asked for this run by going back or forward in its history."""
    context = get_script_run_ctx(suppress_warning=True)
    return context is not None and context.is_history_navigation


def in_browser() -> bool:
    """Returns whether a browser draws the page: a test or a program that reads pages opens no WebSocket."""
    return "Sec-Websocket-Key" in st.context.headers


def give_way() -> None:
    """End this run of the page here if the browser has asked for another one meanwhile, such as by a click.

    Streamlit does so whenever a page reads its session's state; a page that waits calls it again and again.
    """
    _ = "_give_way" in st.session_state


def run_again(parts: Sequence[str]) -> None:
    """Run fragments of the page again, by their keys; call it last in a widget's callback.

    The whole page runs if Streamlit does not know one of them, which would be an error: after a click before they were
    drawn, or after a return to the page.
    """
    try:
        st.rerun(list(parts))
    except StreamlitAPIException:
        st.rerun()

"""Sessions that are open in a browser, by name."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import streamlit as st
from streamlit.errors import StreamlitAPIException

__all__ = ["is_open", "mark_open"]

_OPEN: Final[set[str]] = set()


def mark_open(name: str) -> str:
    """Count the current session as open until its browser disconnects; a call outside a page counts nothing.

    Returns the name.
    """
    with suppress(StreamlitAPIException):  # only the thread of a page's run belongs to a session
        _keep_open(name)
    return name


@st.cache_resource(show_spinner=False, scope="session", on_release=_OPEN.discard)
def _keep_open(name: str) -> str:
    """Hold the name among the resources of the session, which Streamlit releases when its browser disconnects."""
    _OPEN.add(name)
    return name


def is_open(name: str) -> bool:
    """Return whether a browser is connected to the session of that name."""
    return name in _OPEN

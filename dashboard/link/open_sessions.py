"""Sessions that are open in a browser, by name."""

from __future__ import annotations

from typing import Final

import streamlit as st

__all__ = ["is_open", "mark_open"]

_OPEN: Final[set[str]] = set()


@st.cache_resource(show_spinner=False, scope="session", on_release=_OPEN.discard)
def mark_open(name: str) -> str:
    """Count the current session as open until its browser disconnects, when Streamlit releases its resources.

    Returns the name.
    """
    _OPEN.add(name)
    return name


def is_open(name: str) -> bool:
    """Return whether a browser is connected to the session of that name."""
    return name in _OPEN

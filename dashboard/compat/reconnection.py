"""Run open pages again after a restart of the server.

It leans on when a browser asks for a run; checked with Streamlit 1.67.0, and held by tests/browser/test_restart.py.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import streamlit as st

__all__ = ["known_again"]

_SELDOM: Final = timedelta(days=1)
"""Interval at which the browser runs the empty fragment."""


@st.fragment(run_every=_SELDOM)
def known_again() -> None:
    """Make the browser run the page as soon as it reconnects to the server; draws nothing.

    A restarted server has no page until one runs, and a browser runs a page on its own only if a fragment of it runs by
    timer. Otherwise the first click would be lost: no callback would exist for it, and the link would stay as it was.
    """

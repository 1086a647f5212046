"""What makes the pages that are open in browsers known to a server that was started again.

It leans on when a browser asks for a run; checked with Streamlit 1.67.0, and held by tests/browser/test_restart.py.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import streamlit as st

__all__ = ["known_again"]

_SELDOM: Final = timedelta(days=1)
"""How often the browser runs a part of the page that draws nothing."""


@st.fragment(run_every=_SELDOM)
def known_again() -> None:
    """Makes the browser run the page as soon as it has found the server again; draws nothing.

    A server that was started again knows of no page before it is run there, and a browser runs one without being asked
    only where a part of it runs by itself. Otherwise the first thing done on the page would be lost: nobody would call
    what is to be done then, and the link still says what was there before.
    """

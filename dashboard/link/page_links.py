"""Links from one page to another, by name: Streamlit's links want the very pages that the navigation was made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import streamlit as st

__all__ = ["START", "exists", "offer", "target"]

START: Final = "explore"
"""Name of the page that is served at the root."""
_OFFERED: Final = "_pages"


def offer(pages: Mapping[str, Any]) -> None:
    """Makes the navigation's pages known to the run, and to parts of the page that run alone later.

    pages: name -> `st.Page`.
    """
    st.session_state[_OFFERED] = dict(pages)


def exists(name: str) -> bool:
    """Returns whether the navigation has a page of that name; it has none where a page is run without it."""
    return name in st.session_state.get(_OFFERED, {})


def target(name: str) -> Any:
    """Returns a page of the navigation as `st.page_link` and `st.switch_page` want it.

    Raises:
        KeyError: there is no such page.
    """
    return st.session_state[_OFFERED][name]

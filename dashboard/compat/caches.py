"""The cache of what pages ask, by Streamlit, so that queries need not know of it.

Checked with Streamlit 1.67.0. Caches live in the server's memory and are shared by all sessions. What is returned is a
copy, so that nobody changes what others get. Outside a server, as in a test, the same decorator keeps what it computes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import streamlit as st

__all__ = ["computed", "remembered"]

P = ParamSpec("P")
R = TypeVar("R")


def remembered(entries: int) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Returns a decorator that keeps what a function returned for its latest arguments.

    entries: for how many different arguments at most. Arguments whose names begin with `_` do not tell calls apart.
    """
    decorator: Any = st.cache_data(show_spinner=False, max_entries=entries)
    return cast(Callable[[Callable[P, R]], Callable[P, R]], decorator)


def computed(function: Callable[P, R]) -> Callable[P, R]:
    """Returns a remembered function as it was before: in a thread outside any session the cache does not belong."""
    return cast(Callable[P, R], inspect.unwrap(function))

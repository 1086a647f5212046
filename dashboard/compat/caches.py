"""Cache of query results by Streamlit, behind a decorator of ours so that queries do not import Streamlit.

Checked with Streamlit 1.67.0. Caches live in the server's memory and are shared by all sessions. Callers get copies, so
that none changes the results of others. Outside a server, as in a test, the same decorator caches too.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar, cast

import streamlit as st

__all__ = ["computed", "remembered"]

P = ParamSpec("P")
R = TypeVar("R")


def remembered(
    entries: int,
    *,
    spinner: str = "",
    hash_funcs: dict[str | type[Any], Callable[[Any], Any]] | None = None,
    copied: bool = True,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that caches the latest results of a function.

    Results are found again by the arguments, without those whose names begin with `_`. The cache is made at the first
    call, so that a module can be imported where no server runs.

    Args:
        entries: different arguments that are kept at most.
        spinner: text that is shown while the function runs; nothing is shown where empty.
        hash_funcs: how to tell arguments of a type apart, as in `st.cache_data`.
        copied: True if every caller gets a copy; otherwise all share one object and must not change it.
    """
    cache_of = st.cache_data if copied else st.cache_resource

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @cache
        def cached() -> Callable[P, R]:
            decorator: Any = cache_of(show_spinner=spinner or False, max_entries=entries, hash_funcs=hash_funcs)
            return cast(Callable[P, R], decorator(function))

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            return cached()(*args, **kwargs)

        return call

    return decorate


def computed(function: Callable[P, R]) -> Callable[P, R]:
    """Return the function behind a cached one, for threads outside any session, which must not use the cache."""
    return cast(Callable[P, R], inspect.unwrap(function))

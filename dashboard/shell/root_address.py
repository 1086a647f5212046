"""Redirect `/explore` to the start page, which is served at the root.

For Streamlit this page does not exist. The redirect keeps the parameters and happens before a page runs: the navigation
marks the right entry, and Back leads to the previous page.
"""

from __future__ import annotations

import streamlit as st
from starlette.requests import Request
from starlette.responses import RedirectResponse
from starlette.routing import Route

from dashboard.link.page_links import START

__all__ = ["routes"]


def routes() -> list[Route]:
    """Return the routes of the redirect, below the configured base path."""
    base = "/".join(("", *filter(None, str(st.get_option("server.baseUrlPath")).split("/"))))
    return [Route(f"{base}/{START}", _redirect_to_root), Route(f"{base}/{START}/", _root_above)]


def _redirect_to_root(request: Request) -> RedirectResponse:
    # Relative, so that it holds below any path a proxy may add.
    return RedirectResponse(f"./?{request.url.query}" if request.url.query else "./")


def _root_above(request: Request) -> RedirectResponse:
    return RedirectResponse(f"../?{request.url.query}" if request.url.query else "../")

"""The start page's other address: it is served at the root, and people write `/explore`, as other pages are written.

Streamlit takes that for a page that does not exist. Whoever asks for it is sent to the root with what the address says,
before there is a page: the navigation marks the right entry, and Back leads to where they came from.
"""

from __future__ import annotations

import streamlit as st
from starlette.requests import Request
from starlette.responses import RedirectResponse
from starlette.routing import Route

from dashboard.link.page_links import START

__all__ = ["routes"]


def routes() -> list[Route]:
    """Returns what the server answers beside the pages, below the path that it is told to be at."""
    base = "/".join(("", *filter(None, str(st.get_option("server.baseUrlPath")).split("/"))))
    return [Route(f"{base}/{START}", _redirect_to_root), Route(f"{base}/{START}/", _root_above)]


def _redirect_to_root(request: Request) -> RedirectResponse:
    # Relative, so that it holds below any path a proxy may add.
    return RedirectResponse(f"./?{request.url.query}" if request.url.query else "./")


def _root_above(request: Request) -> RedirectResponse:
    return RedirectResponse(f"../?{request.url.query}" if request.url.query else "../")

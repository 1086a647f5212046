"""Plotly's JavaScript as files of this server: browsers keep them, and no other site is asked for them."""

from __future__ import annotations

import gzip
from functools import cache, partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dashboard.compat import plotly_figures

__all__ = ["routes"]


def routes() -> list[Route]:
    """Returns what the server answers beside the pages, at the root and below any path that it is told to be at."""
    found = []
    for whole in (False, True):
        name, answer = plotly_figures.name(whole=whole), partial(_library, whole=whole)
        found += [Route(f"/{name}", answer), Route(f"/{{above:path}}/{name}", answer)]
    return found


def _library(request: Request, *, whole: bool) -> Response:
    # What is in the file is in its name: what a browser has of it never changes.
    headers = {"Cache-Control": "public, max-age=31536000, immutable", "Vary": "Accept-Encoding"}
    if "gzip" not in request.headers.get("Accept-Encoding", ""):
        return Response(_text(whole), media_type="text/javascript", headers=headers)
    return Response(_packed(whole), media_type="text/javascript", headers={**headers, "Content-Encoding": "gzip"})


def _text(whole: bool) -> str:
    return plotly_figures.library() if whole else plotly_figures.prompt_library()


@cache
def _packed(whole: bool) -> bytes:
    return gzip.compress(_text(whole).encode(), 6)

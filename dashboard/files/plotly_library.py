"""Plotly's JavaScript as a file of this server: browsers keep it, and no other site is asked for it."""

from __future__ import annotations

import gzip
from functools import cache

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dashboard.compat import plotly_figures

__all__ = ["routes"]


def routes() -> list[Route]:
    """Returns what the server answers beside the pages, at the root and below any path that it is told to be at."""
    name = f"plotly/{plotly_figures.VERSION}.js"
    return [Route(f"/{name}", _library), Route(f"/{{above:path}}/{name}", _library)]


def _library(request: Request) -> Response:
    # The version is in the name: what a browser has of it never changes.
    headers = {"Cache-Control": "public, max-age=31536000, immutable", "Vary": "Accept-Encoding"}
    if "gzip" not in request.headers.get("Accept-Encoding", ""):
        return Response(plotly_figures.library(), media_type="text/javascript", headers=headers)
    return Response(_packed(), media_type="text/javascript", headers={**headers, "Content-Encoding": "gzip"})


@cache
def _packed() -> bytes:
    return gzip.compress(plotly_figures.library().encode(), 6)

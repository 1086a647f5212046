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
    """Return the routes of the cartesian and the full library, at the root and below any base path."""
    found = []
    for kinds in (plotly_figures.CARTESIAN, None):
        name, answer = plotly_figures.file_name(kinds), partial(_send_library, kinds=kinds)
        found += [Route(f"/{name}", answer), Route(f"/{{above:path}}/{name}", answer)]
    return found


def _send_library(request: Request, *, kinds: frozenset[str] | None) -> Response:
    # The name has the version, so a browser's copy never changes.
    headers = {"Cache-Control": "public, max-age=31536000, immutable", "Vary": "Accept-Encoding"}
    if "gzip" not in request.headers.get("Accept-Encoding", ""):
        return Response(plotly_figures.javascript(kinds), media_type="text/javascript", headers=headers)
    return Response(
        _compressed_library(kinds), media_type="text/javascript", headers={**headers, "Content-Encoding": "gzip"}
    )


@cache
def _compressed_library(kinds: frozenset[str] | None) -> bytes:
    return gzip.compress(plotly_figures.javascript(kinds).encode(), 6)

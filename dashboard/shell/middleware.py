"""Middleware of the server: headers, hidden metrics, allowed origins of sessions; and its start-up message."""

from __future__ import annotations

import webbrowser
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from threading import Thread
from typing import Final
from urllib.parse import urlsplit

import streamlit as st
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dashboard.charts.elements.markup import stylesheet
from dashboard.compat import front_end
from dashboard.jobs.garbage_collection import exempt_loaded_objects
from dashboard.shell.server_stop import watch_stop_signals

__all__ = ["HEADERS", "Framed", "greeting"]

HEADERS: Final = {
    "Content-Security-Policy": "frame-ancestors 'self'",
    "X-Frame-Options": "SAMEORIGIN",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}
"""With every answer: no page of another site may show ours within its own, where clicks could be led astray; nothing is
taken for another type than it has; and no other site learns the address of a page, which holds its scenario."""
REDIRECT_REFERRER: Final = "strict-origin-when-cross-origin"
"""Referrer policy of redirects. The login page has to know that its visitor comes from the identity provider, and the
policy of a redirect replaces the provider's: the origin is passed on, the address with its scenario is not."""
_METRICS: Final = "/_stcore/metrics"
_END_OF_HEAD: Final = b"</head>"
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_EVERY: Final = ("", "0.0.0.0", "::")
"""Addresses that mean all of a machine's."""


class Framed:
    """Add `HEADERS` to every answer of an application, and preload headers and the style sheets to pages.

    A browser reads these beside the first script; Streamlit would ask for each when its element has come, and show text
    before its style.
    """

    def __init__(self, app: ASGIApp, *, metrics: bool = False) -> None:
        """metrics: True to serve Streamlit's metrics, False to answer 404."""
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request to the application."""
        if scope["type"] == "websocket":
            if not _may_open_session(Headers(scope=scope)):
                await send({"type": "websocket.close", "code": 1008})  # a server answers 403 before it has accepted
                return
            scope = _named_by_origin(scope)
        app = self._app
        if scope["type"] == "http" and not self._metrics and scope["path"].rstrip("/").endswith(_METRICS):
            app = PlainTextResponse("Not Found", 404)

        begun: Message | None = None

        async def with_headers(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                if 300 <= message["status"] < 400:
                    headers["Referrer-Policy"] = REDIRECT_REFERRER
                if headers.get("Content-Type", "").startswith("text/html"):
                    headers["Link"] = front_end.first_parts()
                    if "Content-Encoding" not in headers:
                        begun = message  # until the page itself comes, which gets longer
                        return
            elif begun is not None:
                start, begun = begun, None
                await send(_lengthened(start, message))
            await send(message)

        await app(scope, receive, with_headers)


def _lengthened(start: Message, body: Message) -> Message:
    """Put the style sheets into the head of a page; return the start of the answer with the new length.

    start, body: the messages of the answer; the body is changed.
    """
    page = body.get("body", b"")
    if _END_OF_HEAD not in page:
        return start
    styles = f"{stylesheet()}{front_end.styles()}".encode()
    body["body"] = page.replace(_END_OF_HEAD, styles + _END_OF_HEAD, 1)
    headers = MutableHeaders(raw=list(start["headers"]))
    if "Content-Length" in headers:
        headers["Content-Length"] = str(int(headers["Content-Length"]) + len(styles))
    for name in ("ETag", "Last-Modified"):  # of the file, whose styles may differ
        del headers[name]
    return {**start, "headers": headers.raw}


def _may_open_session(headers: Headers) -> bool:
    """Return whether a page of this origin may open a session: the server itself, or an address in
    `server.corsAllowedOrigins`, as behind a proxy that hides the server's name.

    Streamlit admits every port of this machine; another program's page there is not ours. Programs send no origin.
    """
    origin = headers.get("origin")
    if origin is None or not st.get_option("server.enableCORS"):
        return True
    place = _origin_parts(origin)
    if place is None:
        return False
    own = headers.get("host", "")
    listed = [str(each).strip() for each in st.get_option("server.corsAllowedOrigins") or ()]
    return place in {_origin_parts(each if "://" in each else f"{place[0]}://{each}") for each in (own, *listed)}


def _named_by_origin(scope: Scope) -> Scope:
    """Return a request whose `Host` is the host of its origin, for a session that `_may_open_session` admits.

    For an origin other than the host, Streamlit would ask the network, and an outside server, for the addresses of this
    machine before it reads `server.corsAllowedOrigins`, and hold up all sessions meanwhile.
    """
    origin = Headers(scope=scope).get("origin")
    if origin is None or not st.get_option("server.enableCORS"):  # neither is compared with anything
        return scope
    headers = MutableHeaders(raw=list(scope["headers"]))
    headers["host"] = urlsplit(origin).netloc
    return {**scope, "headers": headers.raw}


def _origin_parts(origin: str) -> tuple[str, str, int] | None:
    """Return scheme, host and port of an origin; None if it has none."""
    try:
        parsed = urlsplit(origin)
        port = parsed.port or _DEFAULT_PORTS.get(parsed.scheme)
    except ValueError:
        return None
    if not parsed.hostname or port is None:
        return None
    return parsed.scheme, parsed.hostname.lower().rstrip("."), port


@asynccontextmanager
async def greeting(_: object) -> AsyncIterator[None]:
    """Lifespan of the server: print its address once it listens, and open a browser if configured.

    Meanwhile the store is opened, workers start, and what a first visit opens on is explored, so that who comes first
    does not wait for them.
    """
    watch_stop_signals()
    where = str(st.get_option("server.address") or "")
    scheme = "https" if st.get_option("server.sslCertFile") else "http"
    base = str(st.get_option("server.baseUrlPath")).strip("/")
    host = "localhost" if where in _EVERY else f"[{where}]" if ":" in where else where
    address = f"{scheme}://{host}:{st.get_option('server.port')}{f'/{base}' if base else ''}"
    more = ", and at every address of this machine" if where in _EVERY else ""
    print(f"\n  Shardscape: {address}{more}\n", flush=True)
    if not st.get_option("server.headless"):
        Thread(target=webbrowser.open, args=(address,), daemon=True).start()
    # No daemon: a thread that the interpreter's end finds within the store's own code would abort the process.
    Thread(target=_prepare_server, name="prepare").start()
    yield


def _prepare_server() -> None:
    # Imported here: what pages remember needs a server that runs. Whoever comes first need not wait for it.
    from dashboard.jobs.server import server
    from dashboard.link.scenario_parameters import read_scenario
    from engine.questions.documents.explorations import FiguresQuestion

    made = server()
    if made.explorations.settings.ahead:
        first = read_scenario({}).scenario
        made.explorations.request(first)
        made.recommendations.begin(first, FiguresQuestion())
    from dashboard.pages.registry import PAGES

    PAGES[0].view()
    exempt_loaded_objects()

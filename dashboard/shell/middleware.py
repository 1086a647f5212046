"""What stands around all that the server answers: it says where it is, keeps out of other sites' frames, and tells
browsers what every page needs."""

from __future__ import annotations

import webbrowser
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from threading import Thread
from typing import Final

import streamlit as st
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dashboard.compat import front_end
from dashboard.compat.memory_allocator import spared

__all__ = ["HEADERS", "Framed", "greeting"]

HEADERS: Final = {"Content-Security-Policy": "frame-ancestors 'self'", "X-Frame-Options": "SAMEORIGIN"}
"""With every answer: no page of another site may show ours within its own, where clicks could be led astray."""
_EVERY: Final = ("", "0.0.0.0", "::")
"""Addresses that stand for all that a machine has."""


class Framed:
    """Adds `HEADERS` to every answer of an application, and to pages the parts of the front end that all of them need.

    A browser reads these beside the first script; Streamlit would ask for each when its element has come.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Has the application answer a request."""

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                if headers.get("Content-Type", "").startswith("text/html"):
                    headers["Link"] = front_end.first_parts()
            await send(message)

        await self._app(scope, receive, with_headers)


@asynccontextmanager
async def greeting(_: object) -> AsyncIterator[None]:
    """Around the life of the server: says where it is once it is there, and opens a browser if it is to.

    Meanwhile the store is opened, workers start, and what a first visit opens on is explored, so that who comes first
    does not wait for them.
    """
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
    Thread(target=_prepare, name="prepare").start()
    yield


def _prepare() -> None:
    # Imported here: what pages remember needs a server that runs. Whoever comes first need not wait for it.
    from dashboard.jobs.server import server
    from dashboard.link.scenario_parameters import read_scenario

    made = server()
    if made.explorations.settings.ahead:
        made.explorations.request(read_scenario({}).scenario)
    from dashboard.pages.registry import PAGES

    PAGES[0].view()
    spared()

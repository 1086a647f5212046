"""What stands around all that the server answers: it says where it is, keeps out of other sites' frames, asks nobody.

Streamlit finds out under which addresses this machine is known, from the network and from a host of the outside, when
it starts on all addresses and whenever a page of a foreign origin wants a session, while everybody waits. Who comes
from the address that was given, or from one that the configuration names, needs none of that; who does not is refused.
"""

from __future__ import annotations

import webbrowser
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from threading import Thread
from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from streamlit import config, net_util

__all__ = ["HEADERS", "Framed", "ask_nobody", "greeting"]

HEADERS: Final = {"Content-Security-Policy": "frame-ancestors 'self'", "X-Frame-Options": "SAMEORIGIN"}
"""With every answer: no page of another site may show ours within its own, where clicks could be led astray."""
_EVERY: Final = ("", "0.0.0.0", "::")
"""Addresses that stand for all that a machine has."""


class Framed:
    """Adds `HEADERS` to every answer of an application."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Has the application answer a request."""

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        await self._app(scope, receive, with_headers)


def ask_nobody() -> None:
    """Leaves this machine's addresses unknown to Streamlit. To be called before the first request."""
    net_util.get_internal_ip = net_util.get_external_ip = lambda: None


@asynccontextmanager
async def greeting(_: object) -> AsyncIterator[None]:
    """Around the life of the server: says where it is once it is there, and opens a browser if it is to."""
    where = str(config.get_option("server.address") or "")
    scheme = "https" if config.get_option("server.sslCertFile") else "http"
    base = str(config.get_option("server.baseUrlPath")).strip("/")
    host = "localhost" if where in _EVERY else f"[{where}]" if ":" in where else where
    address = f"{scheme}://{host}:{config.get_option('server.port')}{f'/{base}' if base else ''}"
    more = ", and at every address of this machine" if where in _EVERY else ""
    print(f"\n  Shardscape: {address}{more}\n", flush=True)
    if not config.get_option("server.headless"):
        Thread(target=webbrowser.open, args=(address,), daemon=True).start()
    yield

"""Limits on request bodies, in rate and total size, so that a few clients cannot exhaust the server."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["BodyBounds", "BoundedBodies", "asker_of"]


@dataclass(frozen=True, slots=True)
class BodyBounds:
    """Limits of request bodies, from their first byte until the answer."""

    grace_s: float = 15.0
    """Time for any body [s]."""
    least_rate: float = 16_384.0
    """Average rate that a larger body needs [bytes/s], as on a poor mobile connection."""
    bytes: int = 64 << 20
    """Size of all bodies together [bytes]; a dozen of the largest uploads."""
    bytes_of_one: int = 16 << 20
    """Size of all bodies from one address [bytes]."""
    number: int = 128
    """Requests with a body."""
    number_of_one: int = 32
    """Requests with a body from one address."""


class _BodyRefusedError(Exception):
    """Body that is refused: status and sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence


@dataclass
class _UnderWay:
    """Bodies of unanswered requests."""

    numbers: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)

    def add(self, asker: str, size: int, bounds: BodyBounds) -> None:
        """Count a piece of a body. Raises _BodyRefusedError."""
        self.bytes[asker] += size
        self.check(asker, bounds)

    def check(self, asker: str, bounds: BodyBounds) -> None:
        """Raise _BodyRefusedError where there are more than the bounds allow."""
        if self.numbers[asker] > bounds.number_of_one or self.bytes[asker] > bounds.bytes_of_one:
            raise _BodyRefusedError(429, "Too many requests come from your address at once; wait for answers first.")
        if self.numbers.total() > bounds.number or self.bytes.total() > bounds.bytes:
            raise _BodyRefusedError(503, "Too many requests are being received; send it again later.")


def asker_of(scope: Scope) -> str:
    """Return the client's address, as passed on by a proxy on this machine.

    scope: of the request.
    """
    client = scope.get("client")
    return str(client[0]) if client else ""


class BoundedBodies:
    """Middleware that refuses bodies that are too slow or too many."""

    def __init__(self, app: ASGIApp, bounds: BodyBounds | None = None) -> None:
        self._app, self._bounds, self._under_way = app, bounds or BodyBounds(), _UnderWay()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request to the application."""
        if scope["type"] != "http" or not _has_body(scope):
            await self._app(scope, receive, send)
            return
        asker, bounds, under_way = asker_of(scope), self._bounds, self._under_way
        loop = asyncio.get_running_loop()
        begun, received, whole, answering = loop.time(), 0, False, False
        under_way.numbers[asker] += 1

        async def bounded() -> Message:
            nonlocal received, whole
            if whole:  # only waits for the client to hang up
                return await receive()
            allowed = bounds.grace_s + received / bounds.least_rate
            try:
                message = await asyncio.wait_for(receive(), begun + allowed - loop.time())
            except TimeoutError:
                late = f"The request did not arrive within {allowed:.0f} s; send it again."
                raise _BodyRefusedError(408, late) from None
            whole = message["type"] != "http.request" or not message.get("more_body", False)
            size = len(message.get("body", b""))
            received += size
            under_way.add(asker, size, bounds)
            return message

        async def noticed(message: Message) -> None:
            nonlocal answering
            answering = True
            await send(message)

        try:
            under_way.check(asker, bounds)
            await self._app(scope, bounded, noticed)
        except _BodyRefusedError as refused:
            if answering:
                raise
            headers = {"Cache-Control": "no-store", "Connection": "close"}
            if refused.status != 408:
                headers["Retry-After"] = "5"
            await JSONResponse({"error": refused.sentence}, refused.status, headers=headers)(scope, receive, send)
        finally:
            for counter, size in ((under_way.numbers, 1), (under_way.bytes, received)):
                counter[asker] -= size
                if not counter[asker]:
                    del counter[asker]


def _has_body(scope: Scope) -> bool:
    headers = dict(scope["headers"])
    return b"transfer-encoding" in headers or headers.get(b"content-length", b"0").strip() != b"0"

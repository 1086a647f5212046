"""Large downloads: made on request and sent from disk, never whole in the server's memory.

Streamlit's download button keeps a finished file in memory, and once more while it is sent. A page offers a file here
instead: a link with an unguessable name, which makes the file when it is followed. The file is sent while it grows, so
that the browser shows its progress at once, and a way to stop it. A server without these routes, as in a test of a
page, uses Streamlit's button.
"""

from __future__ import annotations

import hashlib
import hmac
import io
import logging
import secrets
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable
from html import escape
from typing import IO, Any, BinaryIO, Final, NamedTuple, cast
from urllib.parse import quote

import streamlit as st
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from dashboard.files.growing_file import Abandoned, GrowingFile
from engine.store.errors import StoreWriteError, has_no_room

__all__ = ["Offer", "button", "offer", "problem", "reached", "routes", "teller"]

LOG: Final = logging.getLogger("shardscape.downloads")
MOST: Final = 256
"""Most offers in memory; those shown longest ago are dropped first."""
AT_ONCE: Final = 3
"""Most files that are made at once."""
PATIENCE: Final = 1.0
"""Time in which an early failure is still reported in a sentence; a later one breaks the download off [s]."""

_SECRET: Final = secrets.token_bytes(32)
_GONE: Final = "This download is no longer offered. Load the page again and download from there."
_BUSY: Final = f"{AT_ONCE} files are being made already. Try again when one is done."
_FAILED: Final = "The file could not be made; the server's log says why."
_FULL: Final = (
    "The file could not be made, because the server has no room left on its disk. Filter further, or ask whoever runs "
    "the server to make room."
)


class Offer(NamedTuple):
    """A file that can be asked for."""

    write: Callable[[IO[bytes]], None]
    """Writes the file to a stream that cannot seek."""
    name: str
    mime: str


_offers: OrderedDict[str, Offer] = OrderedDict()
_reached: Final[dict[str, float]] = {}
"""Written share of each file that is being made, if reported."""
_problems: Final[OrderedDict[str, str]] = OrderedDict()
"""Reasons of the latest failures, by file."""
_lock: Final = threading.Lock()
_makers: Final = threading.BoundedSemaphore(AT_ONCE)
_served = False


def routes() -> list[Route]:
    """Return the routes of downloads, below any base path. From then on pages offer links."""
    global _served
    _served = True
    return [Route("/download/{token}", _answer), Route("/{above:path}/download/{token}", _answer)]


def button(
    label: str, given: Offer, content: str, *, key: str, disabled: bool = False, note: str = "", **more: Any
) -> None:
    """Draws a button that downloads a file.

    content: key of the file's content; equal keys have the same link. note: a few words on the button, fainter. more:
    as `st.download_button` takes it.
    """
    if _served and not disabled:
        with st.container(key=key):
            words = escape(label) + (f"<small>{escape(note)}</small>" if note else "")
            st.html(f'<a class="ss-download" href="download/{offer(given, content)}" download>{words}</a>')
        return
    st.download_button(
        label,
        cast("Any", lambda: _complete_file(given)),
        given.name,
        given.mime,
        key=key,
        on_click="ignore",
        disabled=disabled,
        **more,
    )


def offer(given: Offer, content: str) -> str:
    """Offers a file; returns the name it is asked for by, which cannot be guessed from its content."""
    token = _file_token(given.name, content)
    with _lock:
        _offers[token] = given
        _offers.move_to_end(token)
        while len(_offers) > MOST:
            _offers.popitem(last=False)
    return token


def _file_token(name: str, content: str) -> str:
    return hmac.new(_SECRET, f"{name}\n{content}".encode(), hashlib.sha256).hexdigest()


def teller(name: str, content: str) -> Callable[[float], None]:
    """Return a function that records the written share of a file while it is being made."""
    token = _file_token(name, content)

    def tell(share: float) -> None:
        with _lock:
            if token in _reached:
                _reached[token] = share

    return tell


def reached(name: str, content: str) -> float | None:
    """Return the written share of a file, 0 if not reported; None if it is not being made."""
    with _lock:
        return _reached.get(_file_token(name, content))


def problem(name: str, content: str) -> str:
    """Return the reason of the latest failure of a file; empty without one."""
    with _lock:
        return _problems.get(_file_token(name, content), "")


def _answer(request: Request) -> Response:
    """Make and send a file, in a thread of Starlette's."""
    token = str(request.path_params["token"])
    with _lock:
        found = _offers.get(token)
    if found is None:
        return PlainTextResponse(_GONE, 404)
    heads = {
        "Content-Disposition": f"attachment; filename*=utf-8''{quote(found.name, safe='')}",
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
    }
    if request.method == "HEAD":
        return Response(headers=heads, media_type=found.mime)
    if not _makers.acquire(blocking=False):
        return PlainTextResponse(_BUSY, 503)
    file = GrowingFile(lambda target: _make_file(token, found, target))
    broken = file.begun(PATIENCE)
    if broken is not None:
        file.leave()
        return PlainTextResponse(_failure_sentence(broken), 500)
    return _Sent(file, headers=heads, media_type=found.mime)


class _Sent(StreamingResponse):
    """Response with a growing file, abandoned once the client has disconnected."""

    def __init__(self, file: GrowingFile, **more: Any) -> None:
        super().__init__(file.pieces(), **more)
        self._file = file

    async def listen_for_disconnect(self, receive: Receive) -> None:
        """Wait until the client disconnects, then stop waiting for the rest of the file."""
        await super().listen_for_disconnect(receive)
        self._file.leave()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the file."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._file.leave()


def _make_file(token: str, found: Offer, target: IO[bytes]) -> None:
    """Writes a file and makes room for the next one; what goes wrong is logged."""
    with _lock:
        _reached[token] = 0.0
        _problems.pop(token, None)
    try:
        found.write(target)
    except Abandoned:
        raise
    except Exception as broken:
        LOG.exception("download of %s failed", found.name)
        with _lock:
            _problems[token] = _failure_sentence(broken)
            while len(_problems) > MOST:
                _problems.popitem(last=False)
        raise
    finally:
        with _lock:
            _reached.pop(token, None)
        _makers.release()


def _failure_sentence(broken: BaseException) -> str:
    """Return the message to the client about a failure, without paths of the server."""
    full = isinstance(broken, StoreWriteError) or (isinstance(broken, OSError) and has_no_room(broken))
    return _FULL if full else _FAILED


def _complete_file(given: Offer) -> BinaryIO:
    """A file as Streamlit's button takes it: open, complete, and gone when it is closed."""
    file = cast(BinaryIO, tempfile.TemporaryFile())  # noqa: SIM115
    given.write(file)
    file.seek(0)
    # Streamlit takes readers only; what can be written as well, it refuses.
    return io.BufferedReader(cast(io.BufferedRandom, file).detach())

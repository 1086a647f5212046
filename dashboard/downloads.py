"""Large downloads: made when they are asked for and sent from disk, never whole in the server's memory.

Streamlit's download button keeps a finished file in memory, and once more while it is sent. A page offers a file here
instead: it gets a link whose name nobody can guess, and the file is made when the link is followed. Where the server
runs without these routes, as in a test of a page, there is Streamlit's button.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from html import escape
from typing import Any, BinaryIO, Final, NamedTuple, cast
from urllib.parse import quote

import streamlit as st
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

__all__ = ["Offer", "button", "offer", "routes"]

LOG: Final = logging.getLogger("shardscape.downloads")
MOST: Final = 256
"""Offers that are remembered; those shown longest ago go first."""
AT_ONCE: Final = 3
"""Files that are made at the same time."""
PIECE: Final = 1 << 18
"""How much is read and sent at a time [bytes]."""

_SECRET: Final = secrets.token_bytes(32)
_GONE: Final = "This download is no longer offered. Load the page again and download from there."
_BUSY: Final = f"{AT_ONCE} files are being made already. Try again when one is done."
_FAILED: Final = "The file could not be made; the server's log says why."


class Offer(NamedTuple):
    """A file that can be asked for."""

    build: Callable[[], BinaryIO]
    name: str
    mime: str


_offers: OrderedDict[str, Offer] = OrderedDict()
_lock: Final = threading.Lock()
_makers: Final = threading.BoundedSemaphore(AT_ONCE)
_served = False


def routes() -> list[Route]:
    """What the server answers beside the pages; from then on pages offer links. Below any path a proxy may add."""
    global _served
    _served = True
    return [Route("/download/{token}", _answer), Route("/{above:path}/download/{token}", _answer)]


def button(label: str, given: Offer, content: str, *, key: str, disabled: bool = False, **more: Any) -> None:
    """Draws a button that downloads a file.

    content: says what is in the file, whatever else the page shows; equal contents have the same link. more: as
    `st.download_button` takes it.
    """
    if _served and not disabled:
        with st.container(key=key):
            link = f'<a class="ss-download" href="download/{offer(given, content)}" download>{escape(label)}</a>'
            st.html(link)
        return
    st.download_button(
        label, cast("Any", given.build), given.name, given.mime, key=key, on_click="ignore", disabled=disabled, **more
    )


def offer(given: Offer, content: str) -> str:
    """Offers a file; returns the name it is asked for by, which cannot be guessed from its content."""
    token = hmac.new(_SECRET, f"{given.name}\n{content}".encode(), hashlib.sha256).hexdigest()
    with _lock:
        _offers[token] = given
        _offers.move_to_end(token)
        while len(_offers) > MOST:
            _offers.popitem(last=False)
    return token


def _answer(request: Request) -> Response:
    """Makes and sends a file. Starlette calls it in a thread of its own."""
    with _lock:
        found = _offers.get(str(request.path_params["token"]))
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
    try:
        file = found.build()
    except Exception:
        LOG.exception("download of %s failed", found.name)
        return PlainTextResponse(_FAILED, 500)
    finally:
        _makers.release()
    heads["Content-Length"] = str(file.seek(0, 2))
    file.seek(0)
    return StreamingResponse(_pieces(file), headers=heads, media_type=found.mime)


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    with file:
        while piece := file.read(PIECE):
            yield piece

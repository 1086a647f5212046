"""A visitor of a dashboard's server without a browser: speaks the protocol of Streamlit's pages, and draws nothing.

Does what a browser does while a page is on its way: has a fragment run again that asks for it every so often, such as
the progress of an exploration, and tells the page once that its first picture is drawn.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlencode

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.asyncio.client import ClientConnection, connect

__all__ = ["METRICS", "Page", "Seen", "Visitor", "timed", "visiting"]

METRICS: Final = ("total_time", "mfu", "proc_mem_tier1_cap_req", "sample_rate")
"""Metrics among which sessions choose."""
DRAWN: Final = "shardscape_first_drawn"
"""The component by which a page learns that its first picture is drawn, see `dashboard.widgets.staged_rendering`."""
SELDOM: Final = 60.0
"""From so long a pause on, a fragment that runs again watches the connection and shows nothing [s]."""


@dataclass
class Page:
    """What one run of a page sent, and the runs that it led to."""

    problems: list[str] = field(default_factory=list)
    """Errors and warnings on it."""
    kinds: set[str] = field(default_factory=set)
    """What there is on it, as Streamlit names elements: plotly_chart, arrow_data_frame, ..."""
    text: str = ""
    """Markup and Markdown on it."""
    waits: dict[str, float] = field(default_factory=dict)
    """Fragments that are to run again, and after how long [s]."""
    follows: list[str] = field(default_factory=list)
    """Fragments that run again once the browser has drawn what there is."""
    whole: bool = False
    """Whether the page itself ran, and not only a fragment of it."""


@dataclass
class Seen:
    """What many sessions saw."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    """Times by what was done [s]."""
    problems: list[str] = field(default_factory=list)


class Visitor:
    """One session of a server."""

    def __init__(self, connection: ClientConnection, longest: float) -> None:
        self._connection = connection
        self.longest = longest
        self._query = ""
        self._page = ""

    async def open(self, page: str = "", **query: str) -> Page:
        """Goes to an address of the application; returns what is there when nothing more is waited for.

        page: as in the address, empty for the first one. Raises TimeoutError.
        """
        self._page, self._query = page, urlencode(query)
        async with asyncio.timeout(self.longest):
            shown = await self._run()
            waits = shown.waits
            while "progress" in shown.kinds:
                fragment = min(waits, key=lambda name: waits[name])  # others look after the connection, and seldom
                await asyncio.sleep(waits[fragment])
                shown = await self._run(fragment)
                waits = shown.waits or waits
        return shown

    async def look(self, shown: Page, seconds: float) -> None:
        """Looks at a page for a while [s]: it draws what follows its first picture, and what it keeps asking for.

        Raises TimeoutError.
        """
        latest = time.monotonic() + seconds
        while shown.follows:
            async with asyncio.timeout(self.longest):
                follows = await self._run(shown.follows[0])
            shown.follows, shown.waits = follows.follows, {**shown.waits, **follows.waits}
        waits = {fragment: pause for fragment, pause in shown.waits.items() if pause < SELDOM}
        while (left := latest - time.monotonic()) > 0:
            await asyncio.sleep(min(left, *waits.values()) if waits else left)
            for fragment in list(waits) if time.monotonic() < latest else ():
                async with asyncio.timeout(self.longest):
                    again = await self._run(fragment)
                if again.whole:
                    waits = again.waits

    async def _run(self, fragment: str = "") -> Page:
        """Has the page, or a fragment of it, run, and every run that follows by itself."""
        message = BackMsg()
        state = message.rerun_script
        state.query_string, state.page_name, state.fragment_id = self._query, self._page, fragment
        state.is_auto_rerun = bool(fragment)
        state.context_info.timezone, state.context_info.locale = "UTC", "en-US"
        await self._connection.send(message.SerializeToString())
        shown = Page()
        async for data in self._connection:
            assert isinstance(data, bytes)
            received = ForwardMsg.FromString(data)
            kind = received.WhichOneof("type")
            if kind == "new_session":
                shown = Page()
            elif kind == "delta":
                _take(received.delta, shown)
            elif kind == "auto_rerun":
                shown.waits[received.auto_rerun.fragment_id] = received.auto_rerun.interval
            elif kind == "page_info_changed":
                self._query = received.page_info_changed.query_string
            elif kind == "script_finished" and received.script_finished != ForwardMsg.FINISHED_EARLY_FOR_RERUN:
                shown.whole = received.script_finished != ForwardMsg.FINISHED_FRAGMENT_RUN_SUCCESSFULLY
                return shown
        raise ConnectionError("The server has closed the connection.")


async def timed(visitor: Visitor, what: str, page: str, query: Mapping[str, str], pause: float, seen: Seen) -> None:
    """Goes to an address and takes note of how long that took; then looks at what is there for a while.

    what: how what was done is called. pause: how long it is looked at [s].
    """
    start = time.monotonic()
    try:
        shown = await visitor.open(page, **query)
        seen.seconds.setdefault(what, []).append(time.monotonic() - start)
        seen.problems += [f"{what}: {problem}" for problem in shown.problems]
        await visitor.look(shown, pause)
    except TimeoutError:
        seen.seconds.setdefault(what, []).append(time.monotonic() - start)
        seen.problems.append(f"{what}: no page within {visitor.longest:g} s")


def _take(delta: Any, shown: Page) -> None:
    if delta.WhichOneof("type") != "new_element":
        return
    element = delta.new_element
    kind = element.WhichOneof("type")
    shown.kinds.add(kind)
    if kind == "exception":
        shown.problems.append(f"{element.exception.type}: {element.exception.message}")
    elif kind == "alert":
        shown.problems.append(element.alert.body)
    elif kind in ("markdown", "html"):
        shown.text += getattr(element, kind).body
    elif kind == "bidi_component" and element.bidi_component.component_name.endswith(DRAWN):
        shown.follows.append(delta.fragment_id)


@asynccontextmanager
async def visiting(address: str, *, longest: float = 120.0, origin: str | None = None) -> AsyncIterator[Visitor]:
    """A new session of the server at an address such as "http://127.0.0.1:8501".

    longest: how long a page may take [s]. Raises `websockets.exceptions.InvalidStatus` when the server refuses.
    """
    there = f"ws{address.removeprefix('http')}/_stcore/stream"
    async with connect(
        there,
        origin=origin,
        max_size=None,
        compression=None,
        subprotocols=["streamlit"],
        open_timeout=longest,
        proxy=None,
    ) as connection:
        yield Visitor(connection, longest)

"""Turns of pages. Pages share an interpreter, and pages that only read must not wait for pages that show a new
exploration, which takes longer.

A page that reads is computed at once, and one that explored begins to draw when few others are at work. Each page
counts while it computes, and not while it waits.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["Turns", "turns"]

LONGEST: Final = 10.0
"""After so long a wait a page is drawn in any case [s]."""


class Turns:
    """Counter of running pages, each in its own thread, that makes some wait until few run."""

    def __init__(self, places: int, longest: float = LONGEST) -> None:
        """places: how many pages are at work when one that has explored no longer joins them. longest: time after
        which a page is drawn in any case [s]."""
        self._longest = longest
        self._changed = threading.Condition()
        self._places = places
        self._working = 0
        self._line: deque[int] = deque()
        """Threads that wait, in their order."""
        self._mine = threading.local()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Counts this thread among those at work. A turn within a turn is the same one."""
        if self._held():
            yield
            return
        self._count(1)
        try:
            yield
        finally:
            self.leave()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Does not count this thread while it waits for something."""
        held = self._held()
        self.leave()
        try:
            yield
        finally:
            if held:
                self._count(1)

    def leave(self) -> None:
        """Does not count this thread any more, for what follows takes long."""
        if self._held():
            self._count(-1)

    def after_others(self) -> None:
        """Waits until few are at work, and behind pages that have waited longer; pages that only read do not wait. Does
        nothing outside a turn."""
        if not self._held():
            return
        self.leave()
        mine = threading.get_ident()
        with self._changed:
            self._line.append(mine)
            self._changed.wait_for(lambda: self._working < self._places and self._line[0] == mine, self._longest)
            self._line.remove(mine)
            self._count(1)  # before another that waits looks

    def _held(self) -> bool:
        return getattr(self._mine, "held", False)

    def _count(self, change: int) -> None:
        self._mine.held = change > 0
        with self._changed:
            self._working += change
            self._changed.notify_all()


def _count_cores() -> int:
    """Cores that this process may use; not every system can tell."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


turns: Final = Turns(_count_cores())
"""Turns of all pages of the server."""

"""Whose page is computed next. Pages share an interpreter: of twenty at once each takes as long as all of them do, and
those that only read wait for those that show what was just explored.

So only some are computed at a time, and those that read come first. A page that waits for something, such as an
exploration, lets others pass meanwhile.
"""

from __future__ import annotations

import heapq
import itertools
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Final

__all__ = ["Rank", "Turns", "turns"]

LONGEST: Final = 10.0
"""After so long a wait a page is computed in any case: no page can hold up the others for good [s]."""


class Rank(IntEnum):
    """Who comes first."""

    READS = 0
    """Shows what there is."""
    EXPLORED = 1
    """Shows what was just explored for it, which takes longer than to show it again."""


class Turns:
    """Lets as many threads work at a time as there are places, by rank and then as they came."""

    def __init__(self, places: int) -> None:
        self._changed = threading.Condition()
        self._free = places
        self._waiting: list[tuple[Rank, int]] = []
        self._numbers = itertools.count()
        self._mine = threading.local()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Waits for a place and works in it; within a turn nothing is waited for."""
        if getattr(self._mine, "held", False):
            yield
            return
        self._take(Rank.READS)
        try:
            yield
        finally:
            self.leave()

    @contextmanager
    def aside(self, rank: Rank = Rank.READS) -> Iterator[None]:
        """Gives the place up while something else is waited for, and waits for one of that rank afterwards."""
        held = getattr(self._mine, "held", False)
        if held:
            self._give_back()
        try:
            yield
        finally:
            if held:
                self._take(rank)

    def leave(self) -> None:
        """Gives the place up for good: what follows takes long, and must not keep others from theirs."""
        if getattr(self._mine, "held", False):
            self._give_back()

    def _take(self, rank: Rank) -> None:
        latest = time.monotonic() + LONGEST
        with self._changed:
            mine = (rank, next(self._numbers))
            heapq.heappush(self._waiting, mine)
            while not (self._free > 0 and self._waiting[0] == mine):
                if not self._changed.wait(latest - time.monotonic()):
                    break
            self._waiting.remove(mine)
            heapq.heapify(self._waiting)
            self._free -= 1
            self._changed.notify_all()
        self._mine.held = True

    def _give_back(self) -> None:
        self._mine.held = False
        with self._changed:
            self._free += 1
            self._changed.notify_all()


def _cores() -> int:
    """Cores that this process may use; not every system can tell."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


turns: Final = Turns(2 * _cores())
"""Those of all pages of the server: so many that cores are at work while some pages wait for the disk, or for each
other's hold on the interpreter."""

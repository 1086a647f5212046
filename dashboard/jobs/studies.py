"""Studies off the page's thread: sensitivity and sweeps, a point of each in turn, shared by all sessions.

Studies are asked for by a key that says everything about them. Whoever asks first starts one; it goes on as long as
somebody looks at it now and then, and what it found stays for the next who asks. One that was stopped, or at which
nobody looked, goes on with the points that it lacks.
"""

from __future__ import annotations

import atexit
import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Any, Final

import streamlit as st

from dashboard.jobs.board import Board
from dashboard.jobs.job import Job, Kind
from dashboard.jobs.server import board
from dashboard.words.numbers import counted
from engine.whatif import Study

__all__ = ["Run", "Studies", "studies"]

UNWATCHED: Final = 20.0
"""Time after which a study at which nobody looks waits until somebody does [s]."""
MOST_RUNNING: Final = 64
"""Studies that may be under way at once; the one not looked at for longest gives way."""
MOST_KEPT: Final = 200
"""Finished studies that are remembered."""
TELLING: Final = 3
"""Points after the first that tell how long the others take."""
TELLING_TIME: Final = 1.0
"""Fewer tell as well if they took so long [s]."""
LATEST: Final = 40
"""Points that are remembered to tell it: two lines of a fine sweep, whose points differ in what they change."""


@dataclass(frozen=True, slots=True)
class _Points:
    """How far a study is, in points."""

    done: int
    total: int
    rate: float
    seconds_left: float


class Run(Job):
    """One study on its way, whose parts are its points."""

    def __init__(self, kind: Kind, key: str, make: Callable[[], Study[Any]]) -> None:
        super().__init__(kind, key)
        self.total = 0
        self._make = make
        self._results: Iterator[Any] | None = None
        self._timed: deque[float] = deque(maxlen=LATEST)
        """Times of the latest points since it was begun or gone on with, without the first of them [s]: that one makes
        ready what the others use."""
        self._readied = False
        with suppress(ValueError, MemoryError):  # a refusal is told by the first point
            self._begin()

    @property
    def progress(self) -> _Points:
        """How far it is; its rate and the time left once enough is known of them."""
        telling = list(self._timed)
        rate = 0.0
        if len(telling) >= TELLING or sum(telling) >= TELLING_TIME:
            rate = len(telling) / max(sum(telling), 1e-9)
        left = (self.total - len(self.found)) / rate if rate else math.inf
        return _Points(len(self.found), self.total, rate, left)

    @property
    def account(self) -> str:
        """Why it found no more."""
        return self.problem or (
            f"Stopped after {len(self.found)} of {counted(self.total, 'point')}; what was found stays."
        )

    def work(self) -> bool:
        """Finds one more point."""
        start = time.monotonic()
        try:
            self.found.append(next(self._results or self._begin()))
            return len(self.found) < self.total
        except StopIteration:
            return False
        finally:
            if self._readied:
                self._timed.append(time.monotonic() - start)
            self._readied = True

    def release(self) -> None:
        """Lets go of everything but what was found; the next point goes on from there."""
        self._results = None

    def _begin(self) -> Iterator[Any]:
        """Begins, or goes on after what was found."""
        study = self._make()
        self.total = len(study)
        self._timed.clear()
        self._readied = False
        self._results = results = study.after(len(self.found))
        return results


class Studies:
    """Works on all studies in turn, a point at a time, so that every one of them shows something soon.

    The next point is of the study on which least time was spent: one whose points take long does not hold up the rest.
    """

    def __init__(self, board: Board | None = None) -> None:
        """board: where its jobs are; one of its own without."""
        self.board = board or Board()
        self.kind = Kind(
            name="study", doing="Searching", unit="point", in_parts=True, most_waiting=MOST_RUNNING,
            most_kept=MOST_KEPT, unwatched=UNWATCHED,
        )  # fmt: skip

    def request(self, key: str, make: Callable[[], Study[Any]]) -> Run:
        """The study of a key: the one there is, which goes on where nobody looked at it for a while, or a new one."""
        job = self.board.seen(self.kind, key) or self.board.post(Run(self.kind, key, make))
        assert isinstance(job, Run)
        return job

    def asking(self) -> AbstractContextManager[None]:
        """Makes the studies wait for what is done within: one question of somebody who waits for the answer."""
        return self.board.asking(self.kind)

    def close(self) -> None:
        """Stops everything."""
        self.board.close(self.kind)


@st.cache_resource(show_spinner=False, on_release=Studies.close, max_entries=1)
def studies() -> Studies:
    """The studies of the server."""
    made = Studies(board())
    atexit.register(made.close)  # a server that is stopped does not release its caches
    return made

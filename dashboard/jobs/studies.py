"""Studies off the page's thread: sensitivity and sweeps, a point of each in turn, shared by all sessions.

Studies are requested by a key that determines their result. The first request starts one; it continues as long as a
session looks at it now and then, and its points stay for the next request. A study that was stopped, or had no visitor,
continues with its missing points.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from dashboard.jobs.board import JobBoard
from dashboard.jobs.job import Job, JobKind
from dashboard.jobs.whatif_answers import StudyName, study_in
from dashboard.jobs.worker import Worker
from dashboard.words.numbers import counted
from engine.whatif import PointSequence

__all__ = ["Studies", "StudyJob"]

UNWATCHED: Final = 20.0
"""Time without a look after which a study waits for the next one [s]."""
MOST_RUNNING: Final = 64
"""Most running studies; the least recently viewed one is stopped."""
MOST_KEPT: Final = 200
"""Finished studies that are remembered."""
TELLING: Final = 3
"""Points after the first that tell how long the others take."""
TELLING_TIME: Final = 1.0
"""Fewer tell as well if they took so long [s]."""
LATEST: Final = 40
"""Timed points for the rate: two lines of a fine sweep, whose points differ in the changed parameter."""


@dataclass(frozen=True, slots=True)
class _Points:
    """Progress of a study, in points."""

    done: int
    total: int
    rate: float
    seconds_left: float


class StudyJob(Job):
    """One study on its way, whose parts are its points."""

    def __init__(self, kind: JobKind, key: str, make: Callable[[], PointSequence[Any]]) -> None:
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
        """Points done, with their rate and the time left once enough points are timed."""
        telling = list(self._timed)
        rate = 0.0
        if len(telling) >= TELLING or sum(telling) >= TELLING_TIME:
            rate = len(telling) / max(sum(telling), 1e-9)
        left = (self.total - len(self.found)) / rate if rate else math.inf
        return _Points(len(self.found), self.total, rate, left)

    @property
    def account(self) -> str:
        """Reason for missing points."""
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
        """Release everything but the results; the next point continues from them."""
        self._results = None

    def _begin(self) -> Iterator[Any]:
        """Start, or continue after the present results."""
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

    def __init__(
        self,
        board: JobBoard | None = None,
        worker: Worker | None = None,
        gives_way_to: JobKind | None = None,
        *,
        unwatched: float = UNWATCHED,
    ) -> None:
        """board, worker: where its jobs are and points are found; without, a board of its own, and this process.
        gives_way_to: a kind of the board whose jobs come first. unwatched: time without a look after which a study
        waits for the next one [s]."""
        self.board = board or JobBoard()
        self._worker = worker or Worker(apart=False)
        self.kind = JobKind(
            name="study",
            doing="Searching",
            unit="point",
            in_parts=True,
            most_waiting=MOST_RUNNING,
            most_kept=MOST_KEPT,
            unwatched=unwatched,
            gives_way_to=gives_way_to,
        )

    def made(self, name: StudyName, *arguments: Any, largest: float) -> PointSequence[Any]:
        """Return a study of `engine.whatif` as a job. See `dashboard.jobs.whatif_answers.study_in`."""
        return study_in(self._worker, name, *arguments, largest=largest)

    def request(self, key: str, make: Callable[[], PointSequence[Any]]) -> StudyJob:
        """Returns the study of a key: the present one, which continues if it was paused, or a new one."""
        job = self.board.seen(self.kind, key) or self.board.post(StudyJob(self.kind, key, make))
        assert isinstance(job, StudyJob)
        return job

    def close(self) -> None:
        """Stops everything."""
        self.board.close(self.kind)

"""Statistics that are not stored, of all executions of an exploration: evaluated off the page's thread.

Whoever asks first starts the evaluation, of all of them if there is room; it goes on as long as somebody looks at it
now and then. Afterwards the rows of the exploration answer them as they answer stored ones, for all sessions, until
they give way to those of other explorations.
"""

from __future__ import annotations

import atexit
import logging
import math
import threading
import time
from collections.abc import Sequence
from typing import Final

import streamlit as st

from dashboard.jobs.turns import turns
from engine import Exploration, ExplorationCancelled, Progress
from engine.columns import defined_of
from engine.cost_models.registry import cost_model_of
from engine.exploration.recomputed import add_columns, is_stored
from engine.store import TooManyValuesError

__all__ = ["Further", "Job", "further", "seconds_for"]

LOG: Final = logging.getLogger("shardscape.further")

PATIENCE: Final = 1.0
"""How long a page waits before it shows progress [s]."""
UNWATCHED: Final = 20.0
"""Time after which an evaluation at which nobody looks is given up [s]."""
REMEMBERED: Final = 600.0
"""Time for which it is known that an evaluation was stopped or failed [s]."""
RECENT: Final = 5.0
"""Time for which somebody who looked counts as still looking [s]."""


class Job:
    """One evaluation on its way, or how it ended. Read-only for everybody but `Further`."""

    def __init__(self, exploration: Exploration, names: Sequence[str], every: Sequence[str], watcher: str) -> None:
        """names: what was asked for. every: what is evaluated on the way, those among them."""
        self.key = exploration.key
        self.scenario = exploration.scenario
        self.names, self.every, self.rows = tuple(names), tuple(every), exploration.feasible
        self.progress: Progress | None = None
        self.problem = ""
        self.cancelled = False
        self.done = threading.Event()
        self.watched = {watcher: time.monotonic()}
        """When each session looked at it last."""
        self.exploration: Exploration | None = exploration

    def tell(self, progress: Progress) -> None:
        """Takes note of how far it is."""
        self.progress = progress

    def stops(self) -> bool:
        """Whether it is to end before it is done: somebody stopped it, or nobody looks any more."""
        return self.cancelled or self.looked_at() < time.monotonic() - UNWATCHED

    def concerns(self, exploration: Exploration, names: Sequence[str]) -> bool:
        """Whether it is about figures: all that it evaluates on its way, but once stopped only what was asked for, so
        that who asks for another figure later is not told of it."""
        known = self.names if self.cancelled else self.every
        return self.key == exploration.key and set(names) <= set(known)

    def looked_at(self, but: str | None = None) -> float:
        """When somebody, other than `but`, looked last."""
        return max((when for watcher, when in list(self.watched.items()) if watcher != but), default=-math.inf)


class Further:
    """One thread that evaluates statistics which are not stored, one question after the other."""

    def __init__(self) -> None:
        self.rates: dict[str, float] = {}
        """Executions that the latest evaluation by each cost model did per second."""
        self._lock = threading.Condition()
        self._jobs: list[Job] = []
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="shardscape-further", daemon=True)
        self._thread.start()

    def need(self, exploration: Exploration, names: Sequence[str], watcher: str) -> Job | None:
        """None once the rows of an exploration answer all of the statistics; where that takes longer than `PATIENCE`,
        what is on its way, or was stopped or failed.

        Raises `engine.store.TooManyValuesError`.
        """
        job = self.request(exploration, names, watcher)
        if job is None:
            return None
        with turns.aside():
            job.done.wait(PATIENCE)
        ended = job.done.is_set() and not job.cancelled and not job.problem
        return None if ended and not exploration.rows.missing(names) else job

    def request(self, exploration: Exploration, names: Sequence[str], watcher: str) -> Job | None:
        """The evaluation of those statistics that are not there yet, None where all are.

        Raises `engine.store.TooManyValuesError`.
        """
        if all(map(is_stored, names)):
            return None
        missing = exploration.rows.missing(names)
        if not missing:
            return None
        exploration.rows.check_room(names, exploration.feasible)
        every = _every(exploration) or missing
        with self._lock:
            long_ago = time.monotonic() - REMEMBERED
            self._jobs = [one for one in self._jobs if not one.done.is_set() or one.looked_at() > long_ago]
            job = next((one for one in self._jobs if one.concerns(exploration, missing)), None)
            if job is None:
                job = Job(exploration, missing, every, watcher)
                self._jobs.append(job)
                self._lock.notify_all()
        self.look(job, watcher)
        return job

    def find(self, exploration: Exploration, name: str) -> Job | None:
        """The evaluation of one statistic, on its way or stopped or failed."""
        with self._lock:
            return next((one for one in self._jobs if one.concerns(exploration, [name])), None)

    def look(self, job: Job, watcher: str) -> None:
        """Takes note that a session still wants to know."""
        job.watched[watcher] = time.monotonic()

    def cancel(self, job: Job, watcher: str) -> bool:
        """Stops an evaluation; returns whether it did, for others may wait for it too."""
        if job.looked_at(but=watcher) > time.monotonic() - RECENT:
            return False
        with self._lock:
            job.cancelled = True
            job.done.set()
        return True

    def forget(self, job: Job) -> None:
        """Lets the next who asks start one anew that was stopped or failed."""
        with self._lock:
            if job in self._jobs:
                self._jobs.remove(job)

    def ahead(self, job: Job) -> int:
        """Evaluations that come before one that waits."""
        with self._lock:
            waiting = [one for one in self._jobs if not one.done.is_set()]
        return waiting.index(job) if job in waiting else 0

    def close(self) -> None:
        """Stops everything and ends the thread."""
        with self._lock:
            self._closed = True
            for job in self._jobs:
                job.cancelled = True
            self._lock.notify_all()
        self._thread.join(timeout=30)

    def _next(self) -> Job | None:
        """The job whose turn it is; waits for one. None when closed."""
        with self._lock:
            while not self._closed:
                for job in [one for one in self._jobs if not one.done.is_set() and one.stops()]:
                    self._end(job)
                first = next((one for one in self._jobs if not one.done.is_set()), None)
                if first is not None:
                    return first
                self._lock.wait()
            return None

    def _work(self) -> None:
        while (job := self._next()) is not None:
            self._evaluate(job)

    def _evaluate(self, job: Job) -> None:
        """Works on one job. A method of its own, so that nothing outlives it."""
        assert job.exploration is not None
        try:
            add_columns(job.exploration, job.every, progress=job.tell, cancel=job.stops)
            if job.progress is not None and job.progress.rate > 0:
                self.rates[job.scenario.cost_model] = job.progress.rate
        except ExplorationCancelled:
            job.cancelled = True
        except (ValueError, MemoryError) as problem:  # every refusal of the engine is a ValueError
            job.problem = str(problem) or "The server has not enough memory for this."
        except Exception:
            LOG.exception("evaluating %s again failed", ", ".join(job.names))
            job.problem = "This failed for a reason of our own; the server's log has it."
        with self._lock:
            self._end(job)

    def _end(self, job: Job) -> None:
        """Lets go of a job; one that was stopped or failed stays known as long as somebody looks."""
        job.exploration = None
        unwatched = job.looked_at() < time.monotonic() - UNWATCHED
        job.cancelled = job.cancelled or unwatched
        if job in self._jobs and (unwatched or not (job.cancelled or job.problem)):
            self._jobs.remove(job)
        job.done.set()


@st.cache_resource(show_spinner=False, on_release=Further.close, max_entries=1)
def further() -> Further:
    """What the server evaluates further."""
    made = Further()
    atexit.register(made.close)  # a server that is stopped does not release its caches
    return made


def _every(exploration: Exploration) -> list[str]:
    """All that is not there yet, where there is room for all at once: evaluating all takes little more than one."""
    every = [column.name for column in defined_of(exploration.scenario.cost_model) if not is_stored(column.name)]
    try:
        exploration.rows.check_room(every, exploration.feasible)
    except TooManyValuesError:
        return []
    return exploration.rows.missing(every)


def seconds_for(exploration: Exploration) -> float:
    """About how long evaluating further statistics of an exploration takes [s], however many of them at once."""
    cost_model = cost_model_of(exploration.scenario)
    return exploration.feasible / further().rates.get(cost_model.name, cost_model.rows_per_second)

"""Statistics that are not stored, of all executions of a frontier: evaluated off the page's thread, a few remembered.

Whoever asks first starts the evaluation; it goes on as long as somebody looks at it now and then. All sessions share
what is remembered, which never takes more than `MOST_VALUES` numbers.
"""

from __future__ import annotations

import atexit
import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import streamlit as st

from dashboard.explore_data import Where
from engine import Exploration, ExplorationCancelled, Progress
from engine.recomputed import recomputed

__all__ = ["MOST_VALUES", "Columns", "Job", "Recomputing", "TooMany", "columns"]

LOG: Final = logging.getLogger("shardscape.pareto")

MOST_VALUES: Final = 30_000_000
"""Numbers that are remembered, 8 bytes each, and that one frontier may ask for: executions times statistics."""
PATIENCE: Final = 1.0
"""How long a page waits before it shows progress [s]."""
UNWATCHED: Final = 20.0
"""Time after which an evaluation at which nobody looks is given up [s]."""
REMEMBERED: Final = 600.0
"""Time for which it is known that an evaluation was stopped or failed [s]."""
RECENT: Final = 5.0
"""Time for which somebody who looked counts as still looking [s]."""

Floats = npt.NDArray[np.float64]


class TooMany(ValueError):  # noqa: N818 - reads as a sentence where it is raised
    """More numbers than are evaluated for one frontier."""

    def __init__(self, rows: int, names: int) -> None:
        super().__init__(f"{rows:,} executions times {names} statistics are more than {MOST_VALUES:,} values.")
        self.rows, self.names = rows, names

    @property
    def most(self) -> int:
        """Executions for which as many statistics would be evaluated."""
        return MOST_VALUES // self.names


class Job:
    """One evaluation on its way, or how it ended. Read-only for everybody but `Columns`."""

    def __init__(self, exploration: Exploration, names: Sequence[str], where: Where, rows: int, watcher: str) -> None:
        self.key = exploration.key
        self.scenario = exploration.scenario
        self.names, self.where, self.rows = tuple(names), where, rows
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

    def looked_at(self, but: str | None = None) -> float:
        """When somebody, other than `but`, looked last."""
        return max((when for watcher, when in list(self.watched.items()) if watcher != but), default=-math.inf)


class Recomputing(Exception):  # noqa: N818 - not an error of anyone's
    """What was asked for is being evaluated, or its evaluation was stopped or failed; `job` says which."""

    def __init__(self, job: Job) -> None:
        super().__init__(job.names)
        self.job = job


class Columns:
    """The statistics that are remembered, and one thread that evaluates others, one question after the other."""

    def __init__(self, most: int = MOST_VALUES) -> None:
        self._most = most
        self._lock = threading.Condition()
        self._kept: OrderedDict[tuple[str, Where, str], Floats] = OrderedDict()
        self._jobs: list[Job] = []
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="shardscape-pareto", daemon=True)
        self._thread.start()

    def get(self, exploration: Exploration, names: Sequence[str], where: Where, watcher: str) -> dict[str, Floats]:
        """Statistics of all rows that meet conditions, in the order of `exploration.rows.table`.

        Raises `Recomputing` where they are not there yet, and `TooMany`.
        """
        wanted = tuple(dict.fromkeys(names))
        if not wanted:
            return {}
        found = self._find(exploration.key, wanted, where)
        if len(found) == len(wanted):
            return found
        rows = exploration.rows.count(where) if where else exploration.feasible
        if rows * len(wanted) > self._most:
            raise TooMany(rows, len(wanted))
        with self._lock:
            long_ago = time.monotonic() - REMEMBERED
            self._jobs = [one for one in self._jobs if not one.done.is_set() or one.looked_at() > long_ago]
            missing = [name for name in wanted if (exploration.key, where, name) not in self._kept]
            job = next((one for one in self._jobs if (one.key, one.where) == (exploration.key, where)
                        and set(missing) <= set(one.names)), None)  # fmt: skip
            if job is None:
                job = Job(exploration, missing, where, rows, watcher)
                self._jobs.append(job)
                self._lock.notify_all()
        self.look(job, watcher)
        if job.done.wait(PATIENCE) and not job.cancelled and not job.problem:
            found = self._find(exploration.key, wanted, where)
            if len(found) == len(wanted):
                return found
        raise Recomputing(job)

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

    @property
    def values(self) -> int:
        """Numbers that are remembered."""
        with self._lock:
            return sum(map(len, self._kept.values()))

    def close(self) -> None:
        """Stops everything and ends the thread."""
        with self._lock:
            self._closed = True
            for job in self._jobs:
                job.cancelled = True
            self._kept.clear()
            self._lock.notify_all()
        self._thread.join(timeout=30)

    def _find(self, key: str, names: Sequence[str], where: Where) -> dict[str, Floats]:
        """Those of the statistics that are remembered."""
        with self._lock:
            there = [name for name in names if (key, where, name) in self._kept]
            for name in there:
                self._kept.move_to_end((key, where, name))
            return {name: self._kept[key, where, name] for name in there}

    def _next(self) -> Job | None:
        """The job whose turn it is; waits for one. None when closed."""
        with self._lock:
            while not self._closed:
                for job in [one for one in self._jobs if not one.done.is_set() and one.stops()]:
                    self._end(job)
                first = next((one for one in self._jobs if not one.done.is_set()), None)
                if first is not None:
                    # Room first: what is being evaluated counts, and was asked for later than all that gives way.
                    self._make_room(first.rows * len(first.names))
                    return first
                self._lock.wait()
            return None

    def _make_room(self, values: int) -> None:
        while self._kept and sum(map(len, self._kept.values())) + values > self._most:
            self._kept.popitem(last=False)

    def _work(self) -> None:
        while (job := self._next()) is not None:
            self._evaluate(job)

    def _evaluate(self, job: Job) -> None:
        """Works on one job. A method of its own, so that nothing outlives it but what is remembered."""
        found: dict[str, Floats] = {}
        assert job.exploration is not None
        try:
            found = recomputed(job.exploration, job.names, where=job.where, progress=job.tell, cancel=job.stops)
        except ExplorationCancelled:
            job.cancelled = True
        except (ValueError, MemoryError) as problem:  # every refusal of the engine is a ValueError
            job.problem = str(problem) or "The server has not enough memory for this."
        except Exception:
            LOG.exception("evaluating %s again failed", ", ".join(job.names))
            job.problem = "This failed for a reason of our own; the server's log has it."
        with self._lock:
            self._kept |= {(job.key, job.where, name): values for name, values in found.items()}
            self._end(job)

    def _end(self, job: Job) -> None:
        """Lets go of a job; one that was stopped or failed stays known as long as somebody looks."""
        job.exploration = None
        unwatched = job.looked_at() < time.monotonic() - UNWATCHED
        job.cancelled = job.cancelled or unwatched
        if job in self._jobs and (unwatched or not (job.cancelled or job.problem)):
            self._jobs.remove(job)
        job.done.set()


@st.cache_resource(show_spinner=False, on_release=Columns.close, max_entries=1)
def columns() -> Columns:
    """The remembered statistics of the server."""
    made = Columns()
    atexit.register(made.close)  # a server that is stopped does not release its caches
    return made

"""Studies off the page's thread: sensitivity and sweeps, a point of each in turn, shared by all sessions.

Studies are asked for by a key that says everything about them. Whoever asks first starts one; it goes on as long as
somebody looks at it now and then, and what it found stays for the next who asks. One that was stopped, or at which
nobody looked, goes on with the points that it lacks.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import streamlit as st

from engine.parallel import WorkerError
from engine.whatif import Study

__all__ = ["Run", "Studies", "studies"]

LOG: Final = logging.getLogger("shardscape.whatif")

UNWATCHED: Final = 20.0
"""Time after which a study at which nobody looks waits until somebody does [s]."""
MOST_RUNNING: Final = 64
"""Studies that may be under way at once; the one not looked at for longest gives way."""
MOST_KEPT: Final = 200
"""Finished studies that are remembered."""
PATIENCE: Final = 0.4
"""Longest wait of a study for somebody's single question [s]."""
TELLING: Final = 3
"""Points after the first that tell how long the others take."""
TELLING_TIME: Final = 1.0
"""Fewer tell as well if they took so long [s]."""
LATEST: Final = 40
"""Points that are remembered to tell it: two lines of a fine sweep, whose points differ in what they change."""


class Run:
    """One study on its way: what it found so far, in order of finding. Read-only for everybody but `Studies`."""

    def __init__(self, key: str, make: Callable[[], Study[Any]]) -> None:
        self.key = key
        self.found: list[Any] = []
        self.total = 0
        self.problem = ""
        self.cancelled = False
        """Whether somebody stopped it before it was done."""
        self.left = False
        """Whether it waits for somebody to look again."""
        self.done = threading.Event()
        self.started = self.seen = time.monotonic()
        self.spent = 0.0
        """Time that was spent on it [s]."""
        self.behind = 0.0
        """Time that counts as spent before it began, so that it does not make all others wait [s]."""
        self._make = make
        self._results: Iterator[Any] | None = None
        self._timed: deque[float] = deque(maxlen=LATEST)
        """Times of the latest points since it was begun or gone on with, without the first of them [s]."""
        self._readied = False

    @property
    def finished(self) -> bool:
        """Whether it found all there is to find."""
        return self.done.is_set() and not (self.cancelled or self.left or self.problem)

    @property
    def rest(self) -> float | None:
        """Time that the points not yet found may take [s]; None as long as too little is known of it.

        The first point does not tell: it makes ready what the others use.
        """
        telling = list(self._timed)
        if not telling or (len(telling) < TELLING and sum(telling) < TELLING_TIME):
            return None
        return (self.total - len(self.found)) * sum(telling) / len(telling)

    def prepare(self) -> None:
        """Finds out how many points there will be; a refusal is told by the first step."""
        with suppress(ValueError, MemoryError):
            self._begin()

    def _begin(self) -> Iterator[Any]:
        """Begins, or goes on after what was found."""
        study = self._make()
        self.total = len(study)
        self._timed.clear()
        self._readied = False
        self._results = results = study.after(len(self.found))
        return results

    def step(self) -> bool:
        """Finds one more point; returns whether there are more."""
        start = time.monotonic()
        try:
            self.found.append(next(self._results or self._begin()))
            return len(self.found) < self.total
        except StopIteration:
            return False
        except (ValueError, MemoryError, WorkerError) as problem:  # every refusal of the engine is a ValueError
            self.problem = str(problem) or "The server has not enough memory for this."
        except Exception:
            LOG.exception("study %s failed", self.key)
            self.problem = "This failed for a reason of our own; the server's log has it."
        finally:
            took = time.monotonic() - start
            self.spent += took
            if self._readied:
                self._timed.append(took)
            self._readied = True
        return False

    def pause(self) -> None:
        """Lets go of everything but what was found; a step after this goes on from there."""
        self._results = None


class Studies:
    """Works on all studies in turn, a point at a time, so that every one of them shows something soon.

    The next point is of the study on which least time was spent: one whose points take long does not hold up the rest.
    """

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._runs: OrderedDict[str, Run] = OrderedDict()
        self._turn: OrderedDict[str, Run] = OrderedDict()
        self._asking = 0
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="shardscape-whatif", daemon=True)
        self._thread.start()

    def request(self, key: str, make: Callable[[], Study[Any]]) -> Run:
        """The study of a key: the one there is, which goes on where nobody looked at it for a while, or a new one."""
        with self._lock:
            run = self._runs.get(key)
            if run is None:
                run = self._runs[key] = Run(key, make)
                run.prepare()
                self._enter(run)
                self._forget()
            elif run.left:
                self._enter(run)
            run.seen = time.monotonic()
            self._runs.move_to_end(key)
            return run

    def go_on(self, key: str) -> None:
        """Has a study that was stopped go on with the points that it lacks."""
        with self._lock:
            run = self._runs.get(key)
            if run is not None and run.cancelled:
                self._enter(run)

    def cancel(self, key: str) -> None:
        """Stops a study; what it found stays."""
        with self._lock:
            run = self._turn.get(key)
            if run is not None:
                run.cancelled = True
                self._leave(run)

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Makes the studies wait for what is done within: one question of somebody who waits for the answer."""
        with self._lock:
            self._asking += 1
        try:
            yield
        finally:
            with self._lock:
                self._asking -= 1
                self._lock.notify_all()

    def wait_for(self, run: Run) -> float | None:
        """Time until a study is done, with the others that take their turns [s]; None as long as too little is known.

        All get equal shares, so one that takes less than this one delays it by all that it takes, and one that takes
        more by as much as this one does.
        """
        mine = run.rest
        if mine is None:
            return None
        with self._lock:
            others = [each.rest for each in self._turn.values() if each is not run]
        return mine + sum(mine if other is None else min(mine, other) for other in others)

    def close(self) -> None:
        """Stops everything and ends the thread."""
        with self._lock:
            self._closed = True
            self._lock.notify_all()
        self._thread.join(timeout=30)

    def _enter(self, run: Run) -> None:
        """Lets a study have its turns; the one looked at longest ago gives way if there are too many."""
        ahead = min((each.spent + each.behind for each in self._turn.values()), default=run.spent)
        run.behind = ahead - run.spent
        run.cancelled = run.left = False
        run.started = run.seen = time.monotonic()
        run.done.clear()
        self._turn[run.key] = run
        self._turn.move_to_end(run.key, last=False)
        if len(self._turn) > MOST_RUNNING:
            self._set_aside(min(self._turn.values(), key=lambda each: each.seen))
        self._lock.notify_all()

    def _set_aside(self, run: Run) -> None:
        """Has a study wait until somebody looks at it again."""
        run.left = True
        self._leave(run)

    def _leave(self, run: Run) -> None:
        """Ends the turns of a study."""
        del self._turn[run.key]
        run.pause()
        run.done.set()

    def _forget(self) -> None:
        for key in [key for key, run in self._runs.items() if run.done.is_set()][: max(0, len(self._runs) - MOST_KEPT)]:
            del self._runs[key]

    def _next(self) -> Run | None:
        """The study whose turn it is; waits for one. None when closed."""
        waited = False
        with self._lock:
            while not self._closed:
                now = time.monotonic()
                for run in [run for run in self._turn.values() if now - run.seen > UNWATCHED]:
                    self._set_aside(run)
                if not self._turn:
                    self._lock.wait()
                elif self._asking and not waited:
                    # A question first; but many who ask must not keep a study from ever going on.
                    self._lock.wait(PATIENCE)
                    waited = True
                else:
                    return min(self._turn.values(), key=lambda each: each.spent + each.behind)
            return None

    def _work(self) -> None:
        while (run := self._next()) is not None:
            more = run.step()
            with self._lock:
                if not more:
                    run.cancelled = run.left = False  # whoever stopped it did so while it found its last point
                    if run.key in self._turn:
                        self._leave(run)
                elif run.key in self._turn:
                    self._turn.move_to_end(run.key)
                else:
                    run.pause()


@st.cache_resource(show_spinner=False, on_release=Studies.close, max_entries=1)
def studies() -> Studies:
    """The studies of the server."""
    made = Studies()
    atexit.register(made.close)  # a server that is stopped does not release its caches
    return made

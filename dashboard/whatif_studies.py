"""Studies off the page's thread: sensitivity and sweeps, a point of each in turn, shared by all sessions.

Studies are asked for by a key that says everything about them. Whoever asks first starts one; it goes on as long as
somebody looks at it now and then, and what it found stays for the next who asks.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import streamlit as st

from engine.whatif import Study

__all__ = ["Run", "Studies", "studies"]

LOG: Final = logging.getLogger("shardscape.whatif")

UNWATCHED: Final = 20.0
"""Time after which a study at which nobody looks is given up [s]."""
MOST_RUNNING: Final = 64
"""Studies that may be under way at once; the one not looked at for longest gives way."""
MOST_KEPT: Final = 200
"""Finished studies that are remembered."""
PATIENCE: Final = 0.4
"""Longest wait of a study for somebody's single question [s]."""


class Run:
    """One study on its way: what it found so far, in order of finding. Read-only for everybody but `Studies`."""

    def __init__(self, key: str, make: Callable[[], Study[Any]]) -> None:
        self.key = key
        self.found: list[Any] = []
        self.total = 0
        self.problem = ""
        self.cancelled = False
        self.done = threading.Event()
        self.started = self.seen = time.monotonic()
        self.seconds = 0.0
        self.spent = 0.0
        """Time that was spent on it [s]."""
        self.behind = 0.0
        """Time that counts as spent before it began, so that it does not make all others wait [s]."""
        self.make = make
        self._results: Iterator[Any] | None = None

    @property
    def finished(self) -> bool:
        """Whether it found all there is to find."""
        return self.done.is_set() and not self.cancelled and not self.problem

    def prepare(self) -> None:
        """Finds out how many points there will be; a refusal is told by the first step."""
        with suppress(ValueError, MemoryError):
            study = self.make()
            self.total, self._results = len(study), iter(study)

    def step(self) -> bool:
        """Finds one more point; returns whether there may be more."""
        try:
            if self._results is None:
                study = self.make()
                self.total, self._results = len(study), iter(study)
            self.found.append(next(self._results))
            return True
        except StopIteration:
            return False
        except (ValueError, MemoryError) as problem:  # every refusal of models, hardware and engine is a ValueError
            self.problem = str(problem) or "The server has not enough memory for this."
        except Exception:
            LOG.exception("study %s failed", self.key)
            self.problem = "This failed for a reason of our own; the server's log has it."
        return False

    def end(self) -> None:
        """Lets go of everything but what was found."""
        self._results = None
        self.seconds = time.monotonic() - self.started
        self.done.set()


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

    def request(self, key: str, make: Callable[[], Study[Any]], *, again: bool = False) -> Run:
        """The study of a key: the one there is, or a new one. again: start anew where it was cancelled or failed."""
        with self._lock:
            run = self._runs.get(key)
            if run is None or (again and run.done.is_set() and not run.finished):
                run = Run(key, make)
                run.prepare()
                run.behind = min((each.spent + each.behind for each in self._turn.values()), default=0.0)
                self._runs[key] = self._turn[key] = run
                self._turn.move_to_end(key, last=False)
                if len(self._turn) > MOST_RUNNING:
                    self._give_up(min(self._turn.values(), key=lambda each: each.seen))
                self._forget()
                self._lock.notify_all()
            run.seen = time.monotonic()
            self._runs.move_to_end(key)
            return run

    def restart(self, key: str) -> None:
        """Starts a study that was stopped once more."""
        with self._lock:
            run = self._runs.get(key)
            if run is not None:
                self.request(key, run.make, again=True)

    def cancel(self, key: str) -> None:
        """Stops a study; what it found stays."""
        with self._lock:
            run = self._turn.get(key)
            if run is not None:
                self._give_up(run, forget=False)

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

    @property
    def running(self) -> int:
        """Studies under way."""
        return len(self._turn)

    def close(self) -> None:
        """Stops everything and ends the thread."""
        with self._lock:
            self._closed = True
            self._lock.notify_all()
        self._thread.join(timeout=30)

    def _give_up(self, run: Run, *, forget: bool = True) -> None:
        run.cancelled = True
        self._turn.pop(run.key, None)
        if forget:
            self._runs.pop(run.key, None)
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
                    self._give_up(run)
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
            start = time.monotonic()
            more = run.step()
            with self._lock:
                run.spent += time.monotonic() - start
                if run.key in self._turn and self._turn[run.key] is run:
                    if more:
                        self._turn.move_to_end(run.key)
                    else:
                        del self._turn[run.key]
                        run.end()


@st.cache_resource(show_spinner=False, on_release=Studies.close, max_entries=1)
def studies() -> Studies:
    """The studies of the server."""
    return Studies()

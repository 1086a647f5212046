"""Explorations off the page's thread: one runner per server, shared by all sessions.

A request for a scenario gives a job. Equal scenarios share one job, whoever asks; a job goes on when a tab is closed.
Explorations stay open as long as there is room, and are found again in the store.

One small space is explored at a time, and beside it one large one, so that nobody waits minutes for what takes a
second. Among those that wait, what a session asked for last comes before all that any session asked for earlier.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from dashboard.interpreters import FAR_BEHIND
from dashboard.settings import Settings
from dashboard.worker import Worker
from engine import Exploration, ExplorationCancelled, ExplorationTooLarge, Progress, Scenario, explore_scenario
from engine.explore import from_store
from engine.parallel import WorkerError
from engine.store import Store, StoreError, StoreInterruptedError, StoreWriteError

__all__ = ["Job", "QueueFull", "Runner", "State"]

State = Literal["waiting", "running", "done", "failed", "cancelled"]

LOG: Final = logging.getLogger("shardscape.runner")
_UNSTORED: Final = "The result could not be stored and is kept in memory."
LARGE: Final = 20_000_000
"""Executions from which on a space is a large one; some seconds of work."""
PER_SESSION: Final = 8
"""Explorations that may wait for one session; for more, those it asked for first are given up."""
ROWS_IN_MEMORY: Final = 12_000_000
"""Feasible executions of explorations that are not in a store and stay open; some 2 GiB."""


class QueueFull(Exception):  # noqa: N818 - reads as a sentence where it is raised
    """Too many explorations are waiting."""


@dataclass(eq=False)
class Job:
    """One exploration on its way. Read-only for everybody but the runner."""

    scenario: Scenario
    asker: str = ""
    """The session that asked first."""
    state: State = "waiting"
    progress: Progress | None = None
    exploration: Exploration | None = None
    problem: str = ""
    """One sentence for a failed job."""
    in_memory: bool = False
    """Whether the rows are held in memory, because no store has them."""
    shown: bool = False
    """Whether a page has shown what was found, or found it stored."""

    def __post_init__(self) -> None:
        self.finished = threading.Event()
        self.stop = threading.Event()
        self.watchers: set[str] = set()
        self.left: set[str] = set()
        """Who took the request back; somebody else who asks for what was stopped gets it anew."""

    @property
    def key(self) -> str:
        """Content hash of the scenario."""
        return self.scenario.key

    @property
    def large(self) -> bool:
        """Whether it takes so long that others do not wait for it."""
        return self.scenario.space.total >= LARGE

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen."""
        return self.state in ("done", "failed", "cancelled")

    def wait(self, seconds: float) -> bool:
        """Waits until the job has ended, at most so long; returns whether it has."""
        return self.finished.wait(seconds)


class Runner:
    """Explores one small and one large scenario at a time and keeps what it found."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.warnings: list[str] = list(settings.problems)
        """Sentences about what is not as it should be, for every page to show."""
        self.store: Store | None = self._open(settings.store)
        self._lock = threading.RLock()
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._queue: list[Job] = []
        self._turns: dict[str, float] = {}
        """When those sessions that have more waiting had their latest turn."""
        self._work = threading.Condition(self._lock)
        self._closed = False
        self._workers = self._other_processes() if settings.process and self.store is not None else ()
        self._threads = [
            threading.Thread(target=self._run, args=(large,), name=f"shardscape-runner{'-large' * large}", daemon=True)
            for large in (False, True)
        ]
        for thread in self._threads:
            thread.start()

    def request(self, scenario: Scenario, watcher: str = "", *, again: bool = False) -> Job:
        """The job of a scenario: the one there is, or a new one.

        watcher: who asks; a job that others watch too is not stopped by one of them. again: start anew after a failure
        or cancellation, which otherwise stays as it is for who cancelled. Raises `QueueFull`.
        """
        with self._lock:
            job = self._jobs.get(scenario.key)
            if job is not None and not _to_start_anew(job, watcher, again):
                self._jobs.move_to_end(scenario.key)
                job.watchers.add(watcher)
                return job
        stored = self._stored(scenario)
        with self._lock:
            job = self._jobs.get(scenario.key)
            if job is not None and not _to_start_anew(job, watcher, again):
                job.watchers.add(watcher)
                return job
            job = Job(scenario, watcher)
            job.watchers.add(watcher)
            if stored is not None:
                job.shown = True
                self._end(job, "done", exploration=stored)
            else:
                refusal = self.refusal(scenario)
                if refusal:
                    self._end(job, "failed", problem=refusal)
                elif self._waiting_too_many(watcher):
                    raise QueueFull(
                        f"{len(self._queue)} explorations are waiting already, which is the limit of this server; "
                        "try again when some are done."
                    )
                else:
                    self._queue.append(job)
                    self._work.notify_all()
            self._jobs[scenario.key] = job
            self._jobs.move_to_end(scenario.key)
            self._forget()
            return job

    def cancel(self, key: str, watcher: str = "", here: Callable[[str], bool] = lambda _: True) -> bool:
        """Takes back a request; stops the job when nobody else watches it. Returns whether it was stopped.

        here: tells whether a watcher is still there; a page that was closed or loaded again counts no more.
        """
        with self._lock:
            job = self._jobs.get(key)
            if job is None or job.ended:
                return False
            job.left.add(watcher)
            job.watchers = {other for other in job.watchers if other != watcher and here(other)}
            if job.watchers:
                return False
            job.stop.set()
            if job in self._queue:
                self._queue.remove(job)
                self._end(job, "cancelled")
            return True

    def find(self, key: str) -> Job | None:
        """The job of a scenario by its key, if there is one."""
        with self._lock:
            return self._jobs.get(key)

    def jobs(self) -> tuple[Job, ...]:
        """Every job there is, those asked for longest ago first."""
        with self._lock:
            return tuple(self._jobs.values())

    def position(self, job: Job) -> int:
        """How many jobs are ahead of a waiting one."""
        with self._lock:
            if job not in self._queue:
                return 0
            running = sum(other.state == "running" and other.large == job.large for other in self._jobs.values())
            return self._in_order(job.large).index(job) + running

    def forget(self, key: str) -> None:
        """Drops an ended job, for example after its exploration was deleted from the store."""
        with self._lock:
            job = self._jobs.get(key)
            if job is not None and job.ended:
                del self._jobs[key]

    def close(self) -> None:
        """Stops what runs, ends the thread and gives the store back."""
        with self._lock:
            self._closed = True
            for job in (*self._queue, *self._jobs.values()):
                job.stop.set()
            self._work.notify_all()
        for worker in self._workers:
            worker.close()
        for thread in self._threads:
            thread.join(timeout=30)
        if self.store is not None:
            self.store.close()

    def _open(self, path: Path | None) -> Store | None:
        if path is None:
            return None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            store = Store(path)
            self.warnings += store.losses
            return store
        except (StoreError, OSError) as problem:
            reason = str(problem) if isinstance(problem, StoreError) else f"{path}: {problem.strerror or problem}."
            self.warnings.append(f"Results are kept in memory only and are lost when the server stops. {reason}")
            LOG.warning("no store: %s", reason)
            return None

    def _other_processes(self) -> tuple[Worker, ...]:
        """Processes to explore in, of which that for large spaces starts when there is one; none where none can be
        started."""
        workers = Worker(), Worker(FAR_BEHIND)
        try:
            workers[0].start()
        except (OSError, WorkerError) as problem:
            LOG.warning("explorations run beside the pages, because no process can be started: %s", problem)
            return ()
        return workers

    def _in_order(self, large: bool) -> list[Job]:
        """The small or large ones that wait, in the order of their turns: for each session the latest, then for each
        the one before, and so on; those first whose session has had no turn, or not for long."""
        newer: Counter[str] = Counter()
        rounds = {}
        for job in reversed(self._queue):
            rounds[job.key] = newer[job.asker]
            newer[job.asker] += 1
        waiting = [job for job in self._queue if job.large == large]
        return sorted(waiting, key=lambda job: (rounds[job.key], self._turns.get(job.asker, 0.0)))

    def _waiting_too_many(self, watcher: str) -> bool:
        """Whether there is no room for one more that waits; makes it where a session has many of its own."""
        own = [job for job in self._queue if job.asker == watcher and job.watchers <= {watcher}]
        if watcher and len(own) >= PER_SESSION:
            self._queue.remove(own[0])
            del self._jobs[own[0].key]  # should a page come back to it, it asks again
        return len(self._queue) >= self.settings.queue

    def _stored(self, scenario: Scenario) -> Exploration | None:
        if self.store is None:
            return None
        try:
            return from_store(scenario, self.store)
        except (StoreError, KeyError, ValueError) as problem:
            LOG.warning("stored exploration %s not usable: %s", scenario.key, problem)
            return None

    def refusal(self, scenario: Scenario) -> str:
        """Why a space is too large for this server; empty where it is not."""
        total = scenario.space.total
        if total > self.settings.largest_space:
            return (
                f"The space has {total:,} executions; this server explores up to {self.settings.largest_space:,}. "
                "Fix some choices to make it smaller."
            )
        return ""

    def _run(self, large: bool) -> None:
        while True:
            with self._lock:
                while not (waiting := self._in_order(large)) and not self._closed:
                    self._work.wait()
                if self._closed:
                    for job in waiting:
                        self._end(job, "cancelled")
                    return
                job = waiting[0]
                self._queue.remove(job)
                left = {other.asker for other in self._queue}
                self._turns = {asker: when for asker, when in self._turns.items() if asker in left}
                self._turns[job.asker] = time.monotonic()
                job.state = "running"
            self._explore(job)
            with self._lock:
                self._forget()

    def _explore(self, job: Job) -> None:
        """Runs one job to its end, whatever happens."""
        latest = time.monotonic() + self.settings.longest_seconds

        def stop() -> bool:
            return job.stop.is_set() or time.monotonic() > latest

        def tell(progress: Progress) -> None:
            job.progress = progress

        try:
            try:
                job.in_memory = self.store is None
                if self._workers and self.store is not None:
                    found = self._workers[job.large].explore(job.scenario, self.store, tell, stop)
                else:
                    found = explore_scenario(job.scenario, store=self.store, progress=tell, cancel=stop, workers=1)
                self._unstored()
            except StoreInterruptedError:
                raise
            except StoreError as problem:
                if self.store is None or isinstance(problem, ExplorationTooLarge):
                    raise
                LOG.warning("exploration %s is not stored: %s", job.key, problem)
                self._unstored(_for_visitors(problem))
                job.in_memory = True
                found = explore_scenario(job.scenario, progress=tell, cancel=stop, workers=1)
            self._end(job, "done", exploration=found)
        except ExplorationCancelled:
            if job.stop.is_set():
                self._end(job, "cancelled")
            else:
                limit = self.settings.longest_seconds
                self._end(
                    job,
                    "failed",
                    problem=f"Exploring was stopped after {limit:,.0f} s, the limit of this server. "
                    "Fix some choices to make the space smaller.",
                )
        except WorkerError as problem:
            if job.stop.is_set():  # ended because the server ends
                self._end(job, "cancelled")
            else:
                self._end(job, "failed", problem=str(problem))
        except ValueError as problem:  # every error of the engine about its input is one, with a sentence
            self._end(job, "failed", problem=str(problem))
        except MemoryError:
            self._end(job, "failed", problem="The server has not enough memory for this space. Fix some choices.")
        except Exception:
            LOG.exception("exploration %s failed", job.key)
            self._end(job, "failed", problem="Exploring failed for a reason of our own; the server's log has it.")

    def _unstored(self, problem: str = "") -> None:
        """Says that a result could not be stored, the latest only; without a problem, that it could."""
        with self._lock:
            self.warnings[:] = [said for said in self.warnings if not said.startswith(_UNSTORED)]
            if problem:
                self.warnings.append(f"{_UNSTORED} {problem}")

    def _end(self, job: Job, state: State, *, exploration: Exploration | None = None, problem: str = "") -> None:
        with self._lock:
            job.exploration, job.problem, job.state = exploration, problem, state
            job.finished.set()

    def _forget(self) -> None:
        """Drops the jobs not asked for longest, beyond the number and the memory allowed."""
        ended = [job for job in self._jobs.values() if job.ended]
        rows = sum(_rows_in_memory(job) for job in ended)
        surplus = len(ended) - self.settings.kept
        for job in ended[:-1]:  # the latest stays whatever it weighs
            if surplus <= 0 and rows <= ROWS_IN_MEMORY:
                return
            del self._jobs[job.key]
            surplus -= 1
            rows -= _rows_in_memory(job)


def _to_start_anew(job: Job, watcher: str, again: bool) -> bool:
    """Whether a request does not take the job there is."""
    stopped = job.state == "cancelled" and bool(job.left) and watcher not in job.left
    return stopped or (again and job.state in ("failed", "cancelled"))


def _for_visitors(problem: StoreError) -> str:
    """Why something could not be stored, without the file that was to be written, of which no visitor knows."""
    if not isinstance(problem, StoreWriteError):
        return str(problem)
    return f"{problem.why[:1].upper()}{problem.why[1:]}; the next result is stored again once there is room."


def _rows_in_memory(job: Job) -> int:
    return job.exploration.feasible if job.in_memory and job.exploration is not None else 0

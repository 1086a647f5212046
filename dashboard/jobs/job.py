"""Jobs off the page's thread: one piece of work, and the common settings of a kind."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

from dashboard.jobs.worker import Task, Worker

__all__ = ["Job", "JobControl", "JobKind", "JobProgress", "State"]

R = TypeVar("R")

State = Literal["queued", "running", "paused", "done", "failed", "cancelled"]


class JobProgress(Protocol):
    """Progress of a job."""

    @property
    def done(self) -> int:
        """Units of work that are done."""

    @property
    def total(self) -> int:
        """Units of work in all."""

    @property
    def rate(self) -> float:
        """Units done per second; 0 as long as that is not known."""

    @property
    def seconds_left(self) -> float:
        """Time that the rest takes [s]; infinite as long as that is not known."""


class JobControl(Protocol):
    """Operations on a posted job, as a `dashboard.jobs.board.JobBoard` has them."""

    patience: float
    """Time that a page waits for a job before it shows progress [s]."""

    def look(self, job: Job, watcher: str) -> None:
        """Record that a session still waits for the job."""

    def cancel(self, job: Job, watcher: str = "", here: Callable[[str], bool] = ...) -> bool:
        """Take back a request. Returns True if that stopped the job."""

    def resume(self, job: Job, watcher: str = "") -> None:
        """Continue a stopped job with its missing parts."""

    def forget(self, job: Job) -> None:
        """Drop an ended job."""

    def position(self, job: Job) -> int:
        """Return the number of whole jobs ahead of a waiting one."""

    def time_left(self, job: Job) -> float:
        """Return the time until a job is done [s]; infinite if unknown."""


@dataclass(eq=False, slots=True, kw_only=True)
class JobKind:
    """Common settings of the jobs of a kind, above all their bounds."""

    name: str
    """Name of one job: "exploration"."""
    doing: str
    """The work, as the beginning of a sentence: "Exploring"."""
    unit: str = ""
    """Counted unit, if not executions: "point"."""
    in_parts: bool = False
    """True if the work is divided into parts. A stopped job keeps its parts, and can continue with the rest."""
    at_once: int = 1
    """Jobs of a lane that run at once."""
    gives_way_to: JobKind | None = None
    """Kind with priority: a visitor waits for each of its jobs."""
    most_waiting: int = 64
    """Jobs that may wait. One more is refused; with work in parts, the one looked at longest ago is paused for it."""
    most_of_one: int = 8
    """Most waiting whole jobs of one session; above it the oldest is cancelled."""
    most_kept: int = 64
    """Ended jobs that are remembered."""
    most_weight: float = math.inf
    """Sum of `Job.weight` of ended jobs that are remembered."""
    remembered: float = math.inf
    """Time since the last look for which an ended job is remembered [s]."""
    unwatched: float = math.inf
    """Time without a look after which a job is paused, or given up if it cannot continue later [s]."""
    recent: float = math.inf
    """Time for which a session counts as still looking [s]."""
    workers: Mapping[str, Worker] = field(default_factory=dict)
    """Workers that run the functions of each lane's jobs; without one, they run in this process."""


class Job:
    """Work on its way, or how it ended. Only its board and its own methods change it."""

    board: JobControl
    """Board of the job; set when it is posted."""

    def __init__(self, kind: JobKind, key: str, title: str = "", about: str = "", *, lane: str = "", priority: int = 0):
        """title, about: of its card: the work, and its subject. lane: lane of the kind; lanes work in parallel.
        priority: jobs of a higher one come first in their lane."""
        self.kind, self.key, self.title, self.about = kind, key, title, about
        self.lane, self.priority = lane, priority
        self.state: State = "queued"
        self.problem = ""
        """One sentence for a failed job."""
        self.found: list[Any] = []
        """Parts found so far, in order of finding; kept when the job is stopped."""
        self.asker = ""
        """The session that asked first."""
        self.watched: dict[str, float] = {}
        """Time of each session's last request."""
        self.left: set[str] = set()
        """Sessions that cancelled the job. Another session's request restarts it."""
        self.started = time.monotonic()
        """When it was queued, or went on."""
        self.spent = self.behind = 0.0
        """Time that was spent on it; time that counts as spent before, so that it does not make others wait [s]."""
        self._told: JobProgress | None = None
        self._stop = threading.Event()
        self._ended = threading.Event()

    def work(self) -> bool:
        """Does the work, or a part of it; returns True if there is more.

        Raises:
            engine.ExplorationCancelled: soon after `stops` is true.
            ValueError, MemoryError, engine.exploration.workers.WorkerError: the message is the sentence on the job's
                card.
        """
        raise NotImplementedError

    def run(self, function: Callable[..., R], *arguments: Any, give: Callable[[Any], None] | None = None) -> R:
        """Runs a function of a module in the worker of the job's lane, and returns its result.

        The function reports the job's progress, and ends when the job is stopped.

        Args:
            function, arguments: the function and its arguments after the task.
            give: receives the parts of the result.

        Raises:
            Exception: see `dashboard.jobs.worker.Worker.run`.
        """
        task = Task(tell=self.tell, stops=self.stops) if give is None else Task(self.tell, give, self.stops)
        worker = self.kind.workers.get(self.lane) or Worker(apart=False)
        return worker.run(function, *arguments, doing=self.kind.doing.lower(), task=task)

    def release(self) -> None:
        """Releases the resources that only the work needs."""

    def answers(self, other: Job) -> bool:
        """Returns whether who asks for another job gets this one."""
        return self.key == other.key

    @property
    def progress(self) -> JobProgress | None:
        """Progress so far; None before the first report."""
        return self._told

    def tell(self, progress: JobProgress) -> None:
        """Takes note of how far it is."""
        self._told = progress

    @property
    def weight(self) -> float:
        """Cost of keeping the ended job, in the unit of `Kind.most_weight`."""
        return 0.0

    @property
    def note(self) -> str:
        """Text of the card below its progress."""
        return ""

    @property
    def account(self) -> str:
        """One sentence about how it ended, where that is not well."""
        return self.problem

    @property
    def ended(self) -> bool:
        """True if nothing more happens without another request."""
        return self.state not in ("queued", "running")

    @property
    def unwatched(self) -> bool:
        """True if no session has looked for so long that the job is not worked on."""
        return self.looked_at() < time.monotonic() - self.kind.unwatched

    def looked_at(self) -> float:
        """Returns the time of the last look."""
        return max(list(self.watched.values()), default=-math.inf)

    def stops(self) -> bool:
        """Returns True after a request to stop, or if no session looks any more."""
        return self._stop.is_set() or self.unwatched

    def wait(self, seconds: float | None = None) -> bool:
        """Waits until the job has ended, at most so long [s]; returns whether it has."""
        return self._ended.wait(seconds)

    def begin(self) -> None:
        """Queue the job, again if it was stopped."""
        self.state, self.started = "queued", time.monotonic()
        self._stop.clear()
        self._ended.clear()

    def end(self, state: State, problem: str = "") -> None:
        """Says how it ended."""
        self.problem, self.state = problem, state
        if state != "done":
            self._stop.set()
        self._ended.set()

    def starts_anew(self, watcher: str) -> bool:
        """Returns whether a request is for another job in its place: it was stopped, and not by who asks."""
        stopped = self.state == "cancelled" and not self.kind.in_parts
        return stopped and bool(self.left) and watcher not in self.left

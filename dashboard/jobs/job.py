"""What is to be done off the page's thread: one piece of work, and what those of a kind have in common."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from dashboard.jobs.worker import Task, Worker

if TYPE_CHECKING:
    from dashboard.jobs.board import Board

__all__ = ["Job", "Kind", "Progress", "State"]

R = TypeVar("R")

State = Literal["queued", "running", "paused", "done", "failed", "cancelled"]


class Progress(Protocol):
    """How far a job is."""

    @property
    def done(self) -> int:
        """Units of work that are done."""

    @property
    def total(self) -> int:
        """Units of work that there are."""

    @property
    def rate(self) -> float:
        """Units done per second; 0 as long as that is not known."""

    @property
    def seconds_left(self) -> float:
        """Time that the rest takes [s]; infinite as long as that is not known."""


@dataclass(eq=False, slots=True, kw_only=True)
class Kind:
    """What the jobs of a kind have in common, above all their bounds."""

    name: str
    """What one is called: "exploration"."""
    doing: str
    """What is done, as the beginning of a sentence: "Exploring"."""
    unit: str = ""
    """What is counted, where that is not executions: "point"."""
    in_parts: bool = False
    """Whether the work comes in parts. A job that is stopped keeps those it has, and can go on with the rest."""
    at_once: int = 1
    """Jobs of a lane that are worked on beside each other."""
    gives_way_to: Kind | None = None
    """A kind whose jobs come first: somebody waits for each of them."""
    most_waiting: int = 64
    """Jobs that may wait. One more is refused; with work in parts, the one looked at longest ago is paused for it."""
    most_of_one: int = 8
    """Whole jobs that may wait for one session; for more, the one it asked for first is given up."""
    most_kept: int = 64
    """Ended jobs that are remembered."""
    most_weight: float = math.inf
    """Sum of `Job.weight` of ended jobs that are remembered."""
    remembered: float = math.inf
    """Time since somebody looked for which an ended job is remembered [s]."""
    unwatched: float = math.inf
    """Time after which a job at which nobody looks is paused, or given up where it cannot go on later [s]."""
    recent: float = math.inf
    """Time for which somebody who looked counts as still looking [s]."""
    workers: Mapping[str, Worker] = field(default_factory=dict)
    """What the jobs of each lane run functions in; where there is none, they run in this process."""


class Job:
    """Work on its way, or how it ended. Only its board and its own methods change it."""

    board: Board
    """Where it is; set when it is posted."""

    def __init__(self, kind: Kind, key: str, title: str = "", about: str = "", *, lane: str = "", priority: int = 0):
        """title, about: of its card: what is being done, and of what. lane: within the kind, whose lanes work beside
        each other. priority: jobs of a higher one come first in their lane."""
        self.kind, self.key, self.title, self.about = kind, key, title, about
        self.lane, self.priority = lane, priority
        self.state: State = "queued"
        self.problem = ""
        """One sentence for a failed job."""
        self.found: list[Any] = []
        """What one in parts has found so far, in order of finding; it stays when that is stopped."""
        self.asker = ""
        """The session that asked first."""
        self.watched: dict[str, float] = {}
        """When each session looked at it last."""
        self.left: set[str] = set()
        """Who took the request back; somebody else who asks for what was stopped gets it anew."""
        self.started = time.monotonic()
        """When it was queued, or went on."""
        self.spent = self.behind = 0.0
        """Time that was spent on it; time that counts as spent before, so that it does not make others wait [s]."""
        self._told: Progress | None = None
        self._stop = threading.Event()
        self._ended = threading.Event()

    def work(self) -> bool:
        """Does the work, or a part of it; returns whether there is more.

        Raises `engine.ExplorationCancelled` soon after `stops` is true; ValueError, MemoryError or
        `engine.exploration.workers.WorkerError` with the sentence to be told.
        """
        raise NotImplementedError

    def run(self, function: Callable[..., R], *arguments: Any, give: Callable[[Any], None] | None = None) -> R:
        """Runs a function of a module in the worker of the job's lane, and returns what that returns.

        It tells how far the job is, and ends when the job is stopped. give: what takes the parts that it gives. Raises
        what `dashboard.jobs.worker.Worker.run` raises.
        """
        task = Task(tell=self.tell, stops=self.stops) if give is None else Task(self.tell, give, self.stops)
        worker = self.kind.workers.get(self.lane) or Worker(apart=False)
        return worker.run(function, *arguments, doing=self.kind.doing.lower(), task=task)

    def release(self) -> None:
        """Lets go of what is needed only while it is worked on."""

    def answers(self, other: Job) -> bool:
        """Returns whether who asks for another job gets this one."""
        return self.key == other.key

    @property
    def progress(self) -> Progress | None:
        """How far it is; None before that is known."""
        return self._told

    def tell(self, progress: Progress) -> None:
        """Takes note of how far it is."""
        self._told = progress

    @property
    def weight(self) -> float:
        """What it holds while it is remembered, in the unit of `Kind.most_weight`."""
        return 0.0

    @property
    def note(self) -> str:
        """What the card says below its progress."""
        return ""

    @property
    def account(self) -> str:
        """One sentence about how it ended, where that is not well."""
        return self.problem

    @property
    def ended(self) -> bool:
        """Whether nothing more happens, unless somebody asks for it."""
        return self.state not in ("queued", "running")

    @property
    def unwatched(self) -> bool:
        """Whether nobody looked for so long that it is not worked on."""
        return self.looked_at() < time.monotonic() - self.kind.unwatched

    def looked_at(self) -> float:
        """Returns when somebody looked last."""
        return max(list(self.watched.values()), default=-math.inf)

    def stops(self) -> bool:
        """Returns whether to end before it is done: somebody stopped it, or nobody looks any more."""
        return self._stop.is_set() or self.unwatched

    def wait(self, seconds: float | None = None) -> bool:
        """Waits until the job has ended, at most so long [s]; returns whether it has."""
        return self._ended.wait(seconds)

    def begin(self) -> None:
        """Has it queued, again where it was stopped."""
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

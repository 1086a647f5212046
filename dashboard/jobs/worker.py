"""Workers: processes next to the server's own, for long computations.

Within one process pages and work would share the interpreter's lock: array operations release it some thousand times,
for a fraction of a millisecond each, and each time wait until a page that is being computed releases it. Measured on
two cores: with 8 pages at work, an exploration of 0.2 s takes 6 to 16 s; with 4, a search of 0.12 s takes 7 s.

A worker runs functions of modules, each in a thread of its own, so several at once; the board decides how many. The
first argument of such a function is a `Task`, for progress and requests to stop; its exceptions are raised in the
calling thread.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

from engine import ExplorationCancelled
from engine.cost_models.registry import added
from engine.exploration.workers import WorkerError

__all__ = ["BEHIND", "FAR_BEHIND", "Task", "Worker", "Workers"]

LOG: Final = logging.getLogger("shardscape.worker")
BEHIND: Final = 5
"""Niceness of a worker relative to the server when both want a core: a quarter of the server's share."""
FAR_BEHIND: Final = 15
"""Niceness of the worker for large spaces: below the others, too."""
POLL: Final = 0.1
"""Interval between checks for a request to stop while a function is silent [s]."""

_START: Final = """
import pickle, sys
sys.path[:] = pickle.load(sys.stdin.buffer)
from engine.cost_models.registry import register
for cost_model in pickle.load(sys.stdin.buffer):
    register(cost_model)
from dashboard.jobs.worker_process import serve_functions
serve_functions(pickle.load(sys.stdin.buffer), pickle.load(sys.stdin.buffer))
"""
_ENDS: Final[Mapping[str, type[Exception]]] = {
    "cancelled": ExplorationCancelled,
    "refused": ValueError,
    "memory": MemoryError,
    "failed": RuntimeError,
}
"""Exceptions for functions that ended without a result, by the word in the message."""

R = TypeVar("R")


def _ignore_message(_: Any) -> None: ...


def _never_stops() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Task:
    """Connection of a function in a worker to its caller."""

    tell: Callable[[Any], None] = _ignore_message
    """Says how far it is, by a `dashboard.jobs.job.Progress`."""
    give: Callable[[Any], None] = _ignore_message
    """Passes a part of the result to the caller."""
    stops: Callable[[], bool] = _never_stops
    """Returns whether to stop, which is done by raising `engine.ExplorationCancelled`."""
    owns: Callable[[Path], None] = _ignore_message
    """Takes note of a folder that is to be removed should the server be killed meanwhile."""


class _Process:
    """A plain interpreter that runs `dashboard.jobs.worker_process.serve_functions`, with the queues of its callers."""

    def __init__(self, behind: int, memory_gib: float | None) -> None:
        """Starts it, without waiting until it is ready. Raises OSError, and `WorkerError` where it ends at once."""
        self.waiting: dict[int, SimpleQueue[tuple[str, Any]]] = {}
        cost_models = added()
        # In a session of its own, an interrupt from the keyboard reaches the server only.
        self.popen = subprocess.Popen(
            [sys.executable, "-c", _START], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        self.send(sys.path)
        self.send(cost_models)
        self.send(behind)
        self.send(memory_gib)

    def send(self, message: object) -> None:
        """Sends a message to the process. Raises `WorkerError` if it has ended."""
        assert self.popen.stdin is not None
        try:
            pickle.dump(message, self.popen.stdin, pickle.HIGHEST_PROTOCOL)
            self.popen.stdin.flush()
        except (OSError, ValueError) as error:  # gone, or closed
            raise WorkerError("The process has ended.") from error

    def messages(self) -> Iterator[Any]:
        """Yields the messages of the process until it has ended."""
        assert self.popen.stdout is not None
        with contextlib.suppress(OSError, EOFError, ValueError, pickle.UnpicklingError):
            while True:
                yield pickle.load(self.popen.stdout)

    def kill(self) -> None:
        """Kills the process at once."""
        self.popen.kill()
        self.popen.wait()

    def give_back(self) -> None:
        """Closes the pipes of the process, which may have ended."""
        for pipe in (self.popen.stdin, self.popen.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError, ValueError):  # what could not be written no longer matters
                    pipe.close()


class Worker:
    """Worker process that runs functions; started on first use and again after a crash."""

    def __init__(self, behind: int = BEHIND, *, apart: bool = True, memory_gib: float | None = None) -> None:
        """behind: how far the process stands back, as `nice` counts. apart: False to run functions in this process.
        memory_gib: bound on the memory of the process [GiB]; none where None."""
        self.apart = apart
        self._behind, self._memory = behind, memory_gib
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._process: _Process | None = None
        self._closed = False

    @property
    def pid(self) -> int | None:
        """Number of the process; None without one."""
        return None if self._process is None else self._process.popen.pid

    def start(self) -> None:
        """Starts the process if none runs, without waiting until it is ready.

        Raises:
            OSError: it cannot be started.
            engine.exploration.workers.WorkerError: it ended at once.
        """
        with self._lock:
            self._started()

    def run(
        self,
        function: Callable[..., R],
        *arguments: Any,
        doing: str = "working",
        task: Task = Task(),
    ) -> R:
        """Runs a function of a module, and returns its result.

        Args:
            function, arguments: called as `function(task, *arguments)`; pickled, as is the result.
            doing: the work, for the message that the process has ended: "exploring".
            task: receives progress and parts meanwhile, in this thread. Its exceptions end the function, and are raised
                here.

        Raises:
            engine.ExplorationCancelled: soon after `task.stops` is true, or when the worker is closed.
            ValueError, MemoryError: raised by the function, with its message.
            RuntimeError: the function failed in another way; the message is its traceback.
            engine.exploration.workers.WorkerError: the process has ended by itself.
        """
        if not self.apart:
            return function(task, *arguments)
        described = pickle.dumps((function, arguments), pickle.HIGHEST_PROTOCOL)
        messages: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        number = next(self._numbers)
        with self._lock:
            process = self._started()
            process.waiting[number] = messages
            try:
                process.send(("run", number, described))
            except WorkerError:
                messages.put(("died", None))
        try:
            found: R = self._hear(messages, task, doing)
            return found
        finally:
            with self._lock:
                if process.waiting.pop(number, None) is not None:
                    with contextlib.suppress(WorkerError):
                        process.send(("stop", number, None))

    def end(self) -> None:
        """Kills the process at once; the next function starts another one."""
        with self._lock:
            if self._process is not None:
                self._process.kill()

    def close(self) -> None:
        """Kills the process at once, for good."""
        with self._lock:
            self._closed = True
            if self._process is not None:
                self._process.kill()

    def _started(self) -> _Process:
        """Returns the process, a new one if none is alive."""
        if self._closed:
            raise ExplorationCancelled("The server is being stopped.")
        if self._process is None or self._process.popen.poll() is not None:
            self._process = _Process(self._behind, self._memory)
            threading.Thread(target=self._listen, args=(self._process,), name="shardscape-worker", daemon=True).start()
        return self._process

    def _hear(self, messages: SimpleQueue[tuple[str, Any]], task: Task, doing: str) -> Any:
        """Handles the messages of a function until it has ended; returns its result."""
        while True:
            try:
                what, content = messages.get(timeout=POLL)
            except Empty:
                what, content = "", None
            if what == "found":
                return content
            if what in _ENDS:
                raise _ENDS[what](content)
            if what == "died":
                if self._closed:
                    raise ExplorationCancelled("The server is being stopped.")
                raise WorkerError(
                    f"The process that was {doing} has ended, perhaps for lack of memory. Try again, or fix some "
                    "choices."
                )
            if task.stops():
                raise ExplorationCancelled("It was stopped.")
            if what == "progress":
                task.tell(content)
            elif what == "part":
                task.give(content)

    def _listen(self, process: _Process) -> None:
        """Forward the messages of a process until it ends."""
        for number, what, content in process.messages():
            with self._lock:
                ends = what == "found" or what in _ENDS
                waits = process.waiting.pop(number, None) if ends else process.waiting.get(number)
            if waits is not None:  # else nobody waits for it any more
                waits.put((what, content))
        process.kill()  # so that whoever asks from now on has another one started
        with self._lock:
            left = list(process.waiting.values())
            process.waiting.clear()
        for waits in left:
            waits.put(("died", None))
        process.give_back()


class Workers:
    """The workers of a server, one for each class of work that must not wait for the others."""

    def __init__(self, *, apart: bool = True) -> None:
        """apart: False to compute everything in this process."""
        self.small = Worker(apart=apart)
        """Explores small spaces, some of them for everybody who comes."""
        self.large = Worker(FAR_BEHIND, apart=apart)
        """Explores large spaces; for all that takes minutes."""
        self.answers = Worker(apart=apart)
        """Worker for What-if's answers and statistics that are not stored; it keeps spaces ready."""
        self._every = self.small, self.answers, self.large

    def start(self) -> None:
        """Starts the processes that visitors need soon; if it fails, everything is computed in the server's process."""
        try:
            for worker in (self.small, self.answers):
                if worker.apart:
                    worker.start()
        except (OSError, WorkerError) as problem:
            LOG.warning("everything is computed beside the pages, because no process can be started: %s", problem)
            for worker in self._every:
                worker.apart = False

    def close(self) -> None:
        """Ends all processes at once."""
        for worker in self._every:
            worker.close()

"""Workers: processes beside the server's own, in which what takes long is computed.

Within one process pages and work would share the interpreter's lock: array operations give it up some thousand times,
for a fraction of a millisecond each, and each time wait until a page that is being computed gives it back. Measured on
two cores: with 8 pages at work, an exploration of 0.2 s takes 6 to 16 s; with 4, a search of 0.12 s takes 7 s.

A worker runs functions of modules, each in a thread of its own, so several at once; how many, the board decides. The
first argument of such a function is a `Task`, by which it says how far it is and asks whether to stop; what it raises
is raised where it was asked for.
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
"""How far a worker stands back behind the server where both want a core: to a quarter of it."""
FAR_BEHIND: Final = 15
"""How far one stands back that explores large spaces: behind the others, too."""
POLL: Final = 0.1
"""How often it is asked whether to stop while a function says nothing [s]."""

_START: Final = """
import pickle, sys
sys.path[:] = pickle.load(sys.stdin.buffer)
from engine.cost_models.registry import register
for cost_model in pickle.load(sys.stdin.buffer):
    register(cost_model)
from dashboard.jobs.worker_process import serve
serve(pickle.load(sys.stdin.buffer), pickle.load(sys.stdin.buffer))
"""
_ENDS: Final[Mapping[str, type[Exception]]] = {
    "cancelled": ExplorationCancelled, "refused": ValueError, "memory": MemoryError, "failed": RuntimeError,
}  # fmt: skip
"""What is raised where a function ended in another way than by returning."""

R = TypeVar("R")


def _ignore(_: Any) -> None: ...


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Task:
    """What a function that a worker runs knows of who asked for it."""

    tell: Callable[[Any], None] = _ignore
    """Says how far it is, by a `dashboard.jobs.job.Progress`."""
    give: Callable[[Any], None] = _ignore
    """Passes on a part of what it finds."""
    stops: Callable[[], bool] = _never
    """Returns whether to stop, which is done by raising `engine.ExplorationCancelled`."""
    owns: Callable[[Path], None] = _ignore
    """Takes note of a folder that is to be removed should the server be killed meanwhile."""


class _Process:
    """A plain interpreter that runs `dashboard.jobs.worker_process.serve`, and who waits for what it says."""

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
        """Tells it something. Raises `WorkerError` when it has ended."""
        assert self.popen.stdin is not None
        try:
            pickle.dump(message, self.popen.stdin, pickle.HIGHEST_PROTOCOL)
            self.popen.stdin.flush()
        except (OSError, ValueError) as error:  # gone, or closed
            raise WorkerError("The process has ended.") from error

    def messages(self) -> Iterator[Any]:
        """Yields what it says until it has ended."""
        assert self.popen.stdout is not None
        with contextlib.suppress(OSError, EOFError, ValueError, pickle.UnpicklingError):
            while True:
                yield pickle.load(self.popen.stdout)

    def kill(self) -> None:
        """Ends it at once, whatever it is doing."""
        self.popen.kill()
        self.popen.wait()

    def give_back(self) -> None:
        """Gives its pipes back; nobody may be listening any more."""
        for pipe in (self.popen.stdin, self.popen.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError, ValueError):  # what could not be written no longer matters
                    pipe.close()


class Worker:
    """Runs functions in a process of its own, which is started when it is first needed, and again after a death."""

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
        """Number of the process; None where there is none."""
        return None if self._process is None else self._process.popen.pid

    def start(self) -> None:
        """Starts the process if there is none, without waiting until it is ready.

        Raises OSError, and `engine.exploration.workers.WorkerError` where it ends at once.
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
        """Runs a function of a module, and returns what it returns.

        Args:
            function, arguments: what is run, by `function(task, *arguments)`; pickled, as is what is returned.
            doing: what it does, for the sentence that says that the process has ended: "exploring".
            task: what hears of it meanwhile, in this thread. What that raises ends the function, and is raised here.

        Raises:
            engine.ExplorationCancelled: soon after `task.stops` is true, or when the worker is closed.
            ValueError, MemoryError: what the function raised, with its words.
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
        """Ends the process at once, whatever it is doing; the next function has another one started."""
        with self._lock:
            if self._process is not None:
                self._process.kill()

    def close(self) -> None:
        """Ends the process at once, whatever it is doing."""
        with self._lock:
            self._closed = True
            if self._process is not None:
                self._process.kill()

    def _started(self) -> _Process:
        """Returns the process, a new one where there is none that lives."""
        if self._closed:
            raise ExplorationCancelled("The server is being stopped.")
        if self._process is None or self._process.popen.poll() is not None:
            self._process = _Process(self._behind, self._memory)
            threading.Thread(
                target=self._listen, args=(self._process,), name="shardscape-worker", daemon=True
            ).start()
        return self._process

    def _hear(self, messages: SimpleQueue[tuple[str, Any]], task: Task, doing: str) -> Any:
        """Does what a function says until it has ended; returns what it found."""
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
        """Passes on what a process says, until it has ended."""
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
    """The workers of a server, each for what must not wait for the others, and with what it keeps ready."""

    def __init__(self, *, apart: bool = True) -> None:
        """apart: False to compute everything in this process."""
        self.small = Worker(apart=apart)
        """Explores small spaces, some of them for everybody who comes."""
        self.large = Worker(FAR_BEHIND, apart=apart)
        """Explores large spaces; for all that takes minutes."""
        self.answers = Worker(apart=apart)
        """Answers What-if, and evaluates what is not stored; has the spaces that are kept ready."""
        self._every = self.small, self.answers, self.large

    def start(self) -> None:
        """Starts the processes of those that somebody soon waits for; without any, everything is computed here."""
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

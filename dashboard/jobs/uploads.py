"""Reading of files that people bring, in processes of their own whose time and memory are bounded.

A file of a few kilobytes can take gigabytes or minutes to be read, whatever its format. Where that happens here, one
process is ended and one sentence is shown; pages and explorations of other people go on.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

from dashboard.jobs.worker import Task, Worker
from dashboard.link.document_validation import Refused, sentence
from engine import ExplorationCancelled
from engine.exploration.workers import WorkerError

__all__ = ["LONGEST_SECONDS", "MEMORY_GIB", "UploadReader"]

R = TypeVar("R")

AT_ONCE: Final = 2
"""Files that are read beside each other."""
LONGEST_SECONDS: Final = 30.0
"""Time after which a file is given up [s]; the largest that are taken need about three."""
STARTING_SECONDS: Final = 60.0
"""Time in which a process that is started has to begin with a file, on a busy machine [s]."""
MEMORY_GIB: Final = 3.0
"""Memory of a process that reads [GiB], where the system can bound it; without a file it has about half of one."""
MOST_FOUND: Final = 64_000_000
"""Largest result that is taken over [bytes]."""
OURS: Final = ("dashboard", "engine", "hardware", "models")


class UploadReader:
    """Runs the functions that read files; each process reads one file at a time."""

    def __init__(
        self, *, apart: bool = True, seconds: float = LONGEST_SECONDS, memory_gib: float = MEMORY_GIB
    ) -> None:
        """apart: False to read in this process, without bounds. seconds, memory_gib: what one file may take."""
        self._apart, self._seconds, self._memory = apart, seconds, memory_gib
        self._every = [Worker(apart=apart, memory_gib=memory_gib) for _ in range(AT_ONCE)]
        self._free: SimpleQueue[Worker] = SimpleQueue()
        for worker in self._every:
            self._free.put(worker)

    def read(self, function: Callable[..., R], *arguments: Any) -> R:
        """Returns what a function of a module makes of the content of a file.

        Args:
            function: pickled by name, as are its arguments and its result; its refusals are a `ValueError` of ours.
            arguments: of the function.

        Raises `Refused` with one sentence for what the function refuses, and for a file that takes too long or too
        much memory.
        """
        if not self._apart:
            return _unwrapped(_found(Task(), function, arguments))
        try:
            worker = self._free.get(timeout=2 * self._seconds)
        except Empty:
            raise Refused("Files of other people are being read; try again in a minute.") from None
        try:
            return _unwrapped(self._answer(worker, function, arguments))
        finally:
            self._free.put(worker)

    def close(self) -> None:
        """Ends the processes."""
        for worker in self._every:
            worker.close()

    def _answer(self, worker: Worker, function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[str, Any]:
        latest = time.monotonic() + STARTING_SECONDS + self._seconds

        def begun(_: Any) -> None:
            nonlocal latest
            latest = time.monotonic() + self._seconds

        task = Task(tell=begun, stops=lambda: time.monotonic() > latest)
        try:
            return worker.run(_found, function, arguments, doing="reading the file", task=task)
        except MemoryError:
            raise Refused(f"Reading this file takes more than {self._memory:g} GiB of memory, the limit here.") from None
        except ExplorationCancelled:
            worker.end()  # the function does not look up to see whether it shall stop
            raise Refused(
                f"Reading this file was given up after {self._seconds:g} s, the limit here; bring a smaller one."
            ) from None
        except WorkerError:
            raise Refused("The process that was reading the file has ended, perhaps for lack of memory.") from None


def _found(task: Task, function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[str, Any]:
    """What a function found, pickled, or why it refuses."""
    task.tell(None)
    try:
        found = pickle.dumps(function(*arguments), pickle.HIGHEST_PROTOCOL)
    except UnicodeDecodeError:
        return "refused", "The file is no text in UTF-8."
    except RecursionError:
        return "refused", "The file is nested too deeply."
    except ValueError as problem:
        if type(problem).__module__.split(".")[0] not in OURS:
            raise RuntimeError(f"{type(problem).__name__}: {problem}") from problem
        return "refused", sentence(problem)
    if len(found) > MOST_FOUND:
        return "refused", f"The file holds more than is read here: {len(found) / 1e6:,.0f} MB."
    return "found", found


def _unwrapped(answer: tuple[str, Any]) -> Any:
    what, content = answer
    if what == "refused":
        raise Refused(content)
    return pickle.loads(content)

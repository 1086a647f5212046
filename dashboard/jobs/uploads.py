"""Reading of users' files in separate processes with limits on time and memory.

A file of a few kilobytes can take gigabytes or minutes to be read, in any format. Here that ends one process and shows
one sentence; pages and explorations of other visitors continue.
"""

from __future__ import annotations

import hashlib
import pickle
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

from dashboard.jobs.worker import Task, Worker
from dashboard.link.document_validation import Refused, sentence
from engine import ExplorationCancelled
from engine.exploration.workers import WorkerError
from models.documents import check_numbers

__all__ = ["LONGEST_SECONDS", "MEMORY_GIB", "UploadReader"]

R = TypeVar("R")

AT_ONCE: Final = 2
"""Files that are read at once."""
LONGEST_SECONDS: Final = 30.0
"""Time after which a file is given up [s]; the largest that are taken need about three."""
STARTING_SECONDS: Final = 60.0
"""Longest start of a reading process on a busy machine [s]."""
MEMORY_GIB: Final = 3.0
"""Memory of a process that reads [GiB], where the system can bound it; without a file it has about half of one."""
MOST_FOUND: Final = 64_000_000
"""Largest result that is taken over [bytes]."""
MOST_KEPT: Final = 32
"""Answers that are kept for pages that are drawn again."""
MOST_KEPT_BYTES: Final = 4_000_000
"""Largest answer that is kept [bytes]."""
OURS: Final = ("dashboard", "engine", "hardware", "models")


class UploadReader:
    """Runs the functions that read files; each process reads one file at a time."""

    def __init__(self, *, apart: bool = True, seconds: float = LONGEST_SECONDS, memory_gib: float = MEMORY_GIB) -> None:
        """apart: False to read in this process, without bounds. seconds, memory_gib: what one file may take."""
        self._apart, self._seconds, self._memory = apart, seconds, memory_gib
        self._every = [Worker(apart=apart, memory_gib=memory_gib) for _ in range(AT_ONCE)]
        self._known: dict[bytes, tuple[str, bytes]] = {}
        self._lock = threading.Lock()
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
        described = pickle.dumps((function, arguments), pickle.HIGHEST_PROTOCOL)
        key = hashlib.sha256(described).digest()
        with self._lock:  # a page that is drawn again asks for the same file
            answer = self._known.get(key)
        if answer is None:
            answer = self._read(function, arguments)
            if len(answer[1]) <= MOST_KEPT_BYTES:
                with self._lock:
                    self._known[key] = answer
                    while len(self._known) > MOST_KEPT:
                        self._known.pop(next(iter(self._known)))
        what, content = answer
        if what == "refused":
            raise Refused(content.decode())
        found: R = pickle.loads(content)
        return found

    def close(self) -> None:
        """Ends the processes."""
        for worker in self._every:
            worker.close()

    def _read(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[str, bytes]:
        if not self._apart:
            return _run_reader(Task(), function, arguments)
        try:
            worker = self._free.get(timeout=2 * self._seconds)
        except Empty:
            raise Refused("Files of other people are being read; try again in a minute.") from None
        try:
            return self._answer(worker, function, arguments)
        finally:
            self._free.put(worker)

    def _answer(self, worker: Worker, function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[str, bytes]:
        latest = time.monotonic() + STARTING_SECONDS + self._seconds

        def begun(_: Any) -> None:
            nonlocal latest
            latest = time.monotonic() + self._seconds

        task = Task(tell=begun, stops=lambda: time.monotonic() > latest)
        try:
            return worker.run(_run_reader, function, arguments, doing="reading the file", task=task)
        except MemoryError:
            return _refusal_of(f"Reading this file takes more than {self._memory:g} GiB of memory, the limit here.")
        except ExplorationCancelled:
            worker.end()  # the function does not look up to see whether it shall stop
            if time.monotonic() <= latest:
                raise  # the server is being stopped
            return _refusal_of(
                f"Reading this file took more than {self._seconds:g} s, the limit here; upload a smaller one."
            )
        except WorkerError:
            return _refusal_of("The process that was reading the file has ended, perhaps for lack of memory.")


def _refusal_of(sentence: str) -> tuple[str, bytes]:
    return "refused", sentence.encode("utf-8", "replace")


def _run_reader(task: Task, function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[str, bytes]:
    """Return a function's result, pickled, or the sentence of its refusal."""
    task.tell(None)
    try:
        for each in arguments:
            if isinstance(each, str | bytes):
                check_numbers(each if isinstance(each, str) else each.decode("latin-1"), "The file", Refused)
        found = pickle.dumps(function(*arguments), pickle.HIGHEST_PROTOCOL)
    except UnicodeDecodeError:
        return _refusal_of("The file is not UTF-8 text.")
    except RecursionError:
        return _refusal_of("The file is nested too deeply.")
    except ValueError as problem:
        if type(problem).__module__.split(".")[0] not in OURS:
            raise RuntimeError(f"{type(problem).__name__}: {problem}") from problem
        return _refusal_of(sentence(problem))
    if len(found) > MOST_FOUND:
        return _refusal_of(f"The file holds more than is read here: {len(found) / 1e6:,.0f} MB.")
    return "found", found

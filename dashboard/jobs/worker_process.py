"""Main loop of a worker process: runs the functions requested by the server, each in a thread.

Modules of the engine are loaded when the process starts, so that the first request does not wait for them.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

import engine.whatif  # noqa: F401 - loaded before it is asked for
from dashboard.jobs import exploration_rows, whatif_answers  # noqa: F401 - as above
from dashboard.jobs.garbage_collection import exempt_loaded_objects
from dashboard.jobs.worker import Task
from engine import ExplorationCancelled
from engine.questions.process import bound_memory

__all__ = ["serve_functions"]

LEAVING: Final = 10.0
"""Longest time for which folders are removed when the server is gone [s]."""


class _Work:
    """Running functions, and folders to remove should the server be killed."""

    def __init__(self) -> None:
        self.stops: dict[int, threading.Event] = {}
        """Stop event of each running function."""
        self.folders: set[Path] = set()
        """Folders of running and ended functions; the server may still read the latter."""

    def owns(self, folder: Path) -> None:
        """Registers a folder, and drops removed ones."""
        self.folders = {one for one in (*self.folders, folder) if one.exists()}


def serve_functions(behind: int, memory_gib: float | None = None) -> None:
    """Runs functions until the server is gone. behind: how far to stand back, as `nice` counts. memory_gib: bound on
    the memory of this process [GiB], where the system can bound it; none where None."""
    if memory_gib is not None:
        bound_memory(memory_gib)
    exempt_loaded_objects()
    work = _Work()
    with _open_connection(behind) as (source, send):
        while True:
            try:
                what, number, described = pickle.load(source)
            except EOFError:  # the server has ended, or was killed; whatever is being computed, nobody will take it
                _end_process(work)
            if what == "run":
                work.stops[number] = threading.Event()
                threading.Thread(target=_run_function, args=(work, number, described, send), daemon=True).start()
            elif number in work.stops:
                work.stops[number].set()


def _run_function(work: _Work, number: int, described: bytes, send: Callable[[int, str, Any], None]) -> None:
    """Run a function and send its result or exception."""
    try:
        function, arguments = pickle.loads(described)
        task = Task(
            tell=lambda progress: send(number, "progress", progress),
            give=lambda part: send(number, "part", part),
            stops=work.stops[number].is_set,
            owns=work.owns,
        )
        send(number, "found", function(task, *arguments))
    except ExplorationCancelled as problem:
        send(number, "cancelled", str(problem))
    except ValueError as problem:  # every refusal of models, hardware and engine is one
        send(number, "refused", str(problem))
    except MemoryError as problem:
        send(number, "memory", str(problem))
    except Exception:
        send(number, "failed", traceback.format_exc())
    finally:
        del work.stops[number]


def _end_process(work: _Work) -> None:
    """Ends the process, and leaves no folder behind."""
    for stop in list(work.stops.values()):
        stop.set()
    latest = time.monotonic() + LEAVING
    for folder in work.folders:
        while folder.exists() and time.monotonic() < latest:  # something may be written meanwhile
            shutil.rmtree(folder, ignore_errors=True)
            time.sleep(0.01)
    os._exit(0)


@contextlib.contextmanager
def _open_connection(behind: int) -> Iterator[tuple[BinaryIO, Callable[[int, str, Any], None]]]:
    """Yield the stream of requests and the function that sends answers."""
    if hasattr(os, "nice"):
        os.nice(behind)
    telling = threading.Lock()
    with os.fdopen(os.dup(1), "wb") as sink:
        os.dup2(2, 1)  # whatever a library prints must not get among the messages

        def send(*message: Any) -> None:
            content = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
            with telling, contextlib.suppress(BrokenPipeError):  # the server was killed, which `serve` notices
                sink.write(content)
                sink.flush()

        yield sys.stdin.buffer, send

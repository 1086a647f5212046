"""Interpreters beside the server's own, in which what takes long is computed; they are talked to over pipes.

Within one process they would share the interpreter's lock: array operations give it up some thousand times, for a
fraction of a millisecond each, and each time wait until a page that is being computed gives it back. Measured on two
cores: with 8 pages at work, an exploration of 0.2 s takes 6 to 16 s; with 4, a search of 0.12 s takes 7 s.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, Final

from engine.cost_models.registry import added
from engine.exploration.workers import WorkerError

__all__ = ["BEHIND", "FAR_BEHIND", "Interpreter", "connected"]

BEHIND: Final = 5
"""How far a process stands back behind the server where both want a core: to a quarter of it."""
FAR_BEHIND: Final = 15
"""How far one stands back that explores large spaces: behind the others, too."""

_START: Final = """
import pickle, sys
sys.path[:] = pickle.load(sys.stdin.buffer)
from engine.cost_models.registry import register
for cost_model in pickle.load(sys.stdin.buffer):
    register(cost_model)
from dashboard.jobs.{module} import serve
serve(pickle.load(sys.stdin.buffer))
"""


class Interpreter:
    """A plain interpreter in a process of its own, which runs `serve` of a module of this package."""

    def __init__(self, module: str, behind: int, doing: str) -> None:
        """Starts it, without waiting until it is ready.

        behind: how far it stands back, as `nice` counts. doing: what it does, for the sentence that says that it has
        ended: "exploring". Raises OSError, and `WorkerError` where it ends at once.
        """
        self._died = (
            f"The process that was {doing} has ended, perhaps for lack of memory. Try again, or fix some choices."
        )
        cost_models = added()
        # In a session of its own, an interrupt from the keyboard reaches the server only.
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START.format(module=module)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
        self.send(sys.path)
        self.send(cost_models)
        self.send(behind)

    @property
    def pid(self) -> int:
        """Number of the process."""
        return self._process.pid

    def poll(self) -> int | None:
        """How the process has ended; None as long as it runs."""
        return self._process.poll()

    def send(self, message: object) -> None:
        """Tells it something. Raises `WorkerError` when it has ended."""
        assert self._process.stdin is not None
        try:
            pickle.dump(message, self._process.stdin, pickle.HIGHEST_PROTOCOL)
            self._process.stdin.flush()
        except (OSError, ValueError) as error:  # gone, or closed
            raise WorkerError(self._died) from error

    def messages(self) -> Iterator[Any]:
        """What it says, for as long as somebody listens. Raises `WorkerError` when it has ended."""
        assert self._process.stdout is not None
        while True:
            try:
                message = pickle.load(self._process.stdout)
            except (OSError, EOFError, ValueError, pickle.UnpicklingError) as error:
                raise WorkerError(self._died) from error
            yield message

    def kill(self) -> None:
        """Ends it at once, whatever it is doing."""
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        """Ends it at once and gives its pipes back; nobody may be listening."""
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError, ValueError):  # what could not be written no longer matters
                    pipe.close()


@contextlib.contextmanager
def connected(behind: int) -> Iterator[tuple[BinaryIO, Callable[[object], None]]]:
    """In such a process: where to read what it is told, and what to answer with. behind: see `Interpreter`."""
    if hasattr(os, "nice"):
        os.nice(behind)
    with os.fdopen(os.dup(1), "wb") as sink:
        os.dup2(2, 1)  # whatever a library prints must not get among the messages

        def send(message: object) -> None:
            pickle.dump(message, sink, pickle.HIGHEST_PROTOCOL)
            sink.flush()

        yield sys.stdin.buffer, send

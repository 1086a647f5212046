"""Other processes to compute in: plain interpreters that are talked to over pipes.

Python's own process pools would run the main script of the caller again in each of them, which a script without a
guard, a notebook or a page does not survive.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Final, Self

__all__ = ["START", "Interpreter", "InterpreterError", "answer_requests"]

START: Final = """
import pickle, sys
sys.path[:] = pickle.load(sys.stdin.buffer)
from pkgutil import resolve_name
resolve_name(pickle.load(sys.stdin.buffer))()
"""


class InterpreterError(RuntimeError):
    """Process that ended unexpectedly."""


class Interpreter:
    """A process that answers questions one after the other. Leaving it ends the process at once."""

    def __init__(self, serve: str, first: tuple[object, ...] = ()) -> None:
        """Start an interpreter.

        Args:
            serve: the function that it runs, as "module:name"; it uses `answer_requests`.
            first: objects sent to it at first.
        """
        self._first: tuple[object, ...] = (sys.path, serve, *first)
        # In a session of its own, an interrupt from the keyboard reaches the caller only.
        self._process = subprocess.Popen(
            [sys.executable, "-c", START], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(OSError):  # what could not be written no longer matters
                pipe.close()

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    def ask(self, question: object) -> Any:
        """Returns what the process answers. Raises `InterpreterError` when it is gone."""
        send, receive = self._process.stdin, self._process.stdout
        assert send is not None
        assert receive is not None
        messages, self._first = (*self._first, question), ()
        try:
            for message in messages:
                pickle.dump(message, send)
            send.flush()
            return pickle.load(receive)
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            raise InterpreterError("A process has ended, perhaps for lack of memory.") from error


@contextmanager
def answer_requests() -> Iterator[tuple[Iterator[Any], Callable[[object], None]]]:
    """Yield, in the worker process, its input objects until the caller is done, and a function that sends an answer."""
    source = sys.stdin.buffer

    def requests() -> Iterator[Any]:
        while True:
            try:
                yield pickle.load(source)
            except EOFError:  # the caller is done, or gone
                return

    # A caller that was killed takes no result; that needs no report.
    with suppress(BrokenPipeError), os.fdopen(os.dup(1), "wb") as sink:
        os.dup2(2, 1)  # output that a library prints must not get among the results

        def answer(result: object) -> None:
            pickle.dump(result, sink, pickle.HIGHEST_PROTOCOL)
            sink.flush()

        yield requests(), answer

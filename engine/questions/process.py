"""Processes that answer questions, so that time and memory of every question have hard bounds.

Each is a plain interpreter that reads questions from a pipe, one at a time; prepared data stays cached for the next.
A search without a waiting caller, or beyond its time, ends with its process, because not every search checks
whether to stop. Python's own process pools would run the main script of the caller again.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
from typing import Any, BinaryIO, Final

from engine.cost_models.registry import added, register
from engine.exploration.run import ExplorationCancelled
from engine.questions.bounds import Bounds, Context
from engine.questions.registry import answer, too_long
from engine.questions.verb import QuestionError

__all__ = ["Answerer", "Busy", "Failed", "bound_memory"]

POLL: Final = 0.05
"""Interval between checks for a waiting caller [s]."""
TOLD: Final = 0.2
"""Time between two words about progress [s]."""
STARTING: Final = 120.0
"""Time in which a process has to be ready, on the busiest machine [s]."""
GRACE: Final = 1.0
"""Time beyond its own that a question has to end by itself [s]."""

_START: Final = """
import pickle, sys
sys.path[:] = pickle.load(sys.stdin.buffer)
from engine.questions.process import serve
serve()
"""


class Busy(Exception):  # noqa: N818 - reads as a sentence where it is raised
    """All processes are busy with other questions."""


class Failed(RuntimeError):  # noqa: N818 - reads as a sentence where it is raised
    """Internal fault; the message is a traceback for the operator of the server, not for the caller."""


class Answerer:
    """Answers questions in processes of its own, which are started when they are first needed."""

    def __init__(self, bounds: Bounds | None = None, *, at_once: int = 1, behind: int = 0) -> None:
        """bounds: what one question may take. at_once: questions beside each other. behind: how far the processes stand
        back, as `nice` counts."""
        self.bounds = bounds or Bounds()
        self._behind = behind
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._every: set[_AnswerProcess] = set()
        self._free: SimpleQueue[_AnswerProcess | None] = SimpleQueue()
        for _ in range(at_once):
            self._free.put(None)

    def start(self) -> None:
        """Starts a process, so that who asks first does not wait for it. Raises OSError where none can be started."""
        with contextlib.suppress(Empty):
            process = self._free.get_nowait()
            self._free.put(process or self._started())

    def answer(
        self,
        name: str,
        question: Any,
        *,
        tell: Callable[[float, str], None] | None = None,
        stops: Callable[[], bool] | None = None,
        wait: bool = True,
    ) -> dict[str, Any]:
        """Return the answer to a question; see `engine.questions.answer`.

        Args:
            name: name of the verb.
            question: document of the question.
            tell: called in this thread with the share that is done and the current step.
            stops: returns whether the caller no longer waits.
            wait: whether to wait while all processes are busy.

        Raises:
            QuestionError: the question is malformed, impossible, or beyond the bounds; one sentence.
            Busy: all processes are busy, and the caller does not wait.
            engine.ExplorationCancelled: `stops` returned True, or this was closed.
            Failed: internal fault.
        """
        asked = _encode_line({"ask": name, "question": question}, self.bounds.document_bytes)
        gone = stops or (lambda: False)
        process = self._taken(gone, wait)
        try:
            if process is not None and not process.lives:  # it ended while nobody asked
                self._end(process)
                process = None
            process = process or self._started()
            found = self._heard(process, asked, tell, gone)
        except BaseException as problem:
            if process is not None and not isinstance(problem, QuestionError | Failed):
                self._end(process)
            raise
        finally:
            self._free.put(process if process is not None and process.lives else None)
        return found

    @property
    def pids(self) -> tuple[int, ...]:
        """Numbers of the processes."""
        with self._lock:
            return tuple(process.pid for process in self._every)

    def close(self) -> None:
        """End all processes at once."""
        self._closed.set()
        with self._lock:
            every = list(self._every)
        for process in every:
            self._end(process)

    def _taken(self, gone: Callable[[], bool], wait: bool) -> _AnswerProcess | None:
        """A process that is free; None for one that is to be started."""
        while True:
            try:
                return self._free.get(timeout=POLL) if wait else self._free.get_nowait()
            except Empty:
                if not wait:
                    raise Busy("Other questions are being answered; ask again when one is done.") from None
                if gone() or self._closed.is_set():
                    raise ExplorationCancelled("Nobody waits any more.") from None

    def _started(self) -> _AnswerProcess:
        with self._lock:
            if self._closed.is_set():
                raise ExplorationCancelled("The server is being stopped.")
            process = _AnswerProcess(self.bounds, self._behind)
            self._every.add(process)
            return process

    def _end(self, process: _AnswerProcess) -> None:
        process.kill()
        with self._lock:
            self._every.discard(process)

    def _heard(
        self, process: _AnswerProcess, asked: bytes, tell: Callable[[float, str], None] | None, gone: Callable[[], bool]
    ) -> dict[str, Any]:
        """Return the reply of a process to a question."""
        allowed = self.bounds.longest_seconds + GRACE
        latest = time.monotonic() + (allowed if process.ready else STARTING)
        process.send(asked)
        while True:
            try:
                message = process.messages.get(timeout=POLL)
            except Empty:
                message = None
            if message is not None:
                what, content = message
                if what == "answer":
                    found: dict[str, Any] = content
                    return found
                if what == "refused":
                    raise QuestionError(str(content))
                if what == "failed":
                    raise Failed(str(content))
                if what == "ended":
                    self._end(process)
                    if self._closed.is_set():
                        raise ExplorationCancelled("The server is being stopped.")
                    raise QuestionError(
                        "The process that was answering has ended, perhaps for lack of memory; limit some fields."
                    )
                if what == "ready":
                    process.ready, latest = True, time.monotonic() + allowed
                elif tell is not None:
                    tell(*content)
            if gone() or self._closed.is_set():
                raise ExplorationCancelled("Nobody waits any more.")
            if time.monotonic() > latest:
                self._end(process)
                raise QuestionError(too_long(self.bounds.longest_seconds))


class _AnswerProcess:
    """A plain interpreter that runs `serve`, and its messages."""

    def __init__(self, bounds: Bounds, behind: int) -> None:
        # In a session of its own, an interrupt from the keyboard reaches the caller only.
        self._popen = subprocess.Popen(
            [sys.executable, "-c", _START], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        self.messages: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        self.ready = False
        """True once it has reported that it is ready."""
        self.send(b"".join(map(pickle.dumps, (sys.path, added(), bounds, behind))))
        self._listener = threading.Thread(target=self._listen, name="shardscape-answers", daemon=True)
        self._listener.start()

    @property
    def pid(self) -> int:
        """Number of the process."""
        return self._popen.pid

    @property
    def lives(self) -> bool:
        """Return whether it is alive and can be asked."""
        return self._popen.poll() is None

    def send(self, content: bytes) -> None:
        """Send a line; a process that has ended reports so itself."""
        assert self._popen.stdin is not None
        with contextlib.suppress(OSError, ValueError):
            self._popen.stdin.write(content)
            self._popen.stdin.flush()

    def kill(self) -> None:
        """Ends it at once and gives its pipes back."""
        self._popen.kill()
        self._popen.wait()
        if threading.current_thread() is not self._listener:
            self._listener.join()
        for pipe in (self._popen.stdin, self._popen.stdout):
            with contextlib.suppress(OSError, ValueError):
                if pipe is not None:
                    pipe.close()

    def _listen(self) -> None:
        assert self._popen.stdout is not None
        with contextlib.suppress(OSError, ValueError):
            for line in self._popen.stdout:
                what, content = json.loads(line)
                self.messages.put((what, content))
        self.messages.put(("ended", None))


def serve() -> None:
    """Answers, in a process of its own, questions that come line by line, until nothing comes."""
    source = sys.stdin.buffer
    for cost_model in pickle.load(source):
        register(cost_model)
    bounds, behind = pickle.load(source), pickle.load(source)
    if behind and hasattr(os, "nice"):
        os.nice(behind)
    bound_memory(bounds.memory_gib)
    with _open_reply_channel() as say:
        say("ready", None)
        for line in source:
            threading.Thread(target=_answer_question, args=(json.loads(line), bounds, say), daemon=True).start()
        os._exit(0)  # whoever asked has gone; whatever is being computed, nobody will take it


def _answer_question(asked: dict[str, Any], bounds: Bounds, say: Callable[[str, Any], None]) -> None:
    """Answers a question and says how it ended."""
    told = time.monotonic()

    def tell(share: float, doing: str) -> None:
        nonlocal told
        if time.monotonic() - told >= TOLD:
            told = time.monotonic()
            say("told", [min(max(float(share), 0.0), 1.0), doing])

    try:
        say("answer", answer(asked["ask"], asked["question"], Context(bounds, tell)))
    except MemoryError:
        say("refused", "There is not enough memory for this; limit some fields to make it smaller.")
    except ValueError as problem:  # every refusal of models, hardware and engine is one
        if type(problem).__module__.split(".")[0] in ("engine", "models", "hardware"):
            say("refused", _one_sentence(str(problem)))
        else:
            say("failed", traceback.format_exc())
    except Exception:
        say("failed", traceback.format_exc())


def _one_sentence(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 1_000 else f"{text[:999]}…"


def _encode_line(content: Any, most: int) -> bytes:
    """A document as one line. Raises `QuestionError` for one that is too long, or that JSON cannot write."""
    try:
        line = json.dumps(content, allow_nan=False, ensure_ascii=True).encode()
    except (TypeError, ValueError, RecursionError):
        raise QuestionError("The question must be a JSON object, its numbers finite.") from None
    if len(line) > most:
        raise QuestionError(f"The question has {len(line):,} bytes; up to {most:,} are read.")
    return line + b"\n"


def bound_memory(gib: float) -> None:
    """Bounds the memory of this process, where the system can: what goes beyond it raises MemoryError.

    Args:
        gib: that it may take [GiB].
    """
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        wanted = int(gib * 2**30)
        resource.setrlimit(
            resource.RLIMIT_DATA, (wanted if most == resource.RLIM_INFINITY else min(wanted, most), most)
        )


@contextlib.contextmanager
def _open_reply_channel() -> Iterator[Callable[[str, Any], None]]:
    """Yield the function that writes messages; output of libraries goes to standard error."""
    telling = threading.Lock()
    sink: BinaryIO
    with os.fdopen(os.dup(1), "wb") as sink:
        os.dup2(2, 1)

        def say(what: str, content: Any) -> None:
            line = json.dumps([what, content], allow_nan=False).encode() + b"\n"
            with telling, contextlib.suppress(BrokenPipeError):  # whoever asked was killed, which `serve` notices
                sink.write(line)
                sink.flush()

        yield say

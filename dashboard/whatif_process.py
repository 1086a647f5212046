"""What-if's searches in a process of their own, where they and the pages do not wait for each other.

Why, see `dashboard.interpreters`. One process has the spaces that are kept ready, for all sessions: questions, each of
which somebody waits for, are answered beside each other, and one thread finds the points of studies.
"""

from __future__ import annotations

import itertools
import os
import pickle
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final, Literal

from dashboard.allocator import few_arenas
from dashboard.interpreters import BEHIND, Interpreter, connected
from dashboard.plain_order import plainest_of
from engine import Scenario, whatif
from engine.parallel import WorkerError
from engine.whatif import Answer, Study

__all__ = ["Apart", "Here", "Kind", "serve"]

AT_ONCE: Final = 4
"""Questions that are answered beside each other: one about a very large space must not hold up all others."""

Kind = Literal["sensitivity", "sweep", "sweep_two", "sizes"]
"""A function of `engine.whatif` that gives a study."""


class Here:
    """Searches in this process."""

    def answer(self, scenario: Scenario, changes: Mapping[str, float]) -> Answer:
        """What a change does, the plainest standing for all that tie. See `engine.whatif.reoptimise`."""
        return whatif.reoptimise(scenario, changes, plainest_of)

    def study(self, kind: Kind, *arguments: Any, largest: float) -> Study[Any]:
        """A study. arguments, largest: of the function of that name."""
        return _study(kind, arguments, largest)

    def close(self) -> None:
        """Nothing is to be ended."""


class Apart(Here):
    """Searches in a process of their own; it is started again after a death."""

    def __init__(self) -> None:
        """Starts it, without waiting until it is ready. Raises OSError or `engine.parallel.WorkerError`."""
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._left: deque[int] = deque()
        """Studies that are not asked about any more."""
        self._closed = False
        self._process, self._waiting = self._start()

    def answer(self, scenario: Scenario, changes: Mapping[str, float]) -> Answer:
        """See `Here.answer`. Raises `engine.parallel.WorkerError` when the process has ended by itself."""
        found: Answer = self._ask("answer", (_light(scenario), dict(changes)))
        return found

    def study(self, kind: Kind, *arguments: Any, largest: float) -> Study[Any]:
        """See `Here.study`."""
        total = len(_study(kind, arguments, largest))
        described = pickle.dumps((kind, tuple(_light(each) for each in arguments), largest))
        return Study(total, lambda done: self._points(described, done, total))

    def close(self) -> None:
        """Ends the process at once, whatever it is doing."""
        with self._lock:
            self._closed = True
            self._process.kill()

    def _points(self, described: bytes, done: int, total: int) -> Iterator[Any]:
        """The points of a study after the first so many. Whatever the process keeps for it goes with the iterator."""
        name = next(self._numbers)
        try:
            for number in range(done, total):
                yield self._ask("point", (name, number, described))
        finally:
            self._left.append(name)  # told with the next question: the lock may be held where this is called from

    def _start(self) -> tuple[Interpreter, dict[int, Future[Any]]]:
        process, waiting = Interpreter("whatif_process", BEHIND, "searching"), dict[int, "Future[Any]"]()
        threading.Thread(
            target=self._listen, args=(process, waiting), name="shardscape-whatif-answers", daemon=True
        ).start()
        return process, waiting

    def _ask(self, what: str, content: object) -> Any:
        """What the process answers.

        Raises ValueError or MemoryError with the sentence of the engine, and `engine.parallel.WorkerError`.
        """
        answer: Future[Any] = Future()
        with self._lock:
            if self._closed:
                raise WorkerError("The server is being stopped.")
            if self._process.poll() is not None:
                self._process, self._waiting = self._start()
            number = next(self._numbers)
            self._waiting[number] = answer
            try:
                while self._left:
                    self._process.send((None, "forget", self._left.popleft()))
                self._process.send((number, what, content))
            except WorkerError:
                self._waiting.pop(number, None)
                raise
        return answer.result()

    def _listen(self, process: Interpreter, waiting: dict[int, Future[Any]]) -> None:
        """Passes on what a process answers, until it has ended."""
        try:
            for number, ended, content in process.messages():
                with self._lock:
                    answer = waiting.pop(number)
                if ended == "found":
                    answer.set_result(content)
                else:
                    answer.set_exception(_ENDS[ended](content))
        except WorkerError as problem:
            process.kill()  # so that whoever asks from now on has another one started
            with self._lock:
                left = [waiting.pop(number) for number in list(waiting)]
            for answer in left:
                answer.set_exception(problem)
            process.end()


_ENDS: Final[Mapping[str, type[Exception]]] = {"refused": ValueError, "memory": MemoryError, "failed": RuntimeError}


def _study(kind: Kind, arguments: tuple[Any, ...], largest: float) -> Study[Any]:
    """A study of the engine; the plainest stands for all that tie where it asks which."""
    make: Callable[..., Study[Any]] = getattr(whatif, kind)
    choice = {} if kind == "sizes" else {"choose": plainest_of}
    return make(*arguments, **choice, largest=largest)


def _light(value: Any) -> Any:
    """A scenario without the space that it may remember: making one is quicker than sending it."""
    return replace(value) if isinstance(value, Scenario) else value


class _Answering:
    """In the process: what it keeps of the studies that are under way, and how it answers."""

    def __init__(self) -> None:
        self._studies: dict[int, tuple[int, Iterator[Any]]] = {}
        """The number of the next point, and the points from there."""

    def answer(self, scenario: Scenario, changes: Mapping[str, float]) -> Answer:
        """See `Here.answer`."""
        found = Here().answer(scenario, changes)
        return replace(found, scenario=_light(found.scenario))

    def point(self, name: int, number: int, described: bytes) -> Any:
        """A point of a study; they are asked for in order, but this process may not have found the ones before."""
        at, points = self._studies.pop(name, (-1, iter(())))
        if at != number:
            points = _study(*pickle.loads(described)).after(number)
        found = next(points)
        self._studies[name] = number + 1, points
        return found

    def forget(self, name: int) -> None:
        """Lets go of a study."""
        self._studies.pop(name, None)


def serve(behind: int) -> None:
    """In the process: answers until the server is gone. behind: see `dashboard.interpreters.Interpreter`."""
    few_arenas()
    answering, telling = _Answering(), threading.Lock()
    questions, studies = ThreadPoolExecutor(AT_ONCE), ThreadPoolExecutor(1)
    with connected(behind) as (source, send):

        def tell(message: object) -> None:
            with telling:
                send(message)

        def work(number: int | None, what: str, content: Any) -> None:
            try:
                if what == "forget":
                    answering.forget(content)
                    return
                found = answering.answer(*content) if what == "answer" else answering.point(*content)
                tell((number, "found", found))
            except BrokenPipeError:  # the server was killed
                os._exit(1)
            except ValueError as problem:  # every refusal of models, hardware and engine is one
                tell((number, "refused", str(problem)))
            except MemoryError as problem:
                tell((number, "memory", str(problem)))
            except Exception:
                tell((number, "failed", traceback.format_exc()))

        while True:
            try:
                asked = pickle.load(source)
            except EOFError:
                os._exit(0)  # whatever is being searched for, nobody will take it
            (questions if asked[1] == "answer" else studies).submit(work, *asked)

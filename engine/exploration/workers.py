"""Reducing a very large space on several cores: runs of cells go to processes, reductions come back in order.

Threads do not help: array operations of cache size are so short that handing over the interpreter lock costs more than
the second core gives (measured on two cores: two threads take 1.6 times as long as one). Processes take seconds to
start, so they pay from some billion executions. Rows stay in one process: passing them on costs more than evaluating
them.

The processes are plain interpreters that this module talks to over pipes. Python's own process pools would run the
main script of the caller again in each of them, which a script without a guard, a notebook or a page does not survive.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from queue import SimpleQueue
from types import TracebackType

from engine.cost_models.registry import added, cost_model_of, register
from engine.exploration.reductions import Reductions
from engine.scenarios.scenario import Scenario
from engine.space.rows import chunks_of
from engine.space.space import Space
from models.documents import shown

__all__ = ["WorkerError", "reduce_slabs", "workers_for"]

PARALLEL_FROM = 1_000_000_000
"""Executions from which several processes are used unless the caller says otherwise: some thirty seconds of work."""


class WorkerError(RuntimeError):
    """A process that was evaluating has ended by itself."""


def workers_for(space: Space, workers: int | None) -> int:
    """Returns how many processes to use: what the caller says, else all cores for a very large space and one for
    others.

    Raises ValueError for a number below 1.

    Args:
        space: the space.
        workers: what the caller says; None where it says nothing.
    """
    if workers is None:
        return _cores() if space.total >= PARALLEL_FROM else 1
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise ValueError(f"workers is {shown(workers)}; it must be a whole number of at least 1.")
    return workers


def _cores() -> int:
    """Cores that this process may use; not every system can tell."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def reduce_slabs(scenario: Scenario, slabs: list[range], workers: int) -> Iterator[Reductions]:
    """Yields the reductions of each run of cells, in the order of the runs.

    Leaving the iterator ends the processes at once. Raises `WorkerError` when one of them dies, and `CostModelError`
    for a cost model that they cannot import.

    Args:
        scenario: what is explored.
        slabs: runs of cells, by number.
        workers: processes [count].
    """
    with ExitStack() as stack:
        threads = stack.enter_context(ThreadPoolExecutor(workers))
        idle: SimpleQueue[_Worker] = SimpleQueue()
        for _ in range(min(workers, len(slabs))):
            idle.put(stack.enter_context(_Worker(scenario)))

        def reduce(numbers: range) -> Reductions:
            worker = idle.get()
            try:
                return worker.reduce(numbers)
            finally:
                idle.put(worker)

        waiting = iter(slabs)
        running: deque[Future[Reductions]] = deque()
        try:
            while True:
                while len(running) <= workers and (numbers := next(waiting, None)) is not None:
                    running.append(threads.submit(reduce, numbers))
                if not running:
                    return
                yield running.popleft().result()
        finally:
            for future in running:
                future.cancel()


_START = """
import pickle, sys
sys.path[:] = pickle.load(sys.stdin.buffer)
from engine.exploration.workers import serve
serve()
"""


class _Worker:
    """A process that reduces runs of cells of one scenario, one after the other."""

    def __init__(self, scenario: Scenario) -> None:
        # Made anew, without the space that it may remember: making one is quicker than sending it.
        self._first: tuple[object, ...] = (sys.path, added(), replace(scenario))
        # In a session of its own, an interrupt from the keyboard reaches the caller only.
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )

    def __enter__(self) -> _Worker:
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

    def reduce(self, numbers: range) -> Reductions:
        """The reductions of a run of cells. Raises `WorkerError` when the process is gone."""
        send, receive = self._process.stdin, self._process.stdout
        assert send is not None
        assert receive is not None
        messages, self._first = (*self._first, numbers), ()
        try:
            for message in messages:
                pickle.dump(message, send)
            send.flush()
            reductions: Reductions = pickle.load(receive)
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            raise WorkerError(
                "A process that was evaluating has ended, perhaps for lack of memory; use fewer workers."
            ) from error
        return reductions


def serve() -> None:
    """Reads, in a worker, the cost models that the caller has added and a scenario, then runs of cells, and writes the
    reductions of each, until nothing comes."""
    source = sys.stdin.buffer
    # A caller that was killed takes no result; that is nothing to tell anyone.
    with suppress(BrokenPipeError), os.fdopen(os.dup(1), "wb") as sink:
        os.dup2(2, 1)  # whatever a library prints must not get among the results
        for cost_model in pickle.load(source):
            register(cost_model)
        scenario: Scenario = pickle.load(source)
        while True:
            try:
                numbers: range = pickle.load(source)
            except EOFError:  # the caller is done, or gone
                return
            pickle.dump(_reduce_slab(scenario.space, numbers), sink, pickle.HIGHEST_PROTOCOL)
            sink.flush()


def _reduce_slab(space: Space, numbers: range) -> Reductions:
    """Reductions of a run of cells."""
    prepared = cost_model_of(space).prepare(space, numbers)
    reductions = Reductions.empty(space)
    reductions.reject(prepared)
    for group, part in chunks_of(prepared.groups):
        reductions.add(prepared, cost_model_of(space).evaluate_rows(prepared, group, part))
    # The caller has the same space; sending it with every result would cost more than the result.
    reductions.space = None  # type: ignore[assignment]
    return reductions

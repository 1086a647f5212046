"""Reduction of a very large space on several cores: processes take runs of cells, and their reductions are merged in
order.

Threads do not help: array operations of cache size are so short that handing over the interpreter lock costs more than
the second core gives (measured on two cores: two threads take 1.6 times as long as one). Processes take seconds to
start, so they pay from some billion executions. Rows stay in one process: passing them on costs more than evaluating
them.

The processes are plain interpreters, see `engine.exploration.interpreters`.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from queue import SimpleQueue

from engine.cost_models.registry import added, cost_model_of, register
from engine.exploration.interpreters import Interpreter, InterpreterError, answer_requests
from engine.exploration.reductions import Reductions
from engine.scenarios.scenario import Scenario
from engine.space.rows import chunks_of
from engine.space.space import Space
from models.documents import shown

__all__ = ["WorkerError", "cores", "reduce_slabs", "workers_for"]

PARALLEL_FROM = 1_000_000_000
"""Least executions for which several processes are the default: about thirty seconds of work."""


class WorkerError(RuntimeError):
    """Evaluating process that ended unexpectedly."""


def workers_for(space: Space, workers: int | None) -> int:
    """Return the number of processes: the caller's, else all cores for a very large space and one for others.

    Raises ValueError for a number below 1.

    Args:
        space: the space.
        workers: what the caller says; None where it says nothing.
    """
    if workers is None:
        return cores() if space.total >= PARALLEL_FROM else 1
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise ValueError(f"workers is {shown(workers)}; it must be a whole number of at least 1.")
    return workers


def cores() -> int:
    """Returns the number of cores that this process may use; not every system can tell."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def reduce_slabs(scenario: Scenario, slabs: list[range], workers: int) -> Iterator[Reductions]:
    """Yields the reductions of each run of cells, in the order of the runs.

    Leaving the iterator ends the processes at once. Raises `WorkerError` when one of them dies, and `CostModelError`
    for a cost model that they cannot import.

    Args:
        scenario: the scenario to explore.
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


class _Worker(Interpreter):
    """A process that reduces runs of cells of one scenario, one after the other."""

    def __init__(self, scenario: Scenario) -> None:
        # Made again, without its cached space: making a space is quicker than sending it.
        super().__init__(f"{__name__}:serve", (added(), replace(scenario)))

    def reduce(self, numbers: range) -> Reductions:
        """The reductions of a run of cells. Raises `WorkerError` when the process is gone."""
        try:
            found: Reductions = self.ask(numbers)
        except InterpreterError as error:
            raise WorkerError(
                "A process that was evaluating has ended, perhaps for lack of memory; use fewer workers."
            ) from error
        return found


def serve() -> None:
    """Reads, in a worker, the cost models that the caller has added and a scenario, then runs of cells, and writes the
    reductions of each, until nothing comes."""
    with answer_requests() as (requests, answer):
        for cost_model in next(requests):
            register(cost_model)
        scenario: Scenario = next(requests)
        for numbers in requests:
            answer(_reduce_slab(scenario.space, numbers))


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

"""Reducing a very large space on several cores: plans go to processes, reductions come back in order.

Threads do not help: array operations of cache size are so short that handing over the interpreter lock costs more than
the second core gives (measured on two cores: two threads take 1.6 times as long as one). Processes take seconds to
start, so they pay from some billion executions. Rows stay in one process: passing them on costs more than evaluating
them.
"""

from __future__ import annotations

import multiprocessing
import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor

from engine.plan import prepare
from engine.reductions import Reductions
from engine.scenario import Scenario
from engine.space import Space
from engine.steps import chunks_of, evaluate_rows

__all__ = ["reduce_slabs", "workers_for"]

PARALLEL_FROM = 1_000_000_000
"""Executions from which several processes are used unless the caller says otherwise: some thirty seconds of work."""


def workers_for(space: Space, workers: int | None) -> int:
    """How many processes to use: what the caller says, else all cores for a very large space and one for others.

    Raises ValueError for a number below 1.
    """
    if workers is None:
        return len(os.sched_getaffinity(0)) if space.total >= PARALLEL_FROM else 1
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise ValueError(f"workers is {workers!r}; it must be a whole number of at least 1.")
    return workers


def reduce_slabs(scenario: Scenario, slabs: list[range], workers: int) -> Iterator[Reductions]:
    """The reductions of each run of cells, in the order of the runs.

    Leaving the iterator stops the processes after what they are at.
    """
    # Started afresh rather than forked: a fork of a process with threads may inherit a held lock.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_begin, initargs=(scenario,)) as pool:
        waiting = iter(slabs)
        running: deque[Future[Reductions]] = deque()
        try:
            while True:
                while len(running) <= workers and (numbers := next(waiting, None)) is not None:
                    running.append(pool.submit(_reduce_slab, numbers))
                if not running:
                    return
                yield running.popleft().result()
        finally:
            for future in running:
                future.cancel()


_SCENARIO: list[Scenario] = []
"""The scenario of a worker process."""


def _begin(scenario: Scenario) -> None:
    _SCENARIO[:] = [scenario]


def _reduce_slab(numbers: range) -> Reductions:
    """In a worker: reductions of a run of cells."""
    space = _SCENARIO[0].space
    plan = prepare(space, numbers)
    reductions = Reductions.empty(space)
    reductions.reject(plan)
    for group, part in chunks_of(plan):
        reductions.add(plan, evaluate_rows(plan, group, part))
    # The caller has the same space; sending it with every result would cost more than the result.
    reductions.space = None  # type: ignore[assignment]
    return reductions

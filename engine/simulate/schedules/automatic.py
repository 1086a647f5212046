"""Zero-bubble orders planned greedily from measured durations under a memory limit, one chunk per rank.

The authors' planner goes microbatch by microbatch: it decides which ranks take a forward before the backward, and puts
gradients of weights where a rank would wait long enough, or where it must free memory. Eight variants of three
decisions are tried; the one with the shortest longest span is taken.

Source: Qi et al., "Zero Bubble Pipeline Parallelism" (arXiv:2401.10241), section 3, and the heuristic of
sail-sg/zero-bubble-pipeline-parallelism (`scheduler/zb.py`). Memory is counted as in its example: a forward takes two
units, gradients of inputs and of weights give one back each.
"""

from __future__ import annotations

from itertools import product
from typing import Final

from engine.simulate.schedules.contract import (
    FORWARD,
    INPUT_GRADIENT,
    WEIGHT_GRADIENT,
    Entry,
    ScheduleError,
    ScheduleRule,
    ScheduleShape,
)

__all__ = ["RULES"]

MEMORY: Final = (2, -1, -1)
"""Change of memory by a forward, a gradient of inputs and one of weights [halves of an activation]. Source:
the example in `auto_schedule.py` of sail-sg/zero-bubble-pipeline-parallelism; `zb.py` takes them as arguments."""


class _ZeroBubblePlan:
    """One variant being planned: clocks, memory and the actions put so far, by rank."""

    def __init__(
        self, shape: ScheduleShape, limit: float, *, wait_first: bool, backward_first: bool, greedy: bool
    ) -> None:
        self.ranks, self.total, self.limit = shape.ranks, shape.microbatches, 2 * limit
        self.costs, self.send = shape.durations[:3], shape.durations[3]
        self.wait_first, self.backward_first, self.greedy = wait_first, backward_first, greedy
        self.done = [[0] * self.ranks for _ in range(3)]
        self.ends: list[list[list[float]]] = [[[] for _ in range(self.ranks)] for _ in range(3)]
        self.clock, self.lost = [0.0] * self.ranks, [0.0] * self.ranks
        self.memory = [0] * self.ranks
        self.entries: list[list[Entry]] = [[] for _ in range(self.ranks)]

    def put(self, kind: int, rank: int) -> None:
        """Does the next action of a kind on a rank as early as it can be."""
        m = self.done[kind][rank]
        soonest = end = self.clock[rank] + self.costs[kind]
        source = self._source(kind, rank)
        if source is not None:
            end = max(end, self.ends[kind][source][m] + self.send + self.costs[kind])
        if self.done[FORWARD][rank]:
            self.lost[rank] += end - soonest
        self.clock[rank] = end
        self.ends[kind][rank].append(end)
        self.memory[rank] += MEMORY[kind]
        self.done[kind][rank] += 1
        self.entries[rank].append(((kind, rank, m),))

    def _source(self, kind: int, rank: int) -> int | None:
        """Returns the rank whose result an action waits for."""
        if kind == FORWARD and rank > 0:
            return rank - 1
        return rank + 1 if kind == INPUT_GRADIENT and rank < self.ranks - 1 else None

    def run(self) -> float:
        """Plans all microbatches and returns the longest span."""
        self._warm_up()
        for m in range(1, self.total):
            wanted = [self._takes_forward(rank) for rank in range(self.ranks)]
            for rank in range(self.ranks - 2, -1, -1):
                wanted[rank] = wanted[rank] and wanted[rank + 1]
            for rank in range(self.ranks):
                if wanted[rank]:
                    self._put_after_weights(FORWARD, rank, self.done[FORWARD][rank])
            for rank in reversed(range(self.ranks)):
                self._put_after_weights(INPUT_GRADIENT, rank, m)
        for rank in range(self.ranks):
            while self.done[WEIGHT_GRADIENT][rank] < self.total:
                self.put(WEIGHT_GRADIENT, rank)
        return max(
            self.ends[WEIGHT_GRADIENT][rank][-1] - self.ends[FORWARD][rank][0] + self.costs[FORWARD]
            for rank in range(self.ranks)
        )

    def _warm_up(self) -> None:
        """Does the first forward, as many more as fit before the first gradient is back, and that gradient."""
        for rank in range(self.ranks):
            self.put(FORWARD, rank)
        # From the last rank up: forwards that fit into memory before the first gradient is back.
        more = [0] * self.ranks
        back = self.ends[FORWARD][-1][0] + self.costs[INPUT_GRADIENT]
        for rank in range(self.ranks - 2, -1, -1):
            memory, clock = self.memory[rank], self.clock[rank]
            arrival = back + self.send
            while self.done[FORWARD][rank] + more[rank] < self.total and memory + MEMORY[FORWARD] <= self.limit:
                if clock + self.costs[FORWARD] > arrival if self.wait_first else clock >= arrival:
                    break
                memory, clock, more[rank] = memory + MEMORY[FORWARD], clock + self.costs[FORWARD], more[rank] + 1
            back = max(clock, arrival) + self.costs[INPUT_GRADIENT]
        # A rank takes fewer of them than the rank before it, where it can.
        for rank in range(1, self.ranks):
            while 0 < more[rank] >= more[rank - 1] and self.done[FORWARD][rank] + more[rank] < self.total:
                more[rank] -= 1
        for rank in range(self.ranks):
            for _ in range(more[rank]):
                self.put(FORWARD, rank)
        for rank in reversed(range(self.ranks)):
            self.put(INPUT_GRADIENT, rank)

    def _takes_forward(self, rank: int) -> bool:
        """Return whether a rank takes another forward before its next backward."""
        ahead = self.done[FORWARD]
        if ahead[rank] >= self.total:
            return False
        if not self.backward_first or rank + 1 == self.ranks or ahead[rank] < ahead[rank + 1] + 2:
            return True
        # When the gradient of the next rank would be back after one more forward.
        back = self.clock[rank + 1] + self.costs[FORWARD] + self.costs[INPUT_GRADIENT] + self.send
        if self.clock[rank] >= back:
            return False
        weights, memory = 0, self.memory[rank] + MEMORY[FORWARD]
        pending = self.done[INPUT_GRADIENT][rank] - self.done[WEIGHT_GRADIENT][rank]
        freeing = 0.0
        while memory > self.limit and weights < pending:
            freeing += self.costs[WEIGHT_GRADIENT]
            memory, weights = memory + MEMORY[WEIGHT_GRADIENT], weights + 1
        if self.clock[rank] + self.costs[FORWARD] + freeing <= back:
            return True
        return back - self.clock[rank] > max(self.lost) - self.lost[rank]

    def _put_after_weights(self, kind: int, rank: int, m: int) -> None:
        """Does an action after those gradients of weights that free its memory or fill its waiting."""
        while self.memory[rank] + MEMORY[kind] > self.limit:
            if not self._pending(rank):
                raise ScheduleError("The memory limit is too low for an order.")
            self.put(WEIGHT_GRADIENT, rank)
        source = self._source(kind, rank)
        if source is not None:
            arrival = self.ends[kind][source][m] + self.send
            while self._pending(rank) and self.clock[rank] + self.costs[WEIGHT_GRADIENT] <= arrival:
                self.put(WEIGHT_GRADIENT, rank)
            if self._pending(rank) and self.clock[rank] < arrival:
                # A wait that would lengthen the longest span is filled, even if that delays the action.
                late = arrival - self.clock[rank] > max(self.lost) - self.lost[rank]
                if late or self.greedy:
                    self.put(WEIGHT_GRADIENT, rank)
        if kind == INPUT_GRADIENT and rank == 0 and self.done[FORWARD][0] == self.total:
            while self._pending(rank):
                self.put(WEIGHT_GRADIENT, rank)
        self.put(kind, rank)

    def _pending(self, rank: int) -> bool:
        return self.done[WEIGHT_GRADIENT][rank] < self.done[INPUT_GRADIENT][rank]


def _plan_order(shape: ScheduleShape, limit: float) -> list[list[Entry]]:
    if limit < 1:
        raise ScheduleError(f"The memory limit must be at least 1 activation, and is {limit:g}.")
    best: tuple[float, list[list[Entry]]] | None = None
    for wait_first, backward_first, greedy in product((True, False), repeat=3):
        plan = _ZeroBubblePlan(shape, limit, wait_first=wait_first, backward_first=backward_first, greedy=greedy)
        span = plan.run()
        if best is None or span < best[0]:
            best = span, plan.entries
    assert best is not None
    return best[1]


def _plan_one_share(shape: ScheduleShape) -> list[list[Entry]]:
    return _plan_order(shape, shape.ranks if shape.memory_limit is None else shape.memory_limit)


def _plan_two_shares(shape: ScheduleShape) -> list[list[Entry]]:
    return _plan_order(shape, 2 * shape.ranks if shape.memory_limit is None else shape.memory_limit)


_SOURCE: Final = "Qi et al. 2023 (arXiv:2401.10241), section 3; the heuristic of its program"

RULES: Final = (
    ScheduleRule(
        name="zb-auto-1p",
        title="Zero bubble, planned, 1F1B's memory",
        order=_plan_one_share,
        splits=True,
        limited=True,
        timed=True,
        source=_SOURCE,
        frameworks={"zero-bubble": "--enable-zero-bubble --zero-bubble-max-pending-backward P"},
    ),
    ScheduleRule(
        name="zb-auto-2p",
        title="Zero bubble, planned, twice the memory",
        order=_plan_two_shares,
        splits=True,
        limited=True,
        timed=True,
        source=_SOURCE,
        frameworks={"zero-bubble": "--enable-zero-bubble --zero-bubble-max-pending-backward 2P"},
    ),
)

"""The V-shaped zero-bubble order planned greedily from measured durations under a memory limit.

Source: Qi et al., "Zero Bubble Pipeline Parallelism" (arXiv:2401.10241), section 6, and the heuristic of
sail-sg/zero-bubble-pipeline-parallelism (`scheduler/zbv.py`): a warm-up that lets forwards come back round the turn in
time, then a backward and a forward on every rank in turn, with gradients of weights in the gaps. Four variants of
filling gaps are planned, each again with the bubbles that the first attempt needed anyway, and the least bubble wins.
"""

from __future__ import annotations

from collections import deque
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
    StagePlacement,
)

__all__ = ["RULES"]

MEMORY: Final = (2, -1, -1)
"""Change of memory by a forward, a gradient of inputs and one of weights [halves of a chunk's activation]. Source:
stated by us, as for the order of one chunk per rank; `zbv.py` takes them as arguments."""


class _VShapedPlan:
    """One variant being planned. A leg is 0 on the way from the first rank to the last and 1 on the way back.

    Forwards go leg 0 on near chunks, then leg 1 on far ones; gradients leg 0 on far chunks, then leg 1 on near ones.
    """

    def __init__(
        self, shape: ScheduleShape, limit: float, fill: tuple[bool, bool], granted: list[float] | None
    ) -> None:
        self.shape, self.ranks, self.total = shape, shape.ranks, shape.microbatches
        self.costs, self.send, self.limit = shape.durations[:3], shape.durations[3], 2 * limit
        self.fill_backward, self.fill_forward = fill
        self.granted = granted or [-1.0] * self.ranks
        self.done = [[[0] * self.ranks for _ in range(2)] for _ in range(2)]
        self.ends: list[list[list[list[float]]]] = [
            [[[] for _ in range(self.ranks)] for _ in range(2)] for _ in range(2)
        ]
        self.clock, self.lost, self.memory = [0.0] * self.ranks, [0.0] * self.ranks, [0] * self.ranks
        self.pending: list[deque[tuple[int, int]]] = [deque() for _ in range(self.ranks)]
        self.entries: list[list[Entry]] = [[] for _ in range(self.ranks)]

    def count(self, kind: int, leg: int, rank: int) -> int:
        """Returns how many actions of a kind and leg a rank has done."""
        return self.done[kind][leg][rank]

    def arrival(self, kind: int, leg: int, rank: int) -> float | None:
        """Return the arrival time of the next action's input from the previous rank; None if it has no input yet."""
        source = rank - 1 if leg == 0 else rank + 1
        m = self.count(kind, leg, rank)
        if not 0 <= source < self.ranks or m >= len(self.ends[kind][leg][source]):
            return None
        return self.ends[kind][leg][source][m] + self.send

    def put(self, kind: int, leg: int, rank: int) -> None:
        """Does the next forward or gradient as early as it can be."""
        m = self.count(kind, leg, rank)
        turned = leg == 0 or m < self.count(kind, 0, rank)
        source = rank - 1 if leg == 0 else rank + 1
        arrival = self.arrival(kind, leg, rank)
        if (
            m >= self.total
            or not turned
            or (0 <= source < self.ranks and arrival is None)
            or self.memory[rank] + MEMORY[kind] > self.limit
        ):
            raise ScheduleError(_NO_ORDER.format(self.total, self.ranks, self.limit / 2))
        soonest = end = self.clock[rank] + self.costs[kind]
        if arrival is not None:
            end = max(end, arrival + self.costs[kind])
        if self.count(FORWARD, 0, rank):
            self.lost[rank] += end - soonest
        self.clock[rank] = end
        self.ends[kind][leg][rank].append(end)
        self.done[kind][leg][rank] += 1
        self.memory[rank] += MEMORY[kind]
        far = leg == 1 if kind == FORWARD else leg == 0
        stage = 2 * self.ranks - 1 - rank if far else rank
        self.entries[rank].append(((kind, stage, m),))
        if kind == INPUT_GRADIENT:
            self.pending[rank].append((stage, m))

    def put_weights(self, rank: int) -> None:
        """Does the oldest gradient of weights."""
        if not self.pending[rank]:
            raise ScheduleError(_NO_ORDER.format(self.total, self.ranks, self.limit / 2))
        stage, m = self.pending[rank].popleft()
        self.clock[rank] += self.costs[WEIGHT_GRADIENT]
        self.memory[rank] += MEMORY[WEIGHT_GRADIENT]
        self.entries[rank].append(((WEIGHT_GRADIENT, stage, m),))

    def run(self) -> float:
        """Plans all microbatches and returns the largest bubble of a rank."""
        self._warm_up()
        self._even_out()
        for _ in range(2 * self.total):
            self._backwards()
            self._forwards()
        for rank in range(self.ranks):
            while self.pending[rank]:
                self.put_weights(rank)
        return max(0.0, *self.lost)

    def _warm_up(self) -> None:
        """Sends the first microbatch to the turn and back, with as many forwards before it as fit the wait."""
        for rank in range(self.ranks):
            self.put(FORWARD, 0, rank)
        for rank in reversed(range(self.ranks)):
            if rank < self.ranks - 1:
                arrival = self.ends[FORWARD][1][rank + 1][0] + self.send
                while (
                    self.memory[rank] + MEMORY[FORWARD] * (2 + 2 * rank) <= self.limit
                    and self.clock[rank] + self.costs[FORWARD] <= arrival
                    and self.count(FORWARD, 0, rank) < self.total
                ):
                    for before in range(rank + 1):
                        self.put(FORWARD, 0, before)
            self.put(FORWARD, 1, rank)

    def _even_out(self) -> None:
        """Gives later ranks forwards of both legs in turn until none has done less than the rank before."""
        leg = 0
        for rank in range(1, self.ranks):
            while (
                self._forward_count(rank) < self._forward_count(rank - 1)
                or self.count(FORWARD, 1, rank) <= self.count(FORWARD, 1, rank - 1) < self.total
            ):
                for each in range(self.ranks - 1, rank - 1, -1):
                    if self.count(FORWARD, leg, each) < self.total:
                        self.put(FORWARD, leg, each)
                leg = 1 - leg

    def _forward_count(self, rank: int) -> int:
        return self.count(FORWARD, 0, rank) + self.count(FORWARD, 1, rank)

    def _backwards(self) -> None:
        """Does one gradient on every rank: the second leg's, from the last rank, then the first leg's."""
        for rank in range(self.ranks):
            while self.memory[rank] + MEMORY[INPUT_GRADIENT] > self.limit:
                self.put_weights(rank)
        returning = [rank for rank in range(self.ranks) if self._returns(rank)]
        for rank in reversed(returning):
            self._put_after_weights(INPUT_GRADIENT, 1, rank, fill=True)
        for rank in range(self.ranks):
            if rank not in returning:
                self._put_after_weights(INPUT_GRADIENT, 0, rank, fill=self.fill_backward)

    def _returns(self, rank: int) -> bool:
        """Returns whether a rank's next gradient is one of the second leg."""
        if self.count(INPUT_GRADIENT, 1, rank) >= self.count(INPUT_GRADIENT, 0, rank):
            return False
        if rank == self.ranks - 1 or self.arrival(INPUT_GRADIENT, 1, rank) is not None:
            return True
        return self.count(INPUT_GRADIENT, 0, rank) >= self.total

    def _forwards(self) -> None:
        """Does one forward on every rank that has one to do."""
        for rank in range(self.ranks):
            leg = self._next_forward(rank)
            if leg is None:
                continue
            while self.memory[rank] + MEMORY[FORWARD] > self.limit:
                self.put_weights(rank)
            self._put_after_weights(FORWARD, leg, rank, fill=self.fill_forward)

    def _next_forward(self, rank: int) -> int | None:
        """Return the leg of a rank's next forward: back if its input has arrived, else there."""
        there, back = self.count(FORWARD, 0, rank), self.count(FORWARD, 1, rank)
        if back >= self.total:
            return None
        if back >= there:
            return 0
        if rank == self.ranks - 1 or self.arrival(FORWARD, 1, rank) is not None:
            return 1
        if there < self.total and (rank == 0 or self.arrival(FORWARD, 0, rank) is not None):
            return 0
        return None

    def _put_after_weights(self, kind: int, leg: int, rank: int, *, fill: bool) -> None:
        """Does an action after those gradients of weights that fill its waiting."""
        arrival = self.arrival(kind, leg, rank)
        if arrival is not None:
            while self.pending[rank] and arrival >= self.clock[rank] + self.costs[WEIGHT_GRADIENT]:
                self.put_weights(rank)
            spare = max(max(0.0, *self.lost), max(self.granted) - self.granted[rank]) - self.lost[rank]
            if fill and self.pending[rank] and arrival - self.clock[rank] > spare:
                self.put_weights(rank)
        self.put(kind, leg, rank)


_NO_ORDER: Final = (
    "The planner of ZB-V finds no order for {} microbatches on {} ranks within {:g} activations; try at least twice as "
    "many microbatches as ranks, or a higher memory limit."
)


def _attempt_plan(
    shape: ScheduleShape, limit: float, fill: tuple[bool, bool], granted: list[float] | None = None
) -> tuple[float, list[list[Entry]]]:
    """Returns the bubble and the order of a variant, planned again as long as that helps."""
    plan = _VShapedPlan(shape, limit, fill, granted)
    bubble = plan.run()
    allowed = max(plan.granted)
    if allowed < 0 or bubble < allowed:
        again = _attempt_plan(shape, limit, fill, plan.lost)
        if again[0] < bubble:
            return again
    return bubble, plan.entries


def _plan_order(shape: ScheduleShape) -> list[list[Entry]]:
    limit = 2 * shape.ranks if shape.memory_limit is None else shape.memory_limit
    best: tuple[float, list[list[Entry]]] | None = None
    for fill_backward, fill_forward in product((True, False), repeat=2):
        found = _attempt_plan(shape, limit, (fill_backward, fill_forward))
        if best is None or found[0] < best[0]:
            best = found
    assert best is not None
    return best[1]


RULES: Final = (
    ScheduleRule(
        name="zbv-auto",
        title="ZB-V, planned",
        order=_plan_order,
        placement=StagePlacement.V,
        chunks=2,
        splits=True,
        limited=True,
        timed=True,
        source="Qi et al. 2023 (arXiv:2401.10241), section 6; the heuristic of its program",
        frameworks={"zero-bubble": "--zero-bubble-v-schedule"},
    ),
)

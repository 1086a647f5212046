"""The clock of every stage through a step: one recurrence over the schedule, for many configurations at once.

Ops on a device follow one another, and an op on several devices begins when the last of them is free: there are no
streams, so nothing overlaps, and neighbours wait for each other at every Send. The schedule depends on (P, m) only, so
its items are gone through once with an array of clocks per stage [rows], and the repetitions of a long one are folded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from engine.executions.arrays import Floats
from engine.reproductions.distir.simulator.schedule import BACKWARD, FORWARD, FoldedSchedule, Item, folded, steps
from engine.reproductions.distir.simulator.stages import StepPartDurations

__all__ = ["Observer", "clocks"]

SAME: Final = 1e-14
"""Part of a period by which times that are the same may differ, as sums in another order do."""

Observer = Callable[[str, int, int, Floats, Floats], None]
"""Called with kind, stage, microbatch, start and end [s, rows] of an item or a transfer."""


def clocks(d: StepPartDurations, stages: int, microbatches: int, observe: Observer | None = None) -> Floats:
    """Returns the time at which each stage ends its step [s; stages, rows]; the latest is the step's.

    Args:
        d: the parts of a step.
        stages: P.
        microbatches: m.
        observe: called with every item ("f", "b") and every transfer ("activation", "gradient", "label", "weights", at
            its receiver); nothing is folded then.
    """
    run = _StepRecurrence(d, [np.zeros(d.forward.shape[1]) for _ in range(stages)], observe)
    run.t[0] = run.t[0] + d.start
    if observe is not None:
        run.take(*steps(stages, microbatches))
    else:
        plan = folded(stages, microbatches)
        run.take(*plan.steps[: plan.cut])
        run.repeat(plan)
        run.take(*plan.steps[plan.cut :])
    return np.stack(run.t) + d.end


@dataclass
class _StepRecurrence:
    """The clocks of the stages [rows], and what moves them."""

    d: StepPartDurations
    t: list[Floats]
    observe: Observer | None

    def __post_init__(self) -> None:
        self.backward = (self.d.backward, self.d.backward + self.d.accumulation)
        self.loss = (self.d.loss, self.d.loss + self.d.loss_accumulation)
        self.pulled = bool(np.any(self.d.weight > 0))

    def take(self, *several: tuple[Item, ...]) -> None:
        """Goes through time steps: their items, then what each sends to its neighbour."""
        for step in several:
            for stage, kind, microbatch in step:
                begun = self.t[stage]
                if kind is BACKWARD:
                    self.t[stage] = begun + self.backward[microbatch > 0][stage]
                else:
                    self._forward(stage, microbatch)
                if self.observe is not None:
                    self.observe("b" if kind else "f", stage, microbatch, begun, self.t[stage])
            for stage, kind, microbatch in step:
                to = stage + 1 if kind is FORWARD else stage - 1
                if 0 <= to < len(self.t):
                    name = "activation" if kind is FORWARD else "gradient"
                    self._send(name, stage, to, microbatch, self.d.boundary[max(stage, to)])

    def _forward(self, stage: int, microbatch: int) -> None:
        if self.pulled and stage > 0 and microbatch == 0:
            self._pull_weights(stage)
        else:
            self.t[stage] = self.t[stage] + self.d.forward[stage]
        if stage == len(self.t) - 1:
            if self.d.labels_pulled:
                self._send("label", 0, stage, microbatch, self.d.label)
            self.t[stage] = self.t[stage] + self.loss[microbatch > 0]

    def _send(self, name: str, stage: int, to: int, microbatch: int, time: Floats) -> None:
        """A Send: both ends wait for each other, and are blocked."""
        both = np.maximum(self.t[stage], self.t[to])
        self.t[stage] = self.t[to] = both + time
        if self.observe is not None:
            self.observe(name, to, microbatch, both, self.t[to])

    def _pull_weights(self, stage: int) -> None:
        """A stage's first forward, where every layer first takes its weight from the first stage.

        After the first of them the stage is never behind the first stage, which thus is let go before the last layer.
        """
        both = np.maximum(self.t[0], self.t[stage])
        self.t[stage] = both + self.d.layers_per_stage * self.d.weight + self.d.forward[stage]
        self.t[0] = self.t[stage] - self.d.last_layer[stage]
        if self.observe is not None:
            self.observe("weights", stage, 0, both, self.t[0])

    def repeat(self, plan: FoldedSchedule) -> None:
        """Goes through the periods that are left out of a folded schedule.

        A period takes clocks to others by sums and maxima only. So once a number of periods moves all stages of a
        configuration by the same time, as many again move them by that time again (Baccelli et al., "Synchronization
        and Linearity", 1992, chapter 3), and the rest is a product. One period does mostly; half as many as stages, or
        all, where a delay travels along the pipeline and back, as the labels make it in R1 and R2.
        """
        period, left = plan.steps[plan.cut : plan.cut + 2], plan.repeated
        history: deque[tuple[Floats, Floats]] = deque(maxlen=2 * len(self.t) + 1)
        passed = np.zeros_like(self.t[0])
        cycles = np.zeros(len(passed), np.int64)
        while left:
            # Clocks from the earliest on: small numbers, whose differences are exact enough to be compared.
            earliest = np.min(self.t, axis=0)
            passed, clock = passed + earliest, np.stack(self.t) - earliest
            history.append((clock, passed))
            for periods in range(1, len(history)):
                before, when = history[-1 - periods]
                same = np.abs(clock - before).max(axis=0) <= SAME * (passed - when)
                cycles[same & (cycles == 0)] = periods
            if cycles.all():
                break
            self.t = list(clock)
            self.take(*period)
            left -= 1
        clock = np.stack(self.t)
        if not left:
            self.t = list(clock + passed)
            return
        for periods in np.unique(cycles).tolist():
            rows = cycles == periods
            before, when = history[-1 - periods + left % periods]
            moved = passed - history[-1 - periods][1]
            clock[:, rows] = (before + when + (left // periods + 1) * moved)[:, rows]
        self.t = list(clock)

"""The clock of every stage through a step: one recurrence over the schedule, for many configurations at once.

Ops on a device follow one another, and an op on several devices begins when the last of them is free: there are no
streams, so nothing overlaps, and neighbours wait for each other at every Send. The schedule depends on (P, m) only, so
its 2 m P items are gone through once with an array of clocks per stage [rows].
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine.executions.arrays import Floats
from engine.simulate.distir.schedule import BACKWARD, FORWARD, steps
from engine.simulate.distir.stages import Durations

__all__ = ["Told", "clocks"]

Told = Callable[[str, int, int, Floats, Floats], None]
"""What an observer is told: kind, stage, microbatch, start and end [s, rows]."""


def clocks(d: Durations, stages: int, microbatches: int, told: Told | None = None) -> Floats:
    """Returns the time at which each stage ends its step [s; stages, rows]; the latest is the step's.

    Args:
        d: the parts of a step.
        stages: P.
        microbatches: m.
        told: is called with every item ("f", "b"), every transfer ("activation", "gradient", "label", "weights" at its
            receiver) and what a stage does at the start and the end of the step ("start", "end").
    """
    last = stages - 1
    t = [np.zeros(d.forward.shape[1]) for _ in range(stages)]
    t[0] = t[0] + d.start
    if told is not None:
        told("start", 0, -1, np.zeros_like(t[0]), t[0])
    later_backward = d.backward + d.accumulation
    later_loss = d.loss + d.loss_accumulation
    pulled = bool(np.any(d.weight > 0))
    for step in steps(stages, microbatches):
        for stage, kind, microbatch in step:
            begun = t[stage]
            if kind is BACKWARD:
                t[stage] = begun + (later_backward if microbatch else d.backward)[stage]
            else:
                t[stage] = begun + d.forward[stage]
                if pulled and stage > 0 and microbatch == 0:
                    _pull_weights(d, t, stage, begun, told)
                if stage == last:
                    if d.labels_pulled:
                        both = np.maximum(t[0], t[last])
                        t[0] = t[last] = both + d.label
                        if told is not None:
                            told("label", last, microbatch, both, t[last])
                    t[stage] = t[stage] + (later_loss if microbatch else d.loss)
            if told is not None:
                told("b" if kind else "f", stage, microbatch, begun, t[stage])
        for stage, kind, microbatch in step:
            to = stage + 1 if kind is FORWARD else stage - 1
            if 0 <= to <= last:
                both = np.maximum(t[stage], t[to])
                t[stage] = t[to] = both + d.boundary[max(stage, to)]
                if told is not None:
                    told("activation" if kind is FORWARD else "gradient", to, microbatch, both, t[to])
    for stage in range(stages):
        begun, t[stage] = t[stage], t[stage] + d.end[stage]
        if told is not None:
            told("end", stage, -1, begun, t[stage])
    return np.stack(t)


def _pull_weights(d: Durations, t: list[Floats], stage: int, begun: Floats, told: Told | None) -> None:
    """A stage's first forward, where every layer first takes its weight from the first stage.

    After the first of them the stage is never behind the first stage, which therefore is let go before the last layer.
    """
    both = np.maximum(t[0], begun)
    through = both + d.layers_per_stage * d.weight
    t[stage] = through + d.forward[stage]
    t[0] = t[stage] - d.last_layer[stage]
    if told is not None:
        told("weights", stage, 0, both, t[0])

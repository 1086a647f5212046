"""Timeline of all stages: early backward scheduling, with transfers as stages of their own.

Stage x of S starts with K = S - x forward passes, then alternates. Fan et al., "DAPPLE" (PPoPP 2021), section 3, in the
recurrences of HPGO's simulator (commit a40c6cf).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.executions.arrays import Floats
from engine.planners.layerwise.latency import MicrobatchWork
from engine.planners.layerwise.result import LayerwisePlan

__all__ = ["PipelineTimeline", "plan_timeline", "replay_passes"]


@dataclass(frozen=True)
class PipelineTimeline:
    """Ends of all passes, arrays [stages, microbatches] [s]; stages are compute stages with transfers between them."""

    works: tuple[MicrobatchWork, ...]
    forward_end: Floats
    backward_end: Floats

    @property
    def step_seconds(self) -> float:
        """Returns the step, to the end of the last all-reduce [s]."""
        reduces = np.array([work.reduce for work in self.works])
        return float(np.max(self.backward_end[:, -1] + reduces))


def replay_passes(works: Sequence[MicrobatchWork], count: int) -> PipelineTimeline:
    """Returns the passes of `count` microbatches through stages, including the transfers between them.

    Args:
        works: seconds of the passes of each stage, with network stages in between.
        count: microbatches of a step.
    """
    stages = len(works)
    forward = np.zeros((stages, count))
    backward = np.zeros((stages, count))
    ahead, behind = [[0.0] * count for _ in works], [[0.0] * count for _ in works]
    begun = [0] * stages
    for number in range(count):
        for x, work in enumerate(works):
            # Stage x starts with S - x forward passes.
            warm = stages - x
            while begun[x] < min(number + warm, count):
                i = begun[x]
                start = ahead[x][i - 1] if i else 0.0
                if x:
                    start = max(start, ahead[x - 1][i])
                # Forward pass i starts after the backward pass that freed its place.
                if i >= warm:
                    start = max(start, behind[x][i - warm])
                ahead[x][i] = start + work.forward
                begun[x] += 1
        for x in range(stages - 1, -1, -1):
            # A backward pass follows the forward passes that the early-backward order puts before it.
            start = max(ahead[x][number], ahead[x][min(number + stages - x, count) - 1])
            if number + stages - x > count:
                start = ahead[x][number]
            if x + 1 < stages:
                start = max(start, behind[x + 1][number])
            if number:
                start = max(start, behind[x][number - 1])
            behind[x][number] = start + works[x].backward
    forward[:], backward[:] = ahead, behind
    return PipelineTimeline(tuple(works), forward, backward)


def plan_timeline(plan: LayerwisePlan, most: int = 10_000) -> PipelineTimeline:
    """Returns the passes of a plan from the figures of its stages, of `most` microbatches at most.

    Args:
        plan: one that `solve` returned.
        most: microbatches that are shown; the first ones where there are more.
    """
    works: list[MicrobatchWork] = []
    for number, stage in enumerate(plan.stages):
        figures = {each.name: each.value for each in stage.figures}
        works.append(MicrobatchWork(figures["forward_time"], figures["backward_time"], figures["reduce_time"]))
        if number + 1 < len(plan.stages):
            works.append(MicrobatchWork(figures["transfer_time"], figures["transfer_time"]))
    return replay_passes(works, min(plan.microbatches, most))

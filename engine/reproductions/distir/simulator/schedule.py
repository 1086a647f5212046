"""DistIR's greedy schedule: which stage does what in which time step.

In every time step each stage that has work takes one item: forward and backward in turns where both are there, the
lowest microbatch first. What an item makes ready is there in the next step. Nothing limits the microbatches in flight:
stage k keeps up to min(m, 2(P-k)-1) of them, where the usual rule keeps min(m, P-k).

Source: `dist_ir/transforms/pipedream_scheduler.py` and `pipeline_parallel_scheduler.py` of microsoft/dist-ir.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

__all__ = ["BACKWARD", "FORWARD", "FoldedSchedule", "Item", "folded", "longest_unfolded", "steps"]

FORWARD: Final = False
BACKWARD: Final = True

Item = tuple[int, bool, int]
"""Stage, whether it is a backward, microbatch."""


@lru_cache(maxsize=64)
def steps(stages: int, microbatches: int) -> tuple[tuple[Item, ...], ...]:
    """Returns the items of each of the 2 (m + P - 1) time steps, by stage.

    Args:
        stages: P.
        microbatches: m.
    """
    # Items of a kind become ready in the order of microbatches, so counts say which is next.
    ready = [[0, 0] for _ in range(stages)]
    done = [[0, 0] for _ in range(stages)]
    ready[0][FORWARD] = microbatches
    last = [BACKWARD] * stages
    result: list[tuple[Item, ...]] = []
    left = 2 * stages * microbatches
    while left:
        step: list[Item] = []
        for stage in range(stages):
            kind = not last[stage]
            if ready[stage][kind] == done[stage][kind]:
                kind = not kind
            if ready[stage][kind] > done[stage][kind]:
                step.append((stage, kind, done[stage][kind]))
                done[stage][kind] += 1
                last[stage] = kind
        for stage, kind, _ in step:
            if kind is FORWARD and stage < stages - 1:
                ready[stage + 1][FORWARD] += 1
            elif kind is FORWARD:
                ready[stage][BACKWARD] += 1
            elif stage > 0:
                ready[stage - 1][BACKWARD] += 1
        result.append(tuple(step))
        left -= len(step)
    return tuple(result)


@dataclass(frozen=True, slots=True)
class FoldedSchedule:
    """A schedule of many microbatches: that of fewer, of which two steps from `cut` on come `repeated` times more.

    From then on every stage does one forward and one backward in each period of two steps, with the next microbatch,
    until the first stage runs out of forwards.
    """

    steps: tuple[tuple[Item, ...], ...]
    cut: int
    repeated: int


def longest_unfolded(stages: int) -> int:
    """Returns the microbatches of the longest schedule that is not folded.

    Args:
        stages: of the pipeline.
    """
    return 2 * stages + 8


def folded(stages: int, microbatches: int) -> FoldedSchedule:
    """Returns the schedule of `steps`, folded where it is longer than `longest`.

    Args:
        stages: P.
        microbatches: m.
    """
    fewer = min(microbatches, longest_unfolded(stages))
    return FoldedSchedule(steps(stages, fewer), 2 * stages + 3, microbatches - fewer)

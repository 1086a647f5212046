"""Pace of an interleaved pipeline with unlike chunks: its time per microbatch relative to its busiest stage.

Every stage has its own mixture of chunks at work at a time: while one does a forward of a long chunk and the backward
of another, its neighbours have short ones, and wait. If all took each step together, a group of microbatches would take
the sum over its steps of the stage that has most to do in each; where that is no more than the busiest stage does, it
never waits. Otherwise the pace is that of a steady state, which is run through step by step, once per layout, with a
backward that takes twice the forward.

Source: the order of interleaved 1F1B, Narayanan et al. 2021 (arXiv:2104.04473, section 2.2), and of Megatron Core's
`combined_1f1b`; pace, stated by us, equal to that of a replay.
"""

from __future__ import annotations

from collections import deque
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from engine.cost_models.calibrated.physics.pipeline.layouts import BlockPattern, LayoutWork, chunk_work

__all__ = ["is_in_step", "pace"]

TOGETHER = 1.005
"""Steps taken together, against the work of the busiest stage, up to which none is taken to wait [dimensionless].
Source: stated by us."""
SETTLING, MEASURED = 3, 4
"""Groups of microbatches until the steady state, and those whose pace is taken [groups]. Source: stated by us."""
FORWARD = 1.0 / 3.0
"""Share of a chunk's work that is its forward [dimensionless]. Source: one of three products per matrix."""


@lru_cache(maxsize=4096)
def pace(pattern: BlockPattern, stages: int, chunks: int, layout: int, work: LayoutWork, paired: bool) -> float:
    """Return the time of a microbatch in the steady state, as a multiple of the busiest stage's work [dimensionless].

    Args:
        pattern: order of the kinds of blocks in the model.
        stages: stages of the pipeline.
        chunks: chunks of each stage, more than one.
        layout: position among the words of the field `stage_layout`.
        work: work of blocks and head.
        paired: whether a forward and a backward are one step, as in combined 1F1B.
    """
    each = chunk_work(pattern, stages, chunks, layout, work)
    busiest = stages * float(each.sum(axis=0).max())
    if is_in_step(each):
        return 1.0
    early, late = (_groups_makespan(each, groups, paired) for groups in (SETTLING, SETTLING + MEASURED))
    return max((late - early) / (MEASURED * busiest), 1.0)


def is_in_step(each: npt.NDArray[np.float64]) -> bool:
    """Return whether the busiest stage never waits in the steady state: all stages can take every step together without
    a longer group of microbatches.

    Args:
        each: work of every chunk and stage [chunks, stages] [s].
    """
    chunks, stages = each.shape
    entry = np.arange(chunks * stages)[:, None]
    rank = np.arange(stages)
    behind = (chunks - 1) * stages + 2 * (stages - 1 - rank) + 1
    forward = FORWARD * each[entry // stages, rank]
    backward = (1.0 - FORWARD) * each[chunks - 1 - (entry - behind) % (chunks * stages) // stages, rank]
    together = float((forward + backward).max(axis=1).sum())
    return bool(together <= TOGETHER * stages * float(each.sum(axis=0).max()))


def _groups_makespan(each: npt.NDArray[np.float64], groups: int, paired: bool) -> float:
    """Return the time of a number of groups of microbatches in the order of interleaved 1F1B [s]."""
    chunks, stages = each.shape
    slots = cycle = chunks * stages
    total = groups * cycle
    ahead = [(chunks - 1) * stages + 2 * (stages - 1 - rank) + paired for rank in range(stages)]
    work = each.tolist()
    forwards: dict[tuple[int, int], float] = {}
    backwards: dict[tuple[int, int], float] = {}
    free, done = [0.0] * stages, [0] * stages
    waiting = deque(range(stages))

    def of(entry: int, *, back: bool) -> tuple[int, int]:
        """Chunk and microbatch of a step."""
        group, rest = divmod(entry, cycle)
        chunk, place = divmod(rest, stages)
        return (chunks - 1 - chunk if back else chunk), group * stages + place

    def start_of(rank: int, forward: int, backward: int) -> float | None:
        """Return when the inputs of a step are ready; None if one is not done."""
        found = free[rank]
        if forward >= 0:
            chunk, micro = of(forward, back=False)
            slot = chunk * stages + rank
            if slot:
                if (slot - 1, micro) not in forwards:
                    return None
                found = max(found, forwards[slot - 1, micro])
        if backward >= 0:
            chunk, micro = of(backward, back=True)
            slot = chunk * stages + rank
            before = forwards.get((slot, micro)) if slot == slots - 1 else backwards.get((slot + 1, micro))
            if before is None:
                return None
            found = max(found, before)
        return found

    while waiting:
        rank = waiting.popleft()
        first, moved = min(ahead[rank], total), False
        while done[rank] < 2 * total:
            number = done[rank]
            # Forwards until the first backward, then one of each in turn, then what backwards are left.
            steady = number - first
            if number < first:
                forward, backward = number, -1
            elif number < first + 2 * (total - first):
                forward, backward = first + steady // 2, steady // 2
                if not paired:
                    forward, backward = (forward, -1) if steady % 2 == 0 else (-1, backward)
            else:
                forward, backward = -1, number - total
            start = start_of(rank, forward, backward)
            if start is None:
                break
            chunk, micro = of(forward, back=False)
            end = start + (FORWARD * work[chunk][rank] if forward >= 0 else 0.0)
            back, back_micro = of(backward, back=True)
            end += (1.0 - FORWARD) * work[back][rank] if backward >= 0 else 0.0
            if forward >= 0:
                forwards[chunk * stages + rank, micro] = end
            if backward >= 0:
                backwards[back * stages + rank, back_micro] = end
            free[rank], moved = end, True
            done[rank] += (forward >= 0) + (backward >= 0)
        if moved:
            waiting.extend({(rank + 1) % stages, (rank - 1) % stages})
    return max(free)

"""The pipeline schedule of one execution as data: what every stage does when, from the start of a step to its end.

One forward, one backward (1F1B): a stage takes in microbatches until the pipeline behind it is full, then alternates a
forward with a backward chunk, then drains. With interleaving a stage holds several chunks of the model and passes
through groups of as many microbatches as there are stages, chunk by chunk. A last group that is not full leaves slots
of an otherwise full group idle; that reproduces exactly the waiting that the cost model charges.

Durations are those of the cost model: a chunk with all its communication, offload and recomputation that is exposed.
Where pipeline stages are equal, a stage's idle time is the execution's `bubble_time` and the last stage to finish does
so at its `total_time`.

Sources: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM" (SC21,
arXiv:2104.04473), section 2.2, for the order of work; Calculon 0.1.0, `llm.py` `_compute_batch_stats`, for durations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd

from engine.cost_models.chunk_times import ChunkTimes, chunk_times, microbatches_of, tells_blocks_apart

__all__ = ["Schedule", "schedule"]

FORWARD, BACKWARD, EXCHANGE, OPTIMIZER = "forward", "backward", "exchange", "optimizer"

LARGEST: Final = 40_000
"""Chunks of work simulated at most; of longer schedules the repeating middle is left out."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Who does what when.

    `tasks`: one row per task: `stage`, `kind` (forward, backward, exchange, optimizer), `chunk`, `microbatch` (both -1
    for the last two), `start`, `end` [s]. `step_time` [s] is the cost model's.

    Long schedules leave out repetitions: the times of `tasks` then are shorter by `skipped` [s] after `cut` [s], and
    `skipped_microbatches` did not get tasks. `end` is the step's end on that shortened axis.
    """

    stages: int
    chunks: int
    microbatches: int
    tasks: pd.DataFrame
    step_time: float
    cut: float
    skipped: float
    skipped_microbatches: int

    @property
    def end(self) -> float:
        """Where the step ends on the axis of `tasks` [s]."""
        return self.step_time - self.skipped

    def idle(self) -> pd.DataFrame:
        """The gaps: `stage`, `start`, `end` [s] of every stretch in which a stage has nothing to do."""
        gaps: list[tuple[int, float, float]] = []
        least = 1e-9 * self.step_time
        for stage, tasks in self.tasks.groupby("stage", sort=True):
            reached = 0.0
            for start, end in zip(tasks["start"], tasks["end"], strict=True):
                if start - reached > least:
                    gaps.append((int(str(stage)), reached, float(start)))
                reached = float(end)
            if self.end - reached > least:
                gaps.append((int(str(stage)), reached, self.end))
        return pd.DataFrame(gaps, columns=["stage", "start", "end"])


def schedule(execution: Mapping[Any, Any], num_blocks: int, *, most_tasks: int = LARGEST) -> Schedule:
    """The schedule of a feasible execution.

    Args:
        execution: its fields and statistics, such as `Exploration.best` or a row of `evaluate_ids`.
        num_blocks: of the model.
        most_tasks: forward and backward tasks to simulate; beyond that the repeating middle is left out, but never the
            filling and draining of the pipeline.

    With uneven pipelines the last stages are shorter, and the cost model's bubble is an estimate: what remains of
    the step is idle, and where the schedule would take longer than the step its times are scaled to fit. The same holds
    for the calibrated cost model, whose stages all take what the slowest does here; at the end of its step stages wait
    for the slowest GPU and the host (`overhead_time`).
    """
    times = chunk_times(execution, num_blocks)
    stages, chunks = int(execution["pipeline_par"]), int(execution["pipeline_interleaving"])
    microbatches = microbatches_of(execution)
    kept = _kept(stages, chunks, microbatches, most_tasks)
    tasks = _simulate(stages, chunks, kept, times)
    omitted = microbatches - kept
    skipped = omitted * chunks * (times.forward + times.backward)
    reached = max((task[5] for task in tasks), default=0.0)
    room = float(execution["total_time"]) - skipped - times.exchange - times.optimizer
    uneven = times.short_stages > 0
    if not tells_blocks_apart(execution):
        uneven, room = True, room - float(execution.get("overhead_time", 0.0))
    if uneven and reached > room:
        tasks = [(*task[:4], task[4] * room / reached, task[5] * room / reached) for task in tasks]
        reached = room
    tasks += _endings(tasks, times)
    frame = pd.DataFrame(tasks, columns=["stage", "kind", "chunk", "microbatch", "start", "end"])
    frame = frame.sort_values(["stage", "start"], kind="stable").reset_index(drop=True)
    return Schedule(
        stages=stages,
        chunks=chunks,
        microbatches=microbatches,
        tasks=frame,
        step_time=float(execution["total_time"]),
        cut=reached / 2.0 if omitted else math.inf,
        skipped=skipped,
        skipped_microbatches=omitted,
    )


def _kept(stages: int, chunks: int, microbatches: int, most_tasks: int) -> int:
    """How many microbatches to simulate: all, or the fewest that show filling, a steady stretch and draining."""
    if microbatches * chunks * stages * 2 <= most_tasks:
        return microbatches
    group = stages if chunks > 1 else 1
    least = 3 * stages if chunks > 1 else stages + 6
    surplus = max(0, microbatches - least) // group * group
    return microbatches - surplus


Task = tuple[int, str, int, int, float, float]


def _order(stages: int, chunks: int, slots: int, stage: int) -> list[tuple[str, int, int]]:
    """What a stage does in which order: (kind, chunk, microbatch slot)."""
    forward, backward = [], []
    group = stages if chunks > 1 else slots
    for first in range(0, slots, group):
        members = range(first, min(first + group, slots))
        forward += [(FORWARD, chunk, slot) for chunk in range(chunks) for slot in members]
        backward += [(BACKWARD, chunk, slot) for chunk in reversed(range(chunks)) for slot in members]
    ahead = stages - stage - 1
    warm = min(len(forward), 2 * ahead + (chunks - 1) * stages if chunks > 1 else ahead)
    steady = [task for pair in zip(forward[warm:], backward, strict=False) for task in pair]
    return [*forward[:warm], *steady, *backward[len(forward) - warm :]]


def _simulate(stages: int, chunks: int, microbatches: int, times: ChunkTimes) -> list[Task]:
    """Every chunk at the earliest time that its stage is free and its input is there."""
    slots = -(-microbatches // stages) * stages if chunks > 1 else microbatches
    orders = [_order(stages, chunks, slots, stage) for stage in range(stages)]
    if times.backward == 0.0:
        orders = [[task for task in order if task[0] == FORWARD] for order in orders]
    position, free = [0] * stages, [0.0] * stages
    finished: dict[tuple[str, int, int, int], float] = {}
    tasks: list[Task] = []
    waiting = True
    while waiting:
        waiting = False
        for stage in range(stages):
            order = orders[stage]
            while position[stage] < len(order):
                kind, chunk, slot = order[position[stage]]
                ready = _ready(finished, kind, chunk, slot, stage, stages, chunks)
                if ready is None:
                    break
                start = max(ready, free[stage])
                empty = slot >= microbatches
                end = start + _duration(times, kind, chunk, stage, stages, chunks, empty)
                finished[kind, chunk, slot, stage] = free[stage] = end
                position[stage] += 1
                waiting = True
                if not empty:
                    tasks.append((stage, kind, chunk, slot, start, end))
    assert all(done == len(order) for done, order in zip(position, orders, strict=True)), "no stage waits for ever"
    return tasks


def _ready(
    finished: dict[tuple[str, int, int, int], float], kind: str, chunk: int, slot: int, stage: int, stages: int,
    chunks: int,
) -> float | None:  # fmt: skip
    """When a task's input is there, None while that is not known."""
    if kind == FORWARD:
        if stage > 0:
            return finished.get((FORWARD, chunk, slot, stage - 1))
        return finished.get((FORWARD, chunk - 1, slot, stages - 1)) if chunk > 0 else 0.0
    if stage < stages - 1:
        return finished.get((BACKWARD, chunk, slot, stage + 1))
    if chunk < chunks - 1:
        return finished.get((BACKWARD, chunk + 1, slot, 0))
    return finished.get((FORWARD, chunk, slot, stage))


def _duration(times: ChunkTimes, kind: str, chunk: int, stage: int, stages: int, chunks: int, empty: bool) -> float:
    """How long a task takes. The slots of a group that is not full take time in all chunks but the last to pass."""
    if empty and ((kind == FORWARD and chunk == chunks - 1) or (kind == BACKWARD and chunk == 0)):
        return 0.0
    whole = times.forward if kind == FORWARD else times.backward
    short = stage >= stages - times.short_stages and chunk == chunks - 1
    return whole * (1.0 - times.missing) if short else whole


def _endings(tasks: list[Task], times: ChunkTimes) -> list[Task]:
    """Gradient exchange and optimizer, on each stage after its last chunk."""
    last: dict[int, float] = {}
    for stage, _, _, _, _, end in tasks:
        last[stage] = max(last.get(stage, 0.0), end)
    found: list[Task] = []
    for stage, end in last.items():
        after = end + times.exchange
        if times.exchange > 0:
            found.append((stage, EXCHANGE, -1, -1, end, after))
        if times.optimizer > 0:
            found.append((stage, OPTIMIZER, -1, -1, after, after + times.optimizer))
    return found

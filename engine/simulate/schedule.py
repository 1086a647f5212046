"""The pipeline schedule of one execution: what every stage does when, from the start of a step to its end.

It is the event replay of the schedule that the execution runs, with the cost model's durations: a chunk with all its
communication, offload and recomputation that is exposed. Executions of Calculon, which names no schedule, run its own:
1F1B, interleaved in groups of as many microbatches as stages, and slots of a last group that is not full stay idle,
which reproduces exactly the waiting that it charges. There, where pipeline stages are equal, a stage's idle time is the
execution's `bubble_time` and the last stage to finish does so at its `total_time`.

Sources: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM" (SC21,
arXiv:2104.04473), section 2.2, for the order of work; Calculon 0.1.0, `llm.py` `_compute_batch_stats`, for durations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pandas as pd

from engine.cost_models.account import ModelStage
from engine.cost_models.chunk_times import ChunkTimes, chunk_times, microbatches_of, tells_blocks_apart
from engine.executions.arrays import Floats
from engine.simulate.events import ActionDurations, Sends, replayed
from engine.simulate.folding import kept_microbatches
from engine.simulate.order import ScheduleOrder, order, order_of
from engine.simulate.replay import Replay, shape_of
from engine.simulate.schedules.contract import FORWARD, ScheduleRule, ScheduleShape
from engine.simulate.schedules.registry import rule

__all__ = ["Schedule", "drawn", "schedule"]

FORWARD_WORK, BACKWARD_WORK, EXCHANGE, OPTIMIZER = "forward", "backward", "exchange", "optimizer"
INPUT_WORK, WEIGHT_WORK = "input gradient", "weight gradient"

WORK: Final = {"F": FORWARD_WORK, "BW": BACKWARD_WORK, "B": INPUT_WORK, "W": WEIGHT_WORK}

LARGEST: Final = 40_000
"""Chunks of work simulated at most; of longer schedules the repeating middle is left out."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Tasks of every rank over time.

    `tasks`: one row per task: `stage` (the rank), `kind` (forward, backward, input gradient, weight gradient, exchange,
    optimizer), `chunk`, `microbatch` (both -1 for the last two), `start`, `end` [s], and `pair`, the number of the
    overlapped pair that it is of, or -1. `step_time` [s] is the cost model's.

    Long schedules leave out repetitions: the times of `tasks` then are shorter by `skipped` [s] after `cut` [s], and
    `skipped_microbatches` did not get tasks. `end` is the step's end on that shortened axis.
    """

    stages: int
    chunks: int
    microbatches: int
    tasks: pd.DataFrame
    step_time: float
    cut: float = math.inf
    skipped: float = 0.0
    skipped_microbatches: int = 0
    title: str = "1F1B"
    causes: pd.DataFrame | None = field(default=None, repr=False)
    """Gaps with their causes, if the replay has them: `rank`, `start`, `end`, `cause`, `of`."""

    @property
    def end(self) -> float:
        """Return the end of the step on the axis of `tasks` [s]."""
        return self.step_time - self.skipped

    def idle(self) -> pd.DataFrame:
        """Returns the gaps: `stage`, `start`, `end` [s] of every stretch in which a stage has nothing to do."""
        gaps: list[tuple[int, float, float]] = []
        least = 1e-9 * self.step_time
        for stage, tasks in self.tasks.groupby("stage", sort=True):
            reached = 0.0
            for start, end in zip(tasks["start"], tasks["end"], strict=True):
                if start - reached > least:
                    gaps.append((int(str(stage)), reached, float(start)))
                reached = max(reached, float(end))
            if self.end - reached > least:
                gaps.append((int(str(stage)), reached, self.end))
        return pd.DataFrame(gaps, columns=["stage", "start", "end"])


_PLAIN: Final = ("1f1b", "interleaved")
"""Schedules of executions that cost models charge as Calculon does, groups that are not full among them."""


def schedule(
    execution: Mapping[Any, Any],
    num_blocks: int,
    *,
    most_tasks: int = LARGEST,
    shares: Sequence[float] | None = None,
    model_stages: Sequence[ModelStage] = (),
) -> Schedule:
    """Returns the schedule of a feasible execution.

    Args:
        execution: its fields and statistics, such as `Exploration.best` or a row of `evaluate_ids`; `schedule` names
            the one that it runs, without it, 1F1B or interleaved as Calculon has it.
        num_blocks: of the model.
        most_tasks: forward and backward tasks to simulate; beyond that the repeating middle is left out, but never the
            filling and draining of the pipeline.
        shares: what every stage of the model takes, as a share of a chunk of the stage whose times the statistics are
            (`engine.cost_models.account.Account.stage_shares`); all as much where None.
        model_stages: what every stage of the model takes forward, backward and in overlapped pairs, to which messages
            that show are added (`Account.model_stages`); counts more than `shares`.

    With uneven pipelines the last stages are shorter, and the cost model's bubble is an estimate: what remains of
    the step is idle, and where the schedule would take longer than the step its times are scaled to fit. The same holds
    for the calibrated cost model, whose stages all take what the slowest does here; at the end of its step stages wait
    for the slowest GPU and the host (`overhead_time`).
    """
    times = chunk_times(execution, num_blocks)
    stages, chunks = int(execution["pipeline_par"]), int(execution["pipeline_interleaving"])
    microbatches = microbatches_of(execution)
    asked = str(execution.get("schedule") or _PLAIN[0])
    known = rule("calculon-1f1b" if asked in _PLAIN else asked)
    shape = shape_of(known, stages, microbatches, chunks)
    # The steady middle of a long step repeats: fewer microbatches show the same picture.
    kept = kept_microbatches(known, shape, most_tasks)
    built = _build_order(known, replace(shape, microbatches=kept), forward_only=times.backward == 0.0)
    lengths = _stage_durations(times, shape, shares)
    if model_stages:
        lengths = _own_durations(model_stages, execution, known)
    found = Replay(known, built, lengths, Sends(), replayed(built, lengths))
    tasks = _name_tasks(found)
    omitted = microbatches - kept
    skipped = omitted * chunks * (times.forward + times.backward)
    reached = float(tasks["end"].max()) if len(tasks) else 0.0
    # What the step leaves for the pipeline: its estimate may be shorter than the replay of equal stages.
    room = float(execution["total_time"]) - skipped - times.exchange - times.optimizer
    waits, factor = found.idle, 1.0
    uneven = times.short_stages > 0
    if not tells_blocks_apart(execution):
        uneven, room = True, room - float(execution.get("overhead_time", 0.0))
    if uneven and reached > room:
        factor = room / reached
        tasks[["start", "end"]] *= factor
        reached = room
    frame = pd.concat([tasks, _build_endings(tasks, times)], ignore_index=True)
    frame = frame.sort_values(["stage", "start"], kind="stable").reset_index(drop=True)
    made = Schedule(
        stages=stages,
        chunks=chunks,
        microbatches=microbatches,
        tasks=frame,
        step_time=float(execution["total_time"]),
        cut=reached / 2.0 if omitted else math.inf,
        skipped=skipped,
        skipped_microbatches=omitted,
        title=_schedule_title(known, chunks),
    )
    waits[["start", "end"]] *= factor
    return replace(made, causes=_explain_gaps(made.idle(), waits, reached))


def drawn(found: Replay, *, whole: float | None = None, skipped_microbatches: int = 0) -> Schedule:
    """Returns a replay as a schedule to draw.

    Args:
        found: the replay, of fewer microbatches where repetitions are left out.
        whole: the makespan with all microbatches [s]; the replay's own where nothing is left out.
        skipped_microbatches: that were left out.
    """
    step = found.makespan if whole is None else whole
    return Schedule(
        stages=found.order.ranks,
        chunks=found.order.chunks,
        microbatches=found.order.empty_from + skipped_microbatches,
        tasks=_name_tasks(found),
        step_time=step,
        cut=found.makespan / 2.0 if skipped_microbatches else math.inf,
        skipped=step - found.makespan,
        skipped_microbatches=skipped_microbatches,
        title=found.rule.title if found.rule else "Own order",
        causes=found.idle,
    )


def _explain_gaps(gaps: pd.DataFrame, waits: pd.DataFrame, reached: float) -> pd.DataFrame:
    """Return the gaps of a step with their causes: from the replay, empty slots of a last group, or the end of the
    step."""
    of_rank: dict[int, list[tuple[float, float, str, int]]] = {}
    columns = (waits[name].tolist() for name in ("rank", "start", "end", "cause", "of"))
    for rank, start, end, cause, of in zip(*columns, strict=True):
        of_rank.setdefault(rank, []).append((start, end, cause, of))
    rows = []
    for stage, start, end in zip(*(gaps[name].tolist() for name in ("stage", "start", "end")), strict=True):
        middle = (start + end) / 2.0
        said = ((cause, of) for first, last, cause, of in of_rank.get(stage, ()) if first <= middle <= last)
        rows.append((stage, start, end, *next(said, ("drain" if end >= reached else "empty", -1))))
    return pd.DataFrame(rows, columns=["rank", "start", "end", "cause", "of"])


def _schedule_title(known: ScheduleRule, chunks: int) -> str:
    if known.name == "calculon-1f1b":
        return "interleaved 1F1B" if chunks > 1 else "1F1B"
    return known.title


def _build_order(known: ScheduleRule, shape: ScheduleShape, *, forward_only: bool) -> ScheduleOrder:
    """Return the order, without backwards for inference."""
    if not forward_only:
        return order_of(known, shape)
    slots = known.slots(shape) if known.slots else shape.microbatches
    entries = [[entry for entry in each if entry[0][0] == FORWARD] for each in known.order(shape)]
    entries = [[(entry[0],) for entry in each] for each in entries]
    built = order(entries, known.stages(shape), slots, known.placement, chunks=shape.chunks, forward_only=True)
    return replace(built, empty_from=shape.microbatches)


def _stage_durations(times: ChunkTimes, shape: ScheduleShape, shares: Sequence[float] | None) -> ActionDurations:
    """Returns durations by stage of the model; a backward splits in two halves where the schedule does."""
    stage = np.arange(shape.ranks * shape.chunks)
    # Stages that lack a block lack it in their last chunk.
    short = (stage % shape.ranks >= shape.ranks - times.short_stages) & (stage // shape.ranks == shape.chunks - 1)
    share: Floats = np.where(short, 1.0 - times.missing, 1.0)
    if shares is not None:
        share = np.asarray(shares, np.float64)
    backward = times.backward * share
    return ActionDurations(times.forward * share, backward / 2.0, backward / 2.0, backward)


def _own_durations(stages: Sequence[ModelStage], execution: Mapping[Any, Any], known: ScheduleRule) -> ActionDurations:
    """Return durations of the cost model's stages; exposed messages are shared by both passes."""
    passes = 2.0 * microbatches_of(execution) * int(execution["pipeline_interleaving"])
    # Exposed messages belong to no stage: each pass of each chunk gets the same part.
    late = float(execution.get("pp_comm_exposed_time") or 0.0) / passes
    forward, first, second, pair = (
        np.array([getattr(stage, name) for stage in stages])
        for name in ("forward", "input_gradient", "weight_gradient", "pair")
    )
    together = pair + 2.0 * late if known.pairs else None
    return ActionDurations(forward + late, first + late, second, first + second + late, together)


def _name_tasks(found: Replay) -> pd.DataFrame:
    """Returns the tasks of a replay in the words of pictures."""
    tasks = found.tasks
    return pd.DataFrame(
        {
            "stage": tasks["rank"],
            "kind": tasks["kind"].map(WORK),
            "chunk": tasks["chunk"],
            "microbatch": tasks["microbatch"],
            "start": tasks["start"],
            "end": tasks["end"],
            "pair": tasks["pair"],
        }
    )


def _build_endings(tasks: pd.DataFrame, times: ChunkTimes) -> pd.DataFrame:
    """Gradient exchange and optimizer, on each stage after its last chunk."""
    found: list[tuple[int, str, int, int, float, float, int]] = []
    for stage, end in tasks.groupby("stage")["end"].max().items():
        after = float(end) + times.exchange
        if times.exchange > 0:
            found.append((int(str(stage)), EXCHANGE, -1, -1, float(end), after, -1))
        if times.optimizer > 0:
            found.append((int(str(stage)), OPTIMIZER, -1, -1, after, after + times.optimizer, -1))
    return pd.DataFrame(found, columns=tasks.columns).astype(tasks.dtypes.to_dict())

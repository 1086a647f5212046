"""Executions as pipelines to replay: choice of the execution, the stages of its model, and their durations.

A rank's share of the model takes the same time for any number of chunks. Where the cost model distinguishes blocks and
ends of the model, every stage has its own times; where it does not, all stages have the times of the slowest, and half
of a backward is the gradient of the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pandas as pd

from engine.cost_models.account import ExecutionAccount, ModelStage, StepPart
from engine.cost_models.chunk_times import ChunkTimes, chunk_times, microbatches_of
from engine.cost_models.registry import cost_model_of
from engine.executions.layer_splits import LayerSplitError
from engine.exploration.proven_optimum import best_of
from engine.exploration.result import first_row
from engine.exploration.run import Cancel, Progress
from engine.scenarios.scenario import Scenario
from engine.simulate.replay import Replay, replay
from engine.simulate.schedules.contract import ScheduleError, ScheduleRule, StagePlacement
from engine.simulate.schedules.registry import rule
from engine.simulate.stage_replay import besides_sentence, stage_replay, stage_times
from models import dimensions

__all__ = [
    "Cut",
    "ExecutionTimes",
    "chunks_for",
    "cut_for",
    "cut_times",
    "cuts_of",
    "execution_times",
    "pipelined",
    "replay_execution",
    "replay_stages",
]

PIPELINES: Final = (4, 2)
"""Fewest ranks of the pipeline that is looked for, the wanted first."""
PLANNED: Final = "Its order is planned with the mean of all stages, and replayed with each."


@dataclass(frozen=True, slots=True)
class ExecutionTimes:
    """Durations of a rank's whole share of the model for one microbatch [s], with the execution."""

    ranks: int
    microbatches: int
    chunks: int
    forward: float
    backward: float
    besides: tuple[StepPart, ...]
    """Parts of a step other than the pipeline [s]: gradient exchange, optimizer, ..."""
    schedule: str
    """The schedule that the execution names."""
    row: dict[str, Any]
    account: ExecutionAccount
    """Time account of the cost model, including its stages."""
    message: float
    """One message between neighbouring stages [s], 0 where that is in the times of the stages already."""

    @property
    def besides_seconds(self) -> float:
        """Return the duration of a step's parts other than the pipeline [s]."""
        return sum(part.seconds for part in self.besides)

    @property
    def layout(self) -> str:
        """Return the layout that cuts the model's blocks into stages."""
        return str(self.row.get("stage_layout") or "even")


@dataclass(frozen=True, slots=True)
class Cut:
    """Stages of a model for a number of chunks per rank."""

    chunks: int
    stages: tuple[ModelStage, ...]
    """In the order in which a token passes them; empty where the model cannot be cut so."""
    problem: str = ""
    """Reason that the requested layout, or any layout, cannot cut the model."""


def pipelined(
    scenario: Scenario, *, progress: Callable[[Progress], None] | None = None, cancel: Cancel | None = None
) -> dict[str, Any]:
    """Return the best execution of a scenario with a pipeline, of four or more ranks if possible; without an id, which
    would refer to the narrowed space.

    Args:
        scenario: the scenario; its own limit on ranks of the pipeline stays.
        progress: called while the space is searched.
        cancel: returns True to stop the search.

    Raises `ScheduleError` where none runs with a pipeline, and what exploring the scenario raises.
    """
    for fewest in PIPELINES:
        limits = {"pipeline_par": {"min": fewest}, **scenario.limits}
        found = best_of(
            Scenario.of(
                scenario.model,
                scenario.system,
                num_procs=scenario.num_procs,
                max_batch_size=scenario.max_batch_size,
                datatype=scenario.datatype,
                limits=limits,
                cost_model=scenario.cost_model,
                calibration=scenario.calibration,
            ),
            progress=progress,
            cancel=cancel,
        )
        if found and int(found["pipeline_par"]) > 1:
            return {name: value for name, value in found.items() if name != "id"}
    raise ScheduleError("No execution of this scenario runs with a pipeline.")


def execution_times(scenario: Scenario, execution: Mapping[str, Any]) -> ExecutionTimes:
    """Returns the times of an execution as a pipeline.

    Args:
        scenario: that it is of.
        execution: its fields and, where it was evaluated, statistics.

    Raises `ScheduleError` where it does not run, has no pipeline or is a forward pass alone.
    """
    row = dict(execution)
    if "total_time" not in row or "status" not in row:
        row = first_row(scenario.evaluate(pd.DataFrame([row])))
    if row.get("status", "ok") != "ok":
        raise ScheduleError(f"The execution does not run: {row['reason_text']}")
    if int(row["pipeline_par"]) < 2:
        raise ScheduleError("The execution has no pipeline: its pipeline_par is 1.")
    model = scenario.model
    times = chunk_times(row, model.num_blocks if model.block is not None else dimensions(model).num_blocks)
    if times.backward <= 0:
        raise ScheduleError("The scenario is a forward pass alone, which has nothing to schedule.")
    chunks = int(row["pipeline_interleaving"])
    account = cost_model_of(scenario).account(model, scenario.system, row, scenario.calibration)
    return ExecutionTimes(
        ranks=int(row["pipeline_par"]),
        microbatches=microbatches_of(row),
        chunks=chunks,
        forward=times.forward * chunks,
        backward=times.backward * chunks,
        besides=tuple(account.besides_pipeline()) or _step_parts(times),
        schedule=str(row.get("schedule") or ("interleaved" if chunks > 1 else "1f1b")),
        row=row,
        account=account,
        message=account.message_seconds(),
    )


def _step_parts(times: ChunkTimes) -> tuple[StepPart, ...]:
    """Return the parts of a step after the pipeline, from the statistics of an execution."""
    parts = (
        StepPart("DP communication", times.exchange, "exposed exchange of gradients", ""),
        StepPart("Optimizer step", times.optimizer, "update of the weights a GPU holds", ""),
    )
    return tuple(part for part in parts if part.seconds > 0)


def cuts_of(account: ExecutionAccount, ranks: int, chunks: int, layout: str | None) -> tuple[Cut, ...]:
    """Returns the model cut for every number of chunks per rank that a schedule may have; none where the cost model
    does not tell stages apart.

    Where the layout does not fit that many stages, they are as even as blocks divide.

    Args:
        account: of the execution.
        ranks: of the pipeline.
        chunks: of schedules that leave it open.
        layout: in the words of the field, None for the execution's own.
    """
    found = [_cut_model(account, ranks, each, layout) for each in sorted({1, 2, chunks})]
    return tuple(found) if any(each.stages for each in found) else ()


def _cut_model(account: ExecutionAccount, ranks: int, chunks: int, layout: str | None) -> Cut:
    try:
        return Cut(chunks, tuple(account.model_stages(ranks, chunks, layout)))
    except LayerSplitError as refused:
        problem = str(refused).rstrip(".")
    try:
        return Cut(chunks, tuple(account.model_stages(ranks, chunks, "even")), problem)
    except LayerSplitError as refused:
        return Cut(chunks, (), str(refused).rstrip("."))


def cut_for(cuts: Sequence[Cut], chunks: int) -> Cut:
    """Return the cut for a number of chunks per rank.

    Args:
        cuts: of one model.
        chunks: per rank.
    """
    return next(each for each in cuts if each.chunks == chunks)


def chunks_for(known: ScheduleRule, asked: int) -> int:
    """Return the chunks per rank of a schedule: the requested number unless the schedule fixes it.

    Args:
        known: the schedule.
        asked: chunks per rank.
    """
    if known.placement is StagePlacement.V:
        return 2
    return 1 if known.chunks is not None else asked


def cut_times(cut: Cut, *, shown: float = 1.0, last: tuple[float, float, float] = (0.0, 0.0, 0.0)) -> dict[str, Any]:
    """Returns durations by stage [s]: F forward, B gradient of the input, W of the weights, FB an overlapped pair.

    Args:
        cut: the stages.
        shown: share of a pair that is not hidden.
        last: by how much the last stage takes longer in F, B and W [s].

    Raises `ScheduleError` where the model cannot be cut so.
    """
    if not cut.stages:
        raise ScheduleError(f"{cut.problem[:1].upper()}{cut.problem[1:]}.")
    found = stage_times(cut.stages, pairs=True)
    found["FB"] = [shown * each for each in found["FB"]]
    for kind, more in zip("FBW", last, strict=True):
        found[kind][-1] += more
    found["FB"][-1] += shown * sum(last)
    return found


def replay_stages(known: ScheduleRule, *, times: Mapping[str, Any], apart: bool, **shape: Any) -> Replay:
    """Return the replay of a schedule with given durations; a schedule planned by durations is planned with their means
    if stages differ.

    Args:
        known: the schedule.
        times: durations by kind.
        apart: whether they are by stage.
        shape: further arguments of `engine.simulate.replay`.

    Raises `ScheduleError` where it does not exist for these numbers.
    """
    if not (known.timed and apart):
        return replay(known.name, times=dict(times), **shape)
    mean = {kind: float(np.mean(each)) for kind, each in times.items()}
    planned = replay(known.name, times=mean, **shape)
    own = {name: each for name, each in shape.items() if name not in ("group", "memory_limit")}
    found = replay(planned.ranks, times=dict(times), placement=str(known.placement), **own)
    return replace(found, remarks=(PLANNED,))


def replay_execution(
    scenario: Scenario,
    execution: Mapping[str, Any] | None = None,
    schedule: str | None = None,
    *,
    microbatches: int | None = None,
    chunks: int | None = None,
    layout: str | None = None,
    send_mode: str = "overlap",
    group: int | None = None,
    memory_limit: float | None = None,
) -> Replay:
    """Returns the replay of an execution's pipeline with the stages of its model, under its own schedule or another.

    Args:
        scenario: that it is of.
        execution: its fields; the best with a pipeline where None.
        schedule: a name of `engine.simulate.NAMES`; the execution's own where None.
        microbatches: of one replica in a step; the execution's own where None.
        chunks: per rank, of schedules that leave it open; the execution's own where None.
        layout: how blocks are cut into stages, in the words of the field `stage_layout`; the execution's where None.
        send_mode: none, overlap or block.
        group: microbatches per group of interleaved schedules.
        memory_limit: activations that planned schedules may hold.

    Raises `ScheduleError` where there is nothing to replay.
    """
    for words, number in (("microbatches", microbatches), ("chunks per rank", chunks)):
        if number is not None and number < 1:
            raise ScheduleError(f"There must be at least 1 of {words}, not {number}.")
    times = execution_times(scenario, pipelined(scenario) if execution is None else execution)
    known = rule(schedule or times.schedule)
    pieces = chunks_for(known, times.chunks if chunks is None else chunks)
    cuts = cuts_of(times.account, times.ranks, pieces, layout or times.layout)
    remarks: tuple[str, ...] = ()
    if cuts:
        cut = cut_for(cuts, pieces)
        durations = cut_times(cut)
        if cut.problem:
            remarks = (f"The layout does not cut these stages ({cut.problem}); they are as even as blocks divide.",)
    else:
        half = times.backward / (2.0 * pieces)
        durations = {"F": times.forward / pieces, "B": half, "W": half}
        remarks = ("The cost model does not tell stages apart; all take what the slowest does.",)
    if not known.pairs:
        durations.pop("FB", None)
    if times.besides:
        remarks += (besides_sentence(times.besides),)
    asked = (schedule, microbatches, chunks, layout, group, memory_limit)
    own = (times.schedule, times.microbatches, times.chunks, times.layout, None, None)
    if send_mode == "overlap" and all(each in (None, its) for each, its in zip(asked, own, strict=True)):
        compared = stage_replay(times.row, times.account)
        remarks += () if compared is None else (compared.sentence(),)
    found = replay_stages(
        known,
        times=durations,
        apart=bool(cuts),
        stages=times.ranks,
        microbatches=microbatches or times.microbatches,
        chunks=pieces,
        sends={"mode": send_mode, "c": times.message},
        group=group if known.grouped else None,
        memory_limit=memory_limit if known.limited else None,
    )
    return replace(found, remarks=(*found.remarks, *remarks))

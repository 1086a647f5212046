"""Verbs about pipeline schedules: the list of them, a schedule replayed, an execution's pipeline replayed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import Field

from engine.columns import by_name, fields_of
from engine.columns.stage_layouts import canonical
from engine.questions.bounds import Context
from engine.questions.documents.schedules import (
    ExecutionReplayQuestion,
    ScheduleListQuestion,
    ScheduleReplayQuestion,
)
from engine.questions.plain import plain
from engine.questions.scenario_documents import scenario_of
from engine.questions.verb import Document, QuestionError, Row, Verb
from engine.scenarios.scenario import Scenario
from engine.simulate import Replay, replay
from engine.simulate.closed_forms import published
from engine.simulate.execution_stages import pipelined, replay_execution
from engine.simulate.schedules.registry import RULES

__all__ = [
    "LIST_SCHEDULES",
    "SIMULATE_EXECUTION",
    "SIMULATE_SCHEDULE",
    "find_execution_replay",
    "find_schedule_replay",
    "list_schedules",
    "replay_document",
]


class ScheduleSummary(Document):
    """A pipeline schedule of the register."""

    name: str
    title: str
    placement: str = Field(description="Stages on ranks: loop, v or bidir (from both ends).")
    pairs: bool = Field(description="True if a forward and a backward may overlap.")
    splits: bool = Field(description="True if gradients of inputs and of weights are separate actions.")
    frameworks: dict[str, str] = Field(description="How each framework that offers it is asked for it.")
    source: str


class ScheduleListAnswer(Document):
    """All pipeline schedules."""

    schedules: list[ScheduleSummary]


class ClosedForm(Document):
    """Published formula of a schedule's makespan."""

    words: str
    makespan: float | None = Field(description="[s]; null where the formula does not hold.")


class ReplayAnswer(Document):
    """A replayed schedule. Lists have one entry per rank; times are in seconds."""

    schedule: str | None = Field(description="Name of the schedule; null for an order of the caller's own.")
    title: str
    stages: int
    microbatches: int
    chunks: int
    makespan: float = Field(description="Time to the end of the last action [s].")
    longest_span: float = Field(description="Longest time from the first start to the last end of a rank [s].")
    bubble_fraction: list[float] = Field(description="Idle share of the makespan.")
    busy: list[float] = Field(description="[s]")
    peak_activations: list[int] = Field(description="Most chunks of microbatches that are held.")
    peak_if_freed_at_B: list[int] = Field(description="The same if the gradient of the input frees all.")  # noqa: N815
    peak_pending_W: list[int] = Field(description="Most gradients of weights that wait.")  # noqa: N815
    messages_sent: list[int]
    idle: dict[str, float] = Field(description="Idle time of all ranks by cause [s].")
    critical_path: dict[str, int] = Field(description="Numbers of F, B, W, BW, FB and sends (c).")
    closed_form: ClosedForm | None
    remarks: list[str]
    ranks: list[str] = Field(description="Actions of every rank, in their order.")
    actions: list[Row] | None = Field(default=None, description="Every action; null unless asked for.")


def list_schedules() -> list[dict[str, Any]]:
    """Return all pipeline schedules, in the order of the register."""
    return [
        {
            "name": each.name,
            "title": each.title,
            "placement": each.placement.value,
            "pairs": each.pairs,
            "splits": each.splits,
            "frameworks": dict(each.frameworks),
            "source": each.source,
        }
        for each in RULES
    ]


def find_schedule_replay(asked: ScheduleReplayQuestion) -> Replay:
    """Return the replay of a schedule.

    Args:
        asked: the question.

    Raises `QuestionError` unless either a schedule or an order is given, and `engine.simulate.ScheduleError` if the
    schedule does not exist for these numbers or the order cannot run.
    """
    if (asked.schedule is None) == (asked.order is None):
        raise QuestionError("Give the name of a schedule, or an order; one of them.")
    durations = {
        "F": asked.forward_s,
        "B": asked.input_gradient_s,
        "W": asked.weight_gradient_s,
        "FB": asked.pair_s,
    }
    return replay(
        asked.order or asked.schedule or "",
        stages=asked.stages,
        microbatches=asked.microbatches,
        chunks=asked.chunks,
        times={kind: _stage_durations(each) for kind, each in durations.items() if each is not None},
        sends={"mode": asked.send_mode, "c": asked.send_time_s},
        group=asked.group,
        memory_limit=asked.memory_limit,
        placement=asked.placement,
    )


def _stage_durations(seconds: Sequence[float]) -> float | list[float]:
    """Return one duration for all stages, or one per stage [s]."""
    return seconds[0] if len(seconds) == 1 else list(seconds)


def find_execution_replay(asked: ExecutionReplayQuestion, context: Context | None = None) -> Replay:
    """Return the replay of an execution's pipeline with the stages of its model.

    Args:
        asked: the question.
        context: bounds, progress and cancellation of the search for the best execution; none if None.

    Raises `QuestionError` for an execution outside the scenario, `engine.simulate.ScheduleError` if it has no pipeline
    or the schedule does not exist for it, and `engine.columns.stage_layouts.StageLayoutError`.
    """
    scenario = scenario_of(asked.scenario)
    layout = None if asked.stage_layout is None else canonical(asked.stage_layout)
    scenario = scenario_of(asked.scenario)
    execution = _find_execution(scenario, asked, context)
    return replay_execution(scenario, execution, asked.schedule, layout=layout, **asked.engine_arguments())


def _find_execution(scenario: Scenario, asked: ExecutionReplayQuestion, context: Context | None) -> dict[str, Any]:
    """Return the fields of the execution of a question: as given, by its id, or the best with a pipeline."""
    if asked.execution is not None and asked.id is not None:
        raise QuestionError("Give an execution or an id, not both.")
    if asked.execution is not None:
        known = [column.name for column in fields_of(scenario.cost_model)]
        return {name: asked.execution.get(name, by_name(name).default) for name in known}
    if asked.id is not None:
        if asked.id >= scenario.space.total:
            last = scenario.space.total - 1
            raise QuestionError(f"There is no execution {asked.id:,}; ids run from 0 to {last:,}.")
        return dict(scenario.space.table([asked.id]).iloc[0])
    if context is None:
        return pipelined(scenario)
    return pipelined(context.bounds.searchable(scenario), progress=context.progress, cancel=context.stops)


def replay_document(found: Replay, *, actions: bool = False) -> dict[str, Any]:
    """Return a replay as a document, as `ReplayAnswer` declares it.

    Args:
        found: the replay.
        actions: True to include every action.
    """
    idle = found.idle
    spent = (idle["end"] - idle["start"]).groupby(idle["cause"]).sum()
    formula = published(found)
    return {
        "schedule": found.rule.name if found.rule else None,
        "title": found.rule.title if found.rule else "own order",
        "stages": found.order.ranks,
        "microbatches": found.order.empty_from,
        "chunks": found.order.chunks,
        "makespan": found.makespan,
        "longest_span": found.longest_span,
        "bubble_fraction": found.bubble_fraction,
        "busy": found.busy.tolist(),
        "peak_activations": found.peak_activations,
        "peak_if_freed_at_B": found.peak_if_freed_at_B,
        "peak_pending_W": found.peak_pending_W,
        "messages_sent": found.messages_sent,
        "idle": {str(cause): float(value) for cause, value in spent.items()},
        "critical_path": found.critical_path.counts,
        "closed_form": None if formula is None else {"words": formula[0], "makespan": formula[1]},
        "remarks": list(found.remarks),
        "ranks": found.ranks,
        **({"actions": found.tasks.drop(columns="pair").to_dict("records")} if actions else {}),
    }


def _answer_list(asked: ScheduleListQuestion, context: Context) -> dict[str, Any]:
    return {"schedules": list_schedules()}


def _answer_schedule(asked: ScheduleReplayQuestion, context: Context) -> dict[str, Any]:
    return _plain_replay(find_schedule_replay(asked), asked.actions)


def _answer_execution(asked: ExecutionReplayQuestion, context: Context) -> dict[str, Any]:
    return _plain_replay(find_execution_replay(asked, context), asked.actions)


def _plain_replay(found: Replay, actions: bool) -> dict[str, Any]:
    return {name: plain(value) for name, value in replay_document(found, actions=actions).items()}


LIST_SCHEDULES = Verb(
    "list_schedules",
    "List pipeline schedules",
    "Lists the pipeline schedules that can be replayed, with their sources and the frameworks that offer them.",
    ScheduleListQuestion,
    ScheduleListAnswer,
    _answer_list,
)
SIMULATE_SCHEDULE = Verb(
    "simulate_schedule",
    "Replay a schedule",
    "Replays a pipeline schedule event by event: makespan, idle time by cause, activations held, critical path.",
    ScheduleReplayQuestion,
    ReplayAnswer,
    _answer_schedule,
)
SIMULATE_EXECUTION = Verb(
    "simulate_execution",
    "Replay an execution's pipeline",
    "Replays the pipeline of an execution with the stages of its model, under its own schedule or another one.",
    ExecutionReplayQuestion,
    ReplayAnswer,
    _answer_execution,
)

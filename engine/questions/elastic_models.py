"""Verb about library models under changing resources: the best plan at every size, through phases, after a failure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd
from pydantic import Field

from engine.planners.contract import Cancel, PlanError, Progress, never, unheard
from engine.planners.elastic import after_failure, model_curve, model_phases
from engine.planners.elastic.library_models.curves import model_point
from engine.planners.elastic.placements import gpus_on_nodes, placements_filling
from engine.questions.bounds import Context
from engine.questions.documents.elastic import ElasticQuestion
from engine.questions.elastic_jobs import share_progress
from engine.questions.plain import plain, table_rows
from engine.questions.scenario_documents import found_model, found_system
from engine.questions.shown_executions import ShownAnswer, show_beside_fastest, shown_document
from engine.questions.verb import Document, Row, Verb
from engine.recommendation import ShownExecution
from engine.scenarios.scenario import Scenario

__all__ = ["PLAN_ELASTIC", "ElasticPlans", "plan_elastic", "plan_phases", "plan_recovery", "plan_sizes"]

SIZES: Final = tuple(2**power for power in range(7))
"""Numbers of GPUs of a question without sizes."""


class SizePlan(Document):
    """Best plan at a size, and the data that moves when a job grows to it."""

    gpus: int
    placement: str = Field(description="GPUs on each node.")
    raw_best: float | None = Field(description="Proven best throughput at exactly this size [samples/s].")
    raw_plan: str = Field(description="Pipeline, tensor and data parallel degrees.")
    chosen: str = Field(description="What else is chosen.")
    stored_best: float | None = Field(description="Best throughput with up to so many GPUs [samples/s].")
    stored_plan: str
    stored_gpus: float | None
    gain: float | None = Field(description="Throughput that each further GPU brings [samples/s].")
    iteration_s: float | None
    memory_gib: float | None = Field(description="Of the fullest GPU.")
    weights_gib: float | None
    optimizer_gib: float | None
    moves_gib: float | None = Field(description="What one GPU has to receive at most to get here from the size before.")
    moves_s: float | None = Field(description="How long that takes at least.")
    not_measured: str = Field(description="What no measured run had of the plan, in words; empty for nothing.")


class ElasticAnswer(Document):
    """Plans at every size, of every phase, and the ways to continue after a loss of nodes."""

    model: str
    system: str
    global_batch: int
    sizes: list[SizePlan]
    phases: list[Row] | None = Field(
        description="Plan, throughput [samples/s], moved data and downtime of each phase; null without phases."
    )
    recovery: list[Row] | None = Field(
        description="Ways to continue, the best first: use spares, shrink, or wait for the repair; null without lost "
        "nodes, or if there is nothing to compare."
    )
    no_recovery: str = Field(description="Why there is nothing to compare; empty otherwise.")
    shown: ShownAnswer | None = Field(
        description="Execution at the largest size that runs, recommended or fastest as asked; plans of all sizes are "
        "the fastest. Null if nothing runs."
    )


@dataclass(frozen=True, slots=True)
class ElasticPlans:
    """Answer to a question about a library model: tables as the planner returns them.

    Without phases there are no `phases`; without lost nodes, or for the reason in `no_recovery`, no `recovery`.
    `shown` is the execution whose figures are asked for at the largest size that runs, in `scenario`.
    """

    curve: pd.DataFrame
    phases: pd.DataFrame | None
    recovery: pd.DataFrame | None
    no_recovery: str
    shown: ShownExecution | None = None
    scenario: Scenario | None = None


def _common_arguments(asked: ElasticQuestion) -> dict[str, Any]:
    return {"batch": asked.global_batch, "datatype": asked.datatype, "limits": asked.limits}


def plan_sizes(asked: ElasticQuestion, progress: Progress = unheard, cancel: Cancel = never) -> pd.DataFrame:
    """Return the best plan at every size; see `engine.planners.elastic.model_curve`.

    Args:
        asked: the question.
        progress: called with the share done (0 to 1) and the current step.
        cancel: True stops the search.

    Raises `engine.planners.contract.PlanError`, and the errors of loading the model and the system.
    """
    return model_curve(
        found_model(asked.model),
        found_system(asked.system),
        gpus=asked.gpus,
        placements=None if asked.placement is None else [asked.placement],
        progress=progress,
        cancel=cancel,
        **_common_arguments(asked),
    )


def plan_phases(asked: ElasticQuestion, progress: Progress = unheard, cancel: Cancel = never) -> pd.DataFrame:
    """Return the best plan of every phase; see `engine.planners.elastic.model_phases` and `plan_sizes`.

    Args:
        asked: the question, with phases.
        progress: called with the share done (0 to 1) and the current step.
        cancel: True stops the search.
    """
    return model_phases(
        found_model(asked.model),
        found_system(asked.system),
        [each.model_dump() for each in asked.phases or ()],
        restart_s=asked.restart_s,
        progress=progress,
        cancel=cancel,
        **_common_arguments(asked),
    )


def _nodes_before(asked: ElasticQuestion) -> tuple[int, ...]:
    """Return the GPUs on each node before a loss: the placement, or the largest size."""
    if asked.placement is not None:
        return gpus_on_nodes(asked.placement)
    return placements_filling(max(asked.gpus or SIZES), found_system(asked.system).node_size)


def plan_recovery(asked: ElasticQuestion) -> pd.DataFrame:
    """Return the ways to continue after a loss of nodes; see `engine.planners.elastic.after_failure`.

    Args:
        asked: the question, with lost nodes.

    Raises `engine.planners.contract.PlanError`, also if nothing runs before the loss, and the errors of loading.
    """
    return after_failure(
        found_model(asked.model),
        found_system(asked.system),
        placement=_nodes_before(asked),
        lost=asked.lost_nodes or 1,
        spares=asked.spare_nodes,
        repair_s=asked.repair_s,
        restart_s=asked.restart_s,
        **_common_arguments(asked),
    )


def plan_elastic(asked: ElasticQuestion, progress: Progress = unheard, cancel: Cancel = never) -> ElasticPlans:
    """Return the plans of a library model: at every size, of every phase, and after a loss of nodes.

    Args:
        asked: the question; of more lost nodes than there are, all are lost.
        progress: called with the share done (0 to 1) and the current step.
        cancel: True stops the search.

    Raises `engine.planners.contract.PlanError`, and the errors of loading the model and the system.
    """
    share = 0.6 if asked.phases else 0.9
    curve = plan_sizes(asked, share_progress(progress, share), cancel)
    phases = plan_phases(asked, share_progress(progress, 0.3, 0.6), cancel) if asked.phases else None
    recovery, why_not = None, ""
    if asked.lost_nodes is not None:
        nodes = _nodes_before(asked)
        if len(nodes) < 2:
            why_not = "All GPUs are one node; with two and more it is told here what to do when one is lost."
        elif math.isnan(curve["raw_best"].iloc[-1]):
            why_not = "Nothing runs on all GPUs, so nothing can be lost."
        else:
            recovery = plan_recovery(asked.model_copy(update={"lost_nodes": min(asked.lost_nodes, len(nodes))}))
    scenario, shown = show_largest(asked, curve)
    return ElasticPlans(curve, phases, recovery, why_not, shown, scenario)


def show_largest(asked: ElasticQuestion, curve: pd.DataFrame) -> tuple[Scenario | None, ShownExecution | None]:
    """Return the scenario of the largest size that runs, and its execution whose figures are asked for; None without.

    Args:
        asked: the question.
        curve: plans of all sizes, see `plan_sizes`; these are the fastest.
    """
    runs = curve[curve["raw_best"].notna()]
    if not len(runs):
        return None, None
    model = found_model(asked.model)
    point = model_point(
        model, found_system(asked.system), placement=str(runs["placement"].iloc[-1]), **_common_arguments(asked)
    )
    scenario = Scenario.of(
        model,
        point.system,
        num_procs=point.gpus,
        max_batch_size=asked.global_batch,
        datatype=asked.datatype,
        limits={"batch_size": [asked.global_batch], **asked.limits},
    )
    return scenario, show_beside_fastest(scenario, point.execution, asked)


def _answer_elastic(asked: ElasticQuestion, context: Context) -> dict[str, Any]:
    model, system = found_model(asked.model), found_system(asked.system)
    if asked.gpus is not None and asked.placement is not None:
        raise PlanError("Give sizes or a placement, not both.")
    largest = [sum(_nodes_before(asked)), *(sum(gpus_on_nodes(each.placement)) for each in _placed_phases(asked))]
    context.bounds.searchable(
        Scenario.of(
            model,
            system,
            num_procs=max(largest),
            max_batch_size=asked.global_batch,
            datatype=asked.datatype,
            limits={"batch_size": [asked.global_batch], **asked.limits},
        )
    )
    found = plan_elastic(asked, context.tell, context.stops)
    return {
        "model": model.name,
        "system": system.name,
        "global_batch": asked.global_batch,
        "sizes": table_rows(found.curve),
        "phases": None if found.phases is None else table_rows(found.phases),
        "recovery": None if found.recovery is None else table_rows(found.recovery),
        "no_recovery": found.no_recovery,
        "shown": None if found.scenario is None else plain(shown_document(found.scenario, found.shown)),
    }


def _placed_phases(asked: ElasticQuestion) -> list[Any]:
    return [each for each in asked.phases or () if each.placement.strip("0, ")]


PLAN_ELASTIC = Verb(
    "plan_elastic",
    "Plan elastic training",
    "Finds the proven best plan of a model at each number of GPUs, what each GPU brings, and what moves between sizes; "
    "also through phases of changing resources, and after a loss of nodes.",
    ElasticQuestion,
    ElasticAnswer,
    _answer_elastic,
)

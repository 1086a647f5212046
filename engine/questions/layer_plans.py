"""Verb about layers: pipeline stages with replicas on the devices of a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import Field

from engine.planners.contract import Cancel, PlanCancelledError, Progress, never, unheard
from engine.planners.layerwise import LayerwisePlan, LayerwiseProblem, solve
from engine.planners.layerwise.cluster import PRESETS, MachineCluster, cluster_of
from engine.planners.layerwise.library_models import ModelPlan, plan_model
from engine.planners.layerwise.problem import checked
from engine.planners.layerwise.profiles.examples import example, examples
from engine.planners.layerwise.profiles.profile import LayerProfile
from engine.planners.layerwise.profiles.reading import profile_text
from engine.planners.layerwise.strategy import strategy
from engine.planners.layerwise.sweep import stages_text
from engine.questions.bounds import Context
from engine.questions.documents.layers import LayersQuestion
from engine.questions.plain import plain
from engine.questions.scenario_documents import found_model, found_system
from engine.questions.verb import Document, QuestionError, Row, Verb
from models.documents import shown

__all__ = ["PLAN_LAYERS", "find_layer_plan", "layers_problem", "plan_layers_of_model"]


class LayerCandidate(Document):
    """A way to divide the layers that was looked at."""

    found_by: str
    speedup: float | None = Field(description="Over one device; null where it cannot run.")
    stages: str
    why_not: str = Field(description="Why it is not the answer; empty for the answer.")


class LayersAnswer(Document):
    """A plan of layers."""

    speedup: float = Field(description="Over one device.")
    step_time: float = Field(description="[s]")
    sample_rate: float = Field(description="[samples/s]")
    microbatches: int
    strategy: dict[str, Any] = Field(description="Stages with layers, replicas and devices, and all figures.")
    execution: Row | None = Field(
        description="The plan as an execution for `evaluate` and `export_launch`; null where it is none."
    )
    candidates: list[LayerCandidate]
    notes: list[str]


def layers_problem(asked: LayersQuestion, profile: LayerProfile | None = None) -> LayerwiseProblem:
    """Return the planner's problem of a question about a profile.

    Args:
        asked: the question.
        profile: the question's profile, if it was read before.

    Raises `QuestionError` and `engine.planners.contract.PlanError`.
    """
    if asked.profile is None or asked.model is not None or asked.systems is not None:
        raise QuestionError("Give a model with its systems, or a profile.")
    is_example = any(each.name == asked.profile for each in examples())
    is_text = "\n" in asked.profile or asked.profile.lstrip("\ufeff \t").startswith("{")
    if not is_example and not is_text:
        raise QuestionError(
            f"profile is {shown(asked.profile)}; it must be the text of a profile or one of the examples "
            f"{', '.join(each.name for each in examples())}."
        )
    if profile is None:
        profile = example(asked.profile) if is_example else profile_text(asked.profile, name=asked.profile_name)
    taken = profile.batch if asked.profile_batch is None else asked.profile_batch
    if taken is None:
        raise QuestionError("The profile does not say at which batch it was taken; give its batch (profile_batch).")
    mode = asked.mode or "paper"
    cluster = _question_cluster(asked)
    return checked(
        LayerwiseProblem(profile, taken, asked.global_batch, cluster, asked.microbatch, mode, asked.optimizer)
    )


def _question_cluster(asked: LayersQuestion) -> MachineCluster:
    if asked.machines and asked.cluster:
        raise QuestionError("Give machines or a cluster, not both.")
    name = (asked.cluster or "A").upper()
    if asked.machines:
        found = cluster_of(asked.machines)
    elif name in PRESETS:
        found = PRESETS[name]
    else:
        raise QuestionError(f"There is no cluster {shown(asked.cluster)}; there are {', '.join(PRESETS)}.")
    rates = {
        "inside": asked.inside_gb_per_s,
        "all_reduce": asked.all_reduce_gb_per_s,
        "transfer": asked.transfer_gb_per_s,
    }
    changes: dict[str, Any] = {name: rate * 1e9 for name, rate in rates.items() if rate is not None}
    found = replace(found, **changes)
    if asked.memory_gb is not None:
        memory = asked.memory_gb * 1e9
        found = replace(found, machines=tuple(replace(each, memory=memory) for each in found.machines))
    return cluster_of(found)


def plan_layers_of_model(asked: LayersQuestion, progress: Progress = unheard, cancel: Cancel = never) -> ModelPlan:
    """Return the plan of a question about a library model.

    Args:
        asked: the question.
        progress: called with the share that is done and the current step.
        cancel: returns whether to stop.

    Raises `QuestionError`, `engine.planners.contract.PlanError`, `engine.planners.contract.PlanCancelledError`, and
    the errors of loading model and systems.
    """

    def report(share: float, doing: str) -> None:
        if cancel():
            raise PlanCancelledError
        progress(share, doing)

    if asked.model is None or asked.systems is None or asked.profile is not None:
        raise QuestionError("Give a model with its systems, or a profile.")
    return plan_model(
        found_model(asked.model),
        [(found_system(each.system), each.num_procs) for each in asked.systems],
        global_batch=asked.global_batch,
        tensor_par=asked.tensor_par,
        datatype=asked.datatype,
        progress=report,
    )


def find_layer_plan(asked: LayersQuestion, progress: Progress = unheard, cancel: Cancel = never) -> LayerwisePlan:
    """Return the plan of a question about a profile.

    Args:
        asked: the question.
        progress: called with the share that is done and the current step.
        cancel: returns whether to stop.

    Raises `QuestionError`, `engine.planners.contract.PlanError` and `engine.planners.contract.PlanCancelledError`.
    """
    return solve(layers_problem(asked), progress=progress, cancel=cancel)


def _answer_layers(asked: LayersQuestion, context: Context) -> dict[str, Any]:
    execution: Mapping[str, Any] | None = None
    if asked.model is None:
        plan = find_layer_plan(asked, context.tell, context.stops)
    else:
        made = plan_layers_of_model(asked, context.tell, context.stops)
        plan, execution = made.plan, made.execution
    return {
        "speedup": plan.speedup,
        "step_time": plan.figure("step_time").value,
        "sample_rate": plan.figure("sample_rate").value,
        "microbatches": plan.microbatches,
        "strategy": plain(strategy(plan)),
        "execution": None if execution is None else plain(execution),
        "candidates": [
            {"found_by": each.name, "speedup": plain(each.value), "stages": stages_text(each), "why_not": each.reason}
            for each in plan.candidates
        ],
        "notes": list(plan.notes),
    }


PLAN_LAYERS = Verb(
    "plan_layers",
    "Plan layers",
    "Divides layers into pipeline stages with replicas on devices (DAPPLE), also over GPUs of several kinds.",
    LayersQuestion,
    LayersAnswer,
    _answer_layers,
)

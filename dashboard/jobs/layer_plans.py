"""Layer-wise plans as jobs: the plan, the same on a flat cluster, and all batches with the baselines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pandas as pd

from dashboard.jobs.job import Job, JobKind
from dashboard.jobs.worker import Task, Worker
from engine import ExplorationCancelled
from engine.planners.contract import PlanCancelledError, PlanError
from engine.planners.layerwise import LayerwisePlan, LayerwiseProblem, solve
from engine.planners.layerwise.library_models import ModelPlan, compared
from engine.planners.layerwise.sweep import batch_sweep, scalability
from engine.questions.documents.layers import LayersQuestion
from engine.questions.layer_plans import layers_problem, plan_layers_of_model
from engine.questions.scenario_documents import found_model, found_system

__all__ = ["LayerPlanJob", "Planned", "layer_plans"]

MOST_KEPT: Final = 32
"""Plans that are remembered."""
MOST_SWEPT: Final = 64
"""Devices of a cluster up to which all batches and numbers of devices are planned."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan, the speedup on the same devices each in a machine of its own (None where nothing runs there), all batches
    and numbers of devices with their baselines (None where that would take long), and for a library model what the cost
    model says beside it."""

    plan: LayerwisePlan
    flat: float | None
    batches: pd.DataFrame | None
    devices: pd.DataFrame | None
    model: ModelPlan | None
    told: tuple[str, ...]


def found_plan(task: Task, question: LayersQuestion) -> Planned:
    """Return the plan of a question; for a worker."""
    try:
        if question.model is None:
            return _plan_profile(layers_problem(question), task.stops)
        return _plan_model(question, task.stops)
    except PlanCancelledError:
        raise ExplorationCancelled from None


def _plan_profile(problem: LayerwiseProblem, stops: Callable[[], bool]) -> Planned:
    plan = solve(problem, cancel=stops)
    if all(machine.devices == 1 for machine in problem.cluster.machines):
        flat: float | None = plan.speedup
    else:
        try:
            flat = solve(replace(problem, cluster=problem.cluster.flattened()), cancel=stops).speedup
        except PlanError:
            flat = None
    # All batches by the released searches, which take a few milliseconds each.
    quick, size = replace(problem, mode="released"), problem.cluster.size
    batches = devices = None
    if problem.cluster.uniform and size <= MOST_SWEPT:
        batches = batch_sweep(quick, cancel=stops)
        devices = scalability(quick, cancel=stops) if size > 2 else None
    return Planned(plan, flat, batches, devices, None, ())


def _plan_model(question: LayersQuestion, stops: Callable[[], bool]) -> Planned:
    found = plan_layers_of_model(question, cancel=stops)
    told: Sequence[str] = ()
    if question.systems is not None and len(question.systems) == 1 and question.model is not None:
        (share,) = question.systems
        told = compared(found, found_model(question.model), found_system(share.system), share.num_procs)
    return Planned(found.plan, None, None, None, found, tuple(told))


class LayerPlanJob(Job):
    """One plan on its way."""

    def __init__(self, kind: JobKind, key: str, question: LayersQuestion, about: str) -> None:
        super().__init__(kind, key, "Planning", about)
        self.question, self.planned = question, None

    planned: Planned | None

    def work(self) -> bool:
        """Plans."""
        self.planned = self.run(found_plan, self.question)
        return False


def layer_plans(worker: Worker) -> JobKind:
    """Returns the kind of such jobs, worked on by a worker."""
    return JobKind(name="layer_plan", doing="Planning", unit="plan", most_kept=MOST_KEPT, workers={"": worker})

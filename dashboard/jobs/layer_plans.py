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
from engine.planners.layerwise.library_models import ModelPlan, compared, plan_model
from engine.planners.layerwise.problem import checked
from engine.planners.layerwise.sweep import batch_sweep, scalability
from hardware import System
from models import Model

__all__ = ["LayerPlanJob", "ModelQuestion", "Planned", "layer_plans"]

MOST_KEPT: Final = 32
"""Plans that are remembered."""
MOST_SWEPT: Final = 64
"""Devices of a cluster up to which all batches and numbers of devices are planned."""


@dataclass(frozen=True, slots=True)
class ModelQuestion:
    """A library model on systems with the processors of each, `tensor_par` of which are one device."""

    model: Model
    systems: tuple[tuple[System, int], ...]
    global_batch: int
    tensor_par: int


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


def found_plan(task: Task, question: LayerwiseProblem | ModelQuestion) -> Planned:
    """Returns the plan of a question; for a worker."""
    try:
        return _of_profile(question, task.stops) if isinstance(question, LayerwiseProblem) else _of_model(question)
    except PlanCancelledError:
        raise ExplorationCancelled from None


def _of_profile(problem: LayerwiseProblem, stops: Callable[[], bool]) -> Planned:
    plan = solve(checked(problem), cancel=stops)
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


def _of_model(question: ModelQuestion) -> Planned:
    found = plan_model(
        question.model, question.systems, global_batch=question.global_batch, tensor_par=question.tensor_par
    )
    told: Sequence[str] = ()
    if len(question.systems) == 1:
        told = compared(found, question.model, *question.systems[0])
    return Planned(found.plan, None, None, None, found, tuple(told))


class LayerPlanJob(Job):
    """One plan on its way."""

    def __init__(self, kind: JobKind, key: str, question: LayerwiseProblem | ModelQuestion, about: str) -> None:
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

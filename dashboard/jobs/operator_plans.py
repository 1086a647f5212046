"""Intra-operator plans off the page, where the search takes longer than a page waits: meshes of two axes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from dashboard.jobs.job import Job, JobKind
from dashboard.jobs.worker import Task, Worker
from engine import ExplorationCancelled
from engine.planners.intra_operator import IntraOperatorPlan, Mesh, search
from models import Model

__all__ = ["OperatorPlanJob", "OperatorQuestion", "operator_plans"]

MOST_KEPT: Final = 16
"""Plans that are remembered, each with some thousands of vectors and of points of its frontier."""


@dataclass(frozen=True, slots=True)
class OperatorQuestion:
    """Question to `engine.planners.intra_operator.search`; `counted` are its other keywords."""

    model: str | Model
    mesh: Mesh
    memory_limit: float
    batch: int
    layers: int
    counted: Mapping[str, Any]


def found_plan(task: Task, question: OperatorQuestion) -> tuple[IntraOperatorPlan, float]:
    """Returns the plan of a question and what finding it took [s of CPU]; for a worker."""
    if task.stops():
        raise ExplorationCancelled
    begun = time.thread_time()
    plan = search(
        question.model,
        question.mesh,
        memory_limit=question.memory_limit,
        batch=question.batch,
        layers=question.layers,
        **question.counted,
    )
    return plan, time.thread_time() - begun


class OperatorPlanJob(Job):
    """One search on its way."""

    def __init__(self, kind: JobKind, key: str, question: OperatorQuestion, about: str) -> None:
        super().__init__(kind, key, "Searching", about)
        self.question, self.planned = question, None

    planned: tuple[IntraOperatorPlan, float] | None

    def work(self) -> bool:
        """Searches."""
        self.planned = self.run(found_plan, self.question)
        return False


def operator_plans(worker: Worker) -> JobKind:
    """Returns the kind of such jobs, worked on by a worker."""
    return JobKind(
        name="intra-operator plan", doing="Searching", unit="plan", most_kept=MOST_KEPT, workers={"": worker}
    )

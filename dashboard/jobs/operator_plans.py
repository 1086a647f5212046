"""Intra-operator plans off the page, where the search takes longer than a page waits: meshes of two axes."""

from __future__ import annotations

import time
from typing import Final

from dashboard.jobs.job import Job, JobKind
from dashboard.jobs.worker import Task, Worker
from engine import ExplorationCancelled
from engine.planners.intra_operator import IntraOperatorPlan
from engine.questions.documents.operators import OperatorsQuestion
from engine.questions.plans import find_operator_plan

__all__ = ["OperatorPlanJob", "operator_plans"]

MOST_KEPT: Final = 16
"""Plans that are remembered, each with some thousands of vectors and of points of its frontier."""


def found_plan(task: Task, question: OperatorsQuestion) -> tuple[IntraOperatorPlan, float]:
    """Returns the plan of a question and what finding it took [s of CPU]; for a worker."""
    if task.stops():
        raise ExplorationCancelled
    begun = time.thread_time()
    plan = find_operator_plan(question)
    return plan, time.thread_time() - begun


class OperatorPlanJob(Job):
    """One search on its way."""

    def __init__(self, kind: JobKind, key: str, question: OperatorsQuestion, about: str) -> None:
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

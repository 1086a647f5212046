"""Plans of fleets off the page."""

from __future__ import annotations

import hashlib
from typing import Any, Final

from dashboard.jobs.job import Job, JobKind
from dashboard.jobs.share_progress import report_shares
from dashboard.jobs.worker import Task, Worker
from engine.questions.bounds import Context
from engine.questions.documents.fleet import FleetQuestion
from engine.questions.fleets import find_fleet_plan, fleet_document

__all__ = ["FleetPlanJob", "find_fleet_document", "fleet_plans"]

MOST_KEPT: Final = 32
"""Plans that are remembered."""


def find_fleet_document(task: Task, question: FleetQuestion) -> dict[str, Any]:
    """Return the plan of a question as JSON has it; for a worker."""
    return fleet_document(find_fleet_plan(question, context=Context(tell=report_shares(task), stops=task.stops)))


class FleetPlanJob(Job):
    """One plan on its way."""

    def __init__(self, kind: JobKind, question: FleetQuestion, about: str) -> None:
        key = hashlib.sha256(question.model_dump_json().encode()).hexdigest()
        super().__init__(kind, key, "Planning the fleet", about)
        self.question = question
        self.plan: dict[str, Any] | None = None

    def work(self) -> bool:
        """Plan."""
        self.plan = self.run(find_fleet_document, self.question)
        return False


def fleet_plans(worker: Worker) -> JobKind:
    """Return the kind of such jobs.

    Args:
        worker: that works on them.
    """
    return JobKind(name="fleet plan", doing="Planning", unit="step", most_kept=MOST_KEPT, workers={"": worker})

"""Plans of fleets off the page."""

from __future__ import annotations

import hashlib
import math
import time
from dataclasses import dataclass
from typing import Any, Final

from dashboard.jobs.job import Job, JobKind
from dashboard.jobs.worker import Task, Worker
from engine.questions.bounds import Context
from engine.questions.documents.fleet import FleetQuestion
from engine.questions.fleets import find_fleet_plan, fleet_document

__all__ = ["FleetPlanJob", "find_fleet_document", "fleet_plans"]

MOST_KEPT: Final = 32
"""Plans that are remembered."""
STEPS: Final = 100
"""Steps in which progress is reported."""


@dataclass(frozen=True, slots=True)
class FleetProgress:
    """Progress of a plan."""

    done: int
    total: int
    rate: float
    seconds_left: float


def find_fleet_document(task: Task, question: FleetQuestion) -> dict[str, Any]:
    """Return the plan of a question as JSON has it; for a worker."""
    start = time.monotonic()

    def tell(share: float, _: str) -> None:
        spent = time.monotonic() - start
        left = spent * (1 - share) / share if share > 0 else math.inf
        task.tell(FleetProgress(round(STEPS * share), STEPS, 0.0, left))

    return fleet_document(find_fleet_plan(question, context=Context(tell=tell, stops=task.stops)))


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

"""Plans of fine-tuning off the page."""

from __future__ import annotations

import hashlib
from typing import Any, Final

from dashboard.jobs.job import Job, JobKind
from dashboard.jobs.share_progress import report_shares
from dashboard.jobs.worker import Task, Worker
from dashboard.link.field_labels import name_labels
from engine.questions.bounds import Context
from engine.questions.documents.fine_tuning import FineTuningQuestion
from engine.questions.fine_tuning import find_asked_fine_tuning, fine_tuning_document

__all__ = ["FineTuningJob", "find_fine_tuning_answer", "fine_tuning_plans"]

MOST_KEPT: Final = 32
"""Plans that are remembered."""


def find_fine_tuning_answer(task: Task, question: FineTuningQuestion) -> dict[str, Any]:
    """Return the answer to a question as JSON has it; for a worker."""
    with name_labels(FineTuningQuestion):
        plan = find_asked_fine_tuning(question, Context(tell=report_shares(task), stops=task.stops))
    return fine_tuning_document(plan)


class FineTuningJob(Job):
    """One plan on its way."""

    def __init__(self, kind: JobKind, question: FineTuningQuestion, about: str) -> None:
        key = hashlib.sha256(question.model_dump_json().encode()).hexdigest()
        super().__init__(kind, key, "Planning fine-tuning", about)
        self.question, self.answer = question, None

    answer: dict[str, Any] | None

    def work(self) -> bool:
        """Plans."""
        self.answer = self.run(find_fine_tuning_answer, self.question)
        return False


def fine_tuning_plans(worker: Worker) -> JobKind:
    """Return the kind of such jobs, worked on by a worker."""
    return JobKind(name="fine-tuning plan", doing="Planning", unit="step", most_kept=MOST_KEPT, workers={"": worker})

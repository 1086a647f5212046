"""Plans of reinforcement learning off the page."""

from __future__ import annotations

import hashlib
from typing import Any, Final

from dashboard.jobs.job import Job, JobKind
from dashboard.jobs.share_progress import report_shares
from dashboard.jobs.worker import Task, Worker
from engine.questions.bounds import Context
from engine.questions.documents.post_training import PostTrainingQuestion
from engine.questions.post_training import find_asked_post_training, post_training_document

__all__ = ["PostTrainingJob", "find_post_training_answer", "post_training_plans"]

MOST_KEPT: Final = 32
"""Plans that are remembered."""


def find_post_training_answer(task: Task, question: PostTrainingQuestion) -> dict[str, Any]:
    """Return the answer to a question as JSON has it; for a worker."""
    return post_training_document(
        find_asked_post_training(question, Context(tell=report_shares(task), stops=task.stops))
    )


class PostTrainingJob(Job):
    """One plan on its way."""

    def __init__(self, kind: JobKind, question: PostTrainingQuestion, about: str) -> None:
        key = hashlib.sha256(question.model_dump_json().encode()).hexdigest()
        super().__init__(kind, key, "Planning reinforcement learning", about)
        self.question, self.answer = question, None

    answer: dict[str, Any] | None

    def work(self) -> bool:
        """Plans."""
        self.answer = self.run(find_post_training_answer, self.question)
        return False


def post_training_plans(worker: Worker) -> JobKind:
    """Return the kind of such jobs, worked on by a worker."""
    return JobKind(name="post-training plan", doing="Planning", unit="step", most_kept=MOST_KEPT, workers={"": worker})

"""Plans of reinforcement learning off the page."""

from __future__ import annotations

import hashlib
import math
import time
from dataclasses import dataclass
from typing import Any, Final

from dashboard.jobs.job import Job, JobKind
from dashboard.jobs.worker import Task, Worker
from engine.questions.bounds import Context
from engine.questions.documents.post_training import PostTrainingQuestion
from engine.questions.post_training import find_asked_post_training, post_training_document

__all__ = ["PostTrainingJob", "find_post_training_answer", "post_training_plans"]

MOST_KEPT: Final = 32
"""Plans that are remembered."""
STEPS: Final = 100
"""Steps in which progress is reported."""


@dataclass(frozen=True, slots=True)
class PostTrainingProgress:
    """Progress of a plan."""

    done: int
    total: int
    rate: float
    seconds_left: float


def find_post_training_answer(task: Task, question: PostTrainingQuestion) -> dict[str, Any]:
    """Return the answer to a question as JSON has it; for a worker."""
    start = time.monotonic()

    def tell(share: float, _: str) -> None:
        spent = time.monotonic() - start
        left = spent * (1 - share) / share if share > 0 else math.inf
        task.tell(PostTrainingProgress(round(STEPS * share), STEPS, 0.0, left))

    return post_training_document(find_asked_post_training(question, Context(tell=tell, stops=task.stops)))


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

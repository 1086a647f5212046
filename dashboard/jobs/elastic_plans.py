"""Elastic plans off the page: curves of library models, jobs that share a cluster by them, replays, fits."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dashboard.jobs.job import Job, JobKind
from dashboard.jobs.worker import Task, Worker
from engine import ExplorationCancelled
from engine.planners.contract import PlanCancelledError, Progress
from engine.planners.elastic import Split
from engine.planners.elastic.cluster import ReplayResult
from engine.questions.documents.elastic import (
    ElasticQuestion,
    ProfileFitQuestion,
    SplitQuestion,
    WorkloadReplayQuestion,
)
from engine.questions.elastic_fits import FittedProfile, fit_profile
from engine.questions.elastic_jobs import replay_policies, split_jobs
from engine.questions.elastic_models import ElasticPlans, plan_elastic

__all__ = ["Answer", "ElasticJob", "Question", "elastic_plans"]

MOST_KEPT: Final = 32
"""Plans that are remembered."""
STEPS: Final = 100
"""Steps in which progress of a plan is reported."""

Question = ElasticQuestion | SplitQuestion | WorkloadReplayQuestion | ProfileFitQuestion
Answer = ElasticPlans | Split | Mapping[str, ReplayResult] | FittedProfile


@dataclass(frozen=True, slots=True)
class _Told:
    """Progress of a plan."""

    done: int
    total: int
    rate: float
    seconds_left: float


def _progress_reporter(task: Task) -> Progress:
    """Return a callback for a planner's progress."""
    start = time.monotonic()

    def tell(share: float, _: str) -> None:
        done, spent = min(share, 1.0), time.monotonic() - start
        left = spent * (1 - done) / done if done > 0 else math.inf
        task.tell(_Told(round(STEPS * done), STEPS, 0.0, left))

    return tell


def found_answer(task: Task, question: Question) -> Answer:
    """Return the answer to a question; for a worker."""
    tell = _progress_reporter(task)
    try:
        if isinstance(question, ElasticQuestion):
            return plan_elastic(question, tell, task.stops)
        if isinstance(question, SplitQuestion):
            return split_jobs(question, tell, task.stops)
        if isinstance(question, ProfileFitQuestion):
            return fit_profile(question, tell, task.stops)
        return replay_policies(question, tell, task.stops)
    except PlanCancelledError:
        raise ExplorationCancelled from None


class ElasticJob(Job):
    """One question on its way."""

    def __init__(self, kind: JobKind, question: Question, title: str, about: str) -> None:
        text = f"{type(question).__name__} {question.model_dump_json()}"
        super().__init__(kind, hashlib.sha256(text.encode()).hexdigest(), title, about)
        self.question, self.answer = question, None

    answer: Answer | None

    def work(self) -> bool:
        """Plans."""
        self.answer = self.run(found_answer, self.question)
        return False


def elastic_plans(worker: Worker) -> JobKind:
    """Returns the kind of such jobs, worked on by a worker."""
    return JobKind(name="elastic plan", doing="Planning", unit="step", most_kept=MOST_KEPT, workers={"": worker})

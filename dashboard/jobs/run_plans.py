"""Plans of training runs off the page; searched sizes are cached, so that other tokens or prices take no search."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final

from dashboard.jobs.job import Job, JobKind
from dashboard.jobs.share_progress import report_shares
from dashboard.jobs.worker import Task, Worker
from engine import Scenario
from engine.questions.bounds import Context
from engine.questions.documents.cost import PlanRunQuestion
from engine.questions.run_plans import find_execution, find_phased_plan, find_run_plan, phased_plan_document
from engine.recommendation.training_plans import RunPlan

__all__ = ["RunPhasesJob", "RunPlanJob", "found_phased_plan", "found_run_plan", "run_plans"]

MOST_KEPT: Final = 32
"""Plans that are remembered."""
MOST_SEARCHED: Final = 2_048
"""Searched sizes that a worker remembers."""

_SEARCHED: OrderedDict[str, Mapping[str, Any] | None] = OrderedDict()
_STEPS: OrderedDict[str, Any] = OrderedDict()


def found_run_plan(task: Task, question: PlanRunQuestion) -> RunPlan:
    """Return the plan of a question; for a worker."""
    context = Context(tell=report_shares(task), stops=task.stops)
    return find_run_plan(question, context=context, search=_searcher(question))


def found_phased_plan(task: Task, question: PlanRunQuestion) -> dict[str, Any]:
    """Return the plan of a question with phases as the answer has it; for a worker."""
    context = Context(tell=report_shares(task), stops=task.stops)
    found = find_phased_plan(question, context=context, search=_searcher(question), steps=_STEPS)
    while len(_STEPS) > MOST_SEARCHED:
        _STEPS.popitem(last=False)
    chain: dict[str, Any] = phased_plan_document(found)["chain"]
    return chain


def _searcher(question: PlanRunQuestion) -> Callable[[Scenario], Mapping[str, Any] | None]:
    """Return a search that remembers its results."""

    def search(scenario: Scenario) -> Mapping[str, Any] | None:
        terms = [question.figures_of, question.headroom, question.offload, question.unmeasured]
        text = json.dumps([scenario.to_document(), terms], sort_keys=True)
        key = hashlib.sha256(text.encode()).hexdigest()
        if key not in _SEARCHED:
            _SEARCHED[key] = find_execution(question, scenario)
            while len(_SEARCHED) > MOST_SEARCHED:
                _SEARCHED.popitem(last=False)
        return _SEARCHED[key]

    return search


class RunPlanJob(Job):
    """One plan on its way."""

    def __init__(self, kind: JobKind, question: PlanRunQuestion, about: str) -> None:
        key = hashlib.sha256(question.model_dump_json().encode()).hexdigest()
        super().__init__(kind, key, "Planning the run", about)
        self.question, self.plan = question, None

    plan: RunPlan | None

    def work(self) -> bool:
        """Plans."""
        self.plan = self.run(found_run_plan, self.question)
        return False


class RunPhasesJob(Job):
    """One plan of phases on its way."""

    def __init__(self, kind: JobKind, question: PlanRunQuestion, about: str) -> None:
        key = hashlib.sha256(question.model_dump_json().encode()).hexdigest()
        super().__init__(kind, key, "Planning the phases", about)
        self.question, self.plan = question, None

    plan: dict[str, Any] | None

    def work(self) -> bool:
        """Plans."""
        self.plan = self.run(found_phased_plan, self.question)
        return False


def run_plans(worker: Worker) -> JobKind:
    """Return the kind of such jobs, worked on by a worker."""
    return JobKind(name="run plan", doing="Planning", unit="step", most_kept=MOST_KEPT, workers={"": worker})

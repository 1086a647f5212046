"""Questions of the Elastic page: slow ones are answered by background jobs, quick ones are remembered."""

from __future__ import annotations

import pandas as pd

from dashboard.compat.caches import remembered
from dashboard.jobs.elastic_plans import Answer, ElasticJob, Question
from dashboard.jobs.server import server
from dashboard.link import state
from dashboard.widgets.job_card import found_soon
from engine.planners.elastic import Split, Timeline
from engine.questions.documents.elastic import (
    CardAccuracyQuestion,
    CardQuestion,
    CurveQuestion,
    PhasesQuestion,
    SplitQuestion,
)
from engine.questions.elastic_cards import list_plans, plan_curve, plan_timeline
from engine.questions.elastic_fits import compare_card
from engine.questions.elastic_jobs import split_jobs

__all__ = ["answer_later", "find_accuracy", "find_curve", "find_plans", "find_split", "find_timeline"]


def answer_later(question: Question, title: str, about: str) -> Answer | None:
    """Return the answer to a question; None while its job runs, or if it failed, which its card shows.

    Args:
        question: the question.
        title, about: title and subject of the job's card.
    """
    shared, watcher = server(), state.watcher()
    job = shared.board.post(ElasticJob(shared.elastic_plans, question, title, about), watcher)
    return found_soon(job, ElasticJob, watcher, lambda one: one.answer)


def find_timeline(asked: PhasesQuestion) -> Timeline:
    """Return a job's throughput through phases. Raises as `engine.questions.elastic_cards.plan_timeline`."""
    return _timeline(asked.model_dump_json())


@remembered(32)
def _timeline(question: str) -> Timeline:
    return plan_timeline(PhasesQuestion.model_validate_json(question))


def find_curve(asked: CurveQuestion) -> pd.DataFrame:
    """Return the best throughput along one resource. Raises as `engine.questions.elastic_cards.plan_curve`."""
    return _curve(asked.model_dump_json())


@remembered(32)
def _curve(question: str) -> pd.DataFrame:
    return plan_curve(CurveQuestion.model_validate_json(question))


def find_plans(asked: CardQuestion) -> pd.DataFrame:
    """Return every plan under the one limit of a question. Raises as `engine.questions.elastic_cards.list_plans`."""
    return _plans(asked.model_dump_json())


@remembered(32)
def _plans(question: str) -> pd.DataFrame:
    asked = CardQuestion.model_validate_json(question)
    return list_plans(asked, asked.limits[0])


def find_accuracy(asked: CardAccuracyQuestion) -> pd.DataFrame:
    """Return predictions next to runs. Raises as `engine.questions.elastic_fits.compare_card`."""
    return _accuracy(asked.model_dump_json())


@remembered(32)
def _accuracy(question: str) -> pd.DataFrame:
    return compare_card(CardAccuracyQuestion.model_validate_json(question))


def find_split(asked: SplitQuestion) -> Split:
    """Return the split of GPUs among jobs of cards. Raises as `engine.questions.elastic_jobs.split_jobs`."""
    return _split(asked.model_dump_json())


@remembered(32)
def _split(question: str) -> Split:
    return split_jobs(SplitQuestion.model_validate_json(question))

"""Slow questions of the Elastic page, answered by background jobs."""

from __future__ import annotations

import hashlib

from dashboard.jobs.elastic_plans import Answer, ElasticJob, Question
from dashboard.jobs.server import server
from dashboard.link import state
from dashboard.widgets.job_card import found_soon

__all__ = ["answered"]


def answered(question: Question, described: object, title: str, about: str) -> Answer | None:
    """Returns the answer to a question; None while its job runs, or if it failed, which its card shows.

    Args:
        question: the question.
        described: everything that the answer depends on; its `repr` identifies the question.
        title, about: title and subject of the job's card.
    """
    shared, watcher = server(), state.watcher()
    key = hashlib.sha256(repr(described).encode()).hexdigest()
    job = shared.board.post(ElasticJob(shared.elastic_plans, key, question, title, about), watcher)
    return found_soon(job, ElasticJob, watcher, lambda one: one.answer)

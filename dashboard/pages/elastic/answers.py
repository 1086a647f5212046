"""What parts of the Elastic page do that take long: it is done off the page."""

from __future__ import annotations

import hashlib

from dashboard.jobs.elastic_plans import Answer, ElasticJob, Question
from dashboard.jobs.server import server
from dashboard.link import state
from dashboard.widgets.job_card import job_card, watch

__all__ = ["answered"]

PATIENCE = 1.5
"""How long an answer is waited for before there is a card of its job [s]."""


def answered(question: Question, described: object, title: str, about: str) -> Answer | None:
    """Returns the answer to a question; None while it is on its way, of which there is a card, or where there is none,
    which the card tells.

    Args:
        question: to be answered.
        described: all that it depends on, as something whose `repr` tells questions apart.
        title, about: of its card: what is being done, and of what.
    """
    shared, watcher = server(), state.watcher()
    key = hashlib.sha256(repr(described).encode()).hexdigest()
    job = shared.board.post(ElasticJob(shared.elastic_plans, key, question, title, about), watcher)
    if not isinstance(job, ElasticJob):
        return None
    if not job.wait(PATIENCE):
        watch(job, watcher)
        return None
    if job.answer is None:
        job_card(job, watcher)
    return job.answer

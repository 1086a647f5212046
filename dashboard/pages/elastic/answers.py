"""What parts of the Elastic page do that take long: it is done off the page."""

from __future__ import annotations

import hashlib

from dashboard.jobs.elastic_plans import Answer, ElasticJob, Question
from dashboard.jobs.server import server
from dashboard.link import state
from dashboard.widgets.job_card import found_soon

__all__ = ["answered"]


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
    return found_soon(job, ElasticJob, watcher, lambda one: one.answer)

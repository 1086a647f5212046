"""Search of a space for its recommended execution, in a worker process and so without the pages' caches."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from dashboard.jobs.worker import Task
from engine import Scenario
from engine.questions.documents.explorations import RecommendationTermsQuestion
from engine.questions.recommendations import find_recommendation
from engine.questions.shown_executions import simplest_best
from engine.recommendation import Recommendation, Searched, TooManyFoundError

__all__ = ["MOST_EVALUATED", "search_recommendation"]

MOST_EVALUATED: Final = 200_000
"""Executions that a search evaluates at once, some 200 MiB; beyond them the rows answer with less."""


def search_recommendation(
    task: Task,
    scenario: Scenario,
    terms: RecommendationTermsQuestion,
    contenders: int,
    most: int = MOST_EVALUATED,
) -> tuple[Recommendation, int | None] | None:
    """Return the recommended execution of a space that need not be explored, and the id of the fastest, of equal ones
    the simplest; None if too many executions are about as fast.

    Args:
        task: connection to the caller.
        scenario: whose space is searched.
        terms: of the recommendation.
        contenders: number of the best with their reasons.
        most: executions that may be evaluated at once.

    Raises `engine.ExplorationCancelled` soon after a request to stop.
    """
    try:
        searched = Searched(scenario, cancel=task.stops, most=most)
        found = find_recommendation(searched, terms, contenders=contenders)
    except TooManyFoundError:
        return None
    fastest = simplest_best(scenario, searched.best.tied)
    plainest = int(fastest["id"].iloc[0]) if len(fastest) else None
    return replace(found, scenario=replace(scenario)), plainest  # without the space: making it is quicker than sending

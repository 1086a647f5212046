"""Recommendations that are searched for while the space is explored, so that pages show the answer before the map.

A search proves the best executions in a fraction of the time of an exploration, in another process. Its result is the
one that `dashboard.queries.recommendation` would read from the rows, and takes its place there.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Final

from dashboard.jobs.board import BoardFull, JobBoard
from dashboard.jobs.job import Job, JobKind, State
from dashboard.jobs.recommendation_search import search_recommendation
from dashboard.jobs.worker import Worker
from dashboard.queries.recommendation import (
    CONTENDERS,
    Advice,
    UnfinishedSearchError,
    advice_of,
    expect_advice,
    expected_advice,
)
from engine import Scenario
from engine.questions.documents.explorations import RecommendationTermsQuestion

__all__ = ["RecommendationJob", "Recommendations"]

AT_ONCE: Final = 2
"""Searches at once: one must not wait for a long one."""
SEARCHED_FIRST: Final = 1_000_000
"""Executions of a space from which on a search is much quicker than an exploration and reading its rows; for fewer all
take some tenths of a second, and would only slow each other down where cores are few."""
MOST_KEPT: Final = 64
"""Ended searches that are remembered; their results are kept elsewhere."""
MOST_OF_ONE: Final = 2
"""Waiting searches of one session; above it the oldest is given up."""


class RecommendationJob(Job):
    """One search on its way; its end, of any kind, ends the wait for its recommendation."""

    def __init__(
        self, kind: JobKind, scenario: Scenario, terms: RecommendationTermsQuestion, future: Future[Advice]
    ) -> None:
        super().__init__(kind, _key_of(scenario, terms), "Recommending", scenario.model.title or scenario.model.name)
        self.is_vain = False
        """True if searching again finds nothing either."""
        self._scenario, self._terms, self._future = scenario, terms, future

    def work(self) -> bool:
        """Searches."""
        # Without the space that the scenario may remember: making one is quicker than sending it.
        found = self.run(search_recommendation, replace(self._scenario), self._terms, CONTENDERS)
        self.is_vain = found is None
        if found is not None and not self._future.done():
            recommendation, plainest = found
            self._future.set_result(advice_of(replace(recommendation, scenario=self._scenario), plainest))
        return False

    def end(self, state: State, problem: str = "") -> None:
        """Ends it, and the wait for its recommendation."""
        super().end(state, problem)
        if not self._future.done():
            self._future.set_exception(UnfinishedSearchError(problem))


class Recommendations:
    """Searches for the recommendations of spaces."""

    def __init__(
        self, board: JobBoard | None = None, worker: Worker | None = None, *, least: int = SEARCHED_FIRST
    ) -> None:
        """board, worker: where its jobs are and are done; without, a board of its own, and this process. least:
        executions of a space from which on it is searched while it is explored."""
        self.least = least
        self.board = board or JobBoard()
        self.kind = JobKind(
            name="recommendation",
            doing="Recommending",
            at_once=AT_ONCE,
            most_of_one=MOST_OF_ONE,
            most_kept=MOST_KEPT,
            workers={"": worker or Worker(apart=False)},
        )

    def is_worthwhile(self, scenario: Scenario) -> bool:
        """Return whether to search a space while it is explored; of a small one the rows answer as soon."""
        return scenario.space.total >= self.least

    def follow(
        self,
        scenario: Scenario,
        terms: RecommendationTermsQuestion,
        watcher: str,
        here: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """Record what a session looks at; its search for another scenario is given up if no other session waits for
        it. here: whether a session is still connected."""
        self.board.follow(self.kind, _key_of(scenario, terms), watcher, here)

    def begin(
        self,
        scenario: Scenario,
        terms: RecommendationTermsQuestion,
        watcher: str = "",
        here: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """Begin to search for the recommendation that a session looks at, unless it is known or on its way; the
        session's search for another one is given up if no other session waits for it.

        here: whether a session is still connected.
        """
        self.follow(scenario, terms, watcher, here)
        job = self.board.find(self.kind, _key_of(scenario, terms))
        if isinstance(job, RecommendationJob):
            if not job.ended:
                self.board.look(job, watcher)
                return
            if job.is_vain:
                return
            self.board.forget(job)
        future = expect_advice(scenario, terms)
        if future is not None:
            try:
                self.board.post(RecommendationJob(self.kind, scenario, terms, future), watcher)
            except BoardFull as problem:
                future.set_exception(UnfinishedSearchError(str(problem)))

    def find(self, scenario: Scenario, terms: RecommendationTermsQuestion) -> Advice | None:
        """Return the recommendation of a space as far as it is known; None before."""
        return expected_advice(scenario, terms)


def _key_of(scenario: Scenario, terms: RecommendationTermsQuestion) -> str:
    return json.dumps([scenario.key, {name: getattr(terms, name) for name in RecommendationTermsQuestion.model_fields}])

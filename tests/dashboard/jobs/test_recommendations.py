"""Searches for recommendations: the answer of the rows before there are any, shared, and given up when nobody waits."""

from __future__ import annotations

import threading
from dataclasses import fields
from typing import Any

import pytest

from dashboard.jobs import recommendations as module
from dashboard.jobs.board import JobBoard
from dashboard.jobs.recommendation_search import search_recommendation
from dashboard.jobs.recommendations import Recommendations
from dashboard.queries.figures import wait_for_advice
from dashboard.queries.recommendation import advice_of, expected_advice
from engine import ExplorationCancelled, Scenario, explore_scenario
from engine.questions.documents.explorations import FiguresQuestion
from engine.recommendation import recommend

ASKED = FiguresQuestion()


def scenario(batch: int, **limits: Any) -> Scenario:
    return Scenario.of(
        "megatron-126M", "a100_80e", num_procs=4, max_batch_size=batch, datatype="float16", limits=limits
    )


@pytest.fixture
def searches() -> Any:
    made = Recommendations(JobBoard())
    yield made
    made.board.close()


def test_a_search_answers_what_the_rows_would(searches: Recommendations) -> None:
    subject = scenario(24)
    searches.begin(subject, ASKED, "one")
    job = searches.board.jobs(searches.kind)[0]
    assert job.wait(30)
    found, rows = searches.find(subject, ASKED), advice_of(recommend(explore_scenario(subject)))
    assert found is not None
    for each in fields(found):
        if each.name != "plainest":
            assert getattr(found, each.name) == getattr(rows, each.name), each.name
    searches.begin(subject, ASKED, "two")  # known: nothing is searched
    assert searches.board.jobs(searches.kind) == [] or searches.board.jobs(searches.kind)[0].ended


def test_a_search_that_nobody_waits_for_is_given_up_and_the_rows_answer(
    searches: Recommendations, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, stopped = threading.Event(), threading.Event()

    def search(task: Any, subject: Scenario, *more: Any) -> Any:
        if subject.max_batch_size in (28, 32):
            begun.set()
            while not task.stops():
                stopped.wait(0.005)
            stopped.set()
            raise ExplorationCancelled
        return search_recommendation(task, subject, *more)

    monkeypatch.setattr(module, "search_recommendation", search)
    first, shared, last = scenario(28), scenario(32), scenario(36)
    searches.begin(first, ASKED, "one")
    assert begun.wait(30)
    searches.begin(shared, ASKED, "two")
    searches.begin(shared, ASKED, "one")
    assert stopped.wait(30)  # nobody else waited for the first
    searches.begin(last, ASKED, "one")
    watched = [job for job in searches.board.jobs(searches.kind) if not job.ended and shared.key in job.key]
    assert len(watched) == 1  # the other session still waits for it
    job = next(job for job in searches.board.jobs(searches.kind) if last.key in job.key)
    assert job.wait(30)
    assert expected_advice(last, ASKED) is not None
    assert expected_advice(first, ASKED) is None
    explored = explore_scenario(first)
    answer = wait_for_advice(explored, ASKED)
    assert answer is not None
    expected = recommend(explored).execution
    assert answer.execution is not None
    assert expected is not None
    assert answer.execution["id"] == expected["id"]


def test_a_search_with_too_many_to_evaluate_leaves_the_answer_to_the_rows(
    searches: Recommendations, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dashboard.jobs.recommendation_search.MOST_EVALUATED", 3)
    subject = scenario(44)
    searches.begin(subject, ASKED, "one")
    assert searches.board.jobs(searches.kind)[0].wait(30)
    assert searches.find(subject, ASKED) is None
    explored = explore_scenario(subject)
    answer = wait_for_advice(explored, ASKED)
    assert answer is not None
    expected = recommend(explored).execution
    assert (answer.execution is None) == (expected is None)
    assert answer.execution is None or answer.execution["id"] == expected["id"]  # type: ignore[index]

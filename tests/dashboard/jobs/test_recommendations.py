"""Searches for recommendations: the answer of the rows before there are any, shared, and given up when nobody waits."""

from __future__ import annotations

import threading
from dataclasses import fields
from typing import Any

import pytest

from dashboard.jobs.board import JobBoard
from dashboard.jobs.recommendation_search import search_recommendation
from dashboard.jobs.recommendations import Recommendations
from dashboard.jobs.worker import Task, Worker
from dashboard.queries.figures import wait_for_advice
from dashboard.queries.recommendation import advice_of, expected_advice
from engine import ExplorationCancelled, Scenario, explore_scenario
from engine.questions.documents.explorations import FiguresQuestion
from engine.recommendation import recommend

ASKED = FiguresQuestion()
UNTOLD = Task()


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


class Held(Worker):
    """Holds searches of some batches until they are stopped, and finds nothing for another."""

    def __init__(self) -> None:
        super().__init__(apart=False)
        self.begun, self.stopped = threading.Event(), threading.Event()

    def run(self, function: Any, *arguments: Any, doing: str = "", task: Task = UNTOLD) -> Any:
        batch = arguments[0].max_batch_size
        if batch == 44:
            return None
        if batch in (28, 32):
            self.begun.set()
            while not task.stops():
                self.stopped.wait(0.005)
            self.stopped.set()
            raise ExplorationCancelled
        return super().run(function, *arguments, doing=doing, task=task)


def test_a_search_that_nobody_waits_for_is_given_up_and_the_rows_answer() -> None:
    worker = Held()
    searches = Recommendations(JobBoard(), worker)
    first, shared, last = scenario(28), scenario(32), scenario(36)
    searches.begin(first, ASKED, "one")
    assert worker.begun.wait(30)
    searches.begin(shared, ASKED, "two")
    searches.begin(shared, ASKED, "one")
    assert worker.stopped.wait(30)  # no other session waited for the first
    searches.begin(last, ASKED, "one")
    watched = [job for job in searches.board.jobs(searches.kind) if not job.ended and shared.key in job.key]
    assert len(watched) == 1  # the other session still waits for it
    job = next(job for job in searches.board.jobs(searches.kind) if last.key in job.key)
    assert job.wait(30)
    assert expected_advice(last, ASKED) is not None
    assert expected_advice(first, ASKED) is None
    assert answered_by_rows(first)
    searches.board.close()


def test_a_search_with_too_many_to_evaluate_leaves_the_answer_to_the_rows() -> None:
    subject = scenario(44)
    assert search_recommendation(Task(), subject, ASKED, 10, most=3) is None
    searches = Recommendations(JobBoard(), Held())
    for _ in range(2):  # asked again, it is not searched again
        searches.begin(subject, ASKED, "one")
    assert searches.board.jobs(searches.kind)[0].wait(30)
    assert searches.find(subject, ASKED) is None
    assert answered_by_rows(subject)
    searches.board.close()


def answered_by_rows(subject: Scenario) -> bool:
    """Return whether a page that has the rows gets the engine's recommendation."""
    explored = explore_scenario(subject)
    answer, expected = wait_for_advice(explored, ASKED), recommend(explored).execution
    if answer is None or answer.execution is None or expected is None:
        return answer is not None and answer.execution is expected is None
    return bool(answer.execution["id"] == expected["id"])

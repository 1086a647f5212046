"""Studies of What-if: who takes turns, waits, is stopped, goes on, and what they say of themselves."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dashboard.jobs.board import JobBoard
from dashboard.jobs.job import Job, JobKind
from dashboard.jobs.studies import Studies
from dashboard.queries.waiting_times import searching
from dashboard.widgets.job_card import job_words
from dashboard.words.waiting import span
from engine import Scenario
from engine.whatif import PointSequence
from tests.dashboard.page_runs import exploration, plainly


def study(count: int, wait: float = 0.0) -> Callable[[], PointSequence[int]]:
    def results(done: int) -> Iterator[int]:
        for number in range(done, count):
            time.sleep(wait)
            yield number

    return lambda: PointSequence(count, results)


def test_studies_take_turns_and_are_shared() -> None:
    made = Studies()
    try:
        slow = made.request("slow", study(1000, 0.002))
        quick = made.request("quick", study(5))
        assert made.request("slow", study(1)) is slow
        assert quick.wait(10)
        assert not slow.ended
        assert quick.found == [0, 1, 2, 3, 4]
        assert quick.state == "done"
        made.board.cancel(slow)
        assert slow.wait(10)
        assert slow.state == "cancelled"
        assert 0 < len(slow.found) < 1000
        assert slow.state != "done"
    finally:
        made.close()


def test_points_that_take_long_do_not_hold_up_a_study_whose_points_are_quick() -> None:
    made = Studies()
    try:
        slow = made.request("slow", study(1000, 0.1))
        time.sleep(0.3)
        quick = made.request("quick", study(30, 0.002))
        before = len(slow.found)
        assert quick.wait(20)
        assert len(slow.found) - before < 10  # in turn they would have been 30
        found = len(slow.found)
        time.sleep(0.5)
        assert len(slow.found) > found
    finally:
        made.close()


def test_a_study_that_was_stopped_goes_on_after_what_it_found() -> None:
    begun = []

    def make() -> PointSequence[int]:
        begun.append(1)
        return study(40, 0.01)()

    made = Studies()
    try:
        run = made.request("study", make)
        while len(run.found) < 3:
            time.sleep(0.005)
        made.board.cancel(run)
        assert run.ended
        time.sleep(0.1)  # the point that was being looked for is found yet
        stopped = len(run.found)
        assert 3 <= stopped < 40
        assert run.state == "cancelled"
        assert made.request("study", make) is run  # looking at it does not start it
        time.sleep(0.1)
        assert len(run.found) == stopped
        made.board.resume(run)
        assert run.wait(10)
        assert run.found == list(range(40))
        assert run.state == "done"
        assert len(begun) == 2
    finally:
        made.close()


def test_stopping_while_the_last_point_is_looked_for_leaves_a_finished_study() -> None:
    made = Studies()
    try:
        run = made.request("study", study(2, 0.2))
        while not run.found:
            time.sleep(0.005)
        made.board.cancel(run)
        latest = time.monotonic() + 10
        while len(run.found) < 2 or run.state == "cancelled":
            assert time.monotonic() < latest
            time.sleep(0.005)
        assert run.state == "done"
    finally:
        made.close()


def test_a_study_nobody_looks_at_waits_and_goes_on_when_somebody_does() -> None:
    made = Studies(unwatched=0.1)
    try:
        run = made.request("study", study(100, 0.01))
        assert run.wait(10)
        time.sleep(0.1)
        assert 0 < len(run.found) < 100
        assert run.state == "paused"
        latest = time.monotonic() + 20
        while run.state != "done":
            assert made.request("study", study(1)) is run
            assert time.monotonic() < latest
            time.sleep(0.02)
        assert run.found == list(range(100))
    finally:
        made.close()


def test_a_study_says_how_long_it_may_yet_take_once_its_points_tell() -> None:
    """The first point makes things ready; what tells is what follows it."""
    made = Studies()
    made.board.close()  # nothing works on them but the test
    run, short, new = (made.request(name, study(40)) for name in ("run", "short", "new"))
    assert math.isinf(made.board.time_left(run))
    assert job_words(run) == "0 of 40 points"
    assert run.work()
    assert math.isinf(made.board.time_left(run))
    run._timed.extend([0.2, 0.2])
    assert math.isinf(made.board.time_left(run))
    run._timed.clear()
    run._timed.append(2.0)
    run.found.append(0)
    short.found = [0] * 35
    short._timed.append(2.0)
    assert made.board.time_left(short) == pytest.approx(3 * 10)  # the three share the time equally until it is done
    assert made.board.time_left(run) == pytest.approx(76 + 10 + 76)
    made.board.cancel(new)
    assert new.state == "cancelled"
    assert job_words(run) == f"2 of 40 points · {span(86)} left"


def test_times_to_wait_are_told_in_words() -> None:
    assert tuple(plainly(span(seconds)) for seconds in (0.2, 80, 100, 7200)) == ("1 s", "80 s", "2 min", "2 h")
    small = exploration().scenario
    assert searching(small) == f"Searching {small.space.total:,} executions for the best"
    many = Scenario.of(
        "deepseek-v3",
        "h100_80g_sxm",
        num_procs=1024,
        max_batch_size=15360,
        datatype="bfloat16",
        limits={
            "tensor_par": 1,
            "context_par": [1, 2, 4, 8],
            "launch": ["eager", "fused", "compiled", "graphs"],
            **dict.fromkeys(("expert_overlap", "pipeline_overlap"), (True, False)),
            **dict.fromkeys(("gradient_datatype", "optimizer_datatype"), ("float32", "bfloat16")),
        },
    )
    assert plainly(searching(many)) == "Searching 132 M executions for the best; that many may take 5.3 s"


def test_a_failing_study_says_so_and_hurts_no_other() -> None:
    def broken() -> PointSequence[Any]:
        raise ValueError("No such thing.")

    made = Studies()
    try:
        bad = made.request("bad", broken)
        good = made.request("good", study(3))
        assert bad.wait(10)
        assert good.wait(10)
        assert bad.problem == "No such thing."
        assert good.state == "done"
    finally:
        made.close()


def test_a_question_goes_first() -> None:
    go = threading.Event()

    class Question(Job):
        def work(self) -> bool:
            return not go.wait(20)

    board, questions = JobBoard(), JobKind(name="search", doing="Searching")
    made = Studies(board, gives_way_to=questions)
    try:
        slow = made.request("slow", study(10_000, 0.001))
        asked = board.post(Question(questions, "question"))
        time.sleep(0.1)
        before = len(slow.found)
        time.sleep(0.2)
        assert len(slow.found) - before <= 2
        go.set()
        assert asked.wait(20)
        latest = time.monotonic() + 20
        while len(slow.found) - before < 20:
            assert time.monotonic() < latest
            time.sleep(0.01)
    finally:
        board.close()

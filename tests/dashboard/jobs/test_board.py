"""The board of jobs, with jobs of the test's own: whose turn it is, what ends them, and what the card draws of any."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.jobs.board import BoardFull, JobBoard
from dashboard.jobs.job import Job, JobKind
from dashboard.widgets import job_card
from engine import ExplorationCancelled, Progress
from engine.exploration.workers import WorkerError
from tests.dashboard.page_runs import html, progress

WHOLE = {"name": "plan", "doing": "Planning"}


class Whole(Job):
    """Work that goes on until it is let go, stopped, or fails."""

    def __init__(self, kind: JobKind, key: str, fault: Exception | None = None, **more: Any) -> None:
        super().__init__(kind, key, "Planning", key, **more)
        self.fault, self.go, self.released = fault, threading.Event(), 0

    def work(self) -> bool:
        self.tell(Progress(250_000, 1_000_000, 10, 0.5))
        while not self.go.wait(0.002):
            if self.stops():
                raise ExplorationCancelled
        if self.fault is not None:
            raise self.fault
        return False

    def release(self) -> None:
        self.released += 1


class Parts(Job):
    """Work in four parts, of which those after the first wait until it is let go or stopped."""

    def __init__(self, kind: JobKind, key: str) -> None:
        super().__init__(kind, key)
        self.go = threading.Event()

    def work(self) -> bool:
        while self.found and not self.go.wait(0.002) and not self.stops():
            pass
        self.found.append(len(self.found))
        return len(self.found) < 4


@pytest.fixture
def board() -> Iterator[JobBoard]:
    made = JobBoard()
    yield made
    made.close()


def until(told: Callable[[], bool]) -> None:
    latest = time.monotonic() + 20
    while not told():
        assert time.monotonic() < latest
        time.sleep(0.002)


def begun(board: JobBoard, job: Whole, watcher: str = "") -> Whole:
    board.post(job, watcher)
    until(lambda: job.state != "queued")
    return job


def test_a_higher_priority_comes_first_and_then_what_each_session_asked_for_last(board: JobBoard) -> None:
    kind, order = JobKind(**WHOLE), []
    first = begun(board, Whole(kind, "first"))

    class Told(Whole):
        def work(self) -> bool:
            order.append(self.key)
            return False

    for key, watcher, priority in (("a1", "a", 0), ("a2", "a", 0), ("b1", "b", 0), ("late", "a", -1), ("now", "b", 1)):
        board.post(Told(kind, key, priority=priority), watcher)
    jobs = [board.find(kind, key) for key in ("now", "late")]
    assert [board.position(job) for job in jobs if job is not None] == [1, 5]
    first.go.set()
    until(lambda: len(order) == 5)
    assert (order[0], order[-1]) == ("now", "late")
    assert order.index("a2") < order.index("a1")
    assert order.index("b1") < order.index("a1")


def test_lanes_and_kinds_do_not_wait_for_each_other(board: JobBoard) -> None:
    kind = JobKind(**WHOLE)
    begun(board, Whole(kind, "one"))
    begun(board, Whole(kind, "two", lane="large"))
    begun(board, Whole(JobKind(**WHOLE), "one"))


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (ValueError("No such plan."), "No such plan."),
        (MemoryError(), "The server does not have enough memory for this."),
        (WorkerError("The process has ended."), "The process has ended."),
        (KeyError("inside"), "Planning failed because of an internal error; the server's log has the reason."),
    ],
)
def test_what_goes_wrong_is_one_sentence_and_ends_no_lane(board: JobBoard, fault: Exception, said: str) -> None:
    kind = JobKind(**WHOLE)
    bad = begun(board, Whole(kind, "bad", fault))
    bad.go.set()
    assert bad.wait(20)
    assert (bad.state, bad.problem, bad.released) == ("failed", said, 1)
    begun(board, Whole(kind, "good")).go.set()


def test_what_nobody_looks_at_ends_and_can_be_asked_for_again(board: JobBoard) -> None:
    kind = JobKind(**WHOLE, unwatched=0.05)
    job = begun(board, Whole(kind, "job"))
    assert job.wait(20)
    until(lambda: board.find(kind, "job") is None)
    kind.unwatched = math.inf
    assert board.post(Whole(kind, "job")) is not job


def test_where_nobody_looks_any_more_nothing_goes_on_until_somebody_does(board: JobBoard) -> None:
    whole, parts = JobKind(**WHOLE), JobKind(name="sweep", doing="Sweeping", in_parts=True)
    ended, waiting = begun(board, Whole(whole, "one")), Whole(whole, "two")
    board.post(waiting)
    study = Parts(parts, "study")
    board.post(study)
    until(lambda: len(study.found) == 1)
    board.rest()
    assert (ended.state, waiting.state, study.state) == ("cancelled", "cancelled", "paused")
    assert board.find(whole, "one") is None
    assert board.seen(parts, "study") is study
    study.go.set()
    assert study.wait(20)
    assert study.found == [0, 1, 2, 3]


def test_work_in_parts_keeps_what_it_found_and_goes_on(board: JobBoard) -> None:
    kind = JobKind(name="sweep", doing="Sweeping", in_parts=True)
    job = board.post(Parts(kind, "job"))
    until(lambda: len(job.found) > 0)
    assert board.cancel(job)
    assert job.state == "cancelled"
    assert board.post(Parts(kind, "job"), "somebody else") is job
    board.resume(job)
    job.go.set()
    assert job.wait(20)
    assert (job.state, job.found) == ("done", [0, 1, 2, 3])


def test_too_many_are_refused_and_one_more_in_parts_pauses_that_looked_at_longest_ago(board: JobBoard) -> None:
    kind = JobKind(**WHOLE, most_waiting=1)
    begun(board, Whole(kind, "one"))
    board.post(Whole(kind, "two"))
    with pytest.raises(BoardFull, match="1 plans are waiting already"):
        board.post(Whole(kind, "three"))
    # None of those in parts gets a turn at once.
    parts = JobKind(name="sweep", doing="Sweeping", in_parts=True, most_waiting=1, gives_way_to=kind)
    first = board.post(Parts(parts, "one"))
    board.post(Parts(parts, "two"))
    assert first.state == "paused"
    assert board.seen(parts, "one") is first
    assert first.state == "queued"


def test_ended_jobs_are_forgotten_beyond_their_number_weight_and_time(board: JobBoard) -> None:
    class Heavy(Whole):
        weight = 2.0

    def left(**bounds: float) -> list[str]:
        kind = JobKind(**WHOLE, **bounds)  # type: ignore[arg-type]
        for key in "abc":
            job = Heavy(kind, key)
            job.end("done")
            board.post(job)
        return [job.key for job in board.jobs(kind)]

    assert left() == ["a", "b", "c"]
    assert left(most_kept=2) == ["b", "c"]
    assert left(most_weight=3.0) == ["c"]
    assert left(remembered=-1.0) == ["c"]


def test_closing_a_kind_ends_its_jobs_and_no_others(board: JobBoard) -> None:
    kind, other = JobKind(**WHOLE), JobKind(**WHOLE)
    mine, theirs = begun(board, Whole(kind, "job")), begun(board, Whole(other, "job"))
    board.close(kind)
    assert (mine.state, theirs.state) == ("cancelled", "running")
    assert board.jobs(kind) == []
    assert mine.released == 1


def test_so_many_of_a_lane_are_worked_on_at_once(board: JobBoard) -> None:
    kind = JobKind(**WHOLE, at_once=2)
    jobs = [board.post(Whole(kind, key)) for key in "abc"]
    until(lambda: [job.state for job in jobs].count("running") == 2)
    waits = next(job for job in jobs if job.state == "queued")
    assert board.position(waits) == 2
    board.cancel(next(job for job in jobs if job.state == "running"))
    until(lambda: waits.state == "running")


def _card(job: object) -> None:
    from dashboard.jobs.job import Job
    from dashboard.widgets.job_card import job_card

    assert isinstance(job, Job)
    job_card(job, "me")


def _other_session(job: object) -> None:
    import streamlit as st

    from dashboard.jobs.job import Job
    from dashboard.link import state

    assert isinstance(job, Job)
    job.board.look(job, state.watcher())
    st.text(state.watcher())


def _disconnect() -> None:
    """Release the resources of a session, as Streamlit does when its browser disconnects."""
    from dashboard.link import open_sessions

    open_sessions._keep_open.clear()  # type: ignore[attr-defined]


def test_the_card_of_any_job_says_how_far_it_is_and_stops_it_and_what_follows(board: JobBoard) -> None:
    job = begun(board, Whole(JobKind(**WHOLE), "all of it"), "me")
    other = AppTest.from_function(_other_session, kwargs={"job": job}).run().text[0].value
    page = AppTest.from_function(_card, kwargs={"job": job}).run()
    assert "Planning" in html(page)
    assert progress(page)[0] == "250,000 of 1.00 M · 500,000 per second · 1.5 s left"
    page.button(key="job_stop_plan").click().run()
    assert page.caption[0].value == "Another session waits for the same result, so it continues."
    assert other in job.watched
    AppTest.from_function(_disconnect).run()
    page.button(key="job_stop_plan").click().run()
    assert job.state == "cancelled"
    assert len(page.info) == 1
    page.button(key="job_again_plan").click().run()
    assert board.find(job.kind, job.key) is None


def test_the_card_of_work_in_parts_is_a_line_that_goes_on(board: JobBoard) -> None:
    job = board.post(Parts(JobKind(name="sweep", doing="Sweeping", in_parts=True), "job"), "me")
    until(lambda: len(job.found) > 0)
    until(lambda: time.monotonic() - job.started >= job_card.SHOW)
    page = AppTest.from_function(_card, kwargs={"job": job}).run()
    page.button(key="job_stop_sweep").click().run()
    page.button(key="job_on_sweep").click().run()
    job.go.set()
    assert job.wait(20)
    assert not page.run().button

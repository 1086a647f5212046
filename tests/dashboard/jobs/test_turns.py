"""Pages that only read do not wait; those that explored draw when few are at work, and nobody waits for good."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dashboard.jobs.turns import Turns


class Page(threading.Thread):
    """A page that is computed until it is told to end."""

    def __init__(self, turns: Turns, *, explored: bool) -> None:
        super().__init__(daemon=True)
        self._turns, self._explored = turns, explored
        self.drawing, self.end = threading.Event(), threading.Event()

    def run(self) -> None:
        with contextlib.suppress(ValueError), self._turns.turn(), self._turns.turn():  # a part of it within it
            if self._explored:
                self._turns.after_others()
            self.drawing.set()
            self.end.wait(20)
            raise ValueError("A fault gives the place back, too.")


@contextmanager
def pages(turns: Turns, *kinds: bool) -> Iterator[list[Page]]:
    """Pages at work, begun one after the other; ended afterwards. kinds: whether each has explored."""
    made = [Page(turns, explored=explored) for explored in kinds]
    for page in made:
        page.start()
        page.drawing.wait(0.05 if page._explored else 20)
    yield made
    for page in made:
        page.end.set()
        page.join(20)
        assert not page.is_alive()


def test_who_reads_does_not_wait_and_who_explored_does(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = Turns(2)
    with pages(turns, False, False, False, True, False) as (one, two, three, explored, late):
        assert late.drawing.is_set()
        assert not explored.drawing.is_set()
        for page in (one, two):
            page.end.set()
            page.join(20)
        assert not explored.drawing.wait(0.05)  # two are left
        three.end.set()
        assert explored.drawing.wait(20)
    assert turns._working == 0


def test_those_that_wait_come_one_by_one_in_their_order() -> None:
    turns = Turns(1)
    with pages(turns, False, True, True, True) as (reads, *explored):
        reads.end.set()
        for left in range(3):
            drawing = [page for page in explored if page.drawing.wait(0.2) and not page.end.is_set()]
            assert drawing == [explored[left]]
            drawing[0].end.set()
            drawing[0].join(20)


def test_a_page_that_waits_for_something_holds_up_nobody() -> None:
    turns = Turns(1)
    with turns.turn():
        with turns.aside(), pages(turns, True) as (explored,):
            assert explored.drawing.is_set()
        with pages(turns, True) as (explored,):
            assert not explored.drawing.is_set()
            turns.leave()
            assert explored.drawing.wait(20)
    assert turns._working == 0


def test_a_page_that_does_not_end_holds_up_nobody_for_good() -> None:
    turns = Turns(1, longest=0.1)
    with turns.turn(), pages(turns, True) as (explored,):
        assert explored.drawing.wait(20)

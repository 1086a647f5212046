"""Pages take turns: those that only read pass those that explore, and nobody can hold the others up for good."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from dashboard import turns as under_test
from dashboard.turns import Rank, Turns


@contextmanager
def working(*works: Callable[[], None]) -> Iterator[list[threading.Thread]]:
    """Threads at work, which have ended afterwards."""
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    for thread in threads:
        thread.start()
    yield threads
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()


def waiting(turns: Turns, number: int) -> None:
    """Waits until so many threads wait for a turn."""
    for _ in range(2000):
        if len(turns._waiting) == number:
            return
        threading.Event().wait(0.005)
    raise AssertionError(f"{len(turns._waiting)} wait where {number} should.")


def test_who_reads_comes_before_who_has_explored() -> None:
    turns, came = Turns(1), list[str]()
    explored = threading.Event()

    def explores(name: str) -> Callable[[], None]:
        def work() -> None:
            with turns.turn():
                with turns.aside(Rank.EXPLORED):
                    explored.wait(20)
                came.append(name)

        return work

    def reads() -> None:
        with turns.turn(), turns.turn():  # a part of a page within the page
            came.append("reads")

    with working(explores("explores"), explores("explores")):
        with working(reads):
            pass
        assert came == ["reads"]  # nobody waits for what is being explored
        with turns.turn():
            explored.set()
            waiting(turns, 2)
            with working(reads) as (reader,):
                waiting(turns, 3)
                turns.leave()
                reader.join(20)
    assert came == ["reads", "reads", "explores", "explores"]


def test_only_so_many_work_at_a_time_and_a_fault_gives_the_place_back() -> None:
    turns, at_once, most = Turns(2), [0], [0]
    lock = threading.Lock()

    def fail() -> None:
        with lock:
            at_once[0] += 1
            most[0] = max(most[0], at_once[0])
        threading.Event().wait(0.01)
        with lock:
            at_once[0] -= 1
        raise ValueError("a fault")

    def work() -> None:
        with contextlib.suppress(ValueError), turns.turn():
            fail()

    with working(*[work] * 12):
        pass
    assert most == [2]
    assert turns._free == 2


def test_a_page_that_does_not_end_holds_up_nobody_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "LONGEST", 0.05)
    turns, came = Turns(1), threading.Event()

    def work() -> None:
        with turns.turn():
            came.set()

    with turns.turn(), working(work):
        assert came.wait(20)
    assert turns._free == 1

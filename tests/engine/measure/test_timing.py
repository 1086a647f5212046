"""Timing: warm-up does not count, interruptions do not move the median, time is bounded."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.measure.samples import SampleTiming
from engine.measure.sizes import plan
from engine.measure.timing import steady, summary, timed


class Machine:
    """A clock that only calls move; the calls take the times they are given, the last one for ever."""

    def __init__(self, seconds: list[float]) -> None:
        self.now, self.calls = 0.0, 0
        self._seconds: Iterator[float] = iter(seconds)
        self._last = seconds[-1]

    def call(self) -> None:
        self.now += next(self._seconds, self._last)
        self.calls += 1

    def clock(self) -> float:
        return self.now


def run(machine: Machine, seconds: float, **more: float) -> SampleTiming:
    return timed(machine.call, seconds=seconds, clock=machine.clock, **more)


def test_a_steady_operation_is_timed_without_its_warm_up() -> None:
    machine = Machine([5.0, 0.5, 0.25])
    found = run(machine, 100.0)
    assert found.seconds == 0.25
    assert found.spread == 0.0
    assert machine.now < 10.0  # it stops as soon as the median stands


def test_interruptions_do_not_move_the_median() -> None:
    machine = Machine([0.1, 0.1, 0.1] + [0.1, 0.1, 0.1, 3.0, 0.1] * 20)
    assert run(machine, 30.0).seconds == pytest.approx(0.1)


def test_short_operations_are_timed_in_batches() -> None:
    machine = Machine([1e-6])
    found = run(machine, 1.0, sample_seconds=1e-3)
    assert found.seconds == pytest.approx(1e-6)
    assert found.repeats >= 5 * 1_000


def test_restless_operations_end_with_the_time() -> None:
    machine = Machine([0.1 if position % 2 else 0.2 for position in range(10_000)])
    found = run(machine, 6.0)
    assert 6.0 <= machine.now < 6.5
    assert 0.1 < found.seconds <= 0.2
    assert found.spread > 0.1


def test_what_slows_down_under_load_is_timed_when_it_has() -> None:
    """An accelerator reaches its power limit after a while of work, and pauses let it be fast again."""
    fast, slow = 1e-3, 1.25e-3
    loaded = Machine([2.0, *[fast] * 150, slow])
    found = run(loaded, 5.0, sample_seconds=5e-3, warm_seconds=0.3)
    assert found.seconds == pytest.approx(slow)
    assert found.spread == 0.0
    assert loaded.now < 2.0 + 0.3 + 5.0
    # Without it the first agreement ends warming up, which is right for what has no such limit.
    assert run(Machine([2.0, *[fast] * 150, slow]), 100.0, sample_seconds=5e-3).seconds == pytest.approx(fast)


def test_what_swings_under_load_is_timed_over_whole_swings() -> None:
    swings = [1e-3] * 100 + [1.5e-3] * 50
    found = run(Machine([2.0, *swings * 100]), 5.0, sample_seconds=5e-3, warm_seconds=0.4)
    assert found.seconds == pytest.approx(1e-3)
    assert found.spread == pytest.approx(0.25)  # a third of the calls are slow, so the upper quartile is 1.5 ms


def test_slow_operations_are_repeated_the_fewest_times() -> None:
    machine = Machine([10.0])
    assert run(machine, 1.0).repeats == 3
    assert machine.calls == 5


def test_steadiness_needs_samples_and_agreement() -> None:
    assert not steady([1.0] * 4)
    assert steady([1.0] * 5)
    assert not steady([1.0, 1.2, 0.8, 1.1, 0.9])
    # 1.2533 x 1.4826 x 0.1 / sqrt(n) is 1 % of the median at n = 345.
    assert not steady([1.0, 1.1, 0.9] * 100)
    assert steady([1.0, 1.1, 0.9] * 120)


def test_the_summary_is_median_and_half_the_quartile_distance() -> None:
    found = summary([1.0, 2.0, 3.0, 4.0, 5.0], batch=2)
    assert (found.seconds, found.spread, found.repeats) == (3.0, pytest.approx(1.0 / 3.0), 10)


@pytest.mark.parametrize("kind", ["cpu", "cuda", "rocm"])
def test_plans_share_the_time_and_grow(kind: str) -> None:
    quick, full = plan(kind, quick=True), plan(kind, quick=False)
    assert sum(full.shares.values()) == pytest.approx(1.0)
    assert quick.seconds < 20 < full.seconds
    assert set(quick.products) <= set(full.products)
    for each in (quick, full):
        operations = [m * n * k for m, n, k in each.products]
        assert operations == sorted(operations)
        # 16 bytes is the finest alignment that 8-bit products take, 128 that of tiles.
        assert all(size % 64 == 0 for shape in each.products for size in shape)
    assert plan(kind, quick=False, seconds=33.0).seconds == 33.0

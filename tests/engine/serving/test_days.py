"""Days of a service: replicas minute by minute, reservations by brute force, laws, and demands that cannot be."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.serving import WorkloadError
from engine.serving.days import DayDemand, DayRules, ServedDay, follow_demand, read_demand, shape_demand

MINUTES = 1_440


@st.composite
def demands(draw: st.DrawFn) -> DayDemand:
    """Demands that change at whole minutes."""
    starts = sorted({0, *draw(st.lists(st.integers(0, MINUTES - 1), max_size=6))})
    rates = [draw(st.sampled_from([0.0, 0.5, 1.0, 2.5, 7.0, 12.0])) for _ in starts]
    return DayDemand(np.array(starts) / 60.0, np.array([max(rates[0], 0.5), *rates[1:]]))


def follow(demand: DayDemand, *, capacity: float = 2.0, size: int = 2, **rules: Any) -> ServedDay:
    day = follow_demand(demand, DayRules(**{"price": 3.0, **rules}), {}, size=size, capacity=capacity, output=100)
    assert day is not None
    return day


@given(demands(), st.integers(0, 90), st.integers(0, 90), st.integers(0, 2), st.sampled_from([None, 2, 4]))
def test_replicas_are_those_of_single_machines_by_the_minute(
    demand: DayDemand, start: int, down: int, least: int, most: int | None
) -> None:
    day = follow(demand, start_up_s=60.0 * start, scale_down_s=60.0 * down, least=least, most=most)
    rate = np.repeat(demand.rates, np.round(demand.lengths * 60).astype(int))
    needed = np.clip(np.ceil(rate / 2.0), least, 10**6 if most is None else most)
    paid = np.zeros(MINUTES)
    # Each replica on its own: it is on in every minute that it is needed, `start` minutes before, `down` after.
    for place in range(int(needed.max())):
        on = np.zeros(MINUTES, bool)
        for minute in np.flatnonzero(needed > place):
            on[np.arange(minute - start, minute + down + 1) % MINUTES] = True
        paid += on
    minutes = (np.arange(MINUTES) + 0.5) / 60.0
    assert day.replicas[np.searchsorted(day.starts, minutes, side="right") - 1].tolist() == paid.tolist()
    assert day.replica_hours == pytest.approx(paid.sum() / 60.0, rel=1e-6)
    served = np.minimum(rate, math.inf if most is None else 2.0 * most)
    assert day.served_requests == pytest.approx(served.sum() * 60.0, rel=1e-6)
    assert day.unserved_requests == pytest.approx((rate - served).sum() * 60.0, rel=1e-6, abs=1e-3)
    assert np.all(day.ready <= day.replicas)
    assert np.all(day.ready * day.capacity >= day.served - 1e-9)


@given(demands(), st.sampled_from([0.0, 0.3, 1.0, 1.5, 2.9, 3.0, 4.0]), st.integers(0, 2))
def test_the_closed_form_reserves_as_many_as_the_cheapest_of_all_numbers(
    demand: DayDemand, reserved: float, least: int
) -> None:
    day = follow(demand, least=least, reserved_price=reserved)
    costs = [day.cost_with(number) for number in range(day.peak_replicas + 2)]
    assert day.cost == pytest.approx(min(costs), rel=1e-6, abs=1e-6)
    assert day.cost <= min(costs[0], day.cost_with(day.peak_replicas)) + 1e-6
    # By hand: every replica of every interval, on demand unless it is reserved.
    pairs = zip(day.replicas, day.lengths, strict=True)
    by_hand = sum(2 * 3.0 * length * max(count - day.reserved, 0) for count, length in pairs)
    assert day.cost == pytest.approx(by_hand + 2 * 24 * reserved * day.reserved)


@given(demands(), st.floats(1.0, 3.0), st.integers(0, 7_200), st.integers(0, 7_200), st.integers(1, 5))
def test_more_demand_longer_starts_and_no_cap_never_cost_less(
    demand: DayDemand, more: float, start: int, later: int, most: int
) -> None:
    rules: dict[str, Any] = {"start_up_s": float(start), "reserved_price": 1.0}
    day = follow(demand, **rules)
    grown = follow(DayDemand(demand.starts, demand.rates * more), **rules)
    assert np.all(grown.replicas >= day.replicas)
    slower = follow(demand, **{**rules, "start_up_s": float(start + later)})
    assert slower.cost >= day.cost - 1e-6
    assert slower.replica_hours >= day.replica_hours - 1e-6
    capped = follow(demand, **rules, most=most)
    assert capped.cost <= day.cost + 1e-6
    assert capped.served_requests <= day.served_requests + 1e-6
    assert day.cost <= day.constant_cost + 1e-6


def test_a_day_by_hand() -> None:
    demand = read_demand("time,requests_per_second\n0,2\n08:00,9.5\n18,4\n")
    day = follow(demand, start_up_s=1_800.0, scale_down_s=3_600.0, reserved_price=1.0)
    # 1 replica until 7:30, then 5 until 19:00 and 2 until 1:00 of the next day.
    assert day.replica_hours == pytest.approx(1 * 6.5 + 5 * 11.5 + 2 * 6.0)
    # Break-even at 8 h: five are used for 11.5 h.
    assert (day.peak_replicas, day.reserved, day.break_even_hours) == (5, 5, 8.0)
    assert day.cost == pytest.approx(2 * 24 * 5 * 1.0)
    assert demand.requests == pytest.approx(3_600 * (2 * 8 + 9.5 * 10 + 4 * 6))


def test_a_shape_has_its_peak_its_trough_and_their_mean() -> None:
    demand = shape_demand(40.0, 0.25, 14.0)
    assert demand.peak == pytest.approx(40.0, rel=1e-3)
    assert float(demand.rates.min()) == pytest.approx(10.0, rel=1e-3)
    assert demand.requests == pytest.approx(25.0 * 86_400)
    assert demand.starts[int(np.argmax(demand.rates))] == pytest.approx(14.0, abs=0.1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not a CSV table"),
        ("time,requests_per_second\n0,1,9\n1,2,9\n", "more cells than the header"),
        ("time,requests_per_second\n0,1_000\n", "requests_per_second is '1_000'"),
        ("time,requests_per_second\n-0:30,1\n", "time is '-0:30'"),
        ("time,requests_per_second\n,5\n", "row 1: time is ''"),
        ("hour,rate\n0,1\n", "no column time"),
        ("time,requests_per_second\n", "no rows"),
        ("time,requests_per_second\n" + "".join(f"{row / 100},1\n" for row in range(1_442)), "more than 1,440 rows"),
        ("time,requests_per_second\n24,1\n", "row 1: time is '24'"),
        ("time,requests_per_second\n8:75,1\n", "row 1: time is '8:75'"),
        ("time,requests_per_second\nnan,1\n", "row 1: time is"),
        ("time,requests_per_second\n3,1\n2,1\n", "row 2 is not after row 1"),
        ("time,requests_per_second\n3,-1\n", "row 1: requests_per_second is '-1'"),
        ("time,requests_per_second\n3,inf\n", "row 1: requests_per_second is 'inf'"),
        ("time,requests_per_second\n3,many\n", "row 1: requests_per_second is 'many'"),
        ("time,requests_per_second\n3,0\n", "0 all day"),
        ("time,requests_per_second\n" + "1" * 200_001, "at most 200,000"),
    ],
)
def test_a_demand_that_cannot_be_is_one_sentence(text: str, words: str) -> None:
    with pytest.raises(WorkloadError, match=re.escape(words)) as problem:
        read_demand(text)
    assert str(problem.value).endswith(".")
    assert "\n" not in str(problem.value)


def test_spreadsheets_numbers_and_marks_are_read() -> None:
    demand = read_demand("\n".join(["time,requests_per_second", "0, 1.5e1", "0:30,.5", "12:00:00,7."]))
    assert demand.starts.tolist() == [0.0, 0.5, 12.0]
    assert demand.rates.tolist() == [15.0, 0.5, 7.0]


def test_a_deployment_larger_than_the_gpus_has_no_day() -> None:
    demand = shape_demand(4.0, 0.5, 12.0)
    assert follow_demand(demand, DayRules(most_procs=3), {}, size=4, capacity=2.0, output=1) is None
    assert follow_demand(demand, DayRules(most_procs=8, least=3), {}, size=4, capacity=2.0, output=1) is None

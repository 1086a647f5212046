"""Pareto frontiers against comparing every point with every other one."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import engine
from engine.columns import HEADLINE, UnknownColumn, by_name
from engine.exploration.frontier import frontier
from tests.engine.explored_with_rows import explored_with_rows
from tests.engine.small_spaces import draw


def brute(axes: list[np.ndarray], better: list[str], names: np.ndarray | None = None) -> list[int]:
    """Positions of the frontier: of equal points the one of the smallest name, along the first axis."""
    names = np.arange(len(axes[0])) if names is None else names
    signed = [axis if way == "lower" else -axis for axis, way in zip(axes, better, strict=True)]
    points = np.column_stack(signed)
    kept: dict[tuple[float, ...], int] = {}
    for row, values in enumerate(points):
        point = tuple(values.tolist())
        if any(value != value for value in point):
            continue
        dominated = ((points <= values).all(axis=1) & (points != values).any(axis=1)).any()
        if not dominated and (point not in kept or names[row] < names[kept[point]]):
            kept[point] = row
    return [kept[point] for point in sorted(kept)]


SPECIAL = [float("inf"), -float("inf"), float("nan"), 1.7e308, -1.7e308, 5e-324, -0.0]
VALUES = st.integers(-3, 3).map(float) | st.integers(-50, 50).map(float) | st.sampled_from(SPECIAL)


@settings(max_examples=3 * settings.default.max_examples)
@given(data=st.data(), count=st.integers(2, 3), size=st.integers(0, 60))
def test_equals_comparing_all_pairs(data: st.DataObject, count: int, size: int) -> None:
    better = data.draw(st.lists(st.sampled_from(["lower", "higher"]), min_size=count, max_size=count))
    axes = [np.array(data.draw(st.lists(VALUES, min_size=size, max_size=size)), float) for _ in range(count)]
    assert frontier(axes, better).tolist() == brute(axes, better)


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("spread", [4, 40, 100_000])
def test_equals_comparing_all_pairs_of_many_points(count: int, spread: int) -> None:
    """Enough points for the bins of the prefilter to drop some, on the way to the frontier and on it."""
    random = np.random.default_rng(count * spread)
    for better in (["lower", "higher", "lower"], ["higher", "higher", "higher"]):
        axes = [random.integers(0, spread, 1200).astype(float) for _ in range(count)]
        axes[0][:7], axes[1][5:9], axes[-1][8:11] = np.inf, np.nan, -np.inf
        assert frontier(axes, better[:count]).tolist() == brute(axes, better[:count])


def test_a_frontier_of_two_axes_of_a_large_set_steps_down() -> None:
    random = np.random.default_rng(3)
    x, y = random.random(400_000), random.random(400_000)
    kept = frontier([x, y], ["lower", "lower"])
    assert (np.diff(x[kept]) > 0).all()
    assert (np.diff(y[kept]) < 0).all()
    # everything lies above the staircase
    step = np.searchsorted(x[kept], x, side="right") - 1
    assert ((step < 0) | (y >= y[kept][step])).all()
    assert x.min() == x[kept[0]]


@pytest.mark.parametrize("count", [0, 1, 4])
def test_other_numbers_of_axes_are_refused(count: int) -> None:
    with pytest.raises(ValueError, match=rf"^A frontier has two or three axes, not {count}\.$"):
        frontier([np.zeros(3)] * count, ["lower"] * count)


@given(random=st.randoms(use_true_random=False))
def test_frontier_of_an_exploration(random: Random) -> None:
    """All feasible executions take part; of equal ones the first enumerated stands for them."""
    found = explored_with_rows(draw(random, largest=1_000).scenario)
    rows = found.rows.table().to_pandas()
    for count in (2, 3):
        names = random.sample([column.name for column in HEADLINE], count)
        expected = found.frontier(*names)
        assert list(expected.columns) == ["id", *names]
        # Equal points are the same point: comparing the distinct ones is what keeps this quick.
        points = rows.sort_values("id").drop_duplicates(names)
        if len(points) > 700:
            continue
        positions = brute([points[name].to_numpy() for name in names], [by_name(name).better or "" for name in names])
        assert expected["id"].tolist() == points["id"].iloc[positions].tolist()
        assert expected[names].to_numpy().tolist() == points[names].iloc[positions].to_numpy().tolist()


@pytest.mark.parametrize(
    ("name", "error"), [("tensor_par", ValueError), ("block_fw_flops", ValueError), ("sample_rat", UnknownColumn)]
)
def test_axes_are_headline_metrics(name: str, error: type[Exception]) -> None:
    found = engine.explore_scenario(draw(Random(0), largest=2_000).scenario)
    calls: list[Any] = [(name, "total_time"), ("total_time", name), ("total_time", "fw_time", name)]
    for axes in calls:
        with pytest.raises(error, match=name):
            found.frontier(*axes)

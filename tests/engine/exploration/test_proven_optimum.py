"""The proven optimum against exploring everything."""

from __future__ import annotations

import threading
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import engine
from engine import Exploration, Optimum, WorkSizes, working_in
from engine.cost_models.registry import cost_model_of
from engine.exploration import proven_optimum
from tests.engine.explored_with_rows import explored_with_rows
from tests.engine.small_spaces import FIELDS, draw

SMALL: dict[str, Any] = {"num_procs": 8, "max_batch_size": 8, "datatype": "float16"}


def assert_optimum(optimum: Optimum, found: Exploration, k: int) -> None:
    assert (optimum.total, optimum.feasible) == (found.total, found.feasible)
    assert optimum.evaluated <= found.feasible
    rows = found.rows.top(max(k, 1), names=["id", "sample_rate"]).to_pandas()
    assert optimum.top["id"].tolist() == rows["id"].tolist()
    assert optimum.top["sample_rate"].tolist() == rows["sample_rate"].tolist()
    pd.testing.assert_series_equal(pd.Series(dict(optimum), dtype=object), pd.Series(found.best or {}, dtype=object))
    if optimum.by_cell is not None:
        wanted = found.by_cell("sample_rate").rename(columns={"value": "sample_rate"})
        pd.testing.assert_frame_equal(optimum.by_cell, wanted[list(optimum.by_cell)], check_exact=True)


@given(random=st.randoms(use_true_random=False), by_cell=st.booleans(), k=st.sampled_from([1, 1, 2, 7, 60, 10**6]))
def test_equals_exploring_everything(random: Random, by_cell: bool, k: int) -> None:
    scenario = draw(random, largest=2_500).scenario
    found = explored_with_rows(scenario)
    sites, rows, look = random.choice((1, 4, 4096)), random.choice((2, 50, 8192)), random.choice((1, 3, 48))
    with working_in(WorkSizes(points_explored=sites, rows_evaluated=rows, first_rows=look)):
        optimum = engine.best_of(scenario, k=k, by_cell=by_cell)
    assert (optimum.by_cell is not None) == by_cell
    assert_optimum(optimum, found, k)


@settings(max_examples=12)
@given(random=st.randoms(use_true_random=False))
def test_no_execution_exceeds_the_bound_of_its_schedule_point(random: Random) -> None:
    """The searched bounds against exploring everything: of whole schedule points, and of their block times."""
    scenario = draw(random, largest=4_000).scenario
    space, cost_model = scenario.space, cost_model_of(scenario.space)
    found = explored_with_rows(scenario).rows.table(["id", "sample_rate"]).to_pandas()
    by_bounds = cost_model.bound_search(space, range(len(space.cells)))
    with working_in(WorkSizes(first_points=random.choice((1, 3, 64)))):
        promising = by_bounds.promising(space).tolist()
        parts = list(by_bounds.bounds(space))
    bounds: dict[int, float] = {}
    for points, _, rates in parts:
        for point, rate in zip(points.tolist(), rates.tolist(), strict=True):
            bounds[point] = max(rate, bounds.get(point, 0.0))
    reached: dict[int, float] = {}
    for execution, rate in zip(found["id"].tolist(), found["sample_rate"].tolist(), strict=True):
        (point,) = by_bounds.point_of(execution).tolist()
        reached[point] = max(rate, reached.get(point, 0.0))
    assert bounds.keys() == reached.keys()
    assert all(bounds[point] >= rate * proven_optimum.SAFETY for point, rate in reached.items())
    assert by_bounds.feasible(space) == len(found)
    # What was looked at whole is left out, and of the others what cannot reach the least.
    least = float(np.median(list(bounds.values()))) if bounds else 0.0
    known = np.array(promising, np.int64)
    left = [point for points, _, _ in by_bounds.bounds(space, lambda: least, known) for point in points.tolist()]
    assert set(left) <= bounds.keys() - set(promising)
    assert {point for point, rate in bounds.items() if rate > least} - set(promising) <= set(left)


@pytest.mark.parametrize("cost_model", engine.COST_MODELS)
def test_the_row_of_one_execution_is_that_of_a_table(cost_model: str) -> None:
    # Some of them do not run.
    scenario = engine.Scenario.of("gpt3-13B", "a100_80g", **SMALL | {"num_procs": 4}, cost_model=cost_model)
    space, answers = scenario.space, set()
    numbers = np.random.default_rng(3).integers(0, space.total, 20)
    table = scenario.evaluate(space.table(numbers))
    for place, number in enumerate(numbers.tolist()):
        row = cost_model_of(space).row(space, number, None)
        assert list(row) == list(table)
        assert all(type(value) in (int, float, bool, str) for value in row.values())
        of_table = table.iloc[place].astype(object)
        pd.testing.assert_series_equal(pd.Series(row, dtype=object), of_table, check_names=False)
        answers.add(row["status"])
    assert answers == {"ok", "infeasible"}


def test_a_large_space_is_settled_by_evaluating_little() -> None:
    asked: dict[str, Any] = {"num_procs": 32, "max_batch_size": 32, "datatype": "float8"}
    found = engine.explore("gpt3-13B", "h100_80g_nvl8", **asked)
    for k in (1, 10, 100):
        optimum = engine.best("gpt3-13B", "h100_80g_nvl8", **asked, k=k, by_cell=k == 10)
        assert_optimum(optimum, found, k)
        assert optimum["sample_rate"] == 172.8942248104263  # Calculon's exhaustive search
        assert optimum.evaluated < optimum.feasible / 5


def test_nothing_feasible_is_an_empty_optimum() -> None:
    optimum = engine.best("megatron-1T", "a100_80g", **SMALL, k=3, by_cell=True)
    assert dict(optimum) == {}
    assert not optimum
    assert optimum.feasible == optimum.evaluated == len(optimum.top) == 0
    assert optimum.total > 0
    assert optimum.by_cell is not None
    assert optimum.by_cell["sample_rate"].isna().all()
    assert (optimum.by_cell["id"] == -1).all()


def test_an_empty_space_has_an_empty_optimum() -> None:
    optimum = engine.best("megatron-126M", "a100_80g", **SMALL, limits={"tensor_par": 3}, by_cell=True)
    assert (dict(optimum), optimum.total, len(optimum.top), len(optimum.by_cell)) == ({}, 0, 0, 0)  # type: ignore[arg-type]


def test_the_optimum_is_whole() -> None:
    limits = {"tensor_par_overlap": "none", "data_par": [1, 2]}
    optimum = engine.best("megatron-126M", "a100_80g", **SMALL, limits=limits)
    row = engine.evaluate("megatron-126M", "a100_80g", pd.DataFrame([{name: optimum[name] for name in FIELDS}]))
    assert set(optimum) == {"id", *row.columns}
    assert all(np.array_equal(optimum[name], row[name].iloc[0]) for name in row.columns)


@pytest.mark.parametrize("k", [0, -1, 1.0, True, "1", None])
def test_impossible_numbers_of_results_are_refused(k: Any) -> None:
    with pytest.raises(ValueError, match=r"^k is .*; it must be a whole number of at least 1\.$"):
        engine.best("megatron-126M", "a100_80g", **SMALL, k=k)


@pytest.mark.parametrize("cost_model", engine.COST_MODELS)
@pytest.mark.parametrize("function", [engine.best, engine.explore])
def test_progress_is_told_to_the_end_and_a_caller_may_stop(function: Any, cost_model: str) -> None:
    asked: dict[str, Any] = {"num_procs": 16, "max_batch_size": 32, "datatype": "float16", "cost_model": cost_model}
    told: list[engine.Progress] = []
    with working_in(WorkSizes(points_explored=16, points_searched=16, seconds_between_reports=0.0)):
        found = function("gpt3-13B", "a100_80g", **asked, progress=told.append)
        stop = threading.Event()
        seen: list[int] = []

        def stopping(progress: engine.Progress) -> None:
            seen.append(progress.done)
            if progress.done > found.total / 4:
                stop.set()

        with pytest.raises(engine.ExplorationCancelled):
            function("gpt3-13B", "a100_80g", **asked, progress=stopping, cancel=stop)
        with pytest.raises(engine.ExplorationCancelled):
            function("gpt3-13B", "a100_80g", **asked, cancel=lambda: True)
    done = [each.done for each in told]
    assert done == sorted(done)
    assert len(done) > 5
    assert (done[-1], told[-1].total, told[-1].feasible) == (found.total, found.total, found.feasible)
    assert seen[-1] < 0.75 * found.total

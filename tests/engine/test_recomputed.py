"""Statistics that are not stored, of all stored rows, against evaluating executions by themselves."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import engine
from engine import Exploration, ExplorationCancelled, Progress, recomputed
from engine.columns import HEADLINE, STATISTICS, UnknownColumn, fields_of, statistics_of
from engine.store import Condition
from tests.engine.small_spaces import draw

SMALL: dict[str, Any] = {"num_procs": 16, "max_batch_size": 16, "datatype": "float16"}


def assert_evaluated(found: Exploration, values: dict[str, Any], where: list[Condition], sample: int = 60) -> None:
    """The values of a sample of rows are those of their stored fields, evaluated one execution at a time."""
    fields = [column.name for column in fields_of(found.scenario.cost_model)]
    rows = found.rows.table(fields, where=where).to_pandas()
    assert all(len(array) == len(rows) for array in values.values())
    scenario = found.scenario
    for place in Random(0).sample(range(len(rows)), min(sample, len(rows))):
        alone = engine.evaluate(
            scenario.model, scenario.system, rows.iloc[[place]], cost_model=scenario.cost_model
        ).iloc[0]  # fmt: skip
        assert alone["status"] == "ok"
        for name, array in values.items():
            assert array[place] == alone[name] or (np.isnan(array[place]) and np.isnan(alone[name])), name


@given(random=st.randoms(use_true_random=False))
def test_every_statistic_of_a_sample_is_what_evaluating_it_gives(random: Random) -> None:
    found = engine.explore_scenario(draw(random, largest=4_000).scenario)
    where = random.choice(([], [Condition("activation_recompute", "=", "full")], [Condition("tensor_par", ">", 1)]))
    with patch.object(recomputed, "CHUNK", random.choice((7, 500, recomputed.CHUNK))):
        values = recomputed.recomputed(found, [column.name for column in STATISTICS], where=where)
    assert list(values) == [column.name for column in STATISTICS]
    assert_evaluated(found, values, where, sample=5)
    # In the order of the stored columns, of which every row is known.
    stored = found.rows.table([column.name for column in HEADLINE], where=where)
    for column in HEADLINE:
        assert np.array_equal(values[column.name], stored[column.name].to_numpy()), column.name


@pytest.mark.parametrize("system", ["h100_80g_nvl8", "h100_80g_sxm"])
def test_rows_of_a_store_keep_their_order(system: str, tmp_path: Path) -> None:
    found = engine.explore("gpt3-13B", system, **SMALL, store=tmp_path / "results.duckdb")
    every = (column.name for column in statistics_of(found.scenario.cost_model))
    names = [name for name in every if not recomputed.is_stored(name)]
    where = [Condition("microbatch_size", "<=", 2), Condition("sample_rate", ">", 0.0)]
    told: list[Progress] = []
    with patch.object(recomputed, "CHUNK", 1_000):
        values = recomputed.recomputed(found, names, where=where, progress=told.append)
    assert_evaluated(found, values, where)
    rows = found.rows.count(where)
    assert rows < found.feasible
    assert [one.done for one in told] == [*range(1_000, rows, 1_000), rows]
    assert {one.total for one in told} == {rows}


@pytest.mark.parametrize("better", ["higher", "lower"])
def test_the_frontier_of_statistics_that_are_not_stored_is_beaten_by_nothing(better: str) -> None:
    found = engine.explore("gpt3-13B", "h100_80g_nvl8", **SMALL)
    where = [Condition("tensor_par", "<=", 4)]
    values = recomputed.recomputed(found, ["block_optim_flops", "act_space"], where=where)
    front = found.frontier(
        "sample_rate", "block_optim_flops", "act_space", where=where, values=values,
        better={"block_optim_flops": better},
    )  # fmt: skip
    table = found.rows.table(["id", "sample_rate"], where=where)
    sign = -1.0 if better == "higher" else 1.0
    points = np.column_stack(
        [-table["sample_rate"].to_numpy(), sign * values["block_optim_flops"], values["act_space"]]
    )
    ids = table["id"].to_numpy()
    kept = points[np.isin(ids, front["id"])]
    for row in points[:: max(1, len(points) // 400)]:
        assert (kept <= row).all(axis=1).any()
    for row in kept:
        assert not ((points <= row).all(axis=1) & (points < row).any(axis=1)).any()
    place = {number: position for position, number in enumerate(ids.tolist())}
    assert front["act_space"].tolist() == [values["act_space"][place[number]] for number in front["id"]]


def test_it_stops_when_asked_to() -> None:
    found = engine.explore("gpt3-13B", "h100_80g_nvl8", **SMALL)
    told: list[Progress] = []
    with patch.object(recomputed, "CHUNK", 100), pytest.raises(ExplorationCancelled):
        recomputed.recomputed(found, ["act_space"], progress=told.append, cancel=lambda: len(told) == 3)
    assert told[-1].done == 300


@pytest.mark.parametrize(
    ("name", "error"),
    [("tensor_par", ValueError), ("bubble_share", ValueError), ("logit_space", ValueError), ("acts", UnknownColumn)],
)
def test_only_statistics_of_the_cost_model_are_recomputed(name: str, error: type[Exception]) -> None:
    found = engine.explore("megatron-126M", "a100_80g", num_procs=2, max_batch_size=2, datatype="float16")
    with pytest.raises(error, match=name):
        recomputed.recomputed(found, [name])

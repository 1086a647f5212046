"""Explorations: every deployment of a space once, with its reason or its figures; best, frontier, limits."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd
import pytest

from engine import serving
from engine.executions.sentences import excess
from engine.serving import FIELDS, HEADLINE
from engine.serving.columns import ALL, STEP_PARTS
from engine.serving.deployments import LAUNCHES
from engine.serving.reasons import REASONS
from engine.serving.space import BATCHES, DeploymentSpace

NAMES = [column.name for column in FIELDS]


@pytest.fixture(scope="module")
def dense() -> serving.ServingExploration:
    return serving.explore(
        "llama-3-70B",
        "h100_80g_sxm",
        num_procs=12,
        prompt=1000,
        output=200,
        limits={"batch": [1, 8, 64, 2000]},
        time_to_first_token=0.2,
        time_per_output_token=0.05,
    )


@pytest.fixture(scope="module")
def experts() -> serving.ServingExploration:
    limits = {"batch": [4, 256], "weight_bits": 8}
    return serving.explore("gpt-oss-120B", "h100_80g_sxm", num_procs=8, prompt=1000, output=200, limits=limits)


def by_hand(found: serving.ServingExploration, *, mixture: bool) -> pd.DataFrame:
    """Every deployment of a space, listed with plain loops and evaluated row by row."""
    n = found.space.num_procs
    rows = []
    for t, p in itertools.product(range(1, n + 1), repeat=2):
        if n % (t * p):
            continue
        replicas = n // t // p
        degrees = [e for e in range(1, t * replicas + 1) if t * replicas % e == 0 and (t % e == 0 or e % t == 0)]
        for e, batch, weights, cache, launch in itertools.product(
            degrees if mixture else [1],
            found.space.batches,
            found.space.choices("weight_bits"),
            found.space.choices("kv_bits"),
            found.space.choices("launch"),
        ):
            fields = (t, p, e, replicas, int(batch), weights, cache, weights, weights, launch, "generic", 1000, 200)
            rows.append(fields)
    return serving.evaluate(
        found.model,
        found.system,
        pd.DataFrame(rows, columns=NAMES),
        time_to_first_token=found.time_to_first_token,
        time_per_output_token=found.time_per_output_token,
    )


@pytest.mark.parametrize("name", ["dense", "experts"])
def test_every_deployment_once_with_its_figures_or_its_reason(name: str, request: pytest.FixtureRequest):
    found: serving.ServingExploration = request.getfixturevalue(name)
    listed = by_hand(found, mixture=name == "experts")
    assert found.total == len(listed)
    good = listed[listed["status"] == "ok"].reset_index(drop=True)
    assert found.feasible == len(good) > 10
    assert found.rejected == listed.loc[listed["status"] != "ok", "reason"].value_counts().to_dict()
    assert found.feasible + sum(found.rejected.values()) == found.total
    ours = found.table.astype({"launch": str, "engine": str}).sort_values(NAMES, ignore_index=True)
    good = good.sort_values(NAMES, ignore_index=True)
    assert (ours[NAMES] == good[NAMES]).all().all()
    for column in HEADLINE:
        np.testing.assert_allclose(ours[column.name], good[column.name], rtol=1e-12, err_msg=column.name)


def test_nearest_is_what_misses_least(dense: serving.ServingExploration):
    listed = by_hand(dense, mixture=False)
    assert set(dense.nearest) == {"memory", "time_to_first_token", "time_per_output_token"}
    for code, figure in (("memory", "memory_total"), ("time_to_first_token",) * 2, ("time_per_output_token",) * 2):
        row = dense.evaluate_ids([dense.nearest[code]]).iloc[0]
        assert row["reason"] == code
        assert row[figure] == pytest.approx(listed.loc[listed["reason"] == code, figure].min())


def test_best_and_top(dense: serving.ServingExploration):
    best = dense.best
    assert best is not None
    assert best["tokens_per_s_per_processor"] == dense.table["tokens_per_s_per_processor"].max()
    assert set(best) == {column.name for column in ALL}
    assert np.isfinite([best[name] for name in STEP_PARTS]).all()
    fastest = dense.top(3, "time_per_output_token")["time_per_output_token"]
    assert fastest.is_monotonic_increasing
    assert fastest.iloc[0] == dense.table["time_per_output_token"].min()
    with pytest.raises(ValueError, match="no better direction"):
        dense.top(1, "memory_capacity")


def test_limits_hold(dense: serving.ServingExploration):
    assert (dense.table["time_to_first_token"] <= 0.2).all()
    assert (dense.table["time_per_output_token"] <= 0.05).all()
    assert (dense.table["memory_total"] <= dense.table["memory_capacity"]).all()


def test_the_frontier_is_what_nothing_beats(dense: serving.ServingExploration):
    user, processor = (dense.table[name].to_numpy() for name in ("tokens_per_s_per_user", "tokens_per_s_per_processor"))
    beaten = [
        bool(((user >= u) & (processor >= g) & ((user > u) | (processor > g))).any())
        for u, g in zip(user, processor, strict=True)
    ]
    expected = dense.table[~np.array(beaten)]
    points = {tuple(row) for row in expected[["tokens_per_s_per_user", "tokens_per_s_per_processor"]].to_numpy()}
    ours = dense.frontier[["tokens_per_s_per_user", "tokens_per_s_per_processor"]]
    assert {tuple(row) for row in ours.to_numpy()} == points
    assert ours["tokens_per_s_per_user"].is_monotonic_decreasing


def test_nothing_fits():
    found = serving.explore("deepseek-v3", "l40s_48g", num_procs=1, prompt=100, output=100)
    assert found.feasible == 0
    assert found.best is None
    assert len(found.frontier) == 0
    assert found.rejected["memory"] == found.total
    assert "GiB too much" in found.evaluate_ids([found.nearest["memory"]])["reason_text"].iloc[0]


def space(**limits: Any) -> DeploymentSpace:
    return DeploymentSpace.of(16, 100, 100, limits, mixture=True)


def test_limits_of_a_space():
    assert set(space(tensor_par=4).layouts[:, 0]) == {4}
    assert set(space(tensor_par={"min": 2, "max": 8}).layouts[:, 0]) == {2, 4, 8}
    assert set(space(replicas=[1, 2]).layouts[:, 3]) == {1, 2}
    assert space(batch=[7, 5, 5]).batches.tolist() == [5, 7]
    assert space(batch={"max": 4}).batches.tolist() == [1, 2, 3, 4]
    assert tuple(space().batches) == BATCHES
    assert space(weight_bits=4).choices("weight_bits") == (4,)
    assert space(launch=["compiled"]).choices("launch") == ("compiled",)
    assert space().choices("launch") == ("eager", "graphs")
    assert set(LAUNCHES) == {"eager", "compiled", "graphs"}


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ({"tensor_parallel": 1}, "no limit on 'tensor_parallel'"),
        ({"tensor_par": []}, "empty list"),
        ({"tensor_par": 0}, "from 1 to"),
        ({"tensor_par": "8"}, "whole number"),
        ({"tensor_par": True}, "whole number"),
        ({"batch": {"min": 8, "max": 4}}, "must not exceed"),
        ({"batch": {"least": 8}}, "min, max or both"),
        ({"launch": "magic"}, "eager, compiled, graphs"),
        ({"weight_bits": 12}, "16, 8, 4"),
    ],
)
def test_limits_that_are_none(limits: dict[str, Any], told: str):
    with pytest.raises(serving.ServingLimitError, match=told) as refused:
        serving.explore("llama-3-8B", "h100_80g_sxm", num_procs=8, prompt=10, output=10, limits=limits)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("argument", ["num_procs", "prompt", "output"])
@pytest.mark.parametrize("value", [0, -1, 1.5, "8", True, 2**40])
def test_sizes_that_are_none(argument: str, value: Any):
    arguments = {"num_procs": 8, "prompt": 10, "output": 10, argument: value}
    with pytest.raises(serving.ServingLimitError, match=argument):
        serving.explore("llama-3-8B", "h100_80g_sxm", **arguments)


def test_a_space_that_is_too_large():
    with pytest.raises(serving.SpaceTooLarge, match="limit batch"):
        serving.explore(
            "llama-3-8B", "h100_80g_sxm", num_procs=5040, prompt=10, output=10, limits={"batch": range(1, 5000)}
        )


def test_columns_are_described():
    assert len({column.name for column in ALL}) == len(ALL)
    for column in ALL:
        assert column.description.endswith(".")
        assert column.label
        assert column.label[0].isupper()
    assert len({reason.code for reason in REASONS}) == len(REASONS)


def test_what_hardly_does_not_fit_is_told_in_digits_that_show_it() -> None:
    assert excess(79.668, 79.6498) == {"need": "79.67 GiB", "have": "79.65 GiB", "short": "18.6 MiB"}
    assert excess(394.0, 80.0) == {"need": "394 GiB", "have": "80 GiB", "short": "314 GiB"}
    assert excess(80.5, 80.0) == {"need": "80.5 GiB", "have": "80.0 GiB", "short": "512 MiB"}
    assert excess(1.0 + 2.0**-20, 1.0) == {"need": "1.000001 GiB", "have": "1.000000 GiB", "short": "1 KiB"}
    assert excess(1.0 + 2.0**-22, 1.0)["short"] == "256 B"

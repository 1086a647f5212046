"""Which networks of a system the groups of an execution need, and how their ranks are placed on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from engine import Scenario, best_of, explore_scenario, serving, whatif
from engine.cost_models.calibrated.physics.networks import networks_used, shared_by
from engine.exploration.memory_requirements import least_memory
from hardware import System
from tests.calibrated.small import EXPERTS, LLAMA, model_of, scenario, system_with

FOUR = system_with((8, 450.0), (64, 100.0), (1024, 50.0), (65536, 25.0))
ONE_OF_EACH = {"tensor_par": 1, "context_par": 1, "data_par": 1, "pipeline_par": 1, "expert_par": 1,
               "expert_tensor_par": 1}  # fmt: skip


@pytest.mark.parametrize(
    ("degrees", "expected"),
    [
        ({}, {"tensor": 0, "context": 0, "expert": 0, "data": 0, "pipeline": 0}),
        ({"tensor_par": 8}, {"tensor": 0}),
        ({"tensor_par": 16}, {"tensor": 1, "data": 0}),
        ({"tensor_par": 8, "context_par": 8}, {"tensor": 0, "context": 1, "data": 1}),
        ({"tensor_par": 8, "data_par": 16}, {"context": 0, "data": 2, "pipeline": 0}),
        ({"data_par": 8, "pipeline_par": 2}, {"data": 0, "pipeline": 1}),
        ({"tensor_par": 8, "data_par": 128, "pipeline_par": 8}, {"data": 2, "pipeline": 3}),
        ({"data_par": 64, "expert_par": 8, "expert_tensor_par": 1}, {"expert": 0, "data": 1}),
        ({"tensor_par": 8, "data_par": 64, "expert_par": 8, "expert_tensor_par": 8}, {"expert": 1}),
        ({"data_par": 65536, "pipeline_par": 2}, {"data": 3, "pipeline": 4}),
    ],
)
def test_a_group_needs_the_networks_up_to_the_first_that_it_fits_in(
    degrees: dict[str, int], expected: dict[str, int]
) -> None:
    found = networks_used(FOUR, ONE_OF_EACH | degrees)
    assert {name: int(found[name]) for name in expected} == expected


def test_many_executions_at_once() -> None:
    found = networks_used(FOUR, {name: np.array([value, value]) for name, value in ONE_OF_EACH.items()} | {
        "tensor_par": np.array([1, 16]), "pipeline_par": np.array([2, 64]),
    })  # fmt: skip
    assert found["tensor"].tolist() == [0, 1]
    assert found["pipeline"].tolist() == [0, 2]


def test_a_group_is_placed_evenly_on_no_more_networks_than_needed() -> None:
    """By looking for what divides the group and fits, one number after the other."""
    draw = np.random.default_rng(0)
    ranks, stride = draw.integers(1, 200, 2_000).astype(float), draw.integers(1, 90, 2_000).astype(float)
    sizes = [np.asarray(size) for size in (8.0, 72.0, 1152.0, 65536.0)]
    found = shared_by(ranks, stride, sizes)
    for size, shared in zip(sizes[:-1], found[:-1], strict=True):
        expected = [
            max((k for k in range(1, int(n) + 1) if n % k == 0 and k * apart <= size), default=1)
            for n, apart in zip(ranks.tolist(), stride.tolist(), strict=True)
        ]
        assert shared.tolist() == expected
    assert found[-1].tolist() == ranks.tolist()
    # Nine groups of 8 fill a domain of 72, but a power of two takes eight of them; of 16 it holds four.
    eight = shared_by(np.array([128.0, 18.0]), 8.0, sizes[1:])[0]
    assert (eight.tolist(), float(shared_by(np.asarray(128.0), 16.0, sizes[1:])[0])) == ([8, 9], 4)


def times(model: dict[str, Any], system: System, limits: dict[str, Any], procs: int) -> pd.Series[float]:
    """Step times of random executions that keep within the limits, by id [s]."""
    chosen = scenario(model_of(model), system, limits, num_procs=procs, max_batch_size=procs)
    ids = np.unique(np.random.default_rng(1).integers(0, chosen.space.total, 4_000))
    found = chosen.evaluate(chosen.space.table(ids))
    return pd.Series(found["total_time"].to_numpy(), ids)


@pytest.mark.parametrize("model", [LLAMA, EXPERTS], ids=["dense", "experts"])
@pytest.mark.parametrize("tier", [0, 1, 2, 3])
def test_every_network_is_used_by_what_reaches_it(model: dict[str, Any], tier: int) -> None:
    networks = [(4, 450.0), (16, 100.0), (64, 50.0), (65536, 25.0)]
    limits: dict[str, Any] = {"context_par": [1, 2, 4], "tensor_par": [1, 4, 8], "pipeline_overlap": False}
    faster = [(size, 1.5 * rate if place == tier else rate) for place, (size, rate) in enumerate(networks)]
    before, after = (times(model, system_with(*each), limits, 128) for each in (networks, faster))
    assert (after < before * (1 - 1e-9)).mean() > 0.3
    assert not (after > before * (1 + 1e-9)).any()


@pytest.mark.parametrize("model", [LLAMA, EXPERTS], ids=["dense", "experts"])
def test_a_network_that_is_no_faster_than_the_one_around_it_changes_nothing(model: dict[str, Any]) -> None:
    limits: dict[str, Any] = {"context_par": [1, 2, 4], "tensor_par": [1, 4, 8]}
    plain = times(model, system_with((8, 450.0), (65536, 50.0)), limits, 96)
    for networks in ([(8, 450.0), (32, 50.0), (65536, 50.0)], [(8, 450.0), (24, 20.0), (32, 40.0), (65536, 50.0)]):
        pd.testing.assert_series_equal(times(model, system_with(*networks), limits, 96), plain, rtol=1e-12)


APART = scenario(
    model_of(LLAMA), system_with((8, 450.0), (16, 50.0)), {"pipeline_par": [1, 2]}, num_procs=64, max_batch_size=64
)
TOO_FAR = "Network tier 1 connects 16 GPUs, but 64 would have to share it."


def _evaluated() -> tuple[int, str]:
    table = APART.evaluate(APART.space.table(np.arange(50)))
    assert set(table["status"]) == {"infeasible"}
    assert set(table["reason"]) == {"network_too_small"}
    return 0, str(table["reason_text"].iloc[0])


def _explored() -> tuple[int, str]:
    found = explore_scenario(APART)
    assert found.infeasible_by_reason == {"network_too_small": APART.space.total}
    # No memory would help, so none is named as what is missing.
    cells = found.by_cell()
    assert cells["shortfall_bytes"].isna().all()
    assert set(cells["reason"]) == {"network_too_small"}
    assert not len(least_memory(APART.space))
    return found.feasible, TOO_FAR


def _best() -> tuple[int, str]:
    assert not best_of(APART)
    return 0, TOO_FAR


def _what_if() -> tuple[int, str]:
    wider = whatif.reoptimise(APART, {"net0_size": 64})
    assert wider.base is None
    assert wider.best is not None
    assert wider.feasible == explore_scenario(whatif.changed(APART, {"net0_size": 64})).feasible
    narrower = whatif.reoptimise(whatif.changed(APART, {"net0_size": 64}), {"net0_size": 8})
    assert narrower.kept is not None
    assert narrower.best is None
    return narrower.feasible, str(narrower.kept["reason_text"])


@pytest.mark.parametrize("found", [_evaluated, _explored, _best, _what_if])
def test_nothing_runs_on_more_processors_than_the_networks_connect(found: Callable[[], tuple[int, str]]) -> None:
    assert found() == (0, TOO_FAR)


def test_what_fits_the_networks_is_as_feasible_as_before() -> None:
    near = Scenario.of(
        APART.model, APART.system, num_procs=16, max_batch_size=16, datatype="bfloat16", cost_model="calibrated"
    )
    assert best_of(near)["total_time"] > 0


def test_a_replica_that_serves_stays_within_the_networks() -> None:
    table = pd.DataFrame({"tensor_par": [8, 8, 4], "pipeline_par": [2, 4, 4], "batch": 1, "prompt": 100, "output": 10})
    found = serving.evaluate(APART.model, APART.system, table)
    assert found["status"].tolist() == ["ok", "infeasible", "ok"]
    assert found["reason"].tolist() == ["", "network_too_small", ""]
    assert found["reason_text"].iloc[1] == (
        "A replica, with the others that share its experts, takes 32 GPUs, but the networks of the system connect 16."
    )

"""Which networks of a system the groups of an execution need, and how their ranks are placed on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from engine import Scenario, best_of, explore_scenario, serving, whatif
from engine.cost_models.calibrated.physics.communication.networks import networks_used, shared_by
from engine.exploration.memory_requirements import least_memory
from hardware import System
from tests.engine.cost_models.calibrated.small import EXPERTS, LLAMA, model_of, scenario, system_with

FOUR = system_with((8, 450.0), (64, 100.0), (1024, 50.0), (65536, 25.0))
ONE_OF_EACH = {
    "tensor_par": 1,
    "context_par": 1,
    "data_par": 1,
    "pipeline_par": 1,
    "expert_par": 1,
    "expert_tensor_par": 1,
}

ANY = np.asarray(np.inf)
"""Size of a network that connects any number of processors."""


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
    found = networks_used(
        FOUR,
        {name: np.array([value, value]) for name, value in ONE_OF_EACH.items()}
        | {
            "tensor_par": np.array([1, 16]),
            "pipeline_par": np.array([2, 64]),
        },
    )
    assert found["tensor"].tolist() == [0, 1]
    assert found["pipeline"].tolist() == [0, 2]


def literal(size: int, groups: list[int], procs: int) -> Any:
    """The number of the network that every processor is placed in, one after the other [procs].

    groups: processors of groups that consist of whole ones of each other, ascending, `procs` last.
    """
    whole = max((group for group in groups if group <= size), default=1)
    apart = min((group for group in groups if group > size), default=procs)
    needed = -(-apart // (size // whole * whole)) if apart > size else 1
    cut = np.array_split(np.arange(apart // whole), needed)
    one = np.repeat(np.concatenate([np.full(len(part), number) for number, part in enumerate(cut)]), whole)
    return np.concatenate([one + needed * number for number in range(procs // apart)])


def fewest_together(members: Any) -> int:
    """How many members of a group share a network, of all groups and networks where they are the fewest.

    members: the number of the network of every member, a row for each group.
    """
    rows, networks = len(members), int(members.max()) + 1
    together = np.bincount((np.arange(rows)[:, None] * networks + members).ravel())
    return int(together[together > 0].min())


def test_all_groups_of_an_execution_have_one_placement_in_which_none_straddles_a_network_that_it_fits_in() -> None:
    draw = np.random.default_rng(0)
    uneven = 0
    for _ in range(250):
        tensor, context, further = (
            int(draw.choice(each)) for each in ([1, 2, 3, 8, 16], [1, 2, 4, 6], [1, 2, 5, 11, 16, 40])
        )
        split, procs = int(draw.choice([1, tensor])), tensor * context * further
        inner = (tensor, tensor * context)
        reach = int(
            draw.choice(
                [
                    each
                    for each in range(split, procs + 1, split)
                    if procs % each == 0 and all(each % group == 0 or group % each == 0 for group in inner)
                ]
            )
        )
        chain = sorted({1, *inner, reach, procs})
        spread = [
            (tensor, 1),
            (context * further, tensor),
            (reach // split, split),
            (procs // reach, reach),
            (1, procs),
        ]
        sizes = np.sort(draw.choice([1, 4, 7, 8, 12, 24, 31, 72, 100], 2)).tolist()
        found = [
            shared_by(
                np.asarray(float(ranks)),
                float(stride),
                [*map(np.asarray, map(float, sizes)), ANY],
                [np.asarray(float(group)) for group in (*inner, reach)],
            )
            for ranks, stride in spread
        ]
        for tier, size in enumerate(sizes):
            place = literal(size, chain, procs)
            assert np.bincount(place).max() <= size
            for group in chain:
                members = place.reshape(-1, group)
                assert group > size or (members == members[:, :1]).all()
            for (ranks, stride), shared in zip(spread, found, strict=True):
                assert shared[tier] == fewest_together(place.reshape(-1, ranks, stride)[:, :, 0])
            uneven += len(set(np.bincount(place).tolist())) > 1
        assert [float(shared[-1]) for shared in found] == [ranks for ranks, _ in spread]
    assert uneven > 25


def test_no_group_is_spread_wider_over_larger_networks() -> None:
    """Whatever groups there are, those that consist of no whole ones of each other among them."""
    draw = np.random.default_rng(1)
    rows = 3_000
    tensor, context, further, experts = (
        draw.choice(np.array(each, float), rows) for each in ([1, 2, 3, 8], [1, 2, 6, 8], [1, 5, 11, 12], [1, 4, 6, 12])
    )
    groups = (tensor, tensor * context, experts)
    for ranks, stride in ((tensor, 1.0), (context * further, tensor), (experts, 1.0)):
        found = [shared_by(ranks, stride, [np.asarray(float(size)), ANY], groups)[0] for size in range(1, 200)]
        assert (np.diff(found, axis=0) >= 0).all()
        assert (np.array(found) >= 1).all()
        assert (found[-1] == ranks)[ranks * stride < 200].all()


def test_how_groups_are_placed_in_racks_of_72() -> None:
    def eights(number: float, *groups: float) -> float:
        sizes = [np.asarray(72.0), ANY]
        return float(shared_by(np.asarray(number), 8.0, sizes, [np.asarray(each) for each in groups])[0])

    assert [eights(number) for number in (9, 11, 18, 128)] == [9, 5, 9, 8]
    # Beside 64 expert ranks the ninth group of a domain would be one whose experts are elsewhere.
    assert [eights(72), eights(72, 8, 8, 64)] == [9, 8]
    # Idle processors take no port: nine groups of 16 run on 144 processors that are connected, in three domains.
    sixteens = ONE_OF_EACH | {"tensor_par": 16, "data_par": 9}
    assert networks_used(system_with((72, 450.0), (144, 50.0)), sixteens)["data"] == 1


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
    limits["stage_layout"] = "even"
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
TOO_FAR = "InfiniBand connects 16 GPUs, but 64 would have to share it."


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

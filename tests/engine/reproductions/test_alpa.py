"""Alpa's solver against the figures of its tests, and the sizes of its suites."""

from __future__ import annotations

import math

import pytest

from engine.planners.contract import PlanError
from engine.reproductions.alpa.solver import AlpaMesh, linear_chain
from engine.reproductions.alpa.suites import BILLIONS, suite_parameters

# Expected objectives of Alpa's tests of its solver (alpa, playground/auto_sharding_solver/test_solver_mlp.py and
# tests/shard_parallel/test_mlp.py; Apache-2.0): batch, hidden size, layers, devices, beta, all-reduces of weights over
# axis 0 and of activations. The solver's own tolerance is 0.1 %; without biases and penalties the sums are exact.
MODEL_PARALLEL = [(128, 1024, 2, (4, 1)), (128, 1024, 2, (1, 4)), (128, 1024, 12, (4, 1)), (32, 256, 6, (1, 4))]


DATA_PARALLEL = [(1024, 128, 2, (4, 1)), (1024, 128, 12, (1, 4)), (256, 32, 6, (4, 1))]


TWO_AXES = [(1024, 128, 2, (4, 8)), (1024, 128, 4, (8, 4)), (1024, 128, 4, (3, 4))]


@pytest.mark.parametrize(("batch", "hidden", "layers", "shape"), MODEL_PARALLEL)
def test_alpa_splits_wide_layers_in_turns(batch: int, hidden: int, layers: int, shape: tuple[int, int]) -> None:
    mesh = AlpaMesh(shape, beta=(1.0, 1.0))
    found = linear_chain(mesh, batch=batch, widths=[hidden] * (layers + 1))
    axis = shape.index(4)
    assert found.cost == pytest.approx((layers - 1) * mesh.all_reduce_cost(batch * hidden * 4, axis), rel=1e-12)
    assert len(set(found.strategies[::2])) == len(set(found.strategies[1::2])) == 1  # columns, rows, columns, ...


@pytest.mark.parametrize(("batch", "hidden", "layers", "shape"), DATA_PARALLEL)
def test_alpa_reduces_gradients_of_narrow_layers(batch: int, hidden: int, layers: int, shape: tuple[int, int]) -> None:
    mesh = AlpaMesh(shape, beta=(1.0, 1.0))
    found = linear_chain(mesh, batch=batch, widths=[hidden] * (layers + 1))
    assert found.cost == pytest.approx(layers * mesh.all_reduce_cost(hidden**2 * 4, shape.index(4)), rel=1e-12)
    assert len(set(found.strategies)) == 1


@pytest.mark.parametrize(("batch", "hidden", "layers", "shape"), TWO_AXES)
def test_alpa_does_both_on_two_axes(batch: int, hidden: int, layers: int, shape: tuple[int, int]) -> None:
    mesh = AlpaMesh(shape, beta=(1.0, 0.01))
    found = linear_chain(mesh, batch=batch, widths=[hidden] * (layers + 1))
    weights = layers * mesh.all_reduce_cost(hidden**2 * 4 / shape[1], 0)
    activations = (layers - 1) * mesh.all_reduce_cost(batch * hidden * 4 / shape[0], 1)
    assert found.cost == pytest.approx(weights + activations, rel=1e-12)


def test_costs_of_collectives_are_alpas() -> None:
    mesh = AlpaMesh((1, 8), rounded=True)
    size = 3 * 1000.0
    assert mesh.all_gather_cost(size, 1) == pytest.approx(round(1 + 0.1 * 7 / 8 * size) + 0.1)
    assert mesh.all_to_all_cost(size, 1) == pytest.approx(round(1 + 0.1 * 7 / 64 * size * 4) + 0.001)


def test_rings_over_the_same_hosts_share_their_network() -> None:
    # Two hosts of four devices: along axis 0 four rings of two cross twice each, along axis 1 none does.
    mesh = AlpaMesh.of_hosts((2, 4), hosts=2, inside=100.0, between=10.0)
    assert mesh.beta == pytest.approx((8 / 10, 1 / 100))
    # One ring over all eight crosses twice between the same two hosts.
    assert AlpaMesh.of_hosts((1, 8), hosts=2, inside=100.0, between=10.0).beta[1] == pytest.approx(2 / 10)
    assert AlpaMesh.of_hosts((1, 8), hosts=4, inside=100.0, between=10.0).beta[1] == pytest.approx(1 / 10)
    with pytest.raises(PlanError, match="8 devices on 3 hosts"):
        AlpaMesh.of_hosts((2, 4), hosts=3, inside=1.0, between=1.0)


def test_resharding_follows_alpas_rules() -> None:
    two, one = AlpaMesh((2, 4)), AlpaMesh((1, 4))
    size = 4096.0
    assert two.resharding_cost(((), ()), ((0,), (1,)), size) == 0.0
    gathers = two.all_gather_cost(size / 4, 0) + two.all_gather_cost(size, 1)
    assert two.resharding_cost(((0,), (1,)), ((), ()), size) == gathers
    assert two.resharding_cost(((0,), ()), ((1,), ()), size) == math.inf
    assert two.resharding_cost(((0,), ()), ((), (0,)), size) == math.inf
    assert one.resharding_cost(((1,), ()), ((), (1,)), size) == one.all_to_all_cost(size, 1)
    with pytest.raises(PlanError):
        one.resharding_cost(((1,),), ((), ()), size)


def test_parameters_are_those_that_the_suites_are_named_after() -> None:
    for family, names in BILLIONS.items():
        for letter, billions in zip("ABCDEFGHI", names, strict=True):
            assert suite_parameters(f"{family} {letter}") / 1e9 == pytest.approx(billions, rel=0.05), letter
    with pytest.raises(PlanError, match="no model of the suites"):
        suite_parameters("gpt Z")

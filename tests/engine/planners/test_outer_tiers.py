"""A slower network further out: it slows all that spans it, and nothing else, for each planner and the exploration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import engine
import hardware
from dashboard.charts.execution.networks import partners
from dashboard.words.executions import networks_of
from engine import Scenario
from engine.cost_models.registry import cost_model_of
from engine.planners.elastic.library_models import model_point
from engine.planners.elastic.library_models.movement import movement
from engine.planners.intra_operator import search, system_mesh
from engine.planners.layerwise.library_models import plan_model, system_cluster
from engine.serving import explore
from hardware import System

BASE = hardware.load("h100_80g_sxm")
MODEL = "llama-3-8B"


def with_spine(pod: int, share: float) -> System:
    """Return the base with pods of so many processors, and a spine with this share of the bandwidth between nodes."""
    inner, outer = BASE.networks
    spine = outer.model_copy(update={"bandwidth_gb_per_s": share * outer.bandwidth_gb_per_s})
    return BASE.model_copy(update={"networks": (inner, outer.model_copy(update={"size": pod}), spine)})


def elastic_seconds(system: System, gpus: int) -> float:
    point = model_point(MODEL, system, placement=(8,) * (gpus // 8), batch=64)
    return 64 / point.throughput


def moving_seconds(system: System, gpus: int) -> float:
    """Seconds of the same change of executions, whatever is best on this system."""
    before = model_point(MODEL, BASE, placement=(8,), batch=64)
    after = model_point(MODEL, BASE, placement=(8,) * (gpus // 8), batch=64)
    return movement(before, replace(after, system=system)).seconds


def layerwise_seconds(system: System, gpus: int) -> float:
    return 64 / plan_model(MODEL, system, gpus, global_batch=64, tensor_par=4).plan.figure("sample_rate").value


def operator_seconds(system: System, gpus: int) -> float:
    found = search(MODEL, system_mesh(system, gpus, tiers=2), batch=gpus, layers=2, fsdp=True)
    assert found.chosen is not None
    return found.chosen.seconds


def nominal_operator_seconds(system: System, gpus: int) -> float:
    found = search(MODEL, system_mesh(system, gpus, tiers=2, calibrated=False), batch=gpus, layers=2, fsdp=True)
    assert found.chosen is not None
    return found.chosen.seconds


def explored_seconds(system: System, gpus: int) -> float:
    found = engine.best(
        MODEL, system, num_procs=gpus, max_batch_size=64, datatype="bfloat16", limits={"batch_size": [64]}
    )
    return float(found["total_time"])


@settings(max_examples=6, deadline=None)
@given(st.sampled_from([16, 32]), st.sampled_from([0.1, 0.5, 1.0]), st.sampled_from([16, 32, 64]))
@pytest.mark.parametrize(
    "seconds",
    [elastic_seconds, moving_seconds, layerwise_seconds, operator_seconds, nominal_operator_seconds, explored_seconds],
)
def test_a_slower_outer_tier_slows_what_spans_it_only(
    seconds: Callable[[System, int], float], pod: int, share: float, gpus: int
) -> None:
    plain, spined = seconds(BASE, gpus), seconds(with_spine(pod, share), gpus)
    if gpus <= pod:
        assert spined == plain
    else:
        assert spined >= plain * (1 - 1e-9)


def test_the_third_tier_bounds_what_moves() -> None:
    """A quarter of the bandwidth takes four times as long; the second network was taken for all beyond a node."""
    assert moving_seconds(with_spine(16, 0.25), 32) == pytest.approx(4 * moving_seconds(BASE, 32))


def test_a_cluster_of_several_systems_is_bound_by_what_spans_them_all() -> None:
    alone, part = (system_cluster(with_spine(16, 0.25), 16, reach=reach) for reach in (0, 32))
    assert alone.transfer == 4 * part.transfer
    assert alone.inside == part.inside


PODS = hardware.load("h100_80g_sxm_pods")


@pytest.mark.parametrize("cost_model", ["calibrated", "calculon"])
def test_executions_beyond_a_pod_are_found_and_drawn(cost_model: str) -> None:
    """6,144 GPUs are two pods: explored, and drawn with the networks of each group."""
    scenario = Scenario.of(
        "gpt3-175B", PODS, num_procs=6_144, max_batch_size=6_144, datatype="float16", cost_model=cost_model
    )
    found = dict(engine.best_of(scenario))
    assert (
        found["total_time"]
        >= engine.best(
            "gpt3-175B", BASE, num_procs=6_144, max_batch_size=6_144, datatype="float16", cost_model=cost_model
        )["total_time"]
    )
    account = cost_model_of(scenario).account(scenario.model, scenario.system, found, scenario.calibration)
    drawn = account.communication()
    assert drawn is not None
    tiers = {tier for group in drawn.groups for tier in group.tiers}
    assert tiers <= {0, 1, 2}
    if cost_model == "calibrated":  # Calculon's networks are a choice of the execution, whatever lies where
        assert 2 in tiers
    assert networks_of(PODS, [0, 1, 2]) == "NVLink, InfiniBand and spine"
    where = {group.name: networks_of(PODS, group.tiers) for group in drawn.groups}
    assert partners(drawn.groups, where, 6_144, PODS.node_size, "light").figure.data


def test_every_planner_and_serving_run_on_a_system_of_three_tiers() -> None:
    assert elastic_seconds(PODS, 16) == elastic_seconds(BASE, 16)
    assert layerwise_seconds(PODS, 16) == layerwise_seconds(BASE, 16)
    assert operator_seconds(PODS, 16) == operator_seconds(BASE, 16)
    served = {each.name: explore("llama-3-8B", each, num_procs=16, prompt=512, output=64) for each in (PODS, BASE)}
    best, plain = (found.top(1).iloc[0]["tokens_per_s_per_processor"] for found in served.values())
    assert best == plain

"""A slower network further out: it slows all that spans it, and nothing else, for each planner and the exploration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import engine
import hardware
from engine.planners.elastic.library_models import model_point
from engine.planners.elastic.library_models.movement import movement
from engine.planners.intra_operator import search, system_mesh
from engine.planners.layerwise.library_models import plan_model, system_cluster
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
    found = engine.best(MODEL, system, num_procs=gpus, max_batch_size=64, datatype="bfloat16",
                        limits={"batch_size": [64]})  # fmt: skip
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

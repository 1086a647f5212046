"""What-if studies find, at every point, what a full exploration of the changed scenario finds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pytest

import engine
import hardware
from engine import Exploration, Optimum, Scenario, whatif
from engine.columns import fields_of
from engine.cost_models.calibrated import effective_rates
from engine.cost_models.calibrated.placement import networks_of
from engine.whatif import Point, PointSequence
from engine.whatif.prepared_spaces import layout_key, ready
from engine.whatif.search import Searcher
from engine.whatif.studies import MOST_SIZES
from tests.engine.explored_with_rows import explored_with_rows

CASES: dict[str, dict[str, Any]] = {
    "float8": {
        "model": "gpt3-13B",
        "system": "h100_80g_nvl8",
        "num_procs": 16,
        "max_batch_size": 32,
        "datatype": "float8",
        "limits": {"tensor_par_overlap": "none", "weight_offload": False},
    },
    "one network": {
        "model": "megatron-22B",
        "system": "tpu_v5p_95g",
        "num_procs": 8,
        "max_batch_size": 8,
        "datatype": "bfloat16",
        "cost_model": "calculon",
    },
    "calibrated": {
        "model": "llama-3-8B",
        "system": "h100_80g_sxm",
        "num_procs": 16,
        "max_batch_size": 8,
        "datatype": "bfloat16",
    },
    "limited": {
        "model": "gpt3-13B",
        "system": "a100_80g",
        "num_procs": 64,
        "max_batch_size": 32,
        "datatype": "float16",
        "limits": {"uneven_pipelines": True, "tensor_par": {"max": 8}, "optimizer_offload": False},
    },
}


def scenario(case: str = "float8") -> Scenario:
    return Scenario.of(**CASES[case])


SEARCHED: dict[str, Optimum] = {}


def searched(base: Scenario) -> Optimum:
    """The optimum of a base, searched once however many changes are compared with it."""
    if base.key not in SEARCHED:
        SEARCHED[base.key] = engine.best_of(base)
    return SEARCHED[base.key]


@lru_cache(maxsize=4)
def explored(base: Scenario) -> Exploration:
    """A scenario, explored once for those who ask about it one after the other; all of them would take much memory."""
    return engine.explore_scenario(base)


def check(base: Scenario, changes: Mapping[str, float], rate: float, kept: float) -> None:
    """The optimum is that of an exploration, and the kept execution's rate what evaluating it gives."""
    after = whatif.changed(base, changes)
    best = explored(after).best
    assert rate == (best["sample_rate"] if best else pytest.approx(math.nan, nan_ok=True))
    before = searched(base)
    if after.num_procs != base.num_procs or after.max_batch_size != base.max_batch_size:
        return
    found = after.evaluate(base.space.table([before["id"]])).iloc[0]
    assert kept == pytest.approx(float(found["sample_rate"]), rel=1e-12, nan_ok=True)


CHANGES: list[dict[str, float]] = [
    {"matrix": 400},
    {"vector": 30},
    {"hbm_bandwidth": 5000},
    {"hbm_capacity": 30},
    {"hbm_capacity": 300},
    {"net0_bandwidth": 100},
    {"net0_latency": 300},
    {"host_bandwidth": 20},
    {"host_capacity": 0},
    {"sequence": 4096},
    {"blocks": 20},
    {"batch": 8},
    {"procs": 32},
    {"hbm_capacity": 25, "net0_bandwidth": 1000},
    {"power": 500},
]


ASKED: list[tuple[str, dict[str, float]]] = [
    (case, changes)
    for place, case in enumerate(CASES)
    for number, changes in enumerate(CHANGES)
    # The cost models are two, so each change is asked of each: of every other case of the published one.
    if case == "calibrated" or (number + place) % 2
    # what the cost models do not read, and what a published architecture does not change by itself
    if not ({"vector", "net0_latency", "blocks"} if case == "calibrated" else {"power"}) & set(changes)
]


@pytest.mark.parametrize(("case", "changes"), ASKED, ids=str)
def test_the_answer_is_what_exploring_finds(case: str, changes: dict[str, float]) -> None:
    base = scenario(case)
    answer = whatif.reoptimise(base, changes)
    found = explored(whatif.changed(base, changes))
    assert (answer.total, answer.feasible) == (found.total, found.feasible)
    best = found.best
    assert (answer.best is None) == (best is None)
    if best is not None and answer.best is not None:
        pd.testing.assert_series_equal(pd.Series(answer.best), pd.Series(best))
    kept = math.nan if answer.kept is None else float(answer.kept["sample_rate"])
    check(base, changes, math.nan if answer.best is None else answer.best["sample_rate"], kept)


def test_gains_compare_with_the_base() -> None:
    base = scenario()
    answer = whatif.reoptimise(base, {"hbm_bandwidth": 6144})
    before = engine.best_of(base)
    assert answer.base is not None
    assert answer.base["id"] == before["id"]
    assert answer.best is not None
    assert answer.gain == answer.best["sample_rate"] / before["sample_rate"] - 1
    assert answer.gain >= answer.kept_gain > 0
    assert whatif.reoptimise(base, {}).gain == 0


def test_design_power_bounds_what_a_matrix_unit_sustains() -> None:
    """At a given power a higher 16-bit peak is not sustained; compute is both, at the same energy per operation."""
    base = scenario("calibrated")
    peak = whatif.parameter(base, "matrix").value
    assert abs(whatif.reoptimise(base, {"matrix": 1.2 * peak}).gain) < 1e-12
    power = whatif.reoptimise(base, {"power": 1.2 * 700}).gain
    compute = whatif.reoptimise(base, {"compute": 1.2 * peak}).gain
    assert 0.05 < power <= compute < 0.2
    assert whatif.reoptimise(base, {"compute": 2 * peak}).gain > compute > 0.1
    both = whatif.changed(base, {"matrix": 1.2 * peak, "power": 1.2 * 700}).system
    assert effective_rates(both)[0].sustained == pytest.approx(
        effective_rates(whatif.changed(base, {"compute": 1.2 * peak}).system)[0].sustained
    )


POWERED = [name for name in hardware.names() if (facts := hardware.load(name).accelerator) and facts.tdp_w]


@pytest.mark.parametrize("name", POWERED)
def test_compute_doubles_every_matrix_rate_and_keeps_the_energy_of_an_operation(name: str) -> None:
    system = hardware.load(name)
    datatype = next(each for each in ("bfloat16", "float16", "float8") if each in system.matrix)
    base = Scenario.of("llama-3-8B", system, num_procs=8, max_batch_size=8, datatype=datatype, cost_model="calibrated")
    after = whatif.changed(base, {"compute": 2 * whatif.parameter(base, "compute").value}).system
    assert after.accelerator is not None
    assert system.accelerator is not None
    assert after.accelerator.tdp_w == 2 * (system.accelerator.tdp_w or math.nan)
    assert all(after.matrix[one].tflops == 2 * each.tflops for one, each in system.matrix.items())
    for old, new in zip(effective_rates(system), effective_rates(after), strict=True):
        factor = 2 if old.name.startswith("matrix") else 1
        assert new.sustained == pytest.approx(factor * old.sustained), old.name


@pytest.mark.parametrize("system", ["h100_80g_sxm", "b200_180g_sxm", "mi300x_192g", "h100_80g_nvl8"])
def test_every_parameter_that_is_offered_without_asking_changes_something(system: str) -> None:
    datatype = "float8" if system in ("h100_80g_nvl8", "b200_180g_sxm") else "bfloat16"
    base = Scenario.of("llama-3-8B", system, num_procs=16, max_batch_size=64, datatype=datatype)
    table = base.space.table(np.unique(np.linspace(0, base.space.total - 1, 300).astype(int)))
    before = base.evaluate(table)
    for which in whatif.parameters(base):
        if which.about != "system" or which.part_of or which.value == 0:
            continue
        found = (
            whatif.changed(base, {which.name: value}).evaluate(table)
            for value in ((1.0,) if which.discrete else (0.01 * which.value, 2 * which.value))
        )
        assert not all(
            one["total_time"].equals(before["total_time"]) and one["reason"].equals(before["reason"]) for one in found
        ), which.name


def test_parts_of_a_parameter_are_asked_for_and_go_last() -> None:
    base = scenario("calibrated")
    peak = whatif.parameter(base, "matrix").value
    eight = base.system.matrix["float8"].tflops
    assert [which.name for which in whatif.parameters(base) if which.part_of] == ["matrix", "power"]
    names = {which.name for which, _, _ in whatif.sensitivity(base, (1.1,))}
    assert "compute" in names
    assert not {"matrix", "power"} & names
    assert {which.name for which, _, _ in whatif.sensitivity(base, (1.1,), ("matrix",))} == {"matrix"}
    for changes in ({"compute": 2 * peak, "matrix": peak}, {"matrix": peak, "compute": 2 * peak}):
        after = whatif.changed(base, changes).system
        assert after.accelerator is not None
        assert after.accelerator.tdp_w == 1400
        assert (after.matrix["bfloat16"].tflops, after.matrix["float8"].tflops) == (peak, 2 * eight)
    assert whatif.otherwise(base, {"compute": 2 * peak}, "power") == 1400
    assert whatif.otherwise(base, {"hbm_capacity": 90}, "power") == 700
    assert whatif.changed(base, {"compute": 2 * peak, "power": 1400}) == whatif.changed(base, {"compute": 2 * peak})


def test_nothing_fits_is_an_answer() -> None:
    answer = whatif.reoptimise(scenario(), {"hbm_capacity": 0.1})
    assert answer.best is None
    assert answer.feasible == 0
    assert math.isnan(answer.gain)
    assert answer.kept is not None
    assert answer.kept["reason"] == "memory_tier1"


def test_an_execution_that_no_longer_runs_has_no_rate() -> None:
    base = scenario("limited")
    points = list(whatif.sweep(base, "hbm_capacity", [2, 80]))
    assert math.isnan(next(point.kept for point in points if point.values["hbm_capacity"] == 2))
    assert next(point.kept for point in points if point.values["hbm_capacity"] == 80) == points[1].rate


def test_sensitivity_changes_one_parameter_at_a_time() -> None:
    base = scenario()
    study = whatif.sensitivity(base, (0.9, 1.1, 2.0))
    found = list(study)
    assert len(found) == len(study)
    names = {which.name for which, _, _ in found}
    assert names == {which.name for which in whatif.parameters(base) if which.about != "run"}
    for which, factor, point in found[::7]:
        assert point.values == {which.name: which.value * factor}
        check(base, point.values, point.rate, point.kept)
    discrete = {which.name: factor for which, factor, _ in found if which.discrete}
    assert set(discrete.values()) == {2.0}


def test_the_size_of_a_network_is_halved_and_doubled_whatever_the_factors_are() -> None:
    base = scenario()
    size = whatif.parameter(base, "net0_size").value
    study = whatif.sensitivity(base, (0.9, 1.1), ["net0_size", "hbm_bandwidth", "sequence"])
    found = {(which.name, factor): point for which, factor, point in study}
    assert set(found) == {("net0_size", 0.5), ("net0_size", 2.0), ("hbm_bandwidth", 0.9), ("hbm_bandwidth", 1.1)}
    for factor in (0.5, 2.0):
        expected = whatif.reoptimise(base, {"net0_size": factor * size}).best
        assert expected is not None
        assert found["net0_size", factor].rate == expected["sample_rate"]


@pytest.mark.parametrize(("name", "low", "high"), [("net1_bandwidth", 5, 400), ("net0_size", 2, 16), ("batch", 16, 64)])
def test_sweeps_are_exact_and_cover_all_values(name: str, low: float, high: float) -> None:
    base = scenario()
    values = [low, *(value for value in whatif.values_around(whatif.parameter(base, name), 5)), high]
    study = whatif.sweep(base, name, values)
    points = {point.values[name]: point for point in study}
    assert set(points) == set(values)
    for value in (low, high):
        check(base, {name: value}, points[value].rate, points[value].kept)
        assert points[value].degrees is not None


def test_a_sweep_holds_other_changes() -> None:
    base = scenario()
    others = {"hbm_capacity": 25.0, "net1_bandwidth": 1.0}
    (point,) = whatif.sweep(base, "net1_bandwidth", [400], others)
    check(base, {**others, "net1_bandwidth": 400}, point.rate, point.kept)
    assert point.values == {"net1_bandwidth": 400}


@pytest.mark.parametrize(("x", "y"), [("net1_bandwidth", "hbm_capacity"), ("hbm_bandwidth", "net0_size")])
def test_two_dimensional_sweeps_are_exact(x: str, y: str) -> None:
    base = scenario()
    xs = whatif.values_around(whatif.parameter(base, x), 5)
    ys = whatif.values_around(whatif.parameter(base, y), 3)
    study = whatif.sweep_two(base, x, xs, y, ys)
    points = list(study)
    assert len(points) == len(study) == len(xs) * len(ys)
    assert {(point.values[x], point.values[y]) for point in points} == {(a, b) for a in xs for b in ys}
    for point in points[::4]:
        check(base, point.values, point.rate, point.kept)


def test_a_parameter_is_not_swept_against_itself() -> None:
    with pytest.raises(whatif.ChangeError, match="against itself"):
        whatif.sweep_two(scenario(), "matrix", [1], "matrix", [1])


def test_sizes_are_optima_and_say_what_stands_in_the_way() -> None:
    base = scenario()
    points = {int(point.values["procs"]): point for point in whatif.sizes(base, [1, 8, 24, 4096])}
    for count in (8, 24):
        best = engine.best_of(whatif.changed(base, {"procs": count}))
        assert points[count].rate == best["sample_rate"]
        assert points[count].efficiency == best["total_efficiency"]
    assert points[1].degrees == (1, 1, 1)
    assert points[4096].problem
    assert math.isnan(points[4096].rate)
    scaled = {int(point.values["procs"]): point for point in whatif.sizes(base, [32], "scaled")}
    best = engine.best_of(whatif.changed(base, {"procs": 32, "batch": 64}))
    assert scaled[32].rate == best["sample_rate"]


def test_every_size_of_a_range() -> None:
    assert whatif.sizes_between(8, 40, 8) == [8, 16, 24, 32, 40]
    assert whatif.sizes_between(6, 11, 3) == [6, 9]
    assert len(whatif.sizes_between(1, MOST_SIZES)) == MOST_SIZES


@pytest.mark.parametrize(
    ("low", "high", "step", "sentence"),
    [
        (9, 8, 1, "no size"),
        (0, 8, 1, "number of GPUs"),
        (1, 8, 0, "step between sizes"),
        (1, 10**30, 1, "2,147,483,647"),
        (1, 1025, 1, "1,025 sizes"),
        (8, 65_536, 8, "steps of 64 are few enough"),
    ],
)
def test_ranges_of_sizes_that_are_none_or_too_wide(low: int, high: int, step: int, sentence: str) -> None:
    with pytest.raises((whatif.ChangeError, engine.SpaceError), match=sentence):
        whatif.sizes_between(low, high, step)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 10, 1_000])
def test_a_coarse_picture_comes_first_and_nothing_is_left_out(count: int) -> None:
    order = whatif.coarse_first(count)
    assert sorted(order) == list(range(count))
    for some in (10, 100):  # so many lie everywhere
        if count > some:
            ends = sorted({0, *order[:some], count - 1})
            assert max(b - a for a, b in pairwise(ends)) <= 4 * count / some


def points_of(study: PointSequence[Any]) -> list[Point]:
    return [found[-1] if isinstance(found, tuple) else found for found in study]


BOUNDED: dict[str, Callable[[Scenario, float], PointSequence[Any]]] = {
    "sensitivity": lambda base, most: whatif.sensitivity(base, (2.0,), ("matrix", "blocks"), largest=most),
    "sweep": lambda base, most: whatif.sweep(base, "blocks", (20, 40, 80), largest=most),
    "sweep_two": lambda base, most: whatif.sweep_two(base, "blocks", (40, 80), "matrix", (500, 1000), largest=most),
    "sizes": lambda base, most: whatif.sizes(base, (1, 16, 8), "scaled", largest=most),
}


@pytest.mark.parametrize("name", BOUNDED)
def test_points_in_spaces_that_are_too_large_are_not_searched(name: str) -> None:
    base = scenario()
    most = base.space.total - (name == "sizes")
    points = points_of(BOUNDED[name](base, most))
    refused = [point for point in points if "executions; up to" in point.problem]
    assert 0 < len(refused) < len(points)
    for point in points:
        total = whatif.changed(base, point.values).space.total
        assert (total > most) == (point in refused) == math.isnan(point.rate)
    assert not any(point.problem for point in points_of(BOUNDED[name](base, math.inf)))


STUDIES: dict[str, Callable[[Scenario], PointSequence[Any]]] = {
    "sensitivity": lambda base: whatif.sensitivity(base, names=("matrix", "hbm_capacity", "net0_bandwidth")),
    "sweep": lambda base: whatif.sweep(base, "matrix", (500, 1000, 2000)),
    "sweep_two": lambda base: whatif.sweep_two(base, "matrix", (500, 1000), "hbm_capacity", (40, 80, 120)),
    "sizes": lambda base: whatif.sizes(base, (8, 16, 32, 64)),
}


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_that_was_left_goes_on_without_finding_anything_twice(name: str) -> None:
    study = STUDIES[name](scenario())
    whole = list(study)
    assert len(whole) == len(study)
    looked_for = "engine.whatif.studies.best_of" if name == "sizes" else "engine.whatif.search.Searcher.point"
    real = engine.best_of if name == "sizes" else Searcher.point
    with mock.patch(looked_for, autospec=True, side_effect=real) as asked:
        for done in (0, 1, len(whole) - 1, len(whole)):
            asked.reset_mock()
            assert list(map(repr, study.after(done))) == list(map(repr, whole[done:]))
            assert asked.call_count == len(whole) - done


@cache
def ties_of(one: Scenario) -> list[int]:
    """The executions that are as fast as any, by looking at all."""
    rows = explored_with_rows(one).rows.table(["id", "sample_rate"]).to_pandas()
    return sorted(rows["id"][rows["sample_rate"] == rows["sample_rate"].max()])


@pytest.mark.parametrize(
    ("case", "changes"),
    [(case, {}) for case in CASES]
    + [
        ("float8", {"hbm_capacity": 30}),
        ("calibrated", {"matrix": 400}),
        ("limited", {"batch": 8}),
        ("one network", {"matrix": 400}),
        ("calibrated", {"hbm_capacity": 30}),
        ("calibrated", {"batch": 8}),
    ],
    ids=str,
)
def test_all_that_tie_with_the_best_are_known_and_one_may_be_chosen(case: str, changes: dict[str, float]) -> None:
    base, offered = scenario(case), []
    after = whatif.changed(base, changes)

    def last(executions: pd.DataFrame) -> int:
        offered.append(executions)
        return int(executions["id"].iloc[-1])

    before = ties_of(base)
    now = ties_of(after) if changes else before
    assert searched(base).tied.tolist() == before
    space = ready(after)
    assert space is not None
    assert space.best(after.system).tied.tolist() == now
    answer = whatif.reoptimise(base, changes, last)
    assert answer.base is not None
    assert answer.best is not None
    assert (answer.base["id"], answer.best["id"]) == (before[-1], now[-1])
    for executions in offered:
        ids = executions["id"].tolist()
        assert ids in (before, now)
        scenario_of = base if ids == before else after
        pd.testing.assert_frame_equal(executions.drop(columns="id"), scenario_of.space.table(ids))
    if set(changes) <= {"hbm_capacity", "matrix"}:
        kept = after.evaluate(base.space.table([before[-1]])).iloc[0]
        assert answer.kept is not None
        np.testing.assert_equal(float(answer.kept["sample_rate"]), float(kept["sample_rate"]))
        (point,) = whatif.sweep(base, "matrix", [after.system.matrix[base.datatype].tflops], changes, last)
        np.testing.assert_equal(point.kept, float(kept["sample_rate"]))


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 20, 21, 64])
def test_coarse_first_is_a_permutation_that_starts_with_the_ends(count: int) -> None:
    order = whatif.coarse_first(count)
    assert sorted(order) == list(range(count))
    assert order[:2] == [0, count - 1][: min(2, count)] or count == 1
    # Half of the points leave no gap wider than twice the even spacing.
    half = sorted(order[: max(2, (count + 1) // 2)])
    assert count < 8 or np.diff(half).max() <= 5


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"matrx": 1.0}, "matrix"),
        ({"hbm_capacity": math.nan}, "number"),
        ({"hbm_capacity": -3.0}, "from 0.08"),
        ({"hbm_capacity": True}, "number"),
        ({"net0_size": 8.5}, "whole number"),
        ({"hidden": 5001.5}, "whole number"),
        ({"procs": 1e300}, "from 1"),
        ({"matrix": 0.0}, "from"),
    ],
    ids=str,
)
def test_refusals_say_what_is_accepted(changes: dict[str, float], says: str) -> None:
    with pytest.raises(whatif.ChangeError, match=says):
        whatif.changed(scenario(), changes)


def test_changed_documents_remember_what_they_were_made_from() -> None:
    after = whatif.changed(scenario(), {"hbm_capacity": 96, "net0_latency": 5, "sequence": 1024, "procs": 32})
    assert after.system.derived_from == "h100_80g_nvl8"
    assert {change.field: change.new for change in after.system.changes} == {
        "mem1.capacity_gib": 96,
        "networks.0.latency_s": 5e-6,
    }
    assert after.model.derived_from == "gpt3-13B"
    assert after.model.seq_size == 1024
    assert after.num_procs == 32
    assert whatif.changed(scenario(), {"hbm_capacity": 80}).system == scenario().system


def test_width_carries_feedforward_and_heads_and_drops_the_architecture() -> None:
    base = Scenario.of("llama-3-8B", "h100_80g_nvl8", num_procs=8, max_batch_size=8, datatype="float16")
    wide = whatif.changed(base, {"hidden": base.model.hidden * 2}).model
    assert (wide.hidden, wide.feedforward) == (2 * base.model.hidden, 2 * base.model.feedforward)
    assert wide.hidden == wide.attn_heads * wide.attn_size
    assert wide.architecture is None
    assert whatif.changed(base, {"sequence": 4096}).model.architecture == base.model.architecture


def test_only_what_changes_the_layout_needs_another() -> None:
    base = scenario()
    for which in whatif.parameters(base):
        other = whatif.changed(base, {which.name: which.value * 2})
        assert (layout_key(other) != layout_key(base)) == which.layout, which.name
    off = whatif.changed(base, {"host_capacity": 0})
    assert layout_key(off) != layout_key(base)


def test_a_ready_space_counts_like_a_search() -> None:
    base = scenario("limited")
    space = ready(base)
    assert space is not None
    for gib in (5, 20, 80, 400):
        system = hardware.edited(base.system, {"mem1.capacity_gib": float(gib)})
        found = space.best(system)
        searched = engine.best_of(whatif.changed(base, {"hbm_capacity": gib}))
        assert (found.id, found.feasible) == (searched.get("id"), searched.feasible)


@pytest.mark.parametrize("limits", [{}, {"data_par_net": [0], "data_par": [2, 4, 8, 16]}], ids=["free", "networks"])
@pytest.mark.parametrize("domain", [1, 4, 16, 32])
def test_other_networks_give_what_exploring_them_gives(domain: int, limits: dict[str, Any]) -> None:
    """Executions, how many there are, and the networks that they are placed on."""
    base = Scenario.of(
        "gpt3-13B",
        "h100_80g_sxm",
        num_procs=32,
        max_batch_size=32,
        datatype="bfloat16",
        limits={"batch_size": [32], **limits},
    )
    answer = whatif.reoptimise(base, {"net0_size": domain})
    found = explored(whatif.changed(base, {"net0_size": domain}))
    assert (answer.total, answer.feasible) == (found.total, found.feasible)
    assert (answer.best is None) == (found.best is None)
    if found.best is not None and answer.best is not None:
        pd.testing.assert_series_equal(pd.Series(answer.best), pd.Series(found.best))
    base_best = explored(base).best
    if answer.kept is not None and base_best is not None:
        same = {column.name: base_best[column.name] for column in fields_of("calibrated")}
        (placed,) = found.scenario.evaluate(pd.DataFrame([same])).to_dict("records")
        networks = networks_of(found.scenario.system, placed)
        assert {name: answer.kept[name] for name in networks} == networks

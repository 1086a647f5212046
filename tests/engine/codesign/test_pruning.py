"""Designs that are skipped: every one of them loses, and every answer is the one without skipping."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import engine
import hardware
from engine import codesign, whatif
from engine.codesign.costs import bill
from engine.codesign.points import rows_of
from engine.codesign.pruning import Pruner
from engine.codesign.quantities import refuses_better
from engine.cost_models.registry import COST_MODELS
from engine.whatif.prepared_spaces import ready
from tests.engine.codesign.small_study import ONE_POINT, study
from tests.engine.cost_models.calibrated.small import LLAMA, model_of

WIDE: dict[str, Any] = {
    "models": ["megatron-126M"],
    "edits": [
        {"parameter": "hbm_capacity", "values": [2, 20, 80]},
        {"parameter": "hbm_bandwidth", "values": [1500, 3000, 6000]},
        {"parameter": "net0_bandwidth", "values": [100, 900]},
        {"parameter": "net0_latency", "values": [1, 20]},
        {"parameter": "host_capacity", "values": [64, 512]},
    ],
    "follow": [],
    "sizes": [8],
    "batches": [8],
    "costs": {
        "usd": {
            "processor": 20_000,
            "tflops": [5, 9],
            "mem1_gib": [17, 82],
            "mem1_gb_per_s": 1,
            "mem2_gib": 4,
            "network_gb_per_s": [[2, 4], 26],
        },
        "watts": {"processor": 700, "mem1_gib": 1},
    },
}
"""72 designs of one layout."""


def test_nothing_below_a_searched_design_exceeds_what_it_reaches() -> None:
    """The proof behind every skipped design, over all pairs of which one is nowhere better."""
    asked = study(**WIDE, prune=True)
    numbers = np.arange(asked.designs)[::2]
    rows = rows_of(asked, numbers).to_pandas()
    values = asked.edited_values(numbers)
    values[:, asked.edited_names.index("net0_latency")] *= -1
    rate = rows["samples_per_s"].to_numpy()
    reach = rows["bound"].to_numpy()
    below = (values[None] <= values[:, None]).all(axis=2)
    assert below.sum() > 2 * len(numbers)
    over = np.where(below, rate[None] - reach[:, None] * (1 + 1e-12), -1.0)
    assert np.nanmax(over) <= 0
    # Rates that differ in capacities only: more memory is never worse, and changes nothing where it is not needed.
    assert (reach >= rate)[~np.isnan(rate)].all()


def test_what_a_design_reaches_holds_where_its_own_rate_does_not() -> None:
    """A faster network makes this one slower, as an exchange just fits its window then: rates alone prove nothing."""
    scenario = engine.Scenario.of(
        "gpt3-13B", "h100_80g_nvl8", num_procs=8, max_batch_size=16, datatype="float16", cost_model="calculon"
    )
    faster = hardware.edited(scenario.system, {"networks.0.bandwidth_gb_per_s": 495})
    space = ready(scenario)
    assert space is not None
    slow, fast = (space.best(system, watched=True) for system in (scenario.system, faster))
    assert fast.rate < slow.rate <= fast.reach
    assert slow.rate <= slow.reach


def test_random_systems_never_exceed_what_a_better_one_reaches() -> None:
    random = np.random.default_rng(19)
    for model, system, procs in (("gpt3-13B", "a100_80g", 16), ("megatron-5B", "h100_80g_nvl8", 8)):
        scenario = engine.Scenario.of(
            model, system, num_procs=procs, max_batch_size=16, datatype="float16", cost_model="calculon"
        )
        space = ready(scenario)
        assert space is not None
        figures = {
            "matrix.float16.tflops": 1,
            "vector.float16.tflops": 1,
            "mem1.bandwidth_gb_per_s": 1,
            "mem1.capacity_gib": 1,
            "mem2.bandwidth_gb_per_s": 1,
            "mem2.capacity_gib": 1,
            "networks.0.bandwidth_gb_per_s": 1,
            "networks.1.bandwidth_gb_per_s": 1,
            "networks.0.latency_s": -1,
            "networks.1.latency_s": -1,
        }
        cost_model = COST_MODELS["calculon"]
        assert {path: cost_model.rises_with(scenario.system, path) for path in figures} == figures
        own = {path: dict(scenario.system.values_at(path))[path] for path in figures}
        signs = np.array(list(figures.values()))

        def like(factors: Any, base: Any = scenario.system, values: Any = own, ways: Any = signs) -> hardware.System:
            moved = zip(values.items(), factors**ways, strict=True)
            return hardware.edited(base, {path: value * by for (path, value), by in moved})

        for _ in range(5):
            better = np.exp(random.uniform(-1.5, 1.5, len(figures)))
            best = space.best(like(better), watched=True)
            for _ in range(3):
                worse = better * np.where(random.random(len(figures)) < 0.4, np.exp(-random.exponential(0.3)), 1.0)
                found = space.best(like(worse))
                assert found.id is None or (best.id is not None and found.rate <= best.reach * (1 + 1e-12))


@pytest.mark.parametrize(("model", "procs"), [("llama-3-8B", 8), ("mixtral-8x7B", 16)])
def test_no_calibrated_system_exceeds_a_better_one(model: str, procs: int) -> None:
    random = np.random.default_rng(procs)
    scenario = engine.Scenario.of(
        model, "h100_80g_sxm", num_procs=procs, max_batch_size=16, datatype="bfloat16", cost_model="calibrated"
    )
    space, cost_model = ready(scenario), COST_MODELS["calibrated"]
    assert space is not None
    paths = [each.path for each in whatif.parameters(scenario) if each.about == "system" and not each.layout]
    assert {"matrix.bfloat16.tflops", "accelerator.tdp_w", "mem2.bandwidth_gb_per_s"} < set(paths)
    assert {cost_model.rises_with(scenario.system, path) for path in paths} == {1}
    own = {path: dict(scenario.system.values_at(path))[path] for path in paths}

    def like(factors: Any) -> hardware.System:
        return hardware.edited(scenario.system, {path: own[path] * by for path, by in zip(paths, factors, strict=True)})

    for _ in range(4):
        better = np.exp(random.uniform(-1.2, 1.2, len(paths)))
        best = space.best(like(better), watched=True)
        assert best.id is None or best.reach == best.rate
        for _ in range(2):
            worse = better * np.where(random.random(len(paths)) < 0.5, np.exp(-random.exponential(0.4)), 1.0)
            found = space.best(like(worse))
            assert found.id is None or found.rate <= best.rate * (1 + 1e-9)


@pytest.mark.parametrize(
    "more",
    [
        {
            "objectives": ["tokens_per_s", "usd"],
            "edits": [{"parameter": "hbm_bandwidth", "values": [1500, 6000]}, WIDE["edits"][0], *WIDE["edits"][2::2]],
        },
        {
            "models": ["megatron-126M"],
            "systems": ["h100_80g_sxm"],
            "datatypes": ["bfloat16"],
            "cost_model": "calibrated",
            "edits": [
                {"parameter": "hbm_capacity", "values": [4, 80]},
                {"parameter": "net0_bandwidth", "values": [100, 450]},
                {"parameter": "compute", "values": [500, 990]},
                {"parameter": "host_capacity", "values": [0, 64]},
            ],
        },
        {
            "objectives": ["tokens_per_joule", "days", "usd"],
            "models": [{"model": "megatron-126M", "weight": 2}, {"model": "megatron-5B"}],
            "sizes": [4, 8],
            "constraints": [{"quantity": "watts", "at_most": 13_000}],
            "edits": [WIDE["edits"][0], {"parameter": "hbm_bandwidth", "values": [1500, 6000]}],
        },
        # Here the better designs are refused, so what loses to one of them may be the best of those that are not.
        {
            "objectives": ["tokens_per_s", "usd"],
            "edits": WIDE["edits"][:3],
            "constraints": [{"quantity": "usd", "at_least": 300_000}],
        },
        {
            "objectives": ["tokens_per_s", "usd"],
            "edits": [*WIDE["edits"][:2], {"parameter": "sequence", "values": [512, 2048]}],
        },
    ],
    ids=["calculon", "calibrated", "a mix", "a price of at least so much", "samples of several lengths"],
)
def test_answers_are_those_without_skipping(more: dict[str, Any], tmp_path: Path) -> None:
    whole, less = (study(**{**WIDE, **more}, prune=prune) for prune in (False, True))
    codesign.run(whole, tmp_path / "whole", workers=1)
    done = codesign.run(less, tmp_path / "less", workers=1, task_seconds=ONE_POINT)
    turned = any(refuses_better(each) for each in less.document.constraints)
    assert (done.skipped > 0) != turned
    first, second = codesign.results(tmp_path / "whole"), codesign.results(tmp_path / "less")
    assert second.complete
    for of in first.models:
        for at in ("low", "middle", "high"):
            for answer in ("front", "best_per_budget", "binding"):
                one, other = (getattr(each, answer)(of=of, at=at) for each in (first, second))  # type: ignore[arg-type]
                pd.testing.assert_frame_equal(one, other, check_exact=True)
    rows = second.rows.merge(first.rows, on="point", suffixes=("", " searched"))
    lost = rows[rows["status"] == "skipped"]
    assert not (lost["samples_per_s searched"] > lost["bound"] * (1 + 1e-9)).any()
    counts = []
    for of in first.models:
        best, edge = second.designs(of)["tokens_per_s"].max(), second.skipped(of).set_index("design")["tokens_per_s"]
        true = first.designs(of).set_index("design")["tokens_per_s"].reindex(edge.index)
        counts.append(len(edge))
        assert len(edge) == (second.designs(of)["status"] == "skipped").sum()
        assert not (true > edge * (1 + 1e-9)).any()
        assert (edge <= best * (1 + 1e-9)).all()
    assert (sum(counts) > 0) != turned
    found = rows[rows["status"] == "ok"]
    assert (found["samples_per_s"] == found["samples_per_s searched"]).all()
    with pytest.raises(codesign.StudyError, match=r"some of them may be good in processors; run the study"):
        second.front(["tokens_per_s", "processors"])
    if not turned:
        with pytest.raises(codesign.StudyError, match=r"constraint 'Price at least 1,000 USD' may refuse; run the stu"):
            second.front(constraints=[codesign.Constraint(quantity="usd", at_least=1000)])


def test_a_run_that_was_stopped_goes_on_skipping(tmp_path: Path) -> None:
    asked, seen = study(**WIDE, prune=True), []

    def stop() -> bool:
        seen.append(0)
        return len(seen) > 3

    with pytest.raises(codesign.StudyCancelled):
        codesign.run(asked, tmp_path, workers=1, cancel=stop, task_seconds=ONE_POINT)
    done = codesign.run(asked, tmp_path, workers=1, task_seconds=ONE_POINT)
    assert done.before > 0
    assert done.skipped > 0
    assert codesign.results(tmp_path).complete


@pytest.mark.parametrize("objectives", [["tokens_per_s"], ["tokens_per_s", "usd"]])
def test_what_is_slower_is_skipped_whether_or_not_anything_has_a_price(objectives: list[str]) -> None:
    edits = [{"parameter": "hbm_bandwidth", "values": [6000, 3000, 1500]}]
    asked = study(**{**WIDE, "objectives": objectives, "edits": edits}, prune=True)
    pruner = Pruner(asked)
    for design, rate in ((0, 10.0), (1, 5.0)):
        pruner.add([design], [rate], [rate])
    # The last one is no faster than the second, which the first one beats; it is the cheapest of all.
    assert (2 in pruner.lost(np.array([2]))) == (objectives == ["tokens_per_s"])


def test_less_memory_is_never_faster_whatever_is_known_of_rates() -> None:
    """As of whole explorations, which tell no rate that worse systems do not exceed."""
    edits = [{"parameter": "hbm_capacity", "values": [80, 20]}, {"parameter": "hbm_bandwidth", "values": [6000, 3000]}]
    pruner = Pruner(study(**{**WIDE, "objectives": ["tokens_per_s"], "edits": edits}, prune=True))
    for design, rate in ((0, 10.0), (1, 5.0)):  # of 80 GiB
        pruner.add([design], [rate], [float("nan")])
    assert pruner.lost(np.array([2, 3])) == {3: 5.0}


def test_schedules_that_take_gradients_apart_are_no_slower_on_faster_units() -> None:
    """The host launches as long on a faster unit; what is left of a backward pass fills idle time no worse."""
    trained = {"layers": 8, "prediction_layers": 1, "trained_prediction_layers": 1}
    model, own = model_of({**LLAMA, **trained}, 4096), hardware.load("tpu7x_192g")
    limits = {
        "schedule": ["zb_h1"],
        "tensor_par": 1,
        "context_par": 2,
        "pipeline_par": 2,
        "pipeline_overlap": True,
        "activation_recompute": "none",
    }

    def space_of(tflops: float, more: dict[str, Any]) -> Any:
        system = hardware.edited(own, {"matrix.bfloat16.tflops": tflops})
        scenario = engine.Scenario.of(
            model,
            system,
            num_procs=16,
            max_batch_size=8,
            datatype="bfloat16",
            cost_model="calibrated",
            limits={**limits, **more},
        )
        space = ready(scenario)
        assert space is not None
        return space.best(system, watched=True)

    slow, fast = (space_of(tflops, {}) for tflops in (1164, 4448))
    assert slow.rate < fast.rate
    plain = space_of(1164, {"schedule": ["1f1b"]})
    assert all(each.reach == each.rate for each in (slow, fast, plain))


def test_what_designs_can_reach_is_never_below_what_they_reach_and_sometimes_just_that() -> None:
    """Whatever was searched first: bounds of the others against their own searches, and each has one that beats it."""
    asked = study(**WIDE, objectives=["tokens_per_s", "usd"], prune=True)
    numbers = np.arange(asked.designs)
    rows = rows_of(asked, numbers).to_pandas()
    rate, reach = (rows[name].to_numpy(np.float64) for name in ("samples_per_s", "bound"))
    usd = bill(asked, numbers)[["usd_low", "usd_high"]].to_numpy(np.float64)
    random, tight, told = np.random.default_rng(11), 0, 0
    for _ in range(150):
        searched = random.permutation(numbers)[: random.integers(2, 60)]
        pruner = Pruner(asked)
        pruner.add(searched.tolist(), rate[searched].tolist(), reach[searched].tolist())
        for point, bound in pruner.lost(np.setdiff1d(numbers, searched)).items():
            own = rate[point]
            told += 1
            if np.isnan(own):  # nothing fits
                continue
            assert bound >= own * (1 - 1e-12)
            tight += bound <= own * (1 + 1e-8)
            no_dearer = searched[(usd[searched] <= usd[point]).all(axis=1)]
            assert (rate[no_dearer] >= own * (1 - 1e-9)).any()
    assert told > 1000
    assert tight > 100

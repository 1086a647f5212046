"""Laws of calibrated spaces that hold whatever the figures are, and scenarios of the calibrated cost model."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest

import engine
import hardware
import models
from engine import Scenario, best_of
from engine.columns import ALL_FIELDS
from engine.cost_models.calibrated import library_calibration
from engine.cost_models.calibrated.cost_model import CALIBRATED, Calibrated
from engine.cost_models.registry import COST_MODELS
from hardware import Calibration, System
from tests.engine.cost_models.calibrated.small import (
    LLAMA,
    NAMES,
    explored,
    feasible,
    model_of,
    named,
    rows_of,
    scenario,
    system_of,
)
from tests.engine.explored_with_rows import explored_with_rows

FIELDS = [column.name for column in ALL_FIELDS]
Document = dict[str, Any]


def _faster_memory(document: Document) -> None:
    document["mem1"]["bandwidth_gb_per_s"] *= 1.7


def _faster_domain(document: Document) -> None:
    document["networks"][0]["bandwidth_gb_per_s"] *= 3.0


def _faster_network(document: Document) -> None:
    document["networks"][-1]["bandwidth_gb_per_s"] *= 1.3


def _faster_link_to_second_tier(document: Document) -> None:
    document["mem2"]["bandwidth_gb_per_s"] *= 4.0


def _higher_peaks(document: Document) -> None:
    for engine_of in document["matrix"].values():
        engine_of["tflops"] *= 1.4
    # Or the clock would be throttled.
    document["accelerator"]["tdp_w"] *= 1.4


def _larger_first_tier(document: Document) -> None:
    document["mem1"]["capacity_gib"] *= 1.25


def _larger_second_tier(document: Document) -> None:
    document["mem2"]["capacity_gib"] *= 2.0


RATES = [_faster_memory, _faster_domain, _faster_network, _faster_link_to_second_tier, _higher_peaks]


def improved(system: System, *improve: Callable[[Document], None]) -> System:
    document = json.loads(json.dumps(hardware.to_document(system)))
    for one in improve:
        one(document)
    return hardware.load_document(document, "improved")


def times_of(chosen: Scenario) -> npt.NDArray[np.float64]:
    """Step times of the feasible executions by id [s]."""
    table = explored_with_rows(chosen).rows.table(["id", "total_time"])
    order = np.argsort(table["id"].to_numpy())
    times: npt.NDArray[np.float64] = table["total_time"].to_numpy()[order]
    return times


@pytest.mark.parametrize("model", ["palm-8B", "mixtral-8x7B"])
def test_what_is_saved_once_does_not_come_back_twice(model: str) -> None:
    """Gathers, the exchange and offloading hide behind one computation, which a faster chip shortens for all three."""
    system = hardware.load("gaudi2_96g")
    chosen = Scenario.of(model, system, num_procs=16, max_batch_size=16, datatype="bfloat16")
    table = chosen.space.table(np.random.default_rng(3).integers(0, chosen.space.total, 6_000))
    before = chosen.evaluate(table)
    assert ((before["fw_offload_exposed_time"] > 0) & (before["dp_comm_exposed_time"] > 0)).sum() > 100
    for change in ({"matrix.bfloat16.tflops": 1.2}, {"mem1.bandwidth_gb_per_s": 1.5}, {"mem2.bandwidth_gb_per_s": 1.5}):
        path, factor = next(iter(change.items()))
        value = next(found for name, found in system.values_at(path) if name == path)
        faster = replace(chosen, system=hardware.edited(system, {path: value * factor}))
        after = faster.evaluate(table)["total_time"]
        assert not (after > before["total_time"] * (1 + 1e-12)).any(), path


def test_a_faster_network_between_hosts_serves_what_spans_hosts() -> None:
    chosen = scenario(
        model_of(LLAMA),
        system_of("h100_80g_sxm", first=80, second=0),
        {"tensor_par": [1, 8]},
        num_procs=32,
        max_batch_size=32,
    )
    before, after = times_of(chosen), times_of(replace(chosen, system=improved(chosen.system, _faster_network)))
    assert (after <= before * (1 + 1e-12)).all()
    assert (after < before * (1 - 1e-6)).mean() > 0.9


@pytest.mark.parametrize("name", ["dense", "experts", "plain", "one tier"])
def test_more_memory_keeps_what_fitted_and_its_figures(name: str) -> None:
    before = feasible(name)
    for improve in (_larger_first_tier, _larger_second_tier):
        if improve is _larger_second_tier and name == "one tier":
            continue
        better = replace(named(name), system=improved(named(name).system, improve))
        after = rows_of(explored_with_rows(better))
        assert len(after) > len(before)
        pd.testing.assert_frame_equal(after.loc[before.index], before)
        assert best_of(better)["sample_rate"] >= before["sample_rate"].max() * (1 - 1e-12)


@cache
def running(name: str) -> tuple[pd.DataFrame, list[str]]:
    """The executions of a small space that run, and the fields that are not the same in all of them."""
    table = feasible(name)
    varying = [one for one in FIELDS if table[one].nunique() > 1]
    return table[[*varying, "total_time"]], varying


@pytest.mark.parametrize(
    ("field", "slow", "fast"),
    [
        ("data_par_overlap", False, True),
        ("tensor_par_overlap", "none", "ring"),
        ("expert_overlap", False, True),
        ("pipeline_overlap", False, True),
        ("gradient_datatype", "float32", "bfloat16"),
        ("optimizer_datatype", "float32", "bfloat16"),
        ("launch", "fused", "graphs"),
        ("launch", "fused", "partial_graphs"),
        ("launch", "partial_graphs", "graphs"),
        ("launch", "fused", "compiled"),
        ("token_dispatcher", "all_to_all", "deepep"),
        ("dispatch_datatype", "bfloat16", "float8"),
        ("expert_imbalance", 125, 100),
        ("attention_kernel", "flash2", "native"),
        ("activation_recompute", "full", "none"),
    ],
)
def test_what_hides_or_saves_work_never_slows_down(field: str, slow: Any, fast: Any) -> None:
    compared = faster = 0
    for name in NAMES:
        table, varying = running(name)
        if field not in varying or not {slow, fast} <= set(table[field].unique()):
            continue
        others = [one for one in varying if one != field]
        sides = [table[table[field] == value].set_index(others)["total_time"] for value in (slow, fast)]
        both = pd.concat(sides, axis=1, keys=["slow", "fast"], join="inner")
        assert (both["fast"] <= both["slow"] * (1 + 1e-12)).all(), name
        compared += len(both)
        faster += int((both["fast"] < both["slow"] * (1 - 1e-9)).sum())
    assert compared > 200
    assert faster > 50


def test_fused_kernels_move_less_where_the_host_does_not_decide() -> None:
    machine = system_of("h100_80g_sxm", first=1000, second=0)
    limits = {"tensor_par": [1, 2], "launch": ["eager", "fused"], "zero_stage": 1, "activation_recompute": "none"}
    rows = rows_of(explored_with_rows(scenario(models.load("llama-3-8B"), machine, limits)))
    others = [one for one in FIELDS if one != "launch"]
    slow, fast = (rows[rows["launch"] == word].set_index(others)["total_time"] for word in ("eager", "fused"))
    both = pd.concat([slow, fast], axis=1, keys=["slow", "fast"], join="inner")
    assert len(both) == len(slow) == len(fast) > 20
    assert (both["fast"] < both["slow"]).all()


def test_limits_only_shrink_the_optimum() -> None:
    whole = best_of(named("dense"))
    rows = feasible("dense")
    for field in (
        "tensor_par",
        "zero_stage",
        "activation_recompute",
        "context_par",
        "microbatch_size",
        "weight_offload",
    ):
        rates = []
        for value in sorted(rows[field].unique().tolist()):
            limits = {**named("dense").limits, field: [value]}
            found = best_of(scenario(named("dense").model, named("dense").system, limits))
            assert found["sample_rate"] <= whole["sample_rate"]
            assert found["sample_rate"] == pytest.approx(rows.loc[rows[field] == value, "sample_rate"].max(), rel=1e-12)
            rates.append(found["sample_rate"])
        assert max(rates) == whole["sample_rate"]


# --- scenarios ---------------------------------------------------------------------------------------------------


def changed(called: str = "changed", /, **values: float) -> Calibration:
    """The library's calibration with other values."""
    library = library_calibration()
    parts = dict(library.parameters)
    for key, value in values.items():
        parts[key] = parts[key].model_copy(update={"value": value, "low": None, "high": None})
    return library.model_copy(update={"name": called, "parameters": parts})


def test_documents_come_back_whole() -> None:
    for calibration in (None, changed(scale_up=0.5)):
        chosen = replace(named("experts"), calibration=calibration)
        document = json.loads(json.dumps(chosen.to_document()))
        again = Scenario.from_document(document)
        assert again == chosen
        assert again.key == chosen.key
        assert again.to_document() == chosen.to_document()
        assert document["cost_model"] == "calibrated"
        assert ("calibration" in document) == (calibration is not None)
        assert again.physics == f"{COST_MODELS['calibrated'].version}, {'global' if calibration is None else 'changed'}"
        assert best_of(again)["total_time"] == best_of(chosen)["total_time"]


def test_documents_from_before_are_of_the_exact_cost_model() -> None:
    arguments: dict[str, Any] = {"num_procs": 8, "max_batch_size": 8, "datatype": "float16"}
    exact = Scenario.of("gpt3-13B", "h100_80g_nvl8", **arguments)
    document = exact.to_document()
    assert not {"cost_model", "calibration"} & set(document)
    assert Scenario.from_document(document) == exact
    assert Scenario.from_document({**document, "cost_model": "calculon"}) == exact
    assert (exact.cost_model, exact.physics) == ("calculon", "calculon-0.1.0/1")
    # The key by which stores have known this scenario since there were stores.
    assert exact.key == "c88df389cb7ddf659cdeed471df48380"
    # Also on a system for which the calibrated cost model is now the default.
    other = Scenario.of("gpt3-13B", "h100_80g_sxm", **arguments, cost_model="calculon")
    assert Scenario.from_document(other.to_document()) == other
    assert Scenario.of("gpt3-13B", "h100_80g_sxm", **arguments).cost_model == "calibrated"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"cost_model": "exact"}, "cost_model is 'exact'; it must be one of calibrated, calculon."),
        ({"cost_model": 7}, "cost_model is 7; it must be one of calibrated, calculon."),
        ({"cost_model": "calculon"}, "The cost model calculon takes no calibration"),
        ({"calibration": []}, "a calibration must be an object"),
        ({"calibration": {"format": "shardscape-calibration/1"}}, "is missing"),
        ({"limits": {"launch": "warp"}}, r"Launch mode \(launch\) cannot be 'warp'"),
    ],
)
def test_documents_that_cannot_be_used_say_why(change: Document, sentence: str) -> None:
    document = replace(named("dense"), calibration=changed()).to_document()
    with pytest.raises(engine.ScenarioError if "calibration" not in change else ValueError, match=sentence):
        Scenario.from_document({**document, **change})


def test_a_calibration_that_lacks_a_value_is_told() -> None:
    document = replace(named("dense"), calibration=changed()).to_document()
    del document["calibration"]["parameters"]["latency"]
    with pytest.raises(hardware.CalibrationFileError, match=r"changed: parameter latency: .*\."):
        Scenario.from_document(document)


def test_keys_depend_on_what_results_depend_on() -> None:
    chosen = named("dense")
    same = [
        replace(chosen, calibration=library_calibration()),
        replace(chosen, calibration=changed("another name")),
        replace(chosen, system=chosen.system.model_copy(update={"name": "other", "title": "Other"})),
    ]
    assert {one.key for one in same} == {chosen.key}
    values = library_calibration().parameters
    others = [
        replace(chosen, calibration=changed(**{key: values[key].value * 0.9 or 0.1}))
        for key in ("sustained_hopper", "scale_up", "latency", "straggler", "step_constant", "exponentials")
    ]
    others += [replace(chosen, system=improved(chosen.system, one)) for one in (*RATES, _larger_first_tier)]
    others += [replace(chosen, max_batch_size=8), replace(chosen, datatype="float16"), replace(chosen, limits={})]
    others += [replace(chosen, model=model_of({**LLAMA, "layers": 7}))]
    others += [
        Scenario.of(
            chosen.model,
            chosen.system,
            num_procs=8,
            max_batch_size=4,
            datatype="bfloat16",
            limits={"pipeline_par": [1, 2, 4]},
            cost_model="calculon",
        )
    ]
    keys = [chosen.key, *(one.key for one in others)]
    assert len(set(keys)) == len(keys)


def test_rows_stored_without_a_column_are_not_taken_for_those_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen, before = named("dense"), named("dense").key
    columns = CALIBRATED.columns
    monkeypatch.setattr(
        Calibrated,
        "columns",
        replace(columns, statistics=tuple(each for each in columns.statistics if each is not columns.headline[-1])),
    )
    assert replace(chosen).key != before


def test_a_calibration_changes_the_results_of_a_space() -> None:
    slower = replace(named("dense"), calibration=changed(scale_up=0.2, memory=0.3))
    before, after = feasible("dense"), rows_of(explored_with_rows(slower))
    assert after.index.equals(before.index)
    assert (after["total_time"] >= before["total_time"]).all()
    assert (after["total_time"] > before["total_time"]).mean() > 0.9
    assert after["proc_mem_tier1_cap_req"].equals(before["proc_mem_tier1_cap_req"])
    best = best_of(slower)
    assert best["sample_rate"] == pytest.approx(after["sample_rate"].max(), rel=1e-12)
    assert best["sample_rate"] < explored("dense").best["sample_rate"]  # type: ignore[index]
    direct = engine.best(
        slower.model,
        slower.system,
        num_procs=8,
        max_batch_size=4,
        datatype="bfloat16",
        limits=slower.limits,
        calibration=slower.calibration,
    )
    assert dict(direct).keys() == dict(best).keys()
    assert (direct["id"], direct["total_time"]) == (best["id"], best["total_time"])
    assert np.isfinite(direct["total_time"])

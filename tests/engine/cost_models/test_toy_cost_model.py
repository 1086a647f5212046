"""A cost model that the engine has never seen goes the way of the others: nothing asks which one it is."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import engine
import hardware
from engine import CostModelError, LimitError, Scenario, SpaceError, whatif
from engine.columns import UnknownColumn, fields_of
from engine.cost_models.registry import COST_MODELS, chosen_cost_model, register, unregister
from engine.exploration.memory_requirements import least_memory
from engine.store import Store
from tests import toy

MODEL, SYSTEM = "gpt3-13B", "h100_80g_sxm"
SIZES = {"num_procs": 16, "max_batch_size": 32, "datatype": "bfloat16", "cost_model": "toy"}
OPTIONS = ("--procs", "16", "--max-batch", "32", "--datatype", "bfloat16", "--cost-model", "toy")
EXACT = {"rel": 1e-12}


@pytest.fixture(autouse=True)
def _known():
    with toy.known():
        yield


@pytest.fixture
def explored():
    return engine.explore(MODEL, SYSTEM, **SIZES)


@pytest.fixture
def file(tmp_path, explored):
    """The best execution as a file."""
    best = explored.best
    path = tmp_path / "execution.json"
    path.write_text(json.dumps({column.name: best[column.name] for column in fields_of("toy")}, default=str))
    return path


def test_it_is_offered_and_is_gone_afterwards():
    assert list(COST_MODELS)[-1] == "toy"
    assert chosen_cost_model("toy", engine.Scenario.of(MODEL, SYSTEM, **SIZES).system) is toy.TOY
    unregister("toy")
    try:
        with pytest.raises(CostModelError, match="it must be one of"):
            engine.explore(MODEL, SYSTEM, **SIZES)
        with pytest.raises(UnknownColumn):
            fields_of("toy")
    finally:
        register(toy.TOY)


def test_explorations_have_the_figures_of_single_executions(explored):
    assert 0 < explored.feasible < explored.total
    rows = explored.rows.table(["id", "sample_rate", "total_time", "proc_mem_tier1_cap_req"]).to_pandas()
    assert len(rows) == explored.feasible
    table = explored.scenario.evaluate(explored.scenario.space.table(np.arange(explored.total)))
    runs = table[table["status"] == "ok"]
    assert runs.index.tolist() == sorted(rows["id"])
    for name in ("sample_rate", "total_time", "proc_mem_tier1_cap_req"):
        assert rows.set_index("id").loc[runs.index, name].tolist() == pytest.approx(runs[name].tolist(), **EXACT)
    assert explored.best["sample_rate"] == pytest.approx(runs["sample_rate"].max(), **EXACT)
    refused = table[table["status"] != "ok"]
    assert set(refused["reason"]) == {"memory_tier1"}
    assert refused["reason_text"].str.contains("of HBM").all()
    assert len(refused) == sum(explored.infeasible_by_reason.values())


def test_the_best_is_found_without_exploring(explored):
    found = engine.best_of(explored.scenario)
    assert found is not None
    assert found["id"] == explored.best["id"]


def test_other_processes_are_told_of_it(explored):
    told = engine.explore(MODEL, SYSTEM, **SIZES, workers=2)
    assert (told.total, told.feasible, told.best["id"]) == (explored.total, explored.feasible, explored.best["id"])
    assert told.infeasible_by_reason == explored.infeasible_by_reason


def test_what_other_processes_cannot_import_is_refused():
    class Near(type(toy.TOY)):
        name = "near"

    register(Near())
    try:
        with pytest.raises(CostModelError, match=r"class of the cost model near .* put it on the top level"):
            engine.explore(MODEL, SYSTEM, **SIZES, workers=2)
    finally:
        unregister("near")


def test_systems_name_the_cost_model_that_they_are_meant_for(shardscape, tmp_path, explored):
    file = tmp_path / "ours.json"
    document = hardware.to_document(hardware.load(SYSTEM)) | {"cost_model": "toy"}
    file.write_text(json.dumps(document))
    assert Scenario.of(MODEL, str(file), **SIZES | {"cost_model": None}).cost_model == "toy"
    document["cost_model"] = "tyo"
    file.write_text(json.dumps(document))
    told = "is meant for the cost model 'tyo', which there is not; its cost_model must be one of calibrated, calculon"
    with pytest.raises(CostModelError, match=told):
        engine.evaluate(MODEL, str(file), explored.scenario.space.table([0]))
    assert engine.explore(MODEL, str(file), **SIZES).best["id"] == explored.best["id"]
    for command in (("best", MODEL, str(file), *OPTIONS[:-2]), ("systems", "check", str(file))):
        code, out, errors = shardscape(*command)
        assert code == 2
        assert told in " ".join((out + errors).split())


def test_stores_keep_explorations(tmp_path, explored):
    with Store(tmp_path / "results.duckdb") as store:
        first = engine.explore(MODEL, SYSTEM, **SIZES, store=store)
        again = engine.explore(MODEL, SYSTEM, **SIZES, store=store)
        assert again.best["id"] == first.best["id"]
        assert again.key == explored.key
        assert [record.key for record in store.records()] == [first.key]


def test_scenarios_are_written_and_read(explored):
    scenario = explored.scenario
    assert Scenario.from_document(scenario.to_document()) == scenario
    assert scenario.key != Scenario.of(MODEL, SYSTEM, **SIZES | {"cost_model": None}).key


def test_limits_and_sizes_are_checked(explored):
    with pytest.raises(LimitError, match="zero_stage"):
        engine.explore(MODEL, SYSTEM, **SIZES, limits={"zero_stage": 1})
    with pytest.raises(SpaceError):
        engine.explore(MODEL, SYSTEM, **SIZES | {"datatype": "float4"})
    with pytest.raises(CostModelError, match="takes no calibration"):
        chosen_cost_model("toy", explored.scenario.system, hardware.load_calibration("global"))
    fewer = engine.explore(MODEL, SYSTEM, **SIZES, limits={"activation_recompute": "none", "tensor_par": [1, 2]})
    assert 0 < fewer.total < explored.total


def test_what_if_answers_and_studies(explored):
    scenario = explored.scenario
    peak = whatif.parameter(scenario, "matrix").value
    answer = whatif.reoptimise(scenario, {"matrix": 2.0 * peak})
    assert answer.gain == pytest.approx(1.0)
    more = whatif.reoptimise(scenario, {"hbm_capacity": 160.0})
    assert more.best["sample_rate"] >= explored.best["sample_rate"]
    points = list(whatif.sweep(scenario, "matrix", [0.5 * peak, peak, 2.0 * peak]))
    assert len(points) == 3
    assert list(whatif.sensitivity(scenario))
    assert len(list(whatif.sizes(scenario, [8, 16, 24]))) == 3


def test_the_least_memory_is_that_of_an_execution(explored):
    least = least_memory(explored.scenario.space, 1)
    table = explored.scenario.evaluate(explored.scenario.space.table(least["id"].to_numpy()))
    assert {"ok", "infeasible"} == set(table["status"])
    assert table["proc_mem_tier1_cap_req"].tolist() == pytest.approx(least["need"].tolist(), **EXACT)


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_commands_take_it(shardscape, tmp_path, file, explored, form):
    store = str(tmp_path / "results.duckdb")
    told = {}
    for name, *rest in (
        ("best", MODEL, SYSTEM, *OPTIONS),
        ("explore", MODEL, SYSTEM, *OPTIONS, "--store", store),
        ("evaluate", MODEL, SYSTEM, file, "--out", tmp_path / "out.parquet", "--cost-model", "toy"),
        ("systems", "show", SYSTEM),
        ("store", "check", store),
    ):
        form_of = () if name == "evaluate" else form
        code, out, errors = shardscape(name, *map(str, rest), *form_of)
        assert code == 0, errors
        told[name] = out
    if form:
        assert json.loads(told["best"])["cost_model"] == "toy"
        assert json.loads(told["explore"])["best"]["sample_rate"] == explored.best["sample_rate"]
    found = pd.read_parquet(tmp_path / "out.parquet")
    assert found["total_time"].tolist() == [explored.best["total_time"]]


def test_layers_says_that_there_are_none(shardscape, file):
    code, _, errors = shardscape("layers", MODEL, SYSTEM, str(file), "--cost-model", "toy")
    assert code == 1
    assert "does not tell layers or operations apart" in errors

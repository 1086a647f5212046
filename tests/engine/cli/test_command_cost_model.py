"""Choosing the cost model and its calibration on the command line: what is asked for is used, and said."""

from __future__ import annotations

import json

import pandas as pd
import pyarrow.parquet as pq
import pytest

import engine
import hardware
from engine.cli.limits import parse_limits
from engine.cli.output import ExitCode, format_quantity
from engine.columns import ALL_FIELDS, EXTENSIONS, FIELDS, OUTCOME, STATISTICS, by_name, headline_of, statistics_of
from engine.validation.uncertainty import interval

MODEL, SYSTEM = "llama-3-8B", "h100_80g_sxm"
ARGUMENTS = {"num_procs": 8, "max_batch_size": 16, "datatype": "bfloat16"}
OPTIONS = ("--procs", "8", "--max-batch", "16", "--datatype", "bfloat16")
FEW = ("--limit", "tensor_par=1,2", "--limit", "zero_stage=1,3", "--limit", "weight_offload=off")
LIMITS = {"tensor_par": [1, 2], "zero_stage": [1, 3], "weight_offload": False}
CALCULONS = "h100_80g_nvl8"
NAMES = [column.name for column in FIELDS]


@pytest.fixture(scope="module")
def explored():
    return engine.explore(MODEL, SYSTEM, **ARGUMENTS, limits=LIMITS)


@pytest.fixture(scope="module")
def table(explored):
    """Some executions of the calibrated space, of which some run and some do not."""
    space = explored.scenario.space
    return space.table(range(0, space.total, max(1, space.total // 47)))


@pytest.fixture
def slower(tmp_path):
    """A calibration file that differs from the library's in one value: networks reach half as much."""
    document = hardware.calibration_document(hardware.load_calibration("global"))
    document["name"] = "slower"
    document["parameters"]["scale_up"] |= {"value": 0.4}
    for end in ("low", "high"):
        document["parameters"]["scale_up"].pop(end, None)
    path = tmp_path / "slower.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def test_explore_says_what_it_was_evaluated_by(shardscape, explored):
    code, out, _ = shardscape("explore", MODEL, SYSTEM, *OPTIONS, *FEW, "--top", 3, "--json")
    document = json.loads(out)
    assert code == 0
    assert (document["cost_model"], document["calibration"]) == ("calibrated", "global")
    assert document["total"] == explored.total
    assert document["feasible"] == explored.feasible
    assert document["best"]["sample_rate"] == explored.best["sample_rate"]
    assert document["best"]["zero_stage"] == explored.best["zero_stage"]
    names = {column.name for column in (*ALL_FIELDS, *statistics_of("calibrated"))}
    assert set(document["best"]) >= names
    code, out, _ = shardscape("explore", MODEL, SYSTEM, *OPTIONS, *FEW, "--top", 3)
    assert code == 0
    assert out.splitlines()[0].endswith("; cost model calibrated, calibration global")
    assert "ZeRO" in out  # a field of the calibrated cost model


def test_the_cost_model_asked_for_is_used(shardscape):
    few = ("--limit", "tensor_par=1,2", "--limit", "weight_offload=off")
    limits = {"tensor_par": [1, 2], "weight_offload": False}
    found = {}
    for name in engine.COST_MODELS:
        code, out, _ = shardscape("explore", MODEL, SYSTEM, *OPTIONS, *few, "--cost-model", name, "--json")
        document = json.loads(out)
        expected = engine.explore(MODEL, SYSTEM, **ARGUMENTS, limits=limits, cost_model=name)
        assert code == 0
        assert document["cost_model"] == name
        assert (document["calibration"] is None) == (name == "calculon")
        assert document["total"] == expected.total
        assert document["best"]["total_time"] == expected.best["total_time"]
        found[name] = document
    assert found["calculon"]["best"]["total_time"] != found["calibrated"]["best"]["total_time"]
    assert "zero_stage" not in found["calculon"]["best"]


def test_calculons_own_systems_keep_its_cost_model(shardscape):
    arguments = ("best", "gpt3-13B", CALCULONS, "--procs", 8, "--max-batch", 8, "--datatype", "float16", "--json")
    plain = json.loads(shardscape(*arguments)[1])
    asked = json.loads(shardscape(*arguments, "--cost-model", "calculon")[1])
    other = json.loads(shardscape(*arguments, "--cost-model", "calibrated")[1])
    assert plain["cost_model"] == "calculon"
    assert {**plain, "seconds": 0} == {**asked, "seconds": 0}
    assert other["cost_model"] == "calibrated"
    assert other["top"][0]["total_time"] != plain["top"][0]["total_time"]


def test_a_calibration_is_used_and_named(shardscape, explored, slower):
    arguments = ("explore", MODEL, SYSTEM, *OPTIONS, *FEW, "--calibration", slower, "--json")
    document = json.loads(shardscape(*arguments)[1])
    assert (document["cost_model"], document["calibration"]) == ("calibrated", "slower")
    assert document["best"]["sample_rate"] < explored.best["sample_rate"]
    named = json.loads(shardscape(*arguments[:-3], "--calibration", "global", "--json")[1])
    assert named["best"]["sample_rate"] == explored.best["sample_rate"]


def test_a_calibration_asks_for_the_calibrated_cost_model(shardscape):
    arguments = ("best", "gpt3-13B", CALCULONS, "--procs", 8, "--max-batch", 8, "--datatype", "float16", "--json")
    assert json.loads(shardscape(*arguments, "--calibration", "global")[1])["cost_model"] == "calibrated"


def test_best_finds_what_explore_shows_first(shardscape, explored):
    code, out, _ = shardscape("best", MODEL, SYSTEM, *OPTIONS, *FEW, "--top", 7, "--json")
    document = json.loads(out)
    top = explored.top(7)
    assert code == 0
    assert [row["id"] for row in document["top"]] == top["id"].tolist()
    assert [row["total_time"] for row in document["top"]] == top["total_time"].tolist()
    assert document["feasible"] == explored.feasible
    assert 7 <= document["evaluated"] <= document["feasible"]
    code, out, _ = shardscape("best", MODEL, SYSTEM, *OPTIONS, *FEW)
    assert code == 0
    assert "calibration global" in out
    assert format_quantity(by_name("sample_rate"), top["sample_rate"][0]) in out


def test_best_of_nothing(shardscape):
    arguments = ("best", "gpt3-175B", SYSTEM, "--procs", 1, "--max-batch", 1, "--datatype", "bfloat16")
    code, out, _ = shardscape(*arguments, "--limit", "weight_offload=off", "--limit", "optimizer_offload=off")
    assert code == ExitCode.NOTHING
    assert "Nothing is feasible" in out
    code, out, _ = shardscape(*arguments, "--limit", "tensor_par=64")
    assert code == ExitCode.NOTHING
    assert "No execution is within the limits." in out


@pytest.mark.parametrize("given", ["csv", "parquet", "json"])
@pytest.mark.parametrize("wanted", ["csv", "parquet"])
def test_files_hold_the_fields_of_the_cost_model(shardscape, tmp_path, table, given, wanted):
    source, target = tmp_path / f"in.{given}", tmp_path / f"out.{wanted}"
    {
        "csv": lambda: table.to_csv(source, index=False),
        "parquet": lambda: table.to_parquet(source),
        "json": lambda: table.to_json(source, orient="records"),
    }[given]()
    code, out, err = shardscape("evaluate", MODEL, SYSTEM, source, "--out", target)
    assert (code, out) == (0, "")
    assert "cost model calibrated, calibration global" in err
    found = pd.read_csv(target) if wanted == "csv" else pd.read_parquet(target)
    expected = engine.evaluate(MODEL, SYSTEM, table)
    assert {"ok", "infeasible"} <= set(expected["status"])
    assert list(found) == [column.name for column in (*ALL_FIELDS, *OUTCOME, *statistics_of("calibrated"))]
    for text in ("status", "reason", "reason_text"):
        assert found[text].fillna("").tolist() == expected[text].tolist()
    figures = [column.name for column in statistics_of("calibrated")]
    pd.testing.assert_frame_equal(found[figures], expected[figures], check_exact=True, check_dtype=False)
    fields = [column.name for column in ALL_FIELDS]
    pd.testing.assert_frame_equal(found[fields], expected[fields], check_dtype=False)
    if wanted == "parquet":
        metadata = pq.read_schema(target).metadata
        assert (metadata[b"cost_model"], metadata[b"calibration"]) == (b"calibrated", b"global")


def test_results_are_read_again_and_evaluated_to_the_same(shardscape, tmp_path, table):
    first, again = tmp_path / "first.csv", tmp_path / "again.csv"
    table.to_csv(tmp_path / "in.csv", index=False)
    shardscape("evaluate", MODEL, SYSTEM, tmp_path / "in.csv", "--out", first)
    shardscape("evaluate", MODEL, SYSTEM, first, "--out", again)
    assert first.read_bytes() == again.read_bytes()


def test_calculon_says_which_columns_it_does_not_read(shardscape, tmp_path, table):
    source, target = tmp_path / "in.csv", tmp_path / "out.csv"
    table.assign(tensor_par_net=0, pipeline_par_net=1, data_par_net=1, note="x").to_csv(source, index=False)
    code, _, err = shardscape("evaluate", MODEL, SYSTEM, source, "--out", target, "--cost-model", "calculon")
    assert code == 0
    assert "(cost model calculon)" in err
    assert f"does not read {', '.join(column.name for column in EXTENSIONS)}." in err
    assert list(pd.read_csv(target)) == [column.name for column in (*FIELDS, *OUTCOME, *STATISTICS)]


def test_an_extension_without_a_value_is_what_it_is_without_its_column(shardscape, tmp_path, table):
    """In a CSV an empty cell, in JSON a key that one object has and another has not."""
    plain = table[table["context_par"] == 1].head(6).reset_index(drop=True)
    expected = engine.evaluate(MODEL, SYSTEM, plain[NAMES])
    gaps = plain.astype(object)
    for position, column in enumerate(EXTENSIONS):
        gaps[column.name] = expected[column.name].astype(object)
        gaps.loc[position % 6, column.name] = None
    gaps.to_csv(tmp_path / "gaps.csv", index=False)
    records = [{k: v for k, v in row.items() if v is not None} for row in gaps.to_dict("records")]
    (tmp_path / "gaps.json").write_text(json.dumps(records, default=int), encoding="utf-8")
    assert any(len(record) < len(ALL_FIELDS) for record in records)
    figures = ["total_time", "proc_mem_tier1_cap_req"]
    for source in ("gaps.csv", "gaps.json"):
        shardscape("evaluate", MODEL, SYSTEM, tmp_path / source, "--out", tmp_path / "out.csv")
        found = pd.read_csv(tmp_path / "out.csv")
        assert found["reason"].fillna("").tolist() == expected["reason"].tolist()
        names = [column.name for column in EXTENSIONS]
        pd.testing.assert_frame_equal(found[names], expected[names], check_dtype=False)
        pd.testing.assert_frame_equal(found[figures], expected[figures], check_exact=True)


def test_one_execution_with_all_the_statistics_that_it_has(shardscape, tmp_path, explored):
    path = tmp_path / "execution.json"
    path.write_text(json.dumps({column.name: explored.best[column.name] for column in ALL_FIELDS}), encoding="utf-8")
    code, out, err = shardscape("evaluate", MODEL, SYSTEM, path)
    assert code == 0
    assert "calibration global" in err
    lines = {" ".join(line.split()[:-1]) for line in out.splitlines()} | {line.strip() for line in out.splitlines()}
    for column in statistics_of("calibrated"):
        value = explored.best[column.name]
        shown = [line for line in lines if line.startswith(column.label)]
        assert bool(shown) == (value == value), column.name
    assert "nan" not in out


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (("--cost-model", "guess"), ExitCode.INPUT, "calibrated, calculon"),
        (("--calibration", "missing.json"), ExitCode.INPUT, "missing.json"),
        (("--calibration", "golbal"), ExitCode.INPUT, "global"),
        (("--calibration", "global", "--cost-model", "calculon"), ExitCode.INPUT, "takes no calibration"),
        (("--calibration", "short.json"), ExitCode.INPUT, "sustained_ampere"),
    ],
)
@pytest.mark.parametrize("command", ["evaluate", "explore", "best"])
def test_one_sentence_for_whatever_is_wrong(
    shardscape, tmp_path, monkeypatch, slower, table, command, arguments, code, word
):
    document = json.loads(slower.read_text())
    del document["parameters"]["sustained_ampere"]
    (tmp_path / "short.json").write_text(json.dumps(document), encoding="utf-8")
    table.to_csv(tmp_path / "in.csv", index=False)
    monkeypatch.chdir(tmp_path)
    rest = ("in.csv", "--out", "out.csv") if command == "evaluate" else OPTIONS
    found, out, err = shardscape(command, MODEL, SYSTEM, *rest, *arguments)
    assert (found, out) == (code, "")
    assert word in err
    assert err.endswith(".\n")
    assert err.count("\n") == 1
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize(
    ("limit", "word"),
    [("context_par=two", "whole number"), ("launch=warp", "graphs"), ("expert_overlap=maybe", "on, yes")],
)
def test_limits_on_extensions_that_are_not_understood(shardscape, limit, word):
    code, out, err = shardscape("best", MODEL, SYSTEM, *OPTIONS, "--limit", limit)
    assert (code, out) == (ExitCode.INPUT, "")
    assert word in err
    assert err.count("\n") == 1


def test_the_exact_cost_model_has_no_such_limit(shardscape):
    arguments = ("best", "gpt3-13B", CALCULONS, "--procs", 8, "--max-batch", 8, "--datatype", "float16")
    code, out, err = shardscape(*arguments, "--limit", "context_par=2")
    assert (code, out) == (ExitCode.INPUT, "")
    assert "Context parallel (context_par) cannot be limited here" in err


def test_limits_on_extensions_are_parsed():
    texts = ["context_par=1..4", "zero_stage=0,3", "expert_overlap=on", "launch=fused,graphs"]
    assert parse_limits(texts) == {
        "context_par": {"min": 1, "max": 4},
        "zero_stage": [0, 3],
        "expert_overlap": [True],
        "launch": ["fused", "graphs"],
    }


def test_the_figures_of_the_cost_model_can_be_ranked_by(shardscape, explored):
    arguments = (*OPTIONS, *FEW, "--by", "overhead_time", "--top", 4, "--json")
    document = json.loads(shardscape("explore", MODEL, SYSTEM, *arguments)[1])
    assert [row["id"] for row in document["top"]] == explored.top(4, "overhead_time")["id"].tolist()
    few = ("--by", "overhead_time", "--cost-model", "calculon")
    code, _, err = shardscape("explore", MODEL, SYSTEM, *OPTIONS, *few)
    assert code == ExitCode.INPUT
    assert err.count(", ") == len(headline_of("calculon")) - 1
    assert "cp_comm_exposed_time" not in err


@pytest.mark.parametrize("command", ["evaluate", "explore", "best"])
def test_help_names_what_the_register_has(shardscape, command):
    code, out, _ = shardscape(command, "--help")
    assert code == 0
    words = out.split()
    for column in EXTENSIONS:
        assert any(word.strip(",.") == column.name for word in words), column.name
    assert "--cost-model" in out
    assert "--calibration" in out


@pytest.mark.parametrize("command", ["best", "explore"])
def test_figures_come_with_what_comparable_runs_took(shardscape, command):
    code, out, _ = shardscape(command, MODEL, SYSTEM, *OPTIONS, *FEW, "--json")
    found = json.loads(out)
    first = found["top"][0]
    expected = interval(generation="hopper", experts=False, bits=16)
    assert expected is not None
    told = found["step_time_interval"]
    assert (code, told["rows"], told["share"]) == (0, expected.rows, 0.8)
    assert (told["low"], told["high"]) == (first["total_time"] * expected.low, first["total_time"] * expected.high)
    said = shardscape(command, MODEL, SYSTEM, *OPTIONS, *FEW)[1]
    assert f"80% of {expected.rests_on}" in said
    assert f"{told['low']:.4g} to {told['high']:.4g} s" in said


@pytest.mark.parametrize("command", ["best", "explore"])
def test_offloading_that_was_never_measured_is_said_beside_the_best(shardscape, command):
    limits = ("--limit", "tensor_par=2", "--limit", "weight_offload=on", "--limit", "optimizer_offload=off")
    found = json.loads(shardscape(command, MODEL, SYSTEM, *OPTIONS, *limits, "--json")[1])
    assert "offloading weights" in found["not_measured"]
    assert found["step_time_interval"] is None
    said = shardscape(command, MODEL, SYSTEM, *OPTIONS, *limits)[1]
    assert "Never measured: " in said
    assert "offloading weights" in said
    assert "measured runs of" not in said


def test_nothing_measured_is_said_instead_of_an_interval(shardscape):
    small = ("--procs", "4", "--max-batch", "4", "--datatype", "bfloat16", "--limit", "zero_stage=1")
    assert json.loads(shardscape("best", MODEL, "mi300x_192g", *small, "--json")[1])["step_time_interval"] is None
    assert "modelled, not calibrated" in shardscape("best", MODEL, "mi300x_192g", *small)[1]
    exact = ("best", "gpt3-13B", CALCULONS, "--procs", "16", "--max-batch", "16", "--datatype", "float8")
    assert json.loads(shardscape(*exact, "--json")[1])["step_time_interval"] is None
    assert "measured" not in shardscape(*exact)[1]

"""Questions about executions, asked through Python, commands, JSON and pages: the same answer to the last digit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

import engine
from dashboard.words.numbers import format_value
from engine import Scenario, launch
from engine.cli.main import app
from engine.executions.execution_names import execution_name
from engine.questions import Bounds, Context, QuestionError, answer
from engine.recommendation import recommend
from tests.dashboard import page_runs

SCENARIO = {
    "model": "llama-3-8B",
    "system": "h100_80g_sxm",
    "num_procs": 8,
    "max_batch_size": 32,
    "datatype": "bfloat16",
    "limits": {"tensor_par": [1, 2], "weight_offload": [False]},
}
OPTIONS = ["llama-3-8B", "h100_80g_sxm", "--procs", "8", "--max-batch", "32", "--datatype", "bfloat16"]
OPTIONS += ["--limit", "tensor_par=1,2", "--limit", "weight_offload=off"]


def run(*arguments: object) -> Any:
    """Return what a command prints as JSON."""
    found = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


def without_time(document: dict[str, Any]) -> dict[str, Any]:
    """Return an answer without the seconds that it took."""
    return {name: value for name, value in document.items() if name != "seconds"}


@pytest.fixture(scope="module")
def best() -> Any:
    return answer("best", {"scenario": SCENARIO, "top": 2, "statistics": ["all"]})


@pytest.fixture(scope="module")
def execution(best: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the best execution, slowed down by full recomputation."""
    file = tmp_path_factory.mktemp("doors") / "execution.json"
    fields = {column.name for column in engine.columns.fields_of("calibrated")}
    row = {name: value for name, value in best["top"][0].items() if name in fields}
    file.write_text(json.dumps({**row, "activation_recompute": "full", "seq_par_ag_redo": False}), encoding="utf-8")
    return file


def test_the_best_is_the_same_through_every_door(best: Any, tmp_path: Path) -> None:
    python = engine.best_of(Scenario.of(**SCENARIO), k=2)
    assert [row["id"] for row in best["top"]] == python.top["id"].tolist()
    printed = run("best", *OPTIONS, "--top", 2)
    same = set(without_time(best)) & set(printed)
    assert {"total", "feasible", "evaluated", "step_time_interval", "limits"} <= same
    assert {name: printed[name] for name in same - {"top"}} == {name: best[name] for name in same - {"top"}}
    for row, other in zip(best["top"], printed["top"], strict=True):
        assert {name: other[name] for name in row} == row
    saved = tmp_path / "scenario.json"
    saved.write_text(json.dumps({**SCENARIO, "num_procs": 4}), encoding="utf-8")
    assert without_time(run("best", "--scenario", saved, "--procs", 8, "--top", 2)) == without_time(printed)


def test_an_exploration_is_the_same_through_every_door() -> None:
    asked = answer("explore", {"scenario": SCENARIO, "top": 3, "cells": True, "statistics": ["all"]})
    printed = run("explore", *OPTIONS, "--top", 3, "--cells")
    python = engine.explore(**SCENARIO)
    assert asked["feasible"] == printed["feasible"] == python.feasible
    assert asked["cells"] == printed["cells"]
    assert asked["infeasible_by_reason"] == printed["infeasible_by_reason"] == python.infeasible_by_reason
    for row, other in zip(asked["top"], printed["top"], strict=True):
        assert {name: other[name] for name in row} == row


def test_the_recommended_execution_is_the_same_through_every_door() -> None:
    terms = {"headroom": 0.2, "offload": True}
    asked = answer("recommend", {"scenario": SCENARIO, **terms})
    printed = run("recommend", *OPTIONS, "--headroom", 0.2, "--allow-offload")
    assert without_time(asked) == without_time(printed)
    beside = run("best", *OPTIONS, "--recommended", "--headroom", 0.2, "--allow-offload")["recommended"]
    python = recommend(Scenario.of(**SCENARIO), headroom=0.2, offload=True)
    assert python.execution is not None
    assert asked["recommended"]["id"] == beside["execution"]["id"] == python.execution["id"]
    assert asked["contenders"] == beside["contenders"]


def test_a_framework_is_the_same_through_every_door(tmp_path: Path) -> None:
    asked = answer("best", {"scenario": {**SCENARIO, "framework": "maxtext"}})
    printed = run("best", *OPTIONS, "--framework", "maxtext")
    explored = answer("explore", {"scenario": {**SCENARIO, "framework": "maxtext"}, "top": 1})
    recommended = answer("recommend", {"scenario": {**SCENARIO, "framework": "maxtext"}})
    cost = asked["framework_cost"]
    for other in (printed, explored, recommended, run("explore", *OPTIONS, "--framework", "maxtext", "--top", 1)):
        assert (other["framework"], other["framework_cost"]) == ("maxtext", cost)
        assert other["limits"] == {"tensor_par": [1, 2], "weight_offload": [False]}
    free = answer("best", {"scenario": {**SCENARIO, "framework": "any"}})
    assert without_time(free) == without_time(answer("best", {"scenario": SCENARIO}))
    assert free["framework_cost"] is None
    assert explored["top"][0]["id"] == asked["top"][0]["id"] == printed["top"][0]["id"]
    assert cost["sample_rate"] == asked["top"][0]["sample_rate"] < cost["sample_rate_of_any"]
    assert cost["sample_rate_of_any"] == free["top"][0]["sample_rate"]
    assert launch.write(asked["top"][0], "llama-3-8B", framework="maxtext").text
    saved = tmp_path / "scenario.json"
    saved.write_text(json.dumps(Scenario.of(**SCENARIO, framework="maxtext").to_document()), encoding="utf-8")
    assert without_time(run("best", "--scenario", saved)) == without_time(printed)
    printed = CliRunner().invoke(app, ["best", *OPTIONS, "--framework", "maxtext"]).stdout
    assert "run by MaxText" in printed
    assert cost["sentence"] in printed.replace("\n", " ")


def test_a_framework_that_does_not_train_the_model_is_refused() -> None:
    with pytest.raises(QuestionError, match="torchtitan cannot run layer 1 of Nemotron-H 56B"):
        answer("best", {"scenario": {**SCENARIO, "model": "nemotron-h-56B", "framework": "torchtitan"}})


def test_an_execution_is_the_same_through_every_door(execution: Path, tmp_path: Path) -> None:
    fields = json.loads(execution.read_text("utf-8"))
    setting = {"model": "llama-3-8B", "system": "h100_80g_sxm"}
    (asked,) = answer("evaluate", {**setting, "executions": [fields], "statistics": ["all"]})["executions"]
    out = tmp_path / "results.parquet"
    code = CliRunner().invoke(app, ["evaluate", *setting.values(), str(execution), "--out", str(out)]).exit_code
    assert (code, asked["status"]) == (0, "ok")
    (printed,) = pd.read_parquet(out).to_dict("records")
    assert {name: printed[name] for name in asked if isinstance(asked[name], float)} == {
        name: value for name, value in asked.items() if isinstance(value, float)
    }
    operations = answer("operations", {**setting, "execution": fields})
    assert operations["operations"] == run("layers", *setting.values(), execution)
    ranked = answer("standing", {**setting, "execution": fields, "limits": {"tensor_par": [1, 2]}})
    rank = ("standing", "h100_80g_sxm", execution, "--model", "llama-3-8B", "--limit", "tensor_par=1,2")
    assert ranked == run(*rank)
    python = launch.standing(fields, *setting.values(), limits={"tensor_par": [1, 2]})
    assert (ranked["faster"], ranked["total"]) == (python.faster, python.total)


def test_a_launch_configuration_is_the_same_through_every_door(execution: Path, tmp_path: Path) -> None:
    fields = json.loads(execution.read_text("utf-8"))
    asked = answer("export_launch", {"execution": fields, "model": "llama-3-8B", "framework": "megatron", "nodes": 2})
    printed = run("export", execution, "--model", "llama-3-8B", "--to", "megatron", "--nodes", 2)
    assert asked == {name: printed[name] for name in asked}
    script = tmp_path / "launch.sh"
    script.write_text(next(iter(asked["files"].values())), encoding="utf-8")
    text = {"text": script.read_text("utf-8"), "name": script.name}
    read = answer("import_launch", {**text, "stated": {"batch_size": 64}, "takes_defaults": True})
    other = run("import", script, "--set", "batch_size=64", "--defaults", "--system", "h100_80g_sxm")
    same = set(read) & set(other) - {"origins"}
    assert {name: other[name] for name in same} == {name: read[name] for name in same}
    ranked = answer(
        "standing", {"execution": read["complete_execution"], "model": "llama-3-8B", "system": "h100_80g_sxm"}
    )
    assert other["standing"]["faster"] == ranked["faster"]
    assert other["standing"]["steps"] == ranked["steps"]


def test_bounds_are_those_of_the_door() -> None:
    many = {"scenario": {**SCENARIO, "limits": {"tensor_par": [1]}}, "top": 101}
    with pytest.raises(QuestionError, match="top is 101; an answer has up to 100 executions here"):
        answer("best", many)
    found = answer("best", many, Context(Bounds(most_rows=200)))
    assert len(found["top"]) == 101
    refused = CliRunner().invoke(app, ["best", *OPTIONS, "--top", "10001"])
    assert (refused.exit_code, refused.output) == (
        2,
        "--top is 10001; it must be a whole number from 1 to 10,000.\n",
    )


def test_pages_show_what_the_questions_answer(best: Any) -> None:
    found = engine.explore(**SCENARIO)
    rate = format_value("sample_rate", best["top"][0]["sample_rate"])
    shown = page_runs.run("explore", found)
    assert rate in page_runs.html(shown)
    advised = answer("recommend", {"scenario": SCENARIO, "headroom": 0.2})["recommended"]
    link = {"recommended_headroom": "20"}
    assert execution_name(advised) in page_runs.html(page_runs.run("explore", found, link))
    step = format_value("total_time", best["top"][0]["total_time"])
    assert step in page_runs.html(page_runs.run("execution", found))
    (table,) = page_runs.run("results", found).dataframe
    listed = answer("explore", {"scenario": SCENARIO, "top": 100})["top"]
    assert table.value["id"].tolist()[:100] == [row["id"] for row in listed]

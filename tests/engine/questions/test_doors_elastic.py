"""Elastic plans through every door: Python, command, JSON and the page give the same figures to the last digit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest
from typer.testing import CliRunner

from engine.cli.main import app
from engine.planners import elastic
from engine.planners.elastic.accuracy import against_measured
from engine.planners.elastic.cluster.workload import workload_names
from engine.planners.elastic.fitting import fit_parameters
from engine.planners.elastic.measured.profiles import profile_of
from engine.planners.elastic.strategies import STATIC
from engine.questions import answer
from engine.questions.documents.elastic import PhasesQuestion, WorkloadReplayQuestion
from engine.questions.fields import question_field
from engine.reproductions.rubick.losses import losses, parity
from engine.reproductions.rubick.table_2 import table_2_models
from tests.dashboard.page_runs import html, page_alone


def printed(*words: str) -> Any:
    """Return what a command prints as JSON."""
    found = CliRunner().invoke(app, ["plan", "elastic", *words, "--json"])
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


def page(link: Mapping[str, str]) -> AppTest:
    found = page_alone("elastic")
    found.session_state["_url"] = dict(link)
    found.run()
    assert not found.exception
    return found


def test_the_best_plan_of_a_card() -> None:
    expected = elastic.plans_table("llama7_bsz16", placement="8888", cpu_threads=2)["throughput"].iloc[0]
    limits = [{"placement": "8888"}, {"placement": "8888", "cpu_threads": 4}]
    asked = answer("plan_card", {"card": "llama7_bsz16", "limits": limits, "cpu_threads": 2})["limits"]
    assert (asked[0]["throughput"], asked[1]["cpu_threads"]) == (expected, 4)
    rows = printed("best", "llama7_bsz16", "--placement", "8888", "--threads", "2")
    assert rows[0]["throughput"] == expected
    shown = page({"elastic_phases": "30@8888x2"})
    plans = next(each.value for each in shown.dataframe if "why not" in each.value)
    assert plans["samples/s"].iloc[0] == round(expected, 2)


def test_phases_of_a_card_in_a_file(tmp_path: Any) -> None:
    expected = elastic.timeline("roberta", [(60.0, "8", 2), (60.0, "0", 1)], pause_s=10.0, basis="predicted").table
    file = tmp_path / "phases.csv"
    file.write_text("duration_s,placement,cpu_threads\n60,8,2\n60,0,1\n")
    phases = [{"duration_s": 60.0, "placement": "8", "cpu_threads": 2}, {"duration_s": 60.0, "placement": "0"}]
    question = {"card": "roberta", "phases": phases, "pause_s": 10.0, "basis": "predicted"}
    by_command = printed("timeline", "roberta", "--phases", str(file), "--pause", "10", "--basis", "predicted")
    by_json = answer("card_phases", question)["phases"]
    rates = expected["throughput"].tolist()
    assert [row["throughput"] for row in by_json] == [row["throughput"] for row in by_command] == rates


def test_a_library_model_through_sizes_phases_and_a_loss() -> None:
    model = {"model": "llama-3-8B", "system": "h100_80g_sxm", "global_batch": 64}
    phases = [{"duration_s": 3600.0, "placement": "88"}, {"duration_s": 1800.0, "placement": "8"}]
    found = answer("plan_elastic", {**model, "gpus": [8, 16], "phases": phases, "lost_nodes": 1, "spare_nodes": 1})
    expected = elastic.after_failure("llama-3-8B", "h100_80g_sxm", placement="88", batch=64, spares=1)
    words = ("model", "llama-3-8B", "--system", "h100_80g_sxm", "--batch", "64")
    lost = printed(*words, "--placement", "88", "--lose", "1", "--spares", "1")
    samples = expected["samples"].tolist()
    assert [row["samples"] for row in found["recovery"]] == [row["samples"] for row in lost] == samples
    sizes = printed(*words, "--gpus", "8,16")
    assert [row["raw_best"] for row in found["sizes"]] == [row["raw_best"] for row in sizes]
    through = elastic.model_phases("llama-3-8B", "h100_80g_sxm", [(3600.0, "88"), (1800.0, "8")], batch=64)
    assert [row["samples"] for row in found["phases"]] == through["samples"].tolist()
    assert found["no_recovery"] == ""
    one_node = answer("plan_elastic", {**model, "gpus": [8], "lost_nodes": 1})
    assert (one_node["recovery"], "one node" in one_node["no_recovery"]) == (None, True)
    shown = page({"elastic_show": "model", "elastic_gpus": "16", "elastic_steps": "60@16, 30@8"})
    ways = next(each.value for each in shown.dataframe if "way" in each.value)
    assert ways["samples"].tolist() == [round(each, 1) for each in samples]


def test_jobs_that_share_a_node() -> None:
    expected = elastic.split(["roberta", "t5_3B"], 4).totals()
    jobs = [{"card": "roberta"}, {"card": "t5_3B"}]
    assert answer("split_gpus", {"jobs": jobs, "gpus": 4})["totals"] == expected.to_dict()
    rows = printed("split", "roberta", "t5_3B", "--gpus", "4")
    assert sum(row["normalised"] for row in rows if row["way"] == "exact") == expected["exact"]
    assert f"{expected['exact']:.3g}" in html(page({"elastic_show": "several"}))


def test_a_replay_of_a_workload() -> None:
    expected = elastic.replay("naive", "8x8", "artifact").summary["avg_jct_s"]
    (row,) = answer("replay_workload", {"workload": "naive", "policies": ["artifact"]})["policies"]
    assert row["avg_jct_s"] == expected
    assert printed("replay", "naive", "--policy", "artifact")["artifact"]["avg_jct_s"] == expected
    shown = page({"elastic_show": "workload", "elastic_workload": "naive"})
    assert shown.dataframe[0].value["mean completion, s"].iloc[0] == round(expected, 1)


def test_accuracy_losses_and_fits() -> None:
    table = against_measured("vit", most_nodes=1)
    found = answer("card_accuracy", {"card": "vit", "one_node": True})
    assert found["mean_error_pct"] == table["error_pct"].abs().mean()
    by_command = printed("accuracy", "vit", "--one-node")
    assert [row["error_pct"] for row in found["runs"]] == [row["error_pct"] for row in by_command]
    means = parity(losses(), "241")["mean"].tolist()
    assert [row["mean"] for row in answer("compare_losses", {"against": "241"})["runs"]] == means
    fit = fit_parameters(profile_of("vit"), table_2_models()["vit"].environment, starts=1)
    fitted = answer("fit_card", {"profile": "vit", "starts": 1})
    assert (fitted["performance"], fitted["objective"]) == (fit.parameters.model_dump(), fit.objective)
    assert printed("fit", "vit", "--starts", "1")["performance"] == fitted["performance"]


@pytest.mark.parametrize(
    ("verb", "question", "words"),
    [
        ("fit_card", {"profile": "/etc/passwd"}, "no column"),
        ("fit_card", {"profile": profile_of("vit").table.to_csv(index=False)}, "Give pcie and nvlink"),
        ("compare_losses", {"losses": "/etc/passwd"}, "no column"),
        ("card_accuracy", {"card": "vit", "measurements": "/etc/passwd"}, "exec_plan"),
        ("plan_elastic", {"model": "llama-3-8B", "system": "h100_80g_sxm", "global_batch": 0}, "global_batch"),
    ],
)
def test_paths_and_bad_numbers_are_refused_in_a_sentence(verb: str, question: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words) as problem:
        answer(verb, question)
    assert "\n" not in str(problem.value)


def test_the_help_of_light_documents_names_what_the_planner_has() -> None:
    strategies = question_field(PhasesQuestion, "strategies").help
    assert not [name for name in STATIC if name not in strategies]
    workloads = question_field(WorkloadReplayQuestion, "workload").help
    assert not [name for name in workload_names() if name not in workloads]

"""Whether a throughput is normal, asked through Python, the command, JSON and the page: the same to the last digit."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from dashboard.link.scenario_parameters import read_scenario
from dashboard.words.numbers import format_value, percent, plain, signed_percent
from engine.columns import fields_of
from engine.economics import derived_of
from engine.questions import VERBS, QuestionError, answer
from engine.validation.uncertainty import interval_of, memory_interval_of
from hardware import GIB
from tests.dashboard.page_runs import explored_by_server, html, run

LLAMA = {
    "model": "llama-3-70B",
    "system": "h100_80g_sxm",
    "procs": "64",
    "batch": "128",
    "type": "bfloat16",
    "limits": "tensor_par:4;pipeline_par:4;microbatch_size:1;context_par:2;pipeline_interleaving:5",
}


def question_of(row: dict[str, Any], **more: Any) -> dict[str, Any]:
    names = [column.name for column in fields_of("calibrated")]
    execution = {name: row[name] for name in names if name in row}
    return {"model": LLAMA["model"], "system": LLAMA["system"], "execution": json.loads(json.dumps(execution)), **more}


def test_every_door_has_the_same_figures_and_runs(
    shardscape: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    explored = explored_by_server(read_scenario(LLAMA).scenario)
    best = explored.best
    assert best is not None
    step = 1.25 * best["total_time"]
    scenario = explored.scenario
    question = question_of(best, step_time_s=float(f"{step:.4f}"), nearest=6)
    Draft202012Validator(VERBS["normal"].question_schema()).validate(question)
    found = answer("normal", question)
    Draft202012Validator(VERBS["normal"].answer_schema()).validate(json.loads(json.dumps(found)))
    assert found["predicted"]["step_time_s"] == best["total_time"]
    interval = interval_of(scenario, best)
    assert interval is not None
    assert found["predicted"]["high_s"] == best["total_time"] * interval.high
    assert found["measured"]["verdict"] == "slower than expected"
    assert found["measured"]["difference"] == question["step_time_s"] / best["total_time"] - 1
    known = derived_of(scenario)
    assert found["predicted"]["mfu_causal"] == pytest.approx(
        known["mfu_causal"].factor * best["sample_rate"], rel=1e-12
    )
    assert found["nearest"][0]["model"] == "LLAMA3-70B"
    assert found["nearest"][0]["hardware"] == "H100-80GB-SXM"
    assert [run["distance"] for run in found["nearest"]] == sorted(run["distance"] for run in found["nearest"])

    path = tmp_path / "execution.json"
    path.write_text(json.dumps(question["execution"]), encoding="utf-8")
    options = ("normal", LLAMA["system"], path, "--model", LLAMA["model"], "--nearest", 6)
    code, out, _ = shardscape(*options, "--step-time", question["step_time_s"], "--json")
    assert code == 0
    assert json.loads(out) == found
    text = shardscape(*options, "--step-time", question["step_time_s"])[1]
    assert "slower than expected" in text
    assert found["nearest"][0]["link"] in text

    view = {"execution_measured": f"{question['step_time_s']}", "execution_measured_as": "step", "id": str(best["id"])}
    app = run("execution", explored, view)
    shown = html(app)
    assert f"Predicted step {format_value('total_time', best['total_time'])}" in shown
    words = f"{signed_percent(found['measured']['difference'])} step time: slower than expected"
    assert f"Measured step {format_value('total_time', found['measured']['step_time_s'])}, {words}" in shown
    assert f"MFU {percent(found['measured']['mfu_causal'])}" in shown
    assert plain(found["measured"]["tflops_per_gpu_causal"]) in shown
    (frame,) = [each.value for each in app.dataframe if "Where" in each.value]
    assert frame["Source"].tolist() == [run["link"] for run in found["nearest"]]
    assert frame["Measured, s"].tolist() == [run["measured_step_time_s"] for run in found["nearest"]]


def test_a_measurement_means_the_same_in_every_unit() -> None:
    explored = explored_by_server(read_scenario(LLAMA).scenario)
    best = explored.best
    assert best is not None
    first = answer("normal", question_of(best, step_time_s=16.0))["measured"]
    assert first["tflops_per_gpu_full"] > first["tflops_per_gpu_causal"]
    for given in (
        {"tokens_per_s": first["tokens_per_s"]},
        {"tflops": first["tflops_per_gpu_causal"], "attention": "causal"},
        {"tflops": first["tflops_per_gpu_full"], "attention": "full"},
    ):
        found = answer("normal", question_of(best, **given))["measured"]
        assert found["step_time_s"] == pytest.approx(16.0, rel=1e-12), given
    assert answer("normal", question_of(best))["measured"] is None


def test_memory_is_judged_by_its_own_error_through_every_door(
    shardscape: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    explored = explored_by_server(read_scenario(LLAMA).scenario)
    best = explored.best
    assert best is not None
    gib = best["proc_mem_tier1_cap_req"] / GIB
    interval = memory_interval_of(explored.scenario)
    assert interval is not None
    verdicts = {1.01: "as expected", interval.low * 0.99: "less than expected"}
    for share, verdict in verdicts.items():
        question = question_of(best, peak_memory_gib=gib * share)
        found = answer("normal", question)
        own, memory = found["measured_memory"], found["memory"]
        assert (own["verdict"], own["difference"]) == (verdict, pytest.approx(share - 1, rel=1e-9))
        assert (memory["gib"], memory["low_gib"]) == pytest.approx((gib, gib * interval.low), rel=1e-12)
        assert found["measured"] is None
        for one in own["explanations"]:
            assert abs(math.log1p(one["difference"])) <= 0.5 * abs(math.log(share)) + 1e-12
    path = tmp_path / "execution.json"
    path.write_text(json.dumps(question["execution"]), encoding="utf-8")
    options = ("normal", LLAMA["system"], path, "--model", LLAMA["model"], "--peak-memory-gib", gib * share)
    assert json.loads(shardscape(*options, "--json")[1]) == found
    assert own["words"] in shardscape(*options)[1]
    with pytest.raises(QuestionError, match=r"a GPU has 79\.65 GiB; give GiB of one GPU"):
        answer("normal", question_of(best, peak_memory_gib=500.0))


def test_calculon_has_no_interval_and_the_same_runs() -> None:
    best = explored_by_server(read_scenario(LLAMA).scenario).best
    assert best is not None
    own = answer("normal", question_of(best, step_time_s=16.0))
    execution = {name: best[name] for name in (column.name for column in fields_of("calculon")) if name in best} | {
        "data_par": best["data_par"] * 2,
        "microbatch_size": 1,
    }
    question = {**question_of(best, step_time_s=16.0), "cost_model": "calculon", "execution": execution}
    found = answer("normal", question)
    assert found["attention"] == "full"
    assert found["predicted"] is None or found["predicted"]["low_s"] is None
    assert found["measured"]["verdict"] == "no interval"
    assert [run["id"] for run in found["nearest"]][:1] == [run["id"] for run in own["nearest"]][:1]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"tflops": 400.0}, "`tflops` needs `attention`: causal if your program"),
        ({"tflops": 400.0, "step_time_s": 3.0}, "comes from `step_time_s` and `tflops`; give one of them"),
        ({"step_time_s": 0.016}, "of the GPUs' peak; check its unit"),
        ({"nearest": 0}, "nearest"),
        ({"step_time_s": -1.0}, "step_time_s"),
        ({"execution": {"tensor_par": 1}}, "does not say pipeline_par"),
        ({"system": "a100_80g"}, "a100_80g does not compute in 'bfloat16'; it has float16"),
    ],
)
def test_refusals_are_one_sentence(wrong: dict[str, Any], words: str) -> None:
    best = explored_by_server(read_scenario(LLAMA).scenario).best
    assert best is not None
    with pytest.raises((QuestionError, ValueError), match=words) as problem:
        answer("normal", {**question_of(best), **wrong})
    assert "\n" not in str(problem.value)


@pytest.mark.parametrize("cost_model", ["calibrated", "calculon"])
def test_forward_passes_are_not_compared_with_training(cost_model: str) -> None:
    best = explored_by_server(read_scenario(LLAMA).scenario).best
    assert best is not None
    question = question_of(best, cost_model=cost_model)
    question["execution"]["training"] = False
    with pytest.raises(QuestionError, match="measured runs are of training; this execution has only forward passes"):
        answer("normal", question)


def test_the_page_says_that_forward_passes_have_no_measured_runs() -> None:
    small = {"model": "gpt3-13B", "system": "h100_80g_nvl8", "procs": "16", "batch": "32", "type": "float16"}
    limits = "tensor_par:4;microbatch_size:1;training:off"
    explored = explored_by_server(read_scenario({**small, "cost": "calculon", "limits": limits}).scenario)
    app = run("execution", explored, {"execution_measured": "1"})
    assert not app.exception
    assert any("this execution has only forward passes" in each.value for each in app.caption)
    assert not [each for each in app.dataframe if "Where" in each.value]

"""Answers of the verbs: what the engine says, in the schema that they promise, whatever is asked."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from jsonschema import Draft202012Validator

import dashboard
import engine
from dashboard.link import document_validation
from dashboard.settings import Settings
from engine import Scenario, launch, whatif
from engine.columns import headline_of
from engine.planners import elastic
from engine.planners.elastic.cards import to_document
from engine.planners.intra_operator import search, sharding_annotations, system_mesh
from engine.questions import VERBS, Answerer, Bounds, Context, QuestionError, answer
from engine.questions.process import Busy
from engine.questions.scenario_documents import scenario_of
from engine.recommendation import recommend
from tests import toy

DENSE = {"model": "gpt3-13B", "system": "h100_80g_nvl8", "num_procs": 8, "max_batch_size": 8, "datatype": "float16"}
LLAMA = {"model": "llama-3-8B", "system": "h100_80g_sxm", "num_procs": 8, "max_batch_size": 64, "datatype": "bfloat16"}
LARGE = {**DENSE, "model": "gpt3-175B", "num_procs": 512, "max_batch_size": 512}


def asked(name: str, question: dict[str, Any]) -> Any:
    """An answer, once question and answer are what the verb's schemas say."""
    Draft202012Validator(VERBS[name].question_schema()).validate(question)
    found = json.loads(json.dumps(answer(name, question), allow_nan=False))
    Draft202012Validator(VERBS[name].answer_schema()).validate(found)
    return found


@pytest.fixture(scope="module")
def best() -> Any:
    return asked("best", {"scenario": LLAMA})


def test_lists_are_those_of_the_library_and_the_register() -> None:
    assert {"llama-3-70B"} <= {row["name"] for row in asked("list_models", {"search": "LLAMA 3"})["models"]}
    assert {"h100_80g_sxm"} <= {row["name"] for row in asked("list_systems", {})["systems"]}
    (column,) = asked("list_columns", {"names": ["sample_rate"]})["columns"]
    assert (column["unit"], column["better"], column["kind"]) == ("samples/s", "higher", "statistic")
    own = {row["name"] for row in asked("list_columns", {"kind": "field", "cost_model": "calculon"})["columns"]}
    assert len(own) == 23
    assert len(asked("list_columns", {})["columns"]) == len(engine.columns.ALL)


def test_the_best_and_the_explored_agree_with_python(best: Any) -> None:
    expected = engine.explore(**LLAMA)
    found = asked("explore", {"scenario": LLAMA, "top": 3, "cells": True})
    assert (found["total"], found["feasible"]) == (expected.total, expected.feasible) == (118_944, 68_282)
    assert found["infeasible_by_reason"] == expected.infeasible_by_reason
    assert [row["id"] for row in found["top"]] == expected.top(3)["id"].tolist()
    assert [row["value"] for row in found["cells"] if row["feasible"]] == pytest.approx(
        expected.by_pair().query("feasible > 0")["value"].tolist(), rel=0, abs=0
    )
    assert best["top"][0] == found["top"][0]
    assert best["step_time_interval"] == found["step_time_interval"]
    assert set(best["units"]) <= {column.name for column in headline_of("calibrated")}
    by_memory = asked("explore", {"scenario": LLAMA, "top": 2, "by": "proc_mem_tier1_cap_req", "statistics": []})
    assert [row["id"] for row in by_memory["top"]] == expected.top(2, "proc_mem_tier1_cap_req")["id"].tolist()


def test_the_recommended_stands_beside_the_fastest(best: Any) -> None:
    found, expected = asked("recommend", {"scenario": LLAMA}), recommend(Scenario.of(**LLAMA))
    assert expected.execution is not None
    assert found["recommended"]["id"] == expected.execution["id"]
    assert found["recommended"]["sample_rate"] == expected.execution["sample_rate"]
    assert found["fastest"]["sample_rate"] == best["top"][0]["sample_rate"]
    assert found["fastest_faster_by"] == expected.difference
    assert found["memory"]["low"] < found["recommended"]["proc_mem_tier1_cap_req"] < found["memory"]["high"]


def test_a_scenario_is_the_document_that_pages_save(best: Any) -> None:
    saved = Scenario.of(**LLAMA).to_document()
    assert asked("best", {"scenario": saved})["top"] == best["top"]
    assert Scenario.from_document({"format": "shardscape-scenario/1", "limits": {}, "cost_model": None, **LLAMA}) == (
        Scenario.from_document(saved)
    )
    exact = Scenario.of(**LLAMA, cost_model="calculon").to_document()  # which names no cost model, for old readers
    assert asked("best", {"scenario": exact})["cost_model"] == "calculon"


def test_rows_are_executions_for_every_other_verb(best: Any) -> None:
    row = best["top"][0]
    shown = asked("evaluate", {"model": LLAMA["model"], "system": LLAMA["system"], "executions": [row, row]})
    assert shown["ok"] == 2
    assert shown["executions"][1]["sample_rate"] == row["sample_rate"]
    question = {"model": LLAMA["model"], "execution": row, "framework": "megatron"}
    written = asked("export_launch", question)
    assert written["files"] == launch.write(row, "llama-3-8B", framework="megatron").texts
    read = asked("import_launch", {"text": next(iter(written["files"].values()))})
    assert (read["model_name"], read["num_procs"], read["refused"]) == ("llama-3-8B", 8, "")
    again = {"model": LLAMA["model"], "system": LLAMA["system"], "executions": [read["complete_execution"]]}
    (ran,) = asked("evaluate", again)["executions"]
    assert ran["status"] == "ok"
    assert {name: ran[name] for name in ("tensor_par", "data_par", "zero_stage")} == {
        name: row[name] for name in ("tensor_par", "data_par", "zero_stage")
    }


def test_an_execution_that_somebody_runs_has_its_place(best: Any) -> None:
    row = {**best["top"][0], "activation_recompute": "full"}
    question = {"execution": row, "model": LLAMA["model"], "system": LLAMA["system"], "statistics": ["total_time"]}
    found = asked("standing", {**question, "figures_of": "fastest"})
    expected = launch.standing(row, "llama-3-8B", "h100_80g_sxm")
    assert (found["runs"], found["faster"], found["feasible"]) == (True, expected.faster, expected.feasible)
    assert found["best_sample_rate"] == best["top"][0]["sample_rate"]
    assert [step["gain"] for step in found["steps"]] == [step.gain for step in expected.steps]
    assert found["steps"][0]["flags"][0] == {"flag": "--recompute-granularity", "old": "full", "new": None}
    advised = asked("standing", question)
    assert {name: advised[name] for name in ("faster", "feasible")} == {
        name: found[name] for name in ("faster", "feasible")
    }
    recommended = asked("recommend", {"scenario": LLAMA})["recommended"]
    target = advised["target"]
    assert (target["figures_of"], target["execution"]["total_time"]) == ("recommended", recommended["total_time"])
    assert target["gain"] == pytest.approx(recommended["sample_rate"] / found["sample_rate"] - 1, rel=1e-12)
    assert advised["steps"][-1]["sample_rate"] >= recommended["sample_rate"] * (1 - 1e-3)
    assert {step["fit"] for step in advised["steps"]} == {"fits"}


def test_changes_are_those_of_what_if() -> None:
    named = {row["name"]: row for row in asked("list_parameters", {"scenario": DENSE})["parameters"]}
    double = 2 * named["hbm_bandwidth"]["value"]
    question = {"scenario": DENSE, "changes": {"hbm_bandwidth": double}, "statistics": ["total_time"]}
    found = asked("what_if", {**question, "figures_of": "fastest"})
    expected = whatif.reoptimise(Scenario.of(**DENSE), {"hbm_bandwidth": double})
    assert (found["gain"], found["kept_gain"]) == (expected.gain, expected.kept_gain)
    assert found["best"]["id"] == expected.best["id"]
    study = asked("sensitivity", {"scenario": DENSE, "factors": [2], "names": ["hbm_bandwidth"]})
    assert [each["gain"] for each in study["gains"]] == [pytest.approx(expected.gain, rel=1e-12)]
    unchanged = asked("what_if", {"scenario": DENSE, "changes": {}})
    assert unchanged["gain"] == 0
    assert unchanged["best"] == unchanged["base"]


def test_plans_are_those_of_the_planners() -> None:
    example = asked("plan_layers", {"profile": "bert_48", "global_batch": 64})
    assert example["speedup"] == pytest.approx(15.48598, abs=1e-5)
    systems = [{"system": "h100_80g_sxm", "num_procs": 8}]
    made = asked("plan_layers", {"model": "llama-3-8B", "systems": systems, "tensor_par": 2, "global_batch": 64})
    question = {"model": "llama-3-8B", "system": "h100_80g_sxm", "executions": [made["execution"]]}
    assert asked("evaluate", question)["ok"] == 1
    sizes = asked("plan_elastic", {"model": "llama-3-8B", "system": "h100_80g_sxm", "global_batch": 64, "gpus": [8]})
    assert sizes["sizes"][0]["raw_best"] == engine.best(**LLAMA, limits={"batch_size": [64]})["sample_rate"]
    split = asked("plan_operators", {"model": "gpt F", "devices": 4, "batch": 24, "layers": 2, "top": 3})
    assert len(split["vectors"]) == 3
    assert split["chosen"]["seconds"] == split["vectors"][0]["seconds"]


def test_operators_are_split_over_two_networks_with_everything_that_the_command_takes() -> None:
    question = {
        "model": "llama-3-8B",
        "devices": 16,
        "tiers": 2,
        "system": "h100_80g_sxm",
        "batch": 32,
        "layers": 2,
        "fsdp": True,
        "recompute": "full",
        "accumulation": 2,
        "annotations": True,
        "top": 2,
    }
    found = asked("plan_operators", question)
    expected = search(
        "llama-3-8B",
        system_mesh("h100_80g_sxm", 16, tiers=2),
        batch=32,
        layers=2,
        fsdp=True,
        recompute="full",
        accumulation=2,
    )
    assert expected.chosen is not None
    assert found["chosen"] == json.loads(json.dumps(expected.chosen.document()))
    assert (found["frontier_points"], found["exactness"]) == (len(expected.frontier), expected.exactness)
    assert found["annotations"][0]["partition_spec"] == sharding_annotations(expected)["partition_spec"].iloc[0]
    outer = {"devices": 2, "bandwidth_gb_per_s": 40}
    made = asked("plan_operators", {"model": "gpt F", "devices": 8, "batch": 16, "layers": 2, "outer": outer})
    assert made["mesh"]["outer"]["devices"] == 2
    for wrong in ({"system": "h100_80g_sxm", "outer": outer}, {"tiers": 2}):
        with pytest.raises(QuestionError, match="outer axis"):
            answer("plan_operators", {"model": "gpt F", "devices": 8, "layers": 1, **wrong})


def test_model_cards_are_planned_as_on_the_page_and_by_the_command() -> None:
    names = {each["name"]: each for each in asked("list_cards", {})["cards"]}
    assert names["llama7_bsz16"]["measured"]
    limits = [{"placement": each, "cpu_threads": 2} for each in ("8888", "4444", "4", "1")]
    found = asked("plan_card", {"card": "llama7_bsz16", "limits": limits, "top": 3})["limits"]
    assert [each["plan"] for each in found] == ["244", "441", "221", "zero-offload+gc"]
    measured = elastic.measurements("llama7_bsz16")
    assert found[0]["measured_s"] == measured.iteration_s("244", "8888", 2)
    assert len(found[0]["plans"]) == 3
    curve = asked("card_curve", {"card": "roberta", "values": [1, 2, 4]})["points"]
    assert [each["raw_best"] for each in curve] == elastic.curve("roberta", values=[1, 2, 4])["raw_best"].tolist()
    phases = asked("card_phases", {"card": "llama7_bsz16"})
    assert phases["means"][0]["mean"] == elastic.timeline().summary()["mean"].iloc[0]
    shared = asked("split_gpus", {"jobs": [{"card": "roberta"}, {"card": "t5_3B"}], "gpus": 4})
    assert shared["totals"] == pytest.approx({"equal": 0.786, "greedy": 1.43, "exact": 1.43}, abs=0.01)
    both = {"model": "llama-3-8B", "global_batch": 64}
    models = {"jobs": [both, both], "gpus": 8, "system": "h100_80g_sxm"}
    assert {each["job"] for each in asked("split_gpus", models)["ways"]} == {"llama-3-8B", "llama-3-8B (2)"}
    run = asked("replay_workload", {"workload": "naive", "policies": ["artifact"], "jobs": True})
    assert run["policies"][0]["avg_jct_s"] == pytest.approx(895.6, abs=0.05)
    assert len(run["jobs"]) == 10


def test_a_card_of_ones_own_is_a_document_and_no_path() -> None:
    own = to_document(elastic.load_card("llama7_bsz16"))
    trace = "exec_plan,placement,iteration_s\n244,8888,1.25\n"
    limits = [{"placement": "8888", "cpu_threads": 2}]
    found = asked("plan_card", {"card": own, "limits": limits, "measurements": trace})
    assert (found["card"], found["limits"][0]["measured_s"]) == ("my llama7_bsz16", 1.25)
    for verb, question, words in (
        ("plan_card", {"card": "/etc/passwd", "limits": limits}, "no model card"),
        ("plan_card", {"card": {**own, "system": "../x"}, "limits": limits}, "none of the library"),
        ("plan_card", {"card": own, "limits": limits, "measurements": "/etc/passwd"}, "exec_plan"),
        ("plan_card", {"card": "vit", "limits": [{"placement": "none"}]}, "no placement"),
        ("card_phases", {"card": "vit", "strategies": ["n, g"]}, "three"),
        ("split_gpus", {"jobs": [{}], "gpus": 4}, "has a card"),
        ("split_gpus", {"jobs": [{"model": "llama-3-8B"}], "gpus": 4}, "global_batch"),
        ("replay_workload", {"workload": "/etc/passwd"}, "no workload"),
        ("replay_workload", {"workload": "naive", "cluster": "0x0"}, "cluster"),
    ):
        with pytest.raises(ValueError, match=words) as problem:
            answer(verb, question)
        assert "\n" not in str(problem.value)


def test_the_guide_names_every_verb_and_its_examples_are_questions() -> None:
    text = (Path(dashboard.__file__).parent / "guide" / "programs.md").read_text(encoding="utf-8")
    table = text.split("| verb | answers |")[1].split("\n\n")[0]
    assert set(re.findall(r"`(\w+)`", table)) == {*VERBS, "search"}
    saved = json.loads(re.findall(r"```json\n(.*?)```", text, re.DOTALL)[0])
    (typed,) = re.findall(r"-d '(.*?)'\n", text)
    assert Scenario.from_document(saved) == scenario_of(json.loads(typed)["scenario"])
    assert document_validation.read(json.dumps(saved).encode(), "scenario.json") == Scenario.from_document(saved)
    with pytest.raises(document_validation.Refused, match="a path; it must be a name of the library"):
        document_validation.read(json.dumps({**saved, "system": "../secret.json"}).encode(), "scenario.json")
    assert (Bounds().document_bytes, Bounds().largest_space) == (1_000_000, 500_000_000)
    bounds = "documents to 1 MB, spaces to 500 million executions, a question to 600 seconds and 8 GiB of memory"
    assert bounds in " ".join(text.split())
    assert (Bounds().longest_seconds, Bounds().memory_gib) == (600, 8)
    assert Settings(store=None).largest_space == Bounds().largest_space
    assert Settings(store=None).longest_seconds == Bounds().longest_seconds


def test_rubbish_is_refused_in_a_sentence() -> None:
    rubbish: list[Any] = [
        None,
        True,
        -1,
        0,
        2**31,
        10**400,
        -0.5,
        1e308,
        "",
        "x" * 10_000,
        "../../secret.json",
        "\ud800",
        [],
        {},
        [[]],
        {"": {}},
        [1] * 3_000,
        {str(number): number for number in range(300)},
    ]
    questions = {
        "best": {"scenario": DENSE, "top": 1, "statistics": ["total_time"]},
        "list_columns": {"names": ["id"], "kind": "field"},
        "evaluate": {"model": "gpt3-13B", "system": "h100_80g_nvl8", "executions": [{"tensor_par": 1}]},
        "list_parameters": {"scenario": {**DENSE, "limits": {"tensor_par": [1]}}},
        "find_deployments": {
            "model": "llama-3-8B",
            "system": "h100_80g_sxm",
            "num_procs": 2,
            "prompt": 100,
            "output": 10,
            "time_to_first_token_s": 0.5,
            "limits": {"batch": [1, 2]},
            "by": "tokens_per_s",
        },
        "size_service": {
            "model": "llama-3-8B",
            "system": "h100_80g_sxm",
            "prompt": 100,
            "output": 10,
            "users": 5.0,
            "think_s": 3.0,
            "mean_per_token_s": 0.02,
            "held_at": "p90",
            "most_procs": 2,
        },
        "cost": {"model": "gpt3-13B", "system": "h100_80g_nvl8", "num_procs": 8, "tflops": 100.0, "pue": 1.2},
        "compare": {"scenarios": [DENSE, DENSE], "recommend": False, "statistics": ["total_time"]},
        "plan_layers": {"profile": "vgg19", "global_batch": 8, "machines": [2]},
        "plan_operators": {"model": "gpt F", "devices": 2, "layers": 1, "memory_limit_gib": 9.5, "accumulation": 1},
        "simulate_schedule": {"schedule": "zb-h1", "stages": 2, "microbatches": 4, "forward_s": [1.0], "group": None},
        "simulate_execution": {"scenario": DENSE, "id": 0, "schedule": "1f1b", "microbatches": 4, "execution": None},
        "simulate_distir": {"models": ["mlp-xs"], "batches": [64], "devices": [2], "constants": {"flops": 1e12}},
        "validate": {"runs": "hardware,hidden,layers", "calculon": False},
        "calibrate": {"runs": {"a.csv": "x"}, "system": "h100_80g_sxm", "given": {"vocab": "1"}, "base": "global"},
        "plan_card": {"card": "vit", "limits": [{"placement": "8"}], "measurements": None, "top": 1},
        "card_curve": {"card": "vit", "values": [1, 2], "placement": "8"},
        "card_phases": {"card": "vit", "phases": [{"placement": "8", "duration_s": 1.0}], "strategies": ["n, 1, 1"]},
        "split_gpus": {"jobs": [{"card": "vit"}], "gpus": 2, "basis": "predicted"},
        "replay_workload": {"workload": "naive", "cluster": "8x8", "policies": ["first-come"], "pause_s": 0.0},
        "export_launch": {"model": "gpt3-13B", "framework": "megatron", "execution": {"tensor_par": 1}},
        "import_launch": {"text": "torchrun x --tensor-model-parallel-size 2", "name": "a.sh"},
    }

    @settings(max_examples=4 * settings.default.max_examples)
    @given(data=st.data())
    def refused(data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(questions)))
        question: Any = json.loads(json.dumps(questions[name]))
        place, key = question, data.draw(st.sampled_from(sorted(question)))
        if isinstance(place[key], dict) and data.draw(st.booleans()):
            place = place[key]
            key = data.draw(st.sampled_from(sorted(place)))
        place[key] = data.draw(st.sampled_from(rubbish))
        try:
            answer(name, question, Context(Bounds(largest_space=300_000)))
            return
        except ValueError as problem:
            refusal = problem
        assert type(refusal).__module__.split(".")[0] in ("engine", "models", "hardware")
        assert "\n" not in str(refusal)
        assert len(str(refusal)) < 3_000

    refused()


@pytest.mark.parametrize("verb", VERBS)
def test_an_unknown_key_is_refused_with_the_keys_that_there_are(verb: str) -> None:
    with pytest.raises(QuestionError) as refusal:
        answer(verb, {"no_such_key": 1})
    keys = list(VERBS[verb].asks.model_fields)
    accepted = f"accepted keys here: {', '.join(keys)}" if keys else "no key is accepted here"
    assert f"unknown key 'no_such_key'; {accepted}" in str(refusal.value)
    assert ": ." not in str(refusal.value)


def test_time_is_bounded_whatever_a_search_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.questions.process.GRACE", 0.2)
    answerer = Answerer(Bounds(longest_seconds=1.0, largest_space=10**9))
    huge = {**LLAMA, "model": "deepseek-v3", "num_procs": 65_536, "max_batch_size": 262_144}
    huge["limits"] = {"context_par": [1, 2, 4, 8, 16], "expert_tensor_par": [1, 2, 4, 8], "zero_stage": [0, 1, 2, 3]}
    try:
        for name, more in (("explore", {}), ("what_if", {"changes": {"hbm_capacity": 100}})):
            started = time.monotonic()
            with pytest.raises(QuestionError, match="given up after 1 s"):
                answerer.answer(name, {"scenario": huge, **more})
            assert time.monotonic() - started < 30
            assert len(answerer.pids) <= 1, "none, unless the search gave itself up before its process was ended"
    finally:
        answerer.close()


def test_memory_is_bounded() -> None:
    answerer = Answerer(Bounds(memory_gib=0.05))
    try:
        with pytest.raises(QuestionError, match="memory; limit some fields"):
            answerer.answer("explore", {"scenario": DENSE})
    finally:
        answerer.close()


def test_a_process_that_dies_is_replaced_by_one_that_knows_the_cost_models_that_were_added_too() -> None:
    scenario = {**LLAMA, "model": "gpt3-13B", "num_procs": 16, "max_batch_size": 32, "cost_model": "toy"}
    question = {"scenario": scenario, "statistics": ["all"]}
    with toy.known():
        answerer = Answerer()
        try:
            found = answerer.answer("best", question)
            (pid,) = answerer.pids
            os.kill(pid, signal.SIGKILL)
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            assert answerer.answer("best", question)["top"] == found["top"]
            assert len(answerer.pids) == 1
            assert pid not in answerer.pids
            who_does_not_wait_is_told_that_others_are_answered(answerer)
        finally:
            answerer.close()
        assert answerer.pids == ()
        assert found["cost_model"] == "toy"
        assert found["top"][0]["sample_rate"] == engine.best(**scenario)["sample_rate"]
        assert asked("list_columns", {"cost_model": "toy", "kind": "field"})["columns"]


def who_does_not_wait_is_told_that_others_are_answered(answerer: Answerer) -> None:
    """Of a process that is running, as starting another one takes long."""
    asked_first, done = threading.Event(), threading.Event()

    def first() -> None:
        with pytest.raises(engine.ExplorationCancelled):
            answerer.answer("sensitivity", {"scenario": LARGE}, tell=lambda *_: asked_first.set(), stops=done.is_set)

    thread = threading.Thread(target=first)
    thread.start()
    try:
        assert asked_first.wait(120)
        with pytest.raises(Busy):
            answerer.answer("list_models", {}, wait=False)
    finally:
        done.set()
        thread.join()

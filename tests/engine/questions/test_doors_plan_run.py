"""Plans of training runs: figures of the execution and of its cost, limits that hold, the same through every door."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from dashboard.files.run_plan_report import build_report
from dashboard.jobs.run_plans import found_run_plan
from dashboard.jobs.worker import Task
from engine.questions import VERBS, answer
from engine.questions.documents.cost import PlanRunQuestion
from engine.questions.run_plans import run_plan_document
from tests.dashboard.page_runs import html, page_alone

MODEL, SYSTEM = "llama-3-8B", "h100_80g_sxm"
PLAIN = {f"{name}_offload": False for name in ("weight", "activations", "optimizer")}
LIMITS = {"tensor_par": [1, 2], "pipeline_par": [1, 2], "context_par": 1, **PLAIN}
SIZE = {"max_batch_size": 256, "datatype": "bfloat16", "limits": LIMITS}
QUESTION: dict[str, Any] = {
    "model": MODEL,
    "systems": [{"system": SYSTEM, "most_procs": 64}],
    "tokens": 1e11,
    "figures_of": "fastest",
    **SIZE,
}


@functools.cache
def planned(text: str) -> Any:
    """Plan as JSON has it; sizes that several plans try are searched once."""
    asked = PlanRunQuestion.model_validate({**QUESTION, **json.loads(text)})
    return json.loads(json.dumps(run_plan_document(asked, found_run_plan(Task(), asked))))


def plan(**more: Any) -> Any:
    return planned(json.dumps(more))


@pytest.mark.parametrize("figures_of", ["fastest", "recommended"])
def test_figures_are_those_of_the_execution_and_of_its_cost(figures_of: str) -> None:
    found = plan(figures_of=figures_of, deadline_days=20.0, num_procs=16)
    for run in found["systems"][0]["curve"]:
        scenario = {"model": MODEL, "system": SYSTEM, "num_procs": run["num_procs"], **SIZE}
        if figures_of == "fastest":
            best = answer("best", {"scenario": scenario})["top"][0]
        else:
            best = answer("recommend", {"scenario": scenario})["recommended"]
        assert run["execution"]["id"] == best["id"]
        fields = {name: value for name, value in best.items() if name in run["execution"] and name != "id"}
        cost = answer("cost", {"model": MODEL, "system": SYSTEM, "execution": fields, "tokens": 1e11})
        assert run["days"]["value"] * 86_400 == pytest.approx(cost["wall_s"], rel=1e-12)
        assert run["usd"]["value"] == pytest.approx(sum(cost["usd"]) / 2, rel=1e-12)
        assert run["mwh"]["value"] * 1e3 == pytest.approx(cost["energy_kwh"], rel=1e-12)
        assert run["failures"]["value"] == pytest.approx(cost["failures"], rel=1e-12)
        assert run["goodput"]["value"] == pytest.approx(cost["goodput"], rel=1e-12)


@pytest.mark.parametrize("room", [False, True])
@pytest.mark.parametrize("days", [3.0, 6.0])
def test_chosen_size_holds_the_deadline_and_no_smaller_one_does(days: float, room: bool) -> None:
    found = plan(deadline_days=days, room_for_error=room, figures_of="recommended")
    chosen, (system,) = found["chosen"], found["systems"]
    end = "high" if room else "value"
    assert chosen["days"][end] <= days
    smaller = [run for run in system["curve"] if run["num_procs"] < chosen["num_procs"]]
    assert smaller
    assert all(run["days"][end] > days for run in smaller)
    assert all(("deadline_days" in run["misses"]) == (run["days"][end] > days) for run in system["curve"])
    assert chosen["days"]["low"] < chosen["days"]["value"] < chosen["days"]["high"]
    saved = system["less_waste"]
    rates = [run["gpu_hours"]["value"] for run in saved]
    assert rates == sorted(rates)
    assert all(rate < chosen["gpu_hours"]["value"] for rate in rates)


@pytest.mark.parametrize("budget", [8_000.0, 12_000.0])
def test_run_within_a_budget_is_the_shortest_that_it_pays(budget: float) -> None:
    found = plan(budget_usd=budget, systems=[{"system": SYSTEM, "usd_low": 3.0, "most_procs": 64}])
    curve = found["systems"][0]["curve"]
    paid = [run for run in curve if run["usd"]["value"] <= budget]
    if found["chosen"] is None:
        assert not paid
        assert "costs" in found["systems"][0]["obstacle"]
        return
    assert found["chosen"]["days"]["value"] == min(run["days"]["value"] for run in paid)


def test_terms_of_prices_by_hand() -> None:
    systems = [
        {"system": SYSTEM, "usd_low": 2.0, "usd_high": 4.0},
        {"system": SYSTEM, "terms": "reserve", "usd_low": 2.0, "usd_high": 4.0, "reserved_days": 100.0},
        {"system": SYSTEM, "terms": "buy", "usd_low": 43_800.0, "usd_high": 43_800.0, "usd_per_kwh": 0.1},
    ]
    found = plan(num_procs=32, deadline_days=90.0, systems=systems)
    rented, reserved, bought = (each["chosen"] for each in found["systems"])
    hours = rented["gpu_hours"]["value"]
    assert rented["usd"]["value"] == pytest.approx(3.0 * hours)
    assert reserved["usd"]["value"] == pytest.approx(3.0 * 32 * 2_400)
    # 43,800 USD over five years of 8,760 hours: 1 USD per hour.
    assert bought["usd"]["value"] == pytest.approx(hours + 100.0 * bought["mwh"]["value"])
    assert bought["outlay_usd"] == pytest.approx([32 * 43_800.0] * 2)
    assert found["terms"] == "buy"


def test_most_tokens_use_the_limit_up_and_fit_when_asked_for() -> None:
    found = plan(tokens=None, deadline_days=3.0, num_procs=16)
    most = found["chosen"]["tokens"]
    assert found["chosen"]["days"]["value"] == pytest.approx(3.0, rel=1e-9)
    again = plan(tokens=most, deadline_days=3.0, num_procs=16)
    assert again["chosen"]["execution"] == found["chosen"]["execution"]
    assert plan(tokens=1.01 * most, deadline_days=3.0, num_procs=16)["chosen"] is None


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, "two of `tokens`, `deadline_days`, `budget_usd` and `num_procs`"),
        ({"deadline_days": 0.0}, "deadline_days"),
        ({"deadline_days": 3.0, "systems": []}, "systems"),
        ({"deadline_days": 3.0, "systems": [{"system": "h900"}]}, "h900"),
        ({"deadline_days": 3.0, "systems": [{"system": SYSTEM, "terms": "buy"}]}, "no price"),
        ({"deadline_days": 3.0, "systems": [{"system": SYSTEM, "usd_low": 5.0, "usd_high": 2.0}]}, "usd_low is 5"),
        ({"deadline_days": 3.0, "datatype": "float7"}, "float7"),
        ({"deadline_days": 3.0, "tokens": 0.0}, "tokens"),
    ],
)
def test_a_question_that_cannot_be_is_one_sentence(more: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)) as problem:
        answer("plan_run", {**QUESTION, **more})
    assert str(problem.value).endswith(".")
    assert "\n" not in str(problem.value)


def test_obstacles_say_the_nearest() -> None:
    found = plan(deadline_days=0.05)
    assert found["chosen"] is None
    assert "64 GPUs, takes" in found["systems"][0]["obstacle"]
    unpriced = plan(budget_usd=1e6, systems=[{"system": "b200_180g_sxm", "most_procs": 64}])
    assert "No price" in unpriced["systems"][0]["obstacle"]


def test_command_page_and_report_say_the_same(shardscape: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    asked = {**QUESTION, "deadline_days": 5.0, "limits": {}}
    Draft202012Validator(VERBS["plan_run"].question_schema()).validate(asked)
    found = json.loads(json.dumps(answer("plan_run", asked)))
    Draft202012Validator(VERBS["plan_run"].answer_schema()).validate(found)
    options = ["--system", f"{SYSTEM},most_procs=64", "--tokens", "1e11", "--days", "5", "--max-batch", "256"]
    code, out, _ = shardscape("plan", "run", MODEL, *options, "--figures-of", "fastest", "--json")
    told = json.loads(out)
    assert code == 0
    assert told["chosen"] == found["chosen"]
    assert told["systems"] == found["systems"]
    file = tmp_path / "plan.json"
    file.write_text(out)
    code, script, problem = shardscape("export", str(file), "--to", "megatron")
    assert code == 0, problem
    assert f"--tensor-model-parallel-size {found['chosen']['execution']['tensor_par']}" in script
    question = PlanRunQuestion.model_validate(asked)
    report = build_report(question, found_run_plan(Task(), question), "Llama 3 8B").decode()
    link = {
        "plan_run_model": MODEL,
        "plan_run_systems": SYSTEM,
        "plan_run_tokens": "100",
        "plan_run_days": "5",
        "plan_run_batch": "256",
        "plan_run_figures_of": "fastest",
        "plan_run_datatype": "bfloat16",
    }
    app = page_alone("plan_run")
    app.session_state["_url"] = link
    app.run()
    assert not app.exception
    for text in (report, html(app)):
        assert f">{found['chosen']['num_procs']:,}<" in text
        assert found["chosen"]["layout"] in text

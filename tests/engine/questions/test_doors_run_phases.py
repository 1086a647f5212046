"""Plans of phases: figures of other questions, the same through every door, and one sentence for bad questions."""

from __future__ import annotations

import csv
import functools
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from dashboard.files.run_phases_report import build_phases_report, question_document
from engine.lifetime.ready import READY_LIVES, ready_life
from engine.questions import VERBS, answer
from engine.questions.documents.cost import PlanRunQuestion

MODEL, SYSTEM = "llama-3-8B", "h100_80g_sxm"
FEW = {"tensor_par": [1, 2], "pipeline_par": 1, "context_par": 1}
PRETRAIN: dict[str, Any] = {"kind": "pretrain", "tokens": 2e10, "limits": FEW}
SFT: dict[str, Any] = {"kind": "sft", "tokens": 1e8, "lengths": {"mean": 800, "cap": 4096}, "limits": FEW}
LORA: dict[str, Any] = {**SFT, "kind": "lora", "adapter_rank": 8}
RL: dict[str, Any] = {"kind": "rl", "steps": 50, "prompts": 16, "response": {"mean": 800, "cap": 2048}}
RL["training"] = {"limits": FEW}
SERVE: dict[str, Any] = {"kind": "serve", "prompt": 512, "output": 128, "rate": 5}
CHECKPOINT_S = 8.03e9 * 14 / 8 / 0.083e9
"""Writing 14 bytes per parameter on 8 GPUs at 0.083 GB/s each."""
QUESTION: dict[str, Any] = {
    "model": MODEL,
    "systems": [{"system": SYSTEM, "most_procs": 8}],
    "max_batch_size": 256,
    "deadline_days": 20,
    "figures_of": "fastest",
    "phases": [PRETRAIN, SFT, RL, {**SERVE, "days": 10}],
}


@functools.cache
def planned(text: str) -> Any:
    return json.loads(json.dumps(answer("plan_run", json.loads(text))))["chain"]


def plan(**more: Any) -> Any:
    return planned(json.dumps({**QUESTION, **more}))


def test_phases_have_the_figures_of_their_own_questions() -> None:
    chosen = plan(num_procs=8, phases=[PRETRAIN, SFT, LORA, RL, {**SERVE, "days": 10}])["chosen"]
    pretrain, sft, lora, rl = chosen["phases"]
    common = {"model": MODEL, "system": SYSTEM}
    alone = {name: value for name, value in QUESTION.items() if name != "phases"}
    run = answer("plan_run", {**alone, "tokens": 2e10, "limits": FEW, "num_procs": 8})["chosen"]
    assert pretrain["days"] == pytest.approx(run["days"], rel=1e-12)
    assert pretrain["failures"] == pytest.approx(run["failures"]["value"])
    assert pretrain["mwh"] == pytest.approx(run["mwh"]["value"])
    for phase, method in ((sft, "full"), (lora, "lora")):
        more = {"adapter_rank": 8} if method == "lora" else {}
        asked = {
            "samples": 125_000,
            "lengths": SFT["lengths"],
            "method": method,
            "num_procs": phase["num_procs"],
            **more,
        }
        (tuned,) = answer("plan_fine_tuning", {**common, **asked})["methods"]
        # A checkpoint at the end is all that the run has besides its steps.
        hours = phase["days"]["value"] * 24
        assert hours == pytest.approx(tuned["hours"]["value"] + CHECKPOINT_S / 3600, rel=0.01)
    asked = {name: value for name, value in RL.items() if name != "kind"}
    steps = answer("plan_post_training", {**common, **asked, "num_procs": rl["num_procs"]})["best"][0]
    assert rl["rollout"]["mode"] == steps["mode"]
    assert rl["rollout"]["step_s"] == pytest.approx(steps["step_s"]["value"])
    assert rl["days"]["value"] == pytest.approx(steps["days"]["value"] + CHECKPOINT_S / 86_400, rel=0.01)
    served = answer("size_service", {**common, "prompt": 512, "output": 128, "request_rate": 5})
    assert chosen["services"][0]["num_procs"] == served["best"]["gpus"]
    assert chosen["days"]["value"] == pytest.approx(sum(each["days"]["value"] for each in chosen["phases"]))
    assert chosen["spares"] == 0  # a failure of 8 GPUs within a day: 0.4 %, of the 1 % that may lack a spare
    assert chosen["failures"] == pytest.approx(sum(each["failures"] for each in chosen["phases"]))


def test_a_phase_alone_is_the_run_alone() -> None:
    """Without other phases the cheapest size in time is the plan of one phase where it is the smallest, too."""
    found = plan(phases=[PRETRAIN], num_procs=8)["chosen"]
    alone = {name: value for name, value in QUESTION.items() if name != "phases"}
    run = answer("plan_run", {**alone, "tokens": 2e10, "limits": FEW, "num_procs": 8})["chosen"]
    assert found["usd"]["value"] == pytest.approx(run["usd"]["value"], rel=1e-12)
    assert found["days"]["value"] == pytest.approx(run["days"]["value"], rel=1e-12)


def test_serving_costs_and_takes_gpus() -> None:
    bare = plan(phases=[PRETRAIN, RL])["chosen"]
    after = plan(phases=[PRETRAIN, RL, {**SERVE, "days": 10}])["chosen"]
    low, high = after["services"][0]["usd_per_day"]
    assert after["days"] == bare["days"]
    assert after["usd"]["value"] - bare["usd"]["value"] == pytest.approx(10 * (low + high) / 2)
    beside = plan(phases=[PRETRAIN, RL, {**SERVE, "when": "meanwhile"}])
    assert all(sum(row["sizes"]) for row in beside["systems"][0]["front"])
    gpus = beside["chosen"]["services"][0]["num_procs"]
    crowded = plan(phases=[SFT, {**SERVE, "when": "meanwhile"}], systems=[{"system": SYSTEM, "most_procs": gpus}])
    assert "none is left to train" in crowded["systems"][0]["obstacle"]
    assert max(max(row["sizes"]) for row in beside["systems"][0]["front"]) <= 8 - gpus


def test_own_step_sets_the_time_and_its_interval() -> None:
    own = {**RL, "mode": "colocated", "measured_step_s": 100.0, "measured_procs": 8}
    (rl,) = plan(phases=[own], num_procs=8)["chosen"]["phases"]
    assert rl["days"]["value"] == pytest.approx((50 * 100.0 + CHECKPOINT_S) / 86_400, rel=0.005)
    assert rl["days"]["high"] == pytest.approx((50 * 110.52 + CHECKPOINT_S) / 86_400, rel=0.005)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"phases": []}, "at least 1"),
        ({"phases": [{"kind": "magic"}]}, "kind of 'phases[0]' is 'magic'; it must be 'pretrain'"),
        ({"phases": [{"tokens": 1e9}]}, "'phases[0]' has no key 'kind'"),
        ({"phases": [{"kind": "pretrain"}]}, "key 'phases[0].tokens' is missing"),
        ({"phases": [{**RL, "stps": 3}]}, "'phases[0].stps'; did you mean 'steps'"),
        ({"phases": [{**RL, "steps": 10**12}]}, "'phases[0].steps' is 1000000000000; it must be a whole number from 1"),
        ({"phases": [PRETRAIN, {**RL, "response": {"mean": 9_000, "cap": 100}}]}, "Reinforcement learning: `response`"),
        ({"phases": [PRETRAIN, {**SFT, "lengths": {"mean": 900, "cap": 9}}]}, "SFT: The mean sample has 900 tokens"),
        ({"datatype": "float7"}, "float7"),
        ({"phases": [{**RL, "measured_step_s": 3.0}]}, "`measured_procs` together"),
        ({"phases": [{**SFT, "samples": 5}]}, "give either `tokens` or `samples`"),
        ({"phases": [{**SFT, "tokens": 1e18}]}, "SFT: 1e+18 tokens are"),
        ({"phases": [{**SFT, "adapter_rank": 5}]}, "unknown key 'phases[0].adapter_rank'"),
        ({"phases": [SERVE, SFT]}, "Serving comes before SFT, which trains what it serves"),
        ({"phases": [SFT, PRETRAIN]}, "pre-training comes first"),
        ({"phases": [SERVE]}, "No phase trains"),
        ({"phases": [SFT, {**SERVE, "users": 5}]}, "give either `rate`, in requests per second, or `users`"),
        ({"phases": [SFT, {**SERVE, "days": 5, "when": "meanwhile"}]}, "`days` is for serving afterwards"),
        ({"phases": [{**RL, "judge": {"scored_by": "llama-3-8B", "own_gpus": 8}}]}, "`own_gpus` of the judge"),
        ({"tokens": 1e12}, "Give either `tokens` or `phases`"),
        ({"deadline_days": None}, "needs one of `deadline_days`, `budget_usd` and `num_procs`"),
        ({"budget_usd": 0}, "budget_usd"),
        ({"systems": [{"system": "h900"}]}, "h900"),
    ],
)
def test_a_question_that_cannot_be_is_one_sentence(
    more: dict[str, Any], words: str, shardscape: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=re.escape(words)) as problem:
        answer("plan_run", {**QUESTION, **more})
    assert str(problem.value).endswith(".")
    assert "\n" not in str(problem.value)
    file = tmp_path / "life.json"
    file.write_text(json.dumps({**QUESTION, **more}))
    code, out, told = shardscape("plan", "run", str(file))
    assert (code, out) == (2, "")
    assert "Traceback" not in told
    assert told.strip().endswith(".")


def test_refused_plans_say_the_least_that_would_do() -> None:
    phases = [SFT, LORA]
    late = plan(phases=phases, deadline_days=0.005)
    (system,) = late["systems"]
    assert late["chosen"] is None
    assert "The least times of the phases add up to" in system["obstacle"]
    assert all("deadline_days" in row["misses"] for row in system["front"])
    needed = float(re.findall(r"a deadline of ([\d.,]+) days", late["relaxation"])[0])
    assert plan(phases=phases, deadline_days=needed)["chosen"] is not None
    assert plan(phases=phases, deadline_days=0.998 * needed)["chosen"] is None
    poor = plan(phases=phases, budget_usd=1.0)
    usd = float(re.findall(r"a budget of ([\d.,]+) USD", poor["relaxation"])[0].replace(",", ""))
    assert plan(phases=phases, budget_usd=usd)["chosen"]["budget"] == "kept"
    unpriced = {"system": "b200_180g_sxm", "most_procs": 8}
    assert "give `usd_low`" in plan(phases=phases, systems=[unpriced], budget_usd=1e9)["systems"][0]["obstacle"]
    assert plan(phases=phases, systems=[unpriced])["chosen"]["usd"] is None


def test_command_report_and_json_say_the_same(shardscape: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    Draft202012Validator(VERBS["plan_run"].question_schema()).validate(QUESTION)
    found = plan()
    answered = {**dict.fromkeys(("system", "terms", "chosen", "recommended")), "model": MODEL, "systems": []}
    schema = VERBS["plan_run"].answer_schema()
    Draft202012Validator(schema).validate({**answered, "chain": found, "units": {}, "seconds": 1.0})
    file = tmp_path / "life.json"
    file.write_text(json.dumps(QUESTION))
    code, out, _ = shardscape("plan", "run", str(file), "--json")
    assert code == 0
    assert json.loads(out)["chain"] == found
    answered_file = tmp_path / "answer.json"
    answered_file.write_text(out)
    code, script, problem = shardscape("export", str(answered_file), "--to", "megatron")
    assert code == 0, problem
    assert f"--tensor-model-parallel-size {found['chosen']['phases'][0]['execution']['tensor_par']}" in script
    rows = list(csv.DictReader(io.StringIO(shardscape("plan", "run", str(file), "--csv")[1])))
    assert [row["kind"] for row in rows] == ["pretrain", "sft", "rl", "serve"]
    assert sum(float(row["days"]) for row in rows[:3]) == pytest.approx(found["chosen"]["days"]["value"])
    code, out, _ = shardscape("plan", "run", str(file), "--days", "0.1")
    assert code == 1
    assert "Least change that holds: a deadline of" in out
    question = PlanRunQuestion.model_validate(QUESTION)
    report = build_phases_report(question, found, "Llama 3 8B").decode()
    for text in ("Reinforcement learning", "What binds", found["chosen"]["phases"][0]["layout"]):
        assert text in report
    (again,) = re.findall(r'<pre id="question">(.*?)</pre>', report, re.DOTALL)
    assert PlanRunQuestion.model_validate_json(again.replace("&quot;", '"')) == question
    assert PlanRunQuestion.model_validate(question_document(question)) == question


def test_a_file_that_is_not_there_is_said(shardscape: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    code, out, told = shardscape("plan", "run", str(tmp_path / "nowhere.json"))
    assert (code, out) == (2, "")
    assert "is no file" in told
    assert "--system" not in told


@pytest.mark.parametrize("name", READY_LIVES)
def test_ready_lives_are_questions(name: str) -> None:
    assert PlanRunQuestion.model_validate(ready_life(name)).phases

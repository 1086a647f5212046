"""Plans of fleets: figures of `recommend`, `cost` and `plan_day`, the same through every door, and refusals."""

from __future__ import annotations

import functools
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from engine.cli.main import app
from engine.cli.output import ExitCode
from engine.questions import VERBS, QuestionError, answer
from engine.questions.bounds import Context
from engine.questions.documents.fleet import FleetQuestion
from engine.questions.fleets import find_fleet_plan, fleet_document

SYSTEM, MODEL = "h100_80g_sxm", "llama-3-8B"
PLAIN = {f"{name}_offload": False for name in ("weight", "activations", "optimizer")}
LIMITS = {"tensor_par": [1, 2], "pipeline_par": [1, 2], "context_par": 1, **PLAIN}
POOL = {"system": SYSTEM, "num_procs": 24, "spare_nodes": 0}
OWN_POOL = {"system": "gb200_186g_nvl72", "num_procs": 72, "spare_nodes": 0}
JOB = {"model": MODEL, "max_batch_size": 256, "limits": LIMITS}
SERVICE = {"model": MODEL, "prompt": 1024, "output": 256, "limits": {"tensor_par": [1, 2]}}
JUDGED = {
    "prompts": 8,
    "response": {"mean": 99, "cap": 999},
    "judge": {"scored_by": MODEL, "own_gpus": 8},
}
FLEET: dict[str, Any] = {
    "pools": [POOL],
    "jobs": [{**JOB, "tokens": 1e11, "deadline_days": 60.0}, {**JOB, "name": "at night", "elastic": True}],
    "services": [{**SERVICE, "peak_rate": 90.0}],
}


@functools.cache
def planned() -> Any:
    return json.loads(json.dumps(answer("plan_fleet", FLEET)))


def test_least_cost_says_which_job_it_leaves_undone() -> None:
    found = answer("plan_fleet", {**FLEET, "objective": "usd"})
    idle = [each["name"] for each in found["jobs"] if each["tokens_per_s"] == 0.0]
    assert idle == ["at night"]
    assert found["refused"] == {
        "at night": "Least cost runs no job without a deadline; give one, or choose another objective."
    }


def test_figures_are_those_of_recommend_cost_and_plan_day() -> None:
    found = planned()
    Draft202012Validator(VERBS["plan_fleet"].answer_schema()).validate(found)
    assert found["faults"] == []
    assert found["holds"]
    first = found["jobs"][0]
    size = first["curve"][first["hours"][0]]
    scenario = {
        "model": MODEL,
        "system": SYSTEM,
        "num_procs": size["gpus"],
        "max_batch_size": 256,
        "datatype": "bfloat16",
        "limits": LIMITS,
    }
    best = answer("recommend", {"scenario": scenario})["recommended"]
    fields = {name: value for name, value in best.items() if name != "id"}
    cost = answer("cost", {"model": MODEL, "system": SYSTEM, "execution": fields, "tokens": 1e11})
    assert first["days"] * 86_400 == pytest.approx(cost["wall_s"], rel=1e-9)
    (service,) = found["services"]
    day = answer("plan_day", {"system": SYSTEM, **SERVICE, "peak_rate": 90.0, "most_procs": 64})
    choice = service["choices"][0]
    assert choice["capacity"] == pytest.approx(
        next(row["capacity"] for row in day["top"] if row["gpus_per_replica"] == choice["gpus"])
    )
    for demand, count in zip(service["demand"], service["replicas"][0], strict=True):
        assert count == math.ceil(demand / choice["capacity"] - 1e-6)


def test_the_command_says_the_same(tmp_path: Path) -> None:
    file = tmp_path / "fleet.json"
    file.write_text(json.dumps({**FLEET, "objective": "days"}), encoding="utf-8")
    run = CliRunner().invoke(app, ["plan", "fleet", str(file), "--json"])
    assert run.exit_code == 0, run.output
    said = json.loads(run.stdout)
    assert said["objective"] == "days"
    assert {**said, "seconds": 0} == {
        **json.loads(json.dumps(answer("plan_fleet", {**FLEET, "objective": "days"}))),
        "seconds": 0,
    }
    late = {**FLEET, "jobs": [{**JOB, "tokens": 1e15, "deadline_days": 1.0}]}
    file.write_text(json.dumps(late), encoding="utf-8")
    run = CliRunner().invoke(app, ["plan", "fleet", str(file)])
    assert run.exit_code == 1
    assert "LATE" in run.stdout


def test_reinforcement_learning_and_adapters_have_the_figures_of_their_questions() -> None:
    terms = {"prompts": 16, "group": 8, "response": {"mean": 500, "cap": 2000}, "training": {"limits": LIMITS}}
    jobs = [
        {"model": MODEL, "name": "GRPO", "elastic": True, "post_training": {**terms, "steps": 1000}},
        {**JOB, "name": "LoRA", "tokens": 1e9, "adapter_rank": 16},
    ]
    found = answer("plan_fleet", {"pools": [{**POOL, "num_procs": 16}], "jobs": jobs, "objective": "days"})
    Draft202012Validator(VERBS["plan_fleet"].answer_schema()).validate(json.loads(json.dumps(found)))
    assert found["faults"] == []
    grpo, lora = found["jobs"]
    tokens_of_step = 16 * 8 * (128 + 500)
    assert grpo["tokens"] == pytest.approx(1000 * tokens_of_step)
    for gpus in (8, 16):
        asked = {**terms, "model": MODEL, "system": SYSTEM, "num_procs": gpus}
        best = answer("plan_post_training", asked)["best"][0]["step_s"]["value"]
        size = max((each for each in grpo["curve"] if each["gpus"] == gpus), key=lambda each: each["tokens_per_s"])
        assert size["step_s"] == pytest.approx(best)
        assert 0.9 < size["tokens_per_s"] * best / tokens_of_step <= 1.0  # failures take the rest
    for size in grpo["curve"]:  # sizes of a group share what trains; each is the split that it says
        mode, train, rollout = re.findall(r"^(\S.*?) (\d+) train \+ (\d+) generate", size["layout"])[0]
        asked = {**terms, "model": MODEL, "system": SYSTEM, "num_procs": size["gpus"]}
        asked |= {"mode": mode.lower().replace(" ", "_"), "split": [int(train), int(rollout)]}
        (row,) = answer("plan_post_training", asked)["best"]
        assert size["step_s"] == pytest.approx(row["step_s"]["value"])
        same = {each["layout"].split(" train")[0] for each in grpo["curve"] if each["group"] == size["group"]}
        assert same == {size["layout"].split(" train")[0]}
    size = lora["curve"][lora["hours"][0]]
    scenario = {"model": MODEL, "system": SYSTEM, "num_procs": size["gpus"], "max_batch_size": 256}
    scenario |= {"datatype": "bfloat16", "limits": LIMITS, "adapter_rank": 16}
    rate = answer("recommend", {"scenario": scenario})["recommended"]["sample_rate"]
    assert 0.9 < size["tokens_per_s"] / (rate * 8192) <= 1.0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"services": [{**SERVICE, "demand": [1.0] * 23}]}, "`demand` has 23 numbers; give 24"),
        ({"services": [{**SERVICE, "demand": [0.0] * 24}]}, "`demand` is 0 in all hours"),
        ({"services": [{**SERVICE, "demand": [-1.0] * 24}]}, "demand"),
        ({"services": [{**SERVICE, "demand": [math.nan] * 24}]}, "demand"),
        ({"services": [{**SERVICE, "demand": [1e10] * 24}]}, "demand"),
        ({"jobs": [{**JOB, "name": "a", "tokens": 1e9, "after": "b"}]}, "a waits for 'b', which is no job"),
        (
            {"jobs": [{**JOB, "name": each, "tokens": 1e9, "after": other} for each, other in ("ab", "ba")]},
            "Jobs wait in a circle: a after b after a",
        ),
        (
            {"jobs": [{**JOB, "tokens": 1e9}, {**JOB, "tokens": 2e9}, {**JOB, "name": "then", "after": MODEL}]},
            "and 2 jobs have that name",
        ),
        ({"services": [{**SERVICE, "peak_rate": 9.0, "after": "llama-3-8B"}], "jobs": [JOB]}, "never ends"),
        ({"pools": [OWN_POOL], "objective": "usd"}, "has no recorded price; give usd_per_h"),
        ({"services": [SERVICE]}, "give either `demand` or `peak_rate`"),
        ({"pools": [POOL, POOL]}, "two pools of h100_80g_sxm"),
        ({"pools": [{**POOL, "spare_nodes": 9}]}, "9 spare nodes"),
        ({"jobs": [{**JOB, "deadline_days": 1.0}]}, "has a deadline, but no tokens"),
        ({"jobs": [{**JOB, "systems": ["h100_80g_sxn"]}]}, "which is no pool"),
        ({"jobs": [], "services": []}, "give jobs or services"),
        ({"jobs": [], "objective": "days"}, "needs a job with tokens"),
        ({"jobs": [{**JOB, "gpus": 3}]}, "gpus"),
        ({"jobs": [{"model": MODEL}]}, "needs `max_batch_size`"),
        ({"jobs": [{**JOB, "post_training": {"prompts": 8, "response": {"mean": 9, "cap": 99}}}]}, "leave `max_batch"),
        ({"jobs": [{"model": MODEL, "post_training": {"prompts": 8, "response": {"mean": 99, "cap": 9}}}]}, "mean"),
        ({"jobs": [{"model": MODEL, "post_training": JUDGED}]}, "`own_gpus` of the judge are besides all others"),
    ],
)
def test_a_fleet_that_cannot_be_is_refused_in_a_sentence(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(QuestionError) as refused:
        answer("plan_fleet", {**FLEET, **change})
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)
    file = tmp_path / "fleet.json"
    file.write_text(json.dumps({**FLEET, **change}), encoding="utf-8")
    run = CliRunner().invoke(app, ["plan", "fleet", str(file)])
    assert run.exit_code == ExitCode.INPUT, run.stderr
    assert len(run.stderr.strip().splitlines()) == 1, run.stderr


def test_what_is_too_late_or_too_large_is_named_in_the_answer() -> None:
    """A deadline before the least time, and a rollout of which no replica fits, are answers, not faults."""
    late = answer("plan_fleet", {**FLEET, "jobs": [{**JOB, "name": "pre", "tokens": 1e13, "deadline_days": 1.0}]})
    (sentence,) = late["missed"]
    assert "pre needs" in sentence
    assert "its deadline of 1 days is too early by" in sentence
    terms = {"prompts": 8, "group": 4, "response": {"mean": 500, "cap": 2000}, "training": {"limits": LIMITS}}
    large = {"model": "llama-3.1-405B", "name": "RL", "post_training": terms, "deadline_days": 9.0}
    found = answer("plan_fleet", {"pools": [{**POOL, "num_procs": 8}], "jobs": [large]})
    assert "replica of the rollout" in found["refused"]["RL on h100_80g_sxm"]
    assert found["missed"] == ["RL never ends: it, or a job before it, runs at no size of the fleet."]


@pytest.mark.parametrize("objective", ["progress", "days", "usd"])
def test_a_pool_below_a_node_is_an_answer_with_its_reason(objective: str) -> None:
    """Nothing has a size there, so that the program has no variable."""
    small = {"pools": [{**POOL, "num_procs": 1}], "jobs": [{**JOB, "tokens": 1e9}], "objective": objective}
    found = answer("plan_fleet", small)
    assert found["jobs"][0]["days"] is None
    assert found["refused"] == {"llama-3-8B on h100_80g_sxm": "1 GPU is less than a node of 8."}
    explained = answer("plan_fleet", {**small, "why": True})["jobs"][0]
    assert (explained["days"], explained["tokens_per_s"]) == (None, 0.0)


def test_other_demand_and_deadlines_need_no_search() -> None:
    first = planned()

    def searched(**changes: Any) -> tuple[list[Any], bool]:
        doing: list[str] = []
        asked = FleetQuestion.model_validate({**FLEET, **changes})
        plan = find_fleet_plan(asked, context=Context(tell=lambda share, words: doing.append(words)))
        return fleet_document(plan)["jobs"], any("GPUs" in words for words in doing)

    jobs, is_searched = searched(services=[{**SERVICE, "demand": [20.0] * 24}], repair_h=12.0)
    assert not is_searched
    assert [job["curve"] for job in jobs] == [job["curve"] for job in first["jobs"]]
    assert searched(jobs=[{**JOB, "tokens": 2e11}])[1]
    assert searched(mtbf_h=1e4)[1]


def test_a_node_more_is_worth_its_rate_to_a_job_that_has_all() -> None:
    """The job can hold the node, and the objective without the change is the same with and without the explanation."""
    fleet = {"pools": [{**POOL, "num_procs": 16}], "jobs": [{**JOB, "tokens": 1e11}], "objective": "days"}
    found, plain = answer("plan_fleet", {**fleet, "why": True}), answer("plan_fleet", fleet)
    assert found["value"] == pytest.approx(plain["value"])
    more = answer("plan_fleet", {**fleet, "pools": [{**POOL, "num_procs": 24}]})
    (change,) = [each for each in found["changes"] if "One more node" in each["words"]]
    assert change["value"] == pytest.approx(more["value"])
    assert change["gain"] > 0

"""Replays of schedules and executions: one figure through Python, command, JSON and page."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from jsonschema import Draft202012Validator

from dashboard.words.numbers import format_value
from engine import Scenario
from engine.questions import VERBS, Bounds, Context, QuestionError, answer
from engine.questions.documents.schedules import ScheduleReplayQuestion
from engine.questions.schedules import find_schedule_replay
from engine.simulate import NAMES, replay
from engine.simulate.execution_stages import pipelined, replay_execution
from tests.dashboard.page_runs import html, page_alone

Command = Callable[..., tuple[int, str, str]]
SCENARIO: dict[str, Any] = {
    "model": "llama-3-8B",
    "system": "h100_80g_sxm",
    "num_procs": 16,
    "max_batch_size": 32,
    "datatype": "bfloat16",
    "limits": {"tensor_par": 2, "pipeline_par": 4},
}
SAID = [
    "llama-3-8B",
    "h100_80g_sxm",
    "--procs",
    "16",
    "--max-batch",
    "32",
    "--datatype",
    "bfloat16",
    "--limit",
    "tensor_par=2",
]


def ask(name: str, question: dict[str, Any]) -> dict[str, Any]:
    """Return the answer, once question and answer fit the verb's schemas."""
    Draft202012Validator(VERBS[name].question_schema()).validate(question)
    found: dict[str, Any] = json.loads(json.dumps(answer(name, question), allow_nan=False))
    Draft202012Validator(VERBS[name].answer_schema()).validate(found)
    return found


@pytest.mark.parametrize("schedule", ["interleaved", "zb-h1", "dualpipev"])
def test_a_schedule_is_the_same_through_every_door(shardscape: Command, schedule: str) -> None:
    sizes = {"stages": 4, "microbatches": 12, "chunks": 2 if schedule == "interleaved" else 1}
    times = {"F": 0.7, "B": 0.9, "W": 0.55}
    own = replay(schedule, **sizes, times=times, sends={"mode": "overlap", "c": 0.03})
    durations = {"forward_s": [0.7], "input_gradient_s": [0.9], "weight_gradient_s": [0.55], "send_time_s": 0.03}
    told = ask("simulate_schedule", {"schedule": schedule, **sizes, **durations, "actions": True})
    assert (told["makespan"], told["busy"]) == (own.makespan, own.busy.tolist())
    actions = pd.DataFrame(told.pop("actions"))
    assert (len(actions), actions["end"].max()) == (len(own.tasks), own.makespan)
    options = [f"--{name}={value}" for name, value in sizes.items()]
    seconds = ("--forward=0.7", "--input-gradient=0.9", "--weight-gradient=0.55", "--send-time=0.03")
    code, out, _ = shardscape("simulate", "schedule", schedule, *options, *seconds, "--json")
    assert code == 0
    assert json.loads(out) == {name: value for name, value in told.items() if name != "actions"}
    # The same actions as an order of the caller's own.
    order = {"order": told["ranks"], "placement": "v" if schedule == "dualpipev" else "loop"}
    assert ask("simulate_schedule", {**order, **sizes, **durations})["makespan"] == own.makespan


def test_the_page_shows_the_answer() -> None:
    app = page_alone("schedules")
    link = {"from": "numbers", "a": "zb-h1", "ranks": "4", "microbatches": "12", "forward": "0.7", "input": "0.9"}
    app.session_state["_url"] = {f"schedules_{name}": value for name, value in {**link, "send": "10"}.items()}
    app.run()
    assert not app.exception
    question = {"schedule": "zb-h1", "stages": 4, "microbatches": 12, "send_time_s": 0.1 * 0.7e-3}
    durations = {"forward_s": [0.7e-3], "input_gradient_s": [0.9e-3], "weight_gradient_s": [1e-3]}
    makespan = ask("simulate_schedule", question | durations)["makespan"]
    tile = html(app).partition("Step with A")[2].partition("Step with B")[0]
    assert format_value("total_time", makespan) in tile


def test_an_execution_is_the_same_through_every_door(shardscape: Command, tmp_path: Path) -> None:
    scenario = Scenario.of(**SCENARIO)
    best = pipelined(scenario)
    own = replay_execution(scenario, best, "zb-h1", microbatches=8)
    question = {"scenario": SCENARIO, "schedule": "zb-h1", "microbatches": 8}
    told = ask("simulate_execution", question)
    assert (told["makespan"], told["remarks"]) == (own.makespan, list(own.remarks))
    (row,) = answer("best", {"scenario": SCENARIO})["top"]
    assert ask("simulate_execution", {**question, "execution": row}) == told
    said = (*SAID, "--limit", "pipeline_par=4", "--schedule", "zb-h1", "--microbatches", "8", "--json")
    code, out, _ = shardscape("simulate", "execution", *said)
    assert (code, json.loads(out)) == (0, {name: value for name, value in told.items() if name != "actions"})
    code, out, _ = shardscape("simulate", "execution", *said, "--layout", "balanced")
    assert (
        json.loads(out)["makespan"] == ask("simulate_execution", {**question, "stage_layout": "balanced"})["makespan"]
    )


def test_all_schedules_are_listed(shardscape: Command) -> None:
    told = ask("list_schedules", {})["schedules"]
    assert [each["name"] for each in told] == list(NAMES)
    assert json.loads(shardscape("simulate", "schedules", "--json")[1]) == told


@pytest.mark.parametrize(
    ("verb", "question", "words"),
    [
        ("simulate_schedule", {"stages": 4, "microbatches": 8}, "one of them"),
        ("simulate_schedule", {"schedule": "1f1b", "stages": 4, "microbatches": 8, "forward_s": [-1.0]}, "from 0"),
        ("simulate_schedule", {"schedule": "1f1b", "stages": 4, "microbatches": 10**7}, "at most 500,000"),
        ("simulate_execution", {"scenario": SCENARIO, "id": 0, "execution": {"tensor_par": 2}}, "not both"),
        ("simulate_execution", {"scenario": SCENARIO, "id": 10**12}, "ids run from 0"),
    ],
)
def test_impossible_questions_are_refused_in_a_sentence(verb: str, question: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        answer(verb, question)


def test_the_search_for_an_execution_has_bounds() -> None:
    with pytest.raises(QuestionError, match="up to 10 are searched"):
        answer("simulate_execution", {"scenario": SCENARIO}, Context(Bounds(largest_space=10)))
    asked = ScheduleReplayQuestion(schedule="1f1b", stages=2, microbatches=2)
    assert find_schedule_replay(asked).makespan == 9.0

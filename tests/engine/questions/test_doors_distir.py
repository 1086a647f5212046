"""DistIR's grid: one figure through Python, command, JSON and page."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from dashboard.words.numbers import format_value
from engine import ExplorationCancelled
from engine.questions import VERBS, Context, QuestionError, answer
from engine.reproductions.distir.simulator import MODEL_SIZES, agreement, fit_steps, measured_steps, overlay, search
from hardware import GIB
from tests.dashboard.page_runs import html, page_alone

Command = Callable[..., tuple[int, str, str]]
SMALL: dict[str, Any] = {"models": ["mlp-xs"], "batches": [64, 128], "devices": [1, 2, 4], "memory_limit_gib": 0.01}
SAID = ("--model", "mlp-xs", "--batch", "64,128", "--devices", "1,2,4", "--memory-limit", "0.01")


def ask(question: dict[str, Any]) -> dict[str, Any]:
    """Return the answer without keys that are null, once question and answer fit the verb's schemas."""
    verb = VERBS["simulate_distir"]
    Draft202012Validator(verb.question_schema()).validate(question)
    found = json.loads(json.dumps(answer("simulate_distir", question), allow_nan=False))
    Draft202012Validator(verb.answer_schema()).validate(found)
    return {name: value for name, value in found.items() if value is not None}


@pytest.mark.parametrize("show", ["top", "pareto", "figure-3", "figure-4", "measured"])
def test_every_result_is_the_same_in_json_and_by_the_command(shardscape: Command, show: str) -> None:
    code, out, _ = shardscape("simulate", "distir", *SAID, "--show", show, "--json")
    assert code == 0
    assert json.loads(out) == ask({**SMALL, "show": show})


def test_configurations_are_those_of_the_engine() -> None:
    sizes = {"mlp-xs": MODEL_SIZES["mlp-xs"]}
    table = search(
        sizes, devices=[1, 2, 4], batches=[64, 128], revision="R3", bandwidth_gbps=25.0, memory_limit=0.01 * GIB
    )
    told = ask(SMALL)
    assert (told["total"], told["feasible"]) == (len(table), int((table["reason"] == "").sum()))
    assert told["rows"][0]["throughput"] == table.loc[table["reason"] == "", "throughput"].max()


def test_constants_and_measurements_of_a_machine(shardscape: Command, tmp_path: Path) -> None:
    steps = measured_steps()
    names = {"D": "world_size", "layers": "num_layers", "batch": "batch_size", "width": "hidden_dim"}
    text = (
        steps.assign(real_ms=1e3 * steps["seconds"]).drop(columns="seconds").rename(columns=names).to_csv(index=False)
    )
    told = ask({"measurements": text, "revision": "R2", "show": "measured"})
    own = fit_steps(steps, "R2")
    assert told["constants"]["flops"] == pytest.approx(own.flops, rel=1e-9)
    last = agreement(overlay(steps, own)).iloc[-1]
    assert told["rows"][-1]["mean_absolute_error"] == pytest.approx(last["mean_absolute_error"], rel=1e-9)
    file = tmp_path / "measured.csv"
    file.write_text(text)
    _, out, _ = shardscape("simulate", "distir", "--fit", file, "--revision", "R2", "--show", "measured", "--json")
    assert json.loads(out) == told
    machine = {"flops": 5e13, "bandwidth_gbps": 100.0, "datatype_bytes": 2}
    file.with_suffix(".json").write_text(json.dumps(machine))
    _, out, _ = shardscape("simulate", "distir", *SAID, "--constants", file.with_suffix(".json"), "--json")
    assert json.loads(out) == ask({**SMALL, "constants": machine})


def test_the_page_shows_the_answer() -> None:
    app = page_alone("schedules")
    link = {"show": "grid", "grid_revision": "R1", "grid_devices": "8", "grid_limit": "200"}
    app.session_state["_url"] = {f"schedules_{name}": value for name, value in link.items()}
    app.run()
    assert not app.exception
    question = {"models": ["euromlsys21"], "batches": [8192], "devices": [1, 2, 4, 8], "revision": "R1"}
    told = ask({**question, "bandwidth_gbps": 200.0, "memory_limit_gib": 200.0, "top": 1})
    (best,) = told["rows"]
    shown = html(app)
    assert "D{D} × H{H} × P{P}".format_map(best) in shown
    assert format_value("total_time", best["latency"]) in shown
    assert f"{told['feasible']} of {told['total']}" in shown


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ({"devices": [3]}, "3 devices"),
        ({"models": ["llama"]}, "no size"),
        ({"revision": "R7"}, "no revision"),
        ({"constants": {"flops": -1}}, "flops"),
        ({"constants": {}, "measurements": "a"}, "two sources"),
        ({"show": "figure-3", "microbatches": "R1"}, "whole numbers with commas"),
        ({"batches": [2**31 - 1 - each for each in range(64)], "devices": [1024, 4096, 65536]}, "at most 200,000"),
    ],
)
def test_impossible_questions_are_refused_in_a_sentence(question: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words) as refusal:
        answer("simulate_distir", question)
    assert "\n" not in str(refusal.value)


def test_a_search_reports_progress_and_can_be_stopped() -> None:
    shares: list[float] = []
    answer("simulate_distir", SMALL, Context(tell=lambda share, doing: shares.append(share)))
    assert shares[-1] == 1.0
    with pytest.raises((ExplorationCancelled, QuestionError)):
        answer("simulate_distir", SMALL, Context(stops=lambda: True))

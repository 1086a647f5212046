"""The cost of a training run asked through Python, the command, JSON and the page: the same figures everywhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import hardware
import models
from dashboard.words.numbers import days, percent
from engine.columns import FIELDS
from engine.economics import OUTPUTS, RunInputs, parameter_count, training_run
from engine.questions import VERBS, answer
from tests.dashboard.page_runs import exploration, html, run

MODEL, SYSTEM = "llama-3.1-405B", "h100_80g_sxm"
ASSUMED = {
    "tokens": 15.6e12,
    "usd_low": 2.0,
    "usd_high": 3.0,
    "power_w": 650.0,
    "power_share": 1.4,
    "pue": 1.2,
    "mtbf_h": 40_000.0,
    "bytes_per_parameter": 16.0,
    "storage_gb_per_s": 0.1,
    "restart_s": 500.0,
    "interval_s": 1_000.0,
}
OPTIONS = {
    "tokens": "--tokens",
    "power_w": "--power",
    "power_share": "--power-share",
    "pue": "--pue",
    "mtbf_h": "--mtbf",
    "bytes_per_parameter": "--checkpoint",
    "storage_gb_per_s": "--storage",
    "restart_s": "--restart",
    "interval_s": "--interval",
}


def test_every_assumption_means_the_same_everywhere(shardscape: Callable[..., tuple[int, str, str]]) -> None:
    question: dict[str, Any] = {
        "model": MODEL,
        "system": SYSTEM,
        "num_procs": 16_384,
        "tokens_per_s": 2.75e6,
        "attention": "causal",
        "recompute": "full",
        **ASSUMED,
    }
    Draft202012Validator(VERBS["cost"].question_schema()).validate(question)
    found = answer("cost", question)
    Draft202012Validator(VERBS["cost"].answer_schema()).validate(json.loads(json.dumps(found)))
    python = training_run(
        RunInputs.of(hardware.load(SYSTEM), **ASSUMED),
        tokens_per_s=2.75e6,
        num_procs=16_384,
        parameters=float(parameter_count(models.load(MODEL))),
    )
    for name in OUTPUTS:
        expected = getattr(python, name)
        assert found[name] == (list(expected) if isinstance(expected, tuple) else expected), name
    options = [word for name, option in OPTIONS.items() for word in (option, ASSUMED[name])]
    speed = ("--procs", 16_384, "--tokens-per-s", 2.75e6, "--attention", "causal", "--recompute", "full")
    code, out, _ = shardscape("cost", MODEL, SYSTEM, *speed, *options, "--price", "2:3", "--json")
    assert code == 0
    assert json.loads(out) == found


def test_the_page_and_a_file_have_the_cost_of_an_execution(
    shardscape: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    explored = exploration()
    best, scenario = explored.best, explored.scenario
    assert best is not None
    row = {column.name: best[column.name] for column in FIELDS if column.name in best}
    path = tmp_path / "execution.json"
    path.write_text(json.dumps(row), encoding="utf-8")
    names = (scenario.model.name, scenario.system.name)
    question = {"model": names[0], "system": names[1], "execution": json.loads(path.read_text()), "mtbf_h": 900.0}
    found = answer("cost", question)
    code, out, _ = shardscape("cost", *names, "--execution", path, "--mtbf", 900, "--json")
    assert code == 0
    assert json.loads(out) == found
    text = html(run("execution", explored, {"execution_run_mtbf_h": "900", "figures": "fastest"}))
    assert f"Wall-clock time {days(found['wall_s'])}, {days(found['compute_s'])} without failures" in text
    assert f"Goodput {percent(found['goodput'])}" in text


def test_refusals_name_the_field_of_the_question() -> None:
    question = {"model": MODEL, "system": SYSTEM, "num_procs": 8}
    for wrong, words in (
        ({}, "comes from nothing; give exactly one of `step_time_s`"),
        ({"tflops": 100.0, "tokens_per_s": 5.0}, "`tokens_per_s` and `tflops`"),
        ({"step_time_s": 3.0}, "`step_time_s` needs `batch`"),
        ({"tflops": 100.0}, "`tflops` needs `attention`: causal"),
        ({"tflops": 100.0, "attention": "full", "datatype": "int9"}, "`datatype` is 'int9'"),
        ({"tflops": 100.0, "attention": "full", "pue": 0.5}, "pue is 0.5"),
        ({"execution": {"tensor_par": 1}}, "num_procs"),
    ):
        with pytest.raises(ValueError, match=words) as problem:
            answer("cost", {**question, **wrong})
        assert "\n" not in str(problem.value)

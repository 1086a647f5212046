"""Calibrations by measured runs: one fit through Python, command, JSON and page."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import hardware
from dashboard.pages.calibrate.queries import examples
from dashboard.words.numbers import percent
from engine import ExplorationCancelled, Scenario, calibrate
from engine.cost_models.calibrated import parameters
from engine.questions import VERBS, Context, QuestionError, answer
from engine.questions.plain import plain
from engine.validation.reading import library_runs
from tests.dashboard.page_runs import html, page_alone, plainly
from tests.engine.calibrate.runs import LAYOUTS, checked, plans, timed

Command = Callable[..., tuple[int, str, str]]
TRUTH = parameters().model_copy(update={"sustained_hopper": 0.60})
NAMES = ["sustained_hopper", "launch"]


def ask(question: dict[str, Any]) -> dict[str, Any]:
    """Return the answer, once question and answer fit the verb's schemas."""
    verb = VERBS["calibrate"]
    Draft202012Validator(verb.question_schema()).validate(question)
    found: dict[str, Any] = json.loads(json.dumps(answer("calibrate", question), allow_nan=False))
    Draft202012Validator(verb.answer_schema()).validate(found)
    return found


@pytest.fixture(scope="module")
def runs() -> str:
    return str(timed(plans(layouts=LAYOUTS[:3]), TRUTH, noise=0.02).to_csv(index=False))


def test_a_fit_is_the_same_through_every_door(shardscape: Command, runs: str, tmp_path: Path) -> None:
    scenario = Scenario.of("gpt3-13B", "h100_80g_sxm", num_procs=8, max_batch_size=16, datatype="bfloat16")
    question = {"runs": {"runs.csv": runs}, "system": "h100_80g_sxm", "parameters": NAMES, "name": "ours"}
    told = ask({**question, "scenario": scenario.to_document()})
    own = calibrate.calibrate(checked(timed(plans(layouts=LAYOUTS[:3]), TRUTH, noise=0.02)), NAMES)
    assert told["errors_fitted"] == plain(dict(own.errors_after))
    assert told["verdict"] == own.verdict
    for item in own.estimates:
        expected = hardware.calibration_document(calibrate.document(own))["parameters"][item.about.name]["value"]
        assert told["calibration"]["parameters"][item.about.name]["value"] == expected
    file, saved = tmp_path / "runs.csv", tmp_path / "scenario.json"
    file.write_text(runs)
    saved.write_text(json.dumps(scenario.to_document()))
    options = ("--system", "h100_80g_sxm", "--parameters", ",".join(NAMES), "--name", "ours", "--scenario", saved)
    code, out, _ = shardscape("calibrate", file, *options, "--json")
    assert code == 0
    assert json.loads(out) == told


def test_the_page_shows_the_answer_for_an_example() -> None:
    key, example = next(iter(examples().items()))
    app = page_alone("calibrate")
    app.session_state["_url"] = {"calibrate_example": key}
    app.run()
    assert not app.exception
    table = library_runs().table.iloc[list(example.rows)]
    told = ask({"runs": {"runs.csv": table.to_csv(index=False)}, "system": example.system})
    tiles = plainly(html(app))
    assert plainly(percent(told["errors_before"]["mean"] / 100)) in tiles.partition("Mean error before")[2][:200]
    assert plainly(percent(told["errors_fitted"]["mean"] / 100)) in tiles.partition("Mean error, fitted")[2][:200]


def test_runs_that_cannot_be_used_are_listed_and_long_fits_can_be_stopped(runs: str) -> None:
    told = ask({"runs": {"runs.csv": calibrate.template()}, "system": "h100_80g_sxm"})
    assert (told["accepted"], told["calibration"]) == (0, None)
    assert "example row" in told["refused"][0]["reason_text"]
    question = {"runs": {"runs.csv": runs}, "system": "h100_80g_sxm", "parameters": NAMES}
    shares: list[float] = []
    answer("calibrate", question, Context(tell=lambda share, doing: shares.append(share)))
    assert len(shares) > 2
    assert (shares, shares[-1]) == (sorted(shares), 1.0)
    with pytest.raises((ExplorationCancelled, QuestionError)):
        answer("calibrate", question, Context(stops=lambda: True))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"runs": {}}, "runs"),
        ({"runs": {"a.csv": "no table"}}, "neither a table"),
        ({"system": "abacus"}, "abacus"),
        ({"parameters": ["speed"]}, "no parameter"),
        ({"given": {"wheels": "4"}}, "gives no field"),
        ({"base": "nobody"}, "nobody"),
        ({"name": "x" * 300}, "name"),
    ],
)
def test_impossible_questions_are_refused_in_a_sentence(runs: str, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words) as refusal:
        answer("calibrate", {"runs": {"runs.csv": runs}, "system": "h100_80g_sxm", **changes})
    assert "\n" not in str(refusal.value)

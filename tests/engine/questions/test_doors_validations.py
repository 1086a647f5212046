"""Accuracy of predictions: one figure through Python, command, JSON and page."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from jsonschema import Draft202012Validator

from dashboard.words.numbers import percent
from engine import ExplorationCancelled, validation
from engine.questions import VERBS, Context, QuestionError, answer
from engine.questions.plain import plain
from tests.dashboard.page_runs import html, page_alone, plainly

Command = Callable[..., tuple[int, str, str]]


def ask(question: dict[str, Any]) -> dict[str, Any]:
    """Return the answer, once question and answer fit the verb's schemas."""
    verb = VERBS["validate"]
    Draft202012Validator(verb.question_schema()).validate(question)
    found: dict[str, Any] = json.loads(json.dumps(answer("validate", question), allow_nan=False))
    Draft202012Validator(verb.answer_schema()).validate(found)
    return found


@pytest.fixture(scope="module")
def some() -> str:
    """Every forty-first of the package's runs, as the text of a file."""
    with files("engine.validation").joinpath("data", "runs.csv").open(encoding="utf-8") as file:
        return pd.read_csv(file, dtype=str, keep_default_na=False).iloc[::41].to_csv(index=False)


def test_errors_are_the_same_through_every_door(shardscape: Command, some: str, tmp_path: Path) -> None:
    file = tmp_path / "runs.csv"
    file.write_text(some, encoding="utf-8")
    told = ask({"runs": some, "calculon": True, "predictions": True})
    table = validation.validate(file, calculon=True)
    assert told["predictions"] == json.loads(json.dumps(plain(table.to_dict("records"))))
    assert told["errors"] == plain(validation.error_table(validation.read_runs(file).table, table).to_dict("records"))
    code, out, _ = shardscape("validate", "--runs", file, "--calculon", "--json")
    by_command = json.loads(out)
    assert (code, by_command.pop("runs")) == (0, str(file))
    assert by_command == {name: value for name, value in told.items() if name != "predictions"}


def test_the_page_shows_the_answer_for_the_packages_runs(shardscape: Command) -> None:
    told = ask({})
    assert json.loads(shardscape("validate", "--json")[1]) == {
        "runs": None,
        **{name: value for name, value in told.items() if name != "predictions"},
    }
    (every,) = (row for row in told["errors"] if row["name"] == "all rows")
    app = page_alone("validation").run()
    assert not app.exception
    tile = plainly(html(app)).partition("Mean error, calibrated")[2]
    assert plainly(percent(every["mean"] / 100)) in tile[:200]


def test_impossible_questions_are_refused_and_long_ones_can_be_stopped(some: str) -> None:
    for runs in ("", "no table", "a,b\n1,2", "\ud800"):
        with pytest.raises(ValueError, match=r"[a-z]") as refusal:
            answer("validate", {"runs": runs})
        assert "\n" not in str(refusal.value)
    shares: list[float] = []
    answer("validate", {"runs": some, "calculon": True}, Context(tell=lambda share, doing: shares.append(share)))
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    with pytest.raises((ExplorationCancelled, QuestionError)):
        answer("validate", {"runs": some, "calculon": True}, Context(stops=lambda: True))

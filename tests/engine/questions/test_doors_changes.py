"""What-if through every door: Python, command, JSON and the page give the same figures to the last digit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dashboard.words.numbers import signed_percent
from engine import whatif
from engine.questions import answer
from tests.dashboard.page_runs import exploration, html, plainly, run

CHANGES = {"hbm_bandwidth": 6144.0, "net1_bandwidth": 100.0}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """Return a file with the scenario."""
    file = tmp_path / "scenario.json"
    file.write_text(json.dumps(exploration().scenario.to_document()))
    return file


def timeless(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name != "seconds"}


def test_a_change_of_two_parameters(saved: Path, shardscape: Any) -> None:
    scenario = exploration().scenario
    expected = whatif.reoptimise(scenario, CHANGES)
    by_json = answer("what_if", {"scenario": scenario.to_document(), "changes": CHANGES})
    words = [word for name, value in CHANGES.items() for word in ("--change", f"{name}={value}")]
    code, out, _ = shardscape("what-if", "--scenario", saved, *words, "--json")
    assert (code, timeless(json.loads(out))) == (0, timeless(by_json))
    assert (by_json["gain"], by_json["kept_gain"]) == (expected.gain, expected.kept_gain)
    code, text, _ = shardscape("what-if", "--scenario", saved, *words)
    assert (code, f"{expected.gain:+.2%}" in text) == (0, True)
    app = run("whatif", exploration(), {"whatif_changes": "hbm_bandwidth:6144;net1_bandwidth:100"})
    assert plainly(signed_percent(expected.gain)) in plainly(html(app))


def test_the_worth_of_each_part_and_the_parameters(saved: Path, shardscape: Any) -> None:
    scenario = exploration().scenario
    question = {"scenario": scenario.to_document(), "factors": [0.5, 2.0], "names": ["hbm_bandwidth", "matrix"]}
    by_json = answer("sensitivity", question)
    words = ("--factors", "0.5,2", "--parameters", "hbm_bandwidth,matrix")
    code, out, _ = shardscape("what-if", "--scenario", saved, *words, "--json")
    assert (code, timeless(json.loads(out))) == (0, timeless(by_json))
    base = whatif.reoptimise(scenario, {}).base
    assert base is not None
    points = [point.rate for _, _, point in whatif.sensitivity(scenario, (0.5, 2.0), ["hbm_bandwidth", "matrix"])]
    assert [each["gain"] for each in by_json["gains"]] == [rate / float(base["sample_rate"]) - 1 for rate in points]
    listed = answer("list_parameters", {"scenario": scenario.to_document()})
    code, out, _ = shardscape("what-if", "--scenario", saved, "--list", "--json")
    assert (code, json.loads(out)) == (0, listed)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--change", "hbm=1"), "did you mean"),
        (("--change", "hbm_bandwidth"), "NAME=VALUE"),
        (("--factors", "0"), "from 0.01 to 100"),
        (("--csv", "--json"), "not both"),
    ],
)
def test_bad_changes_are_refused_in_a_sentence(saved: Path, shardscape: Any, words: Any, told: str) -> None:
    code, _, problem = shardscape("what-if", "--scenario", saved, *words)
    assert (code, told in problem, len(problem.strip().splitlines())) == (2, True, 1)

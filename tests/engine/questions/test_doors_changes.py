"""What-if through every door: Python, command, JSON and the page give the same figures to the last digit."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dashboard.words.numbers import signed_percent
from engine import best_of, whatif
from engine.questions import answer
from engine.recommendation import FiguresOf, recommend, reoptimise_shown
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


@pytest.mark.parametrize("choice", ["recommended", "fastest"])
def test_a_change_of_two_parameters(saved: Path, shardscape: Any, choice: FiguresOf) -> None:
    scenario = exploration().scenario
    expected = reoptimise_shown(scenario, CHANGES, choice)
    fastest = whatif.reoptimise(scenario, CHANGES)
    assert expected.of_fastest.gain == fastest.gain
    after = whatif.changed(scenario, CHANGES)
    ids = [
        int((recommend(each).execution if choice == "recommended" else best_of(each))["id"])  # type: ignore[index]
        for each in (scenario, after)
    ]
    by_json = answer("what_if", {"scenario": scenario.to_document(), "changes": CHANGES, "figures_of": choice})
    assert [by_json["base"]["id"], by_json["best"]["id"]] == ids
    assert by_json["shown"]["execution"] == by_json["best"]
    assert by_json["fastest_gain"] == fastest.gain
    words = [word for name, value in CHANGES.items() for word in ("--change", f"{name}={value}")]
    words += ["--figures-of", choice]
    code, out, _ = shardscape("what-if", "--scenario", saved, *words, "--json")
    assert (code, timeless(json.loads(out))) == (0, timeless(by_json))
    assert (by_json["gain"], by_json["kept_gain"]) == (expected.gain, expected.kept_gain)
    code, text, _ = shardscape("what-if", "--scenario", saved, *words)
    assert (code, f"{expected.gain:+.2%}" in text) == (0, True)
    app = run("whatif", exploration(), {"whatif_changes": "hbm_bandwidth:6144;net1_bandwidth:100", "figures": choice})
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


def test_each_change_alone_and_all_together(saved: Path, shardscape: Any) -> None:
    scenario = exploration().scenario
    texts = {"hbm_bandwidth": "+1 TB/s", "hbm_capacity": "+32 GB"}
    values = {"hbm_bandwidth": scenario.system.mem1.bandwidth_gb_per_s + 1e3}
    values["hbm_capacity"] = scenario.system.mem1.capacity_gib + 32e9 / 2**30
    question = {"scenario": scenario.to_document(), "changes": texts, "models": ["gpt2-xl"], "counts": [8]}
    rows = answer("what_if", question)["table"]
    assert [(row["model"], row["num_procs"]) for row in rows[::3]] == [
        (model, size) for model in (scenario.model.name, "gpt2-xl") for size in (scenario.num_procs, 8)
    ]
    for row, names in zip(rows[:3], ([*values][:1], [*values][1:], [*values]), strict=True):
        own = answer(
            "what_if", {**question, "models": [], "counts": [], "changes": {name: values[name] for name in names}}
        )
        assert row["parameters"] == names
        assert [row[each] for each in ("gain", "kept_gain", "fastest_gain")] == [
            own[each] for each in ("gain", "kept_gain", "fastest_gain")
        ]
        assert (row["before"], row["after"]) == (own["base"]["sample_rate"], own["best"]["sample_rate"])
    words = [word for name, text in texts.items() for word in ("--change", f"{name}={text}")]
    code, out, _ = shardscape("what-if", "--scenario", saved, *words, "--models", "gpt2-xl", "--sizes", "8", "--csv")
    assert (code, len(pd.read_csv(io.StringIO(out)))) == (0, len(rows))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--change", "hbm=1"), "did you mean"),
        (("--change", "hbm_bandwidth"), "NAME=CHANGE"),
        (("--change", "hbm_bandwidth=+1 TiB"), "not in 'TiB'"),
        (("--change", "hbm_bandwidth=much"), "x2"),
        (("--change", "hbm_bandwidth=x2", "--models", "llama-3-8"), "did you mean"),
        (("--factors", "0"), "from 0.01 to 100"),
        (("--csv", "--json"), "not both"),
    ],
)
def test_bad_changes_are_refused_in_a_sentence(saved: Path, shardscape: Any, words: Any, told: str) -> None:
    code, _, problem = shardscape("what-if", "--scenario", saved, *words)
    assert (code, told in problem, len(problem.strip().splitlines())) == (2, True, 1)

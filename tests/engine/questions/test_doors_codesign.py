"""Co-design through every door: Python, command, JSON and the page give the same figures to the last digit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine import ExplorationCancelled, codesign
from engine.questions import Bounds, Context, answer
from models.documents import plain
from tests.engine.codesign.small_study import SMALL


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the small study's points."""
    place = tmp_path_factory.mktemp("codesign") / "results"
    codesign.run(codesign.Study.from_document(SMALL), place, workers=1)
    return place


def test_python_command_and_json_agree(folder: Path, shardscape: Any) -> None:
    found = codesign.results(folder)
    front = found.front(["tokens_per_s", "usd"])
    question = {"objectives": ["tokens_per_s", "usd"], "budgets": [1e6, 5e6], "sensitivity": 3}
    by_json = answer("codesign", {"study": SMALL, **question})
    words = ["--objective", "tokens_per_s", "--objective", "usd", "--budget", "1e6", "--budget", "5e6"]
    code, out, _ = shardscape("codesign", folder, *words, "--sensitivity", "3", "--json")
    by_command = json.loads(out)
    assert (code, by_json["key"]) == (0, found.study.key)
    assert by_json == by_command
    assert by_json["front"] == plain(front.to_dict("records"))
    assert by_json["best"] == plain(found.best("tokens_per_s"))
    worth = codesign.sensitivity(found, 3, objective="tokens_per_s")
    assert [row["gain"] for row in by_json["sensitivity"]] == worth["gain"].tolist()


def test_progress_stop_bounds_and_bad_studies_are_told() -> None:
    seen: list[float] = []
    answer("codesign", {"study": SMALL}, Context(tell=lambda share, doing: seen.append(share)))
    assert seen[-1] == 1.0
    with pytest.raises(ExplorationCancelled):
        answer("codesign", {"study": SMALL}, Context(stops=lambda: True))
    for question, words in (
        ({"study": "nonesuch"}, "no ready study"),
        ({"study": "/etc/passwd"}, "no ready study"),
        ({"study": {**SMALL, "sizes": []}}, "sizes"),
        ({"study": {**SMALL, "systems": ["../x.json"]}}, "path"),
        ({"study": SMALL, "objectives": ["speed"]}, "speed"),
        ({"study": SMALL, "sensitivity": 10**6}, "design"),
    ):
        with pytest.raises(ValueError, match=words) as problem:
            answer("codesign", question)
        assert "\n" not in str(problem.value)
    with pytest.raises(ValueError, match="32 points; up to 8"):
        answer("codesign", {"study": SMALL}, Context(Bounds(most_points=8)))

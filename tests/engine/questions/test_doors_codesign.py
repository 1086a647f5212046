"""Co-design through every door: Python, command, JSON and the page give the same figures to the last digit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dashboard.jobs.codesign_studies import folder_of
from dashboard.jobs.server import server
from dashboard.link.own_studies import packed_study
from dashboard.words.numbers import plain
from engine import ExplorationCancelled, codesign
from engine.questions import Bounds, Context, answer
from models.documents import plain as json_of
from tests.dashboard.page_runs import html, page_alone
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
    assert by_json["front"] == json_of(front.to_dict("records"))
    assert by_json["best"] == json_of(found.best("tokens_per_s"))
    worth = codesign.sensitivity(found, 3, objective="tokens_per_s")
    assert [row["gain"] for row in by_json["sensitivity"]] == worth["gain"].tolist()


def test_the_page_shows_the_same_best_design() -> None:
    study = codesign.Study.from_document(SMALL)
    codesign.run(study, folder_of(study, server().settings), workers=1)
    best = answer("codesign", {"study": SMALL, "objectives": ["tokens_per_s", "usd"]})["best"]
    app = page_alone("codesign")
    app.session_state["_url"] = {
        "codesign_study": "own",
        "codesign_own": packed_study(study) or "",
        "codesign_up": "tokens_per_s",
    }
    app.run()
    assert not app.exception
    assert f"{plain(float(best['tokens_per_s']), 4)}" in html(app)
    assert f"design {best['design']:,}" in html(app)


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

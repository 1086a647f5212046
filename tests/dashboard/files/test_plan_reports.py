"""Reports of plans of fleets and of reinforcement learning: the plan's figures, the question again, and no markup."""

from __future__ import annotations

import functools
import json
from typing import Any

from dashboard.files.fleet_report import build_fleet_report
from dashboard.files.post_training_report import build_post_training_report
from dashboard.words.numbers import plain
from engine.questions import answer
from engine.questions.documents.fleet import FleetQuestion
from engine.questions.documents.post_training import PostTrainingQuestion
from tests.dashboard.files.test_report import EVIL, Page, without_library

MODEL, SYSTEM = "llama-3-8B", "h100_80g_sxm"
FEW = {"tensor_par": 1, "pipeline_par": 1, "context_par": 1}
CHAIN: dict[str, Any] = {
    "pools": [{"system": SYSTEM, "num_procs": 16, "spare_nodes": 0}],
    "jobs": [
        {"model": MODEL, "max_batch_size": 64, "limits": FEW, "tokens": 1e9, "name": EVIL},
        {"model": MODEL, "max_batch_size": 64, "limits": FEW, "tokens": 2e9, "name": "second", "after": EVIL},
    ],
    "objective": "days",
}
STEP: dict[str, Any] = {
    "model": MODEL,
    "system": SYSTEM,
    "num_procs": 16,
    "prompts": 32,
    "group": 8,
    "response": {"mean": 500.0, "cap": 2000},
    "training": {"limits": FEW},
}


@functools.cache
def planned(verb: str) -> Any:
    return json.loads(json.dumps(answer(verb, CHAIN if verb == "plan_fleet" else STEP)))


def test_the_report_of_a_fleet_has_every_stage_and_the_fleet_again() -> None:
    asked, plan = FleetQuestion.model_validate(CHAIN), planned("plan_fleet")
    text = without_library(build_fleet_report(asked, plan, f"http://x/?{EVIL}"))
    page = Page(text)
    assert FleetQuestion.model_validate(json.loads(page.texts["fleet"])) == asked
    figures = json.loads(page.texts["figures"])
    assert set(figures) == {"chain", *(f"hours-{number}-0" for number in range(len(plan["stages"])))}
    assert len(plan["stages"]) == 2
    assert f"{plain(plan['value'], 4)}" in text
    assert "<img" not in text
    assert "<script>alert" not in text


def test_the_report_of_a_step_has_its_figures_and_the_question_again() -> None:
    asked, found = PostTrainingQuestion.model_validate(STEP), planned("plan_post_training")
    text = without_library(build_post_training_report(asked, found, EVIL, f"http://x/?{EVIL}"))
    page = Page(text)
    assert PostTrainingQuestion.model_validate(json.loads(page.texts["question"])) == asked
    for each in found["best"]:
        assert f"{plain(each['step_s']['value'])} ({plain(each['step_s']['low'])} to" in text
    assert all(row["source"] in text for row in found["nearest"])
    assert "<img" not in text
    assert "<script>alert" not in text

"""The Fleet page: the same figures as the question, an own fleet in the link, and links that cannot be."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from dashboard.jobs.server import server
from dashboard.link.text_encoding import folded
from engine.fleet import find_faults
from engine.fleet.documents import list_hours
from engine.fleet.ready import READY_FLEETS, ready_fleet
from engine.questions import answer
from engine.questions.documents.fleet import FleetQuestion
from tests.dashboard.page_runs import html, page_alone, plots
from tests.dashboard.server import own_server
from tests.engine.questions.test_doors_fleet import FLEET


@pytest.fixture(autouse=True)
def place(tmp_path: Path) -> Iterator[None]:
    with own_server(tmp_path):
        yield


def run(link: dict[str, str]) -> AppTest:
    app = page_alone("fleet")
    app.session_state["_url"] = link
    app.run()
    assert all(job.wait(120) for job in server().board.jobs(server().fleet_plans))
    app.run()
    assert not app.exception
    return app


def test_an_own_fleet_is_planned_as_the_question_answers() -> None:
    app = run({"fleet_example": "own", "fleet_own": folded(json.dumps(FLEET)), "fleet_objective": "days"})
    found = answer("plan_fleet", {**FLEET, "objective": "days"})
    assert f"{found['value']:.4g}" in html(app)
    assert len(plots(app)) == 1
    jobs = next(each.value for each in app.dataframe if "Job" in each.value)
    assert jobs["Tokens/s"].tolist() == pytest.approx([job["tokens_per_s"] for job in found["jobs"]])
    services = next(each.value for each in app.dataframe if "Service" in each.value)
    assert services["Peak, requests/s"].tolist() == [max(each["demand"]) for each in found["services"]]


@pytest.mark.parametrize(
    ("text", "words"),
    [("[]", "object"), ('{"pools": []}', "pools"), ('{"pools": [{"system": "h100_80g_sxm"}]}', "num_procs")],
)
def test_a_fleet_that_cannot_be_is_named(text: str, words: str) -> None:
    app = page_alone("fleet")
    app.session_state["_url"] = {"fleet_example": "own", "fleet_own": folded(text)}
    app.run()
    assert not app.exception
    assert words in " ".join(each.value for each in app.error).replace("\\", "")
    assert not server().board.jobs(server().fleet_plans)  # and no other fleet is planned in its place


def test_files_of_a_plan_come_back() -> None:
    found = json.loads(json.dumps(answer("plan_fleet", FLEET)))
    assert find_faults(found) == []
    hours = pd.read_csv(io.StringIO(list_hours(found).to_csv(index=False)))
    for pool in found["pools"]:
        used = hours[hours["system"] == pool["name"]].groupby("hour")["gpus"].sum()
        assert used.tolist() == pool["used"]


def test_ready_fleets_are_questions() -> None:
    for name in READY_FLEETS:
        assert FleetQuestion.model_validate(ready_fleet(name)).pools

"""The Fleet page: the same figures as the question, an own fleet in the link, and links that cannot be."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from dashboard.files.fleet_tables import demand_table, document_of_tables, read_demand_file, table_of, with_demand
from dashboard.jobs.server import server
from dashboard.link.text_encoding import folded
from engine.fleet import find_faults
from engine.fleet.documents import list_hours
from engine.fleet.ready import READY_FLEETS, ready_fleet
from engine.planners.contract import PlanError
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
    assert services["Peak with headroom, requests/s"].tolist() == [max(each["demand"]) for each in found["services"]]


def test_tables_change_the_document_and_nothing_else() -> None:
    for name in READY_FLEETS:
        document = ready_fleet(name)
        tables = {part: table_of(part, document.get(part, [])) for part in ("pools", "jobs", "services")}
        assert document_of_tables(document, tables) == {"jobs": [], "services": [], **document}
    document = {**FLEET, "services": [{**FLEET["services"][0], "trough_share": 0.5}]}
    tables = {part: table_of(part, document[part]) for part in ("pools", "jobs", "services")}
    tables["pools"].loc[0, "GPUs"] = 32
    tables["jobs"] = tables["jobs"].drop(index=0)  # a row that is deleted takes its place with it
    tables["jobs"].loc[7] = {
        "Name": "SFT",
        "Model": "llama-3-8B",
        "Batch": 64,
        "Tokens": 1e9,
        "Weight": 1,
        "Elastic": False,
    }
    tables["services"].loc[0, "First token, s"] = None
    found = document_of_tables(document, tables)
    assert found["pools"] == [{**document["pools"][0], "num_procs": 32}]
    assert found["jobs"][0] == document["jobs"][1]
    assert found["jobs"][1] == {"name": "SFT", "model": "llama-3-8B", "max_batch_size": 64, "tokens": 1e9}
    assert found["services"][0] == {**document["services"][0], "time_to_first_token_s": None}
    assert FleetQuestion.model_validate(found)
    demand = [float(hour) for hour in range(24)]
    changed = with_demand(document, 0, demand)["services"][0]
    assert changed["demand"] == demand
    assert "peak_rate" not in changed
    assert "trough_share" not in changed
    table = demand_table(FleetQuestion.model_validate(with_demand(document, 0, demand)), ["Chat"], 168)
    assert table["Chat"].tolist() == demand * 7


def test_a_demand_by_hour_comes_from_a_file() -> None:
    rows = "\n".join(f"{hour}, {hour + 0.5}" for hour in range(24))
    assert read_demand_file(f"hour, requests_per_second\n{rows}\n".encode()) == [hour + 0.5 for hour in range(24)]
    times = read_demand_file(b"time,requests_per_second\n6:30,10\n7:00,40\n9:15,5\n")
    assert times[:11] == [5, 5, 5, 5, 5, 5, 10, 40, 40, 40, 5]  # the highest of each hour
    for rows, words in (
        ("0,1\n1,2\n", "has 2 hours; give 24"),
        ("\n".join(f"{hour},-1" for hour in range(24)), "from 0"),
        ("\n".join(f"{hour},nan" for hour in range(24)), "from 0"),
        ("\n".join(f"{hour + 1},1" for hour in range(24)), "it must be 0"),
        ("\n".join(f"{hour},0" for hour in range(24)), "0 in all hours"),
    ):
        with pytest.raises(PlanError, match=words):
            read_demand_file(f"hour,requests_per_second\n{rows}".encode())


def test_a_chain_shows_its_jobs_by_day_and_its_stages() -> None:
    jobs = [
        {**FLEET["jobs"][0], "name": "pre", "tokens": 1e10},
        {**FLEET["jobs"][0], "name": "sft", "tokens": 1e9, "after": "pre", "deadline_days": 0.01},
    ]
    document = {
        "pools": [{**FLEET["pools"][0], "num_procs": 16}],
        "jobs": jobs,
        "services": [{**FLEET["services"][0], "after": "sft"}],
    }
    link = {"fleet_example": "own", "fleet_own": folded(json.dumps(document)), "fleet_objective": "days"}
    app = run({**link, "fleet_stage": "3", "fleet_lost": "h100_80g_sxm"})
    found = answer("plan_fleet", {**document, "objective": "days"})
    assert f"{found['value']:.4g}" in html(app)
    assert "sft needs" in " ".join(each.value for each in app.warning).replace("\\", "")
    assert len(plots(app)) == 2
    services = next(each.value for each in app.dataframe if "Service" in each.value)
    assert len(services) == 1  # the third stage serves
    assert any("Without it" in each.value for each in app.dataframe)


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

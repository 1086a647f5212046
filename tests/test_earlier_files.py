"""What people kept with an earlier version opens as before: links, scenarios, comparisons, calibrations and stores.

The files in `reference/earlier` were written by the last version before the modules were put into rooms; `told.json` is
what that version said of them.
"""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
import hardware
from dashboard.link.comparison import Comparison
from dashboard.link.scenario_parameters import read_scenario
from dashboard.widgets import share
from engine import Scenario
from engine.columns import fields_of
from engine.store import Store

EARLIER = Path(__file__).parent / "reference" / "earlier"
TOLD: dict[str, Any] = json.loads((EARLIER / "told.json").read_text(encoding="utf-8"))
NAMES = ("calculon", "calibrated", "ours")


def document(name: str) -> Any:
    return json.loads((EARLIER / f"{name}.json").read_text(encoding="utf-8"))


def scenario(name: str) -> Scenario:
    return Scenario.from_document(document(f"scenario_{name}"))


def is_same_physics(name: str) -> bool:
    """Whether no formula has changed since: results are found under the key they were stored by."""
    return scenario(name).physics == TOLD[name]["physics"]


@pytest.mark.parametrize("name", NAMES)
def test_scenarios_and_links_mean_what_they_meant(name: str) -> None:
    found, told = scenario(name), TOLD[name]
    assert found.to_document() == document(f"scenario_{name}")
    # What is tried beyond it since has stages that are not even.
    knows = "stage_layout" in (column.name for column in fields_of(found.cost_model))
    before = replace(found, limits={**found.limits, "stage_layout": ["even"]}) if knows else found
    assert before.space.total == told["total"]
    assert found.space.total >= told["total"]
    read = read_scenario(told["link"])
    # A link of a calibration of its own tells which formulas its sender saw the figures of.
    assert is_same_physics(name) or name != "ours" or "with another version" in read.problems[0]
    assert read.problems == () or (len(read.problems) == 1 and name == "ours" and not is_same_physics(name))
    assert read.scenario == found
    assert not is_same_physics(name) or found.key == told["key"]


def test_a_comparison_holds_the_scenarios_that_it_held() -> None:
    found, told = Comparison.from_document(document("comparison")), TOLD["comparison"]
    assert found.to_document() == document("comparison")
    assert len(found.scenarios) == len(told["keys"])
    linked = share.compared(found.scenarios[0], "compare", told["link"])
    assert linked is not None
    assert linked.scenarios == found.scenarios


def test_a_calibration_has_the_values_it_had() -> None:
    found = hardware.load_calibration_document(document("calibration"))
    assert found.parameters["memory"].value == 0.8
    assert hardware.calibration_document(found) == document("calibration")
    assert scenario("ours").used_calibration == found


def test_a_store_still_has_its_rows(tmp_path: Path) -> None:
    with zipfile.ZipFile(EARLIER / "store.zip") as packed:
        packed.extractall(tmp_path)
    with Store(tmp_path / "results.duckdb") as store:
        assert {record.key for record in store.records()} == {TOLD[name]["key"] for name in NAMES}
        for name in NAMES:
            told = TOLD[name]
            top = store.rows(told["key"]).top(5, "sample_rate").to_pandas()
            assert top["id"].tolist() == told["top"]
            assert top["sample_rate"].iloc[0] == told["sample_rate"]
            names = ["pipeline_interleaving", "schedule", "stage_layout"]  # two of them were no field then
            rows = store.rows(told["key"]).table(names).to_pandas()
            assert (rows["schedule"] == np.where(rows["pipeline_interleaving"] > 1, "interleaved", "1f1b")).all()
            assert rows["schedule"].nunique() == 2
            assert set(rows["stage_layout"]) == {"even"}
            if is_same_physics(name):
                found = engine.explore_scenario(scenario(name), store=store, cancel=lambda: True)  # nothing is explored
                assert (found.best["id"], found.feasible) == (told["best"], told["feasible"])

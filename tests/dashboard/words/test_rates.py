"""Figures that follow from the throughput stand in tables and files as the register has them, by one formula."""

from __future__ import annotations

import csv
import io
import json
import zipfile

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from dashboard.files.exports import of_rows
from engine.columns import DERIVED
from engine.economics import derived_of
from tests.dashboard.page_runs import exploration, run

NAMES = [column.name for column in DERIVED]


@pytest.mark.parametrize("beside", [["sample_rate"], [], ["block_fw_flops"]])
def test_files_have_them_with_their_units(beside: list[str]) -> None:
    found, target = exploration("tight"), io.BytesIO()
    of_rows(found, "csv", names=["id", *NAMES, *beside], order_by=[("sample_rate", "descending")])(target)
    with zipfile.ZipFile(target) as archive:
        told = json.loads(archive.read("about.json"))
        rows = list(csv.DictReader(io.StringIO(archive.read("executions.csv").decode())))
    assert {one["name"]: one["unit"] for one in told["columns"]}["usd"] == "USD"
    assert len(rows) == found.feasible
    rates = found.rows.fetch([int(row["id"]) for row in rows[:50]], ["sample_rate"])["sample_rate"].to_numpy()
    for name, one in derived_of(found.scenario).items():
        written = [float(row[f"{name} [{one.column.unit}]"]) for row in rows[:50]]
        np.testing.assert_allclose(written, one.of(rates), rtol=1e-9)


def test_results_sort_by_them_and_show_them() -> None:
    found = exploration()
    best = found.best
    assert best is not None
    app = run("results", found, {"results_sort": "usd", "results_columns": "id,usd,energy,tflops_per_gpu"})
    frame = app.dataframe[0].value
    known = derived_of(found.scenario)
    rate = np.array(float(best["sample_rate"]))
    shown = float(frame["tflops_per_gpu"].iloc[0])
    assert shown == pytest.approx(float(known["tflops_per_gpu"].of(rate)) / 1e12)
    assert frame["usd"].is_monotonic_increasing
    assert list(frame)[:4] == ["id", "usd", "energy", "tflops_per_gpu"]


def test_the_search_offers_what_it_knows() -> None:
    def script() -> None:
        from dashboard.shell import search

        search.opener()

    app = AppTest.from_function(script, default_timeout=60)
    app.session_state["_url"] = {}
    app.run()
    app.button(key="search_open").click().run()
    assert not app.exception
    shown = app.selectbox(key="search_field").options
    for words in (
        "Map · page",
        "Accuracy · chapter of the guide",
        "Tensor parallel (TP) · term, parallelism",
        "NVIDIA H100 80 GB SXM, 8 per NVLink domain · system in the library",
        "Mixtral 8x22B · use this model",
    ):
        assert words in shown

"""A comparison is taken away whole: report and tables hold every scenario, and come back as the same results."""

from __future__ import annotations

import functools
import io
import json
import zipfile
from html import unescape

import pandas as pd

import engine
from dashboard.files import comparison_report
from dashboard.files.comparison_tables import archive_tables, sides_of
from dashboard.link.comparison import Comparison
from dashboard.queries.economics import metrics
from dashboard.queries.nearest_fit import short_of
from dashboard.words.numbers import format_value, gibibytes
from engine import Exploration, Scenario, whatif
from engine.columns import fields_of
from tests.dashboard.files.test_report import Page, without_library
from tests.dashboard.page_runs import exploration, plainly


@functools.cache
def compared() -> tuple[Comparison, list[Exploration]]:
    """Calculon's H100, another capacity, the calibrated cost model, and a scenario in which nothing fits."""
    first = exploration()
    smaller = whatif.changed(first.scenario, {"hbm_capacity": 40})
    calibrated = Scenario.of(
        "llama-3-8B",
        "h100_80g_sxm",
        num_procs=16,
        max_batch_size=16,
        datatype="bfloat16",
        limits={"microbatch_size": 1, "activation_recompute": "none"},
    )
    found = [first, *(engine.explore_scenario(each) for each in (smaller, calibrated)), exploration("hopeless")]
    return Comparison(tuple(each.scenario for each in found)), found


def test_the_report_of_a_comparison_holds_every_scenario() -> None:
    comparison, found = compared()
    content = without_library(comparison_report.build(comparison, found, "https://example.org/compare?<x>"))
    text, page = plainly(unescape(content)), Page(content)
    for letter, each in zip("ABCD", found, strict=True):
        assert f"{letter}: {each.scenario.model.title}" in text
        assert f'id="figure-map-{letter}"' in text
        if each.best is not None:
            assert plainly(format_value("sample_rate", each.best["sample_rate"])) in text
    pairs = exploration("hopeless").by_pair().sort_values("shortfall_bytes")
    lacks = plainly(gibibytes(pairs["shortfall_bytes"].iloc[0]))
    assert lacks in plainly(short_of(found[3]))
    assert f"({lacks} in all)" in text
    again = Comparison.from_document(json.loads(page.texts["comparison"]))
    assert [each.key for each in again.scenarios] == [each.key for each in found]
    assert len(set(json.loads(page.texts["figures"]))) == 2 + len(found)
    loaded = {name for tag, attributes in page.elements for name in ("src", "href") if attributes.get(name) and tag}
    assert not loaded


def test_the_tables_of_a_comparison_come_back() -> None:
    _, found = compared()
    sides = sides_of("ABCD", found)
    with zipfile.ZipFile(io.BytesIO(archive_tables(sides, metrics(found[0].scenario)["sample_rate"]))) as packed:
        about = json.loads(packed.read("about.json"))
        tables = {name: pd.read_csv(packed.open(name)) for name in about["files"]}
    assert tables["best.csv"]["scenario"].tolist() == ["A", "B", "C"]
    for letter, each in zip("ABCD", found, strict=True):
        scenario = Scenario.from_document(about["scenarios"][letter]["scenario"])
        assert scenario.key == each.key
        cells = tables["cells.csv"].query("scenario == @letter")
        assert cells["total"].sum() == each.total
        if each.best is None:
            assert cells["shortfall [bytes]"].gt(0).all()
            continue
        assert cells["sample_rate [samples/s]"].max() == each.best["sample_rate"]
        row = tables["best.csv"].query("scenario == @letter")
        again = scenario.evaluate(row[[column.name for column in fields_of(scenario.cost_model)]])
        assert again["total_time"].tolist() == row["total_time [s]"].tolist()
    fields = tables["differences.csv"]["Field"].tolist()
    assert "HBM capacity, GiB" in fields
    assert list(tables["differences.csv"]) == ["Part", "Field", *"ABCD"]

"""Compare, Pareto, Results, What-if and Validation in a real browser: links for strangers, downloads, hostile links.

What the pages show and the files hold is compared with the engine asked directly.
"""

from __future__ import annotations

import csv
import io
import json
import re
import zipfile
from pathlib import Path
from urllib.parse import quote

import pyarrow.parquet as pq
import pytest
from PIL import Image
from playwright.sync_api import Locator, Page, expect

import hardware
from dashboard.pages import registry
from dashboard.pages.validation import queries as validation_data
from dashboard.queries.economics import utilisation
from dashboard.words.numbers import count, format_value, percent, signed_percent
from engine import Exploration, Scenario, explore_scenario, whatif
from engine.recommendation import recommend
from engine.store import StoreCondition
from tests.browser.conftest import SMALL, choose_from, open_at

LIMITS = {"tensor_par": [2, 4], "pipeline_par": [1, 2]}
LIMITED = f"{SMALL}&limits=tensor_par:2,4;pipeline_par:1,2"
ONE = f"{SMALL}&limits=tensor_par:4;pipeline_par:1"
"""One cell, for pages that search the space some hundred times."""


@pytest.fixture(scope="module")
def direct() -> Exploration:
    """The scenario of `LIMITED`, explored without the application."""
    scenario = Scenario.of(
        "gpt3-13B", "h100_80g_nvl8", num_procs=16, max_batch_size=32, datatype="float16", limits=LIMITS
    )
    return explore_scenario(scenario)


def rate_of(exploration: Exploration) -> float:
    assert exploration.best is not None
    return float(exploration.best["sample_rate"])


def recommended_rate(exploration: Exploration) -> float:
    execution = recommend(exploration).execution
    assert execution is not None
    return float(execution["sample_rate"])


def told(rate: float) -> str:
    """A throughput as a tile prints it."""
    return format_value("sample_rate", rate).split()[0]


def tile(page: Page, label: str) -> Locator:
    return page.locator(".ss-tile").filter(has_text=label)


def shared(page: Page) -> str:
    """The link that Share offers."""
    page.get_by_role("button", name="Share", exact=True).locator("visible=true").first.click()
    link = page.locator("[data-testid=stCode] code").first.inner_text().replace("\n", "").strip()
    page.keyboard.press("Escape")
    return link


def test_scenarios_are_compared_and_the_link_shows_the_same_elsewhere(
    page: Page, stranger: Page, server: str, direct: Exploration
) -> None:
    changes = {"hbm_bandwidth": 6144.0, "hbm_capacity": 40.0}
    faster = explore_scenario(whatif.changed(direct.scenario, changes))
    open_at(page, f"{server}/compare?{LIMITED}&compare_b=~hbm_bandwidth:6144;hbm_capacity:40")
    gain = signed_percent(recommended_rate(faster) / recommended_rate(direct) - 1)
    for each in (page, stranger):
        if each is stranger:
            open_at(each, page.url)
        expect(tile(each, "A · throughput")).to_contain_text(told(recommended_rate(direct)))
        expect(tile(each, "B · throughput")).to_contain_text(told(recommended_rate(faster)))
        expect(tile(each, "B · throughput")).to_contain_text(f"{gain} against A")
        expect(each.locator(".st-key-compare_memory .barlayer path").first).to_be_attached()


def test_what_adds_a_scenario_stays_shut_once_it_did(page: Page, server: str) -> None:
    open_at(page, f"{server}/compare?{LIMITED}")
    page.get_by_role("button", name="Add a scenario").click()
    page.locator(".st-key-compare_add_variant button").click()
    expect(tile(page, "B · throughput")).to_be_visible()
    expect(page.get_by_role("combobox", name="Copy A, changing")).to_have_count(0)
    page.get_by_text("from zero", exact=True).click()
    page.wait_for_url("**compare_domain=**")
    expect(page.locator("[data-test-script-state=notRunning]")).to_be_attached()
    expect(page.get_by_role("combobox", name="Copy A, changing")).to_have_count(0)


def test_scenarios_picked_on_their_page_open_in_compare(page: Page, server: str, direct: Exploration) -> None:
    more = Scenario.of("gpt3-13B", "h100_80g_nvl8", num_procs=8, max_batch_size=32, datatype="float16", limits=LIMITS)
    for query in (LIMITED.replace("procs=16", "procs=8"), LIMITED):
        open_at(page, f"{server}/?{query}")
        expect(tile(page, "Throughput")).to_be_visible()
    open_at(page, f"{server}/scenarios?scenarios_pick={direct.key}.{more.key}")
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(tile(page, "A · throughput")).to_contain_text(told(recommended_rate(direct)))
    expect(tile(page, "B · throughput")).to_contain_text(told(recommended_rate(explore_scenario(more))))


def test_the_frontier_is_walked_shared_and_downloaded(
    page: Page, stranger: Page, server: str, direct: Exploration, tmp_path: Path
) -> None:
    front = direct.frontier("sample_rate", "proc_mem_tier1_cap_req")
    open_at(page, f"{server}/pareto?{LIMITED}&pareto_y=mfu&pareto_b=~hbm_bandwidth:6144")
    share = percent(utilisation(direct.scenario, front["sample_rate"].iloc[0]))
    expect(tile(page, "Highest MFU, full attention")).to_contain_text(share.split()[0])
    expect(page.locator(".st-key-pareto_plot .legendtext")).to_have_count(2)
    head = page.locator(".st-key-pareto_panel .ss-head").first
    expect(head).to_contain_text(f"execution {int(front['id'].iloc[0]):,}")
    page.get_by_role("button", name="Go", exact=True).first.click()
    page.wait_for_url("**id=**")
    expect(head).not_to_contain_text(f"execution {int(front['id'].iloc[0]):,}")
    number = re.search(r"execution ([\d,]+)", head.inner_text())
    assert number is not None
    assert int(number.group(1).replace(",", "")) in set(front["id"])
    open_at(stranger, page.url)
    expect(stranger.locator(".st-key-pareto_panel .ss-head").first).to_contain_text(number.group(0))
    expect(stranger.locator(".st-key-pareto_plot .legendtext")).to_have_count(2)
    # The picture of a chart stands on the page's ground: Plotly's own is transparent.
    page.locator(".st-key-pareto_plot .ss-chart").hover()
    with page.expect_download() as picture:
        page.locator(".st-key-pareto_plot .modebar-btn").click()
    assert picture.value.suggested_filename == "shardscape_pareto_plot.png"
    picture.value.save_as(tmp_path / "frontier.png")
    with Image.open(tmp_path / "frontier.png") as image:
        assert image.convert("RGBA").getpixel((1, 1)) == (255, 255, 255, 255)
    with page.expect_download() as file:
        page.locator(".st-key-pareto_download_csv button").click()
    file.value.save_as(tmp_path / "frontier.zip")
    with zipfile.ZipFile(tmp_path / "frontier.zip") as archive, archive.open("executions.csv") as table:
        rows = list(csv.DictReader(io.TextIOWrapper(table, encoding="utf-8")))
    assert [int(row["id"]) for row in rows] == front["id"].tolist()
    assert [float(row["sample_rate [samples/s]"]) for row in rows] == front["sample_rate"].tolist()


def test_filtered_results_are_shared_and_downloaded_exactly(
    page: Page, stranger: Page, server: str, direct: Exploration, tmp_path: Path
) -> None:
    half = utilisation(direct.scenario, rate_of(direct)) / 2
    bound = 40 * 2.0**30
    query = f"{LIMITED}&results_where=mfu:{half!r}..;proc_mem_tier1_cap_req:..{bound!r};microbatch_size:1..4"
    where = [
        StoreCondition("sample_rate", ">=", half / utilisation(direct.scenario, 1.0)),
        StoreCondition("proc_mem_tier1_cap_req", "<=", bound),
        StoreCondition("microbatch_size", ">=", 1),
        StoreCondition("microbatch_size", "<=", 4),
    ]
    expected = direct.rows.page(0, direct.feasible, order_by=[("total_time", "ascending")], where=where)
    open_at(page, f"{server}/results?{query}&results_sort=total_time")
    sentence = page.locator(".ss-head").filter(has_text="feasible executions")
    expect(sentence).to_contain_text(f"{count(expected.num_rows)} of {count(direct.feasible)}")
    page.get_by_role("button", name="Export", exact=True).locator("visible=true").click()
    with page.expect_download() as file:
        page.locator(".st-key-results_export_parquet a").click()
    file.value.save_as(tmp_path / "executions.parquet")
    table = pq.read_table(tmp_path / "executions.parquet")
    assert table["id"].to_pylist() == expected["id"].to_pylist()
    for name in ("total_time", "sample_rate", "tensor_par"):
        assert table[name].to_pylist() == expected[name].to_pylist()
    page.keyboard.press("Escape")
    open_at(stranger, shared(page))
    told_there = stranger.locator(".ss-head").filter(has_text="feasible executions")
    expect(told_there).to_contain_text(f"{count(expected.num_rows)} of {count(direct.feasible)}")
    page.get_by_role("button", name="MFU, full attention", exact=False).first.click()  # the chip removes its filter
    fewer = direct.rows.count(where[1:])
    expect(sentence).to_contain_text(f"{count(fewer)} of {count(direct.feasible)}")


def test_a_what_if_is_answered_shared_and_taken_away_as_a_system(page: Page, stranger: Page, server: str) -> None:
    base = Scenario.of(
        "gpt3-13B",
        "h100_80g_nvl8",
        num_procs=16,
        max_batch_size=32,
        datatype="float16",
        limits={"tensor_par": [4], "pipeline_par": [1]},
    )
    before = rate_of(explore_scenario(base))
    rate = rate_of(explore_scenario(whatif.changed(base, {"hbm_bandwidth": 6144.0})))
    open_at(page, f"{server}/whatif?{ONE}&whatif_changes=hbm_bandwidth:6144&figures=fastest")
    for each in (page, stranger):
        if each is stranger:
            open_at(each, page.url)
        expect(tile(each, "Throughput")).to_contain_text(told(rate))
        expect(tile(each, "Throughput")).to_contain_text(signed_percent(rate / before - 1))
    page.get_by_role("button", name="Save as system", exact=True).locator("visible=true").click()
    with page.expect_download() as file:
        page.get_by_role("button", name="System file", exact=True).click()
    document = json.loads(Path(file.value.path()).read_text())
    assert document["mem1"]["bandwidth_gb_per_s"] == 6144
    assert document["derived_from"] == "h100_80g_nvl8"
    whole = hardware.to_document(base.system)
    assert document["networks"] == whole["networks"]


def test_validation_is_narrowed_and_the_link_shows_the_same_elsewhere(page: Page, stranger: Page, server: str) -> None:
    checked = validation_data.load_packaged_runs()
    source = str(checked.rows["source_family"].value_counts().index[0])
    filters = validation_data.Filters(source, validation_data.EVERY, validation_data.EVERY)
    figures = validation_data.headline_errors(checked, filters)
    counted = count(len(validation_data.counted_rows(checked, filters)))
    open_at(page, f"{server}/validation")
    named = page.get_by_role("option").filter(has_text=re.compile(re.escape(source), re.IGNORECASE))
    choose_from(page.get_by_role("combobox", name="Source"), named.first)
    page.wait_for_url("**validation_source=**")
    for each in (page, stranger):
        if each is stranger:
            open_at(each, page.url)
        expect(tile(each, "Runs counted").locator(".ss-tile-value")).to_have_text(counted)
        expect(tile(each, "Mean error, calibrated")).to_contain_text(f"{figures['mean']:.1f}")


EVIL = quote('<img src=x onerror="alert(1)">')


HOSTILE = (
    ("compare", f"compare_b={EVIL}&compare_c=~procs:1e12", "left out"),
    ("pareto", f"pareto_b=scenario%3D{EVIL}&pareto_x={EVIL}", "pareto_x"),
    ("results", f"results_where=mfu:{EVIL}&results_columns={EVIL}&results_page=99999999999", "results"),
    ("whatif", "whatif_changes=hbm_capacity:1e300;procs:1e12", "as it was"),
    ("validation", f"validation_source={EVIL}&validation_run=999999999", "validation"),
)


def test_hostile_links_end_in_a_sentence_on_every_page(page: Page, server: str) -> None:
    for path, query, word in HOSTILE:
        open_at(page, f"{server}/{path}?{ONE}&{query}")
        expect(page.get_by_role("heading", level=1, name=registry.page(path).title, exact=True)).to_be_attached()
        expect(page.locator("[data-testid=stAlert]").filter(has_text=word).first, path).to_be_visible()
        drawn = page.locator(".ss-tile, [class*=st-key-compare_add], .st-key-results_table").first
        expect(drawn, path).to_be_visible()
        expect(page.locator("[data-testid=stException]"), path).to_have_count(0)
        assert page.locator("img[src=x]").count() == 0, path


def test_fields_of_whole_numbers_take_powers_of_ten_for_what_they_are(page: Page, server: str) -> None:
    open_at(page, f"{server}/serving?serving_model=llama-3-8B&serving_system=h100_80g_sxm&serving_procs=2")
    field = page.get_by_role("spinbutton", name="Prompt, tokens")
    field.fill("2e3")
    field.press("Enter")
    page.wait_for_url("**serving_prompt=2000**")
    expect(field).to_have_value("2000")
    field.fill("1e12")  # more than any context has
    field.press("Enter")
    page.get_by_role("spinbutton", name="Output, tokens").fill("64")
    page.get_by_role("spinbutton", name="Output, tokens").press("Enter")
    page.wait_for_url("**serving_output=64**")
    assert "serving_prompt=2000" in page.url

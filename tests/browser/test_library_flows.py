"""Library, Scenarios and sharing in a real browser: edit, use, share with a stranger, save, report, hostile links."""

from __future__ import annotations

import json
from pathlib import Path

from playwright.sync_api import Page, expect

import hardware
import models
from dashboard.words.numbers import format_value
from engine import explore
from engine.recommendation import recommend
from tests.browser.conftest import SMALL, open_at, settled
from tests.dashboard.link.test_sharing import complete, folded

LIMITS = "limits=tensor_par:2,4;pipeline_par:1,2"


def popover(page: Page, name: str) -> None:
    settled(page)
    page.get_by_role("button", name=name, exact=True).locator("visible=true").first.click()


def test_an_edited_system_reaches_a_stranger_who_never_saw_it(page: Page, stranger: Page, server: str) -> None:
    open_at(page, f"{server}/library?{SMALL}&{LIMITS}&library_kind=systems&library_item=h100_80g_nvl8")
    popover(page, "Edit a copy")
    field = page.get_by_role("spinbutton", name="HBM bandwidth [GB/s]")
    field.fill("6144")
    field.press("Enter")
    expect(page.get_by_text("1 value will differ")).to_be_visible()
    popover(page, "Use in the scenario")
    expect(page.locator(".st-key-sentence")).to_contain_text("edited")
    system = hardware.edited(hardware.load("h100_80g_nvl8"), {"mem1.bandwidth_gb_per_s": 6144.0})
    limits = {"tensor_par": [2, 4], "pipeline_par": [1, 2]}
    direct = explore("gpt3-13B", system, num_procs=16, max_batch_size=32, datatype="float16", limits=limits)
    advised = recommend(direct).execution
    assert advised is not None
    rate = format_value("sample_rate", advised["sample_rate"]).split()[0]
    expect(page.locator(".ss-tile-value").first).to_contain_text(rate)
    page.get_by_role("radio", name="MFU").click()
    page.wait_for_url("**metric=mfu**")
    popover(page, "Share")
    link = page.locator("[data-testid=stCode] code").first.inner_text().replace("\n", "").strip()
    assert len(link) < 600
    assert "metric=mfu" in link
    open_at(stranger, link)
    expect(stranger.locator(".st-key-sentence")).to_contain_text("edited")
    expect(stranger.locator(".ss-tile-value").first).to_contain_text(rate)
    expect(stranger.get_by_role("radio", name="MFU")).to_be_checked()
    expect(stranger.locator("[data-testid=stAlert]")).to_have_count(0)


def test_saving_finding_reporting_and_deleting(page: Page, server: str, tmp_path: Path) -> None:
    open_at(page, f"{server}/?{SMALL}&{LIMITS}&metric=mfu")
    page.wait_for_selector(".st-key-explore_map .barlayer path")
    popover(page, "Save")
    title = page.get_by_role("textbox", name="Title")
    title.fill("Flow <b>test</b>")
    title.press("Enter")  # saves, and shuts the menu
    expect(page.get_by_text("Saved as")).to_be_visible()
    open_at(page, f"{server}/scenarios?scenarios_kind=saved")
    expect(page.locator(".st-key-scenarios_panel .ss-head")).to_contain_text("Flow <b>test</b>")
    with page.expect_download() as report:
        popover(page, "Report")
    report.value.save_as(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert "Flow &lt;b&gt;test&lt;/b&gt;" in text
    with page.expect_download() as file:
        popover(page, "File")
    file.value.save_as(tmp_path / "scenario.json")
    assert json.loads((tmp_path / "scenario.json").read_text())["num_procs"] == 16
    page.get_by_role("button", name="Open", exact=True).click()
    expect(page.get_by_role("radio", name="MFU")).to_be_checked()  # as it was saved
    open_at(page, f"{server}/scenarios?scenarios_kind=saved")
    popover(page, "Delete")
    page.get_by_role("button", name="Delete the saved scenario").click()
    expect(page.get_by_text("None of the", exact=False)).to_be_visible()
    popover(page, "Open a file")
    page.locator("[data-testid=stFileUploaderDropzoneInput]").set_input_files(tmp_path / "scenario.json")
    page.get_by_role("button", name="Open it").click()
    expect(page.locator(".st-key-sentence")).to_contain_text("GPT-3 13B")


def test_a_file_from_elsewhere_becomes_a_model(page: Page, server: str, tmp_path: Path) -> None:
    file = tmp_path / "tiny.json"
    file.write_text(json.dumps(models.to_calculon(models.load("gpt3-13B"))))
    open_at(page, f"{server}/library?{SMALL}")
    popover(page, "Upload")
    page.locator("[data-testid=stFileUploaderDropzoneInput]").set_input_files(file)
    expect(page.get_by_text("What is not represented").locator("visible=true").last).to_be_visible()
    page.get_by_role("button", name="Keep in the library").click()
    expect(page.locator(".st-key-library_sheet .ss-head").first).to_contain_text("tiny")


def test_a_hostile_link_ends_in_a_sentence(page: Page, server: str) -> None:
    open_at(page, f"{server}/?scenario={folded(b' ' * 5_000_000)}")
    expect(page.locator("[data-testid=stAlert]").first).to_contain_text("expands")
    expect(page.locator("[data-testid=stException]")).to_have_count(0)


def test_script_in_names_stays_text(page: Page, server: str) -> None:
    evil = "<img src=x onerror=alert(1)> [x](javascript:alert(1)) <script>alert(1)</script> "
    evil += "https://evil.example www.evil.example me@evil.example"
    model = {"of": "gpt3-13B", "name": evil, "title": evil, "set": {"seq_size": 1024}}
    limits = {"tensor_par": [4], "pipeline_par": [1]}
    sent = folded(complete(model=model, num_procs=16, max_batch_size=16, limits=limits))
    for path in ("", "library", "scenarios"):
        open_at(page, f"{server}/{path}?scenario={sent}")
        expect(page.get_by_text("<img src=x onerror=alert(1)>").first).to_be_attached()
        expect(page.locator("[data-test-script-state=notRunning]")).to_be_attached()
        page.wait_for_timeout(300)  # what is drawn late
        assert page.locator("img[src=x]").count() == 0
        assert page.locator('a[href^="javascript"], a[href*="evil.example"]').count() == 0

"""What is sent to others, in a real browser: a whole comparison as a file, and addresses as people write them."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import BrowserContext, Locator, Page, expect

from dashboard.words.numbers import format_value
from engine import Scenario, explore_scenario, whatif
from engine.recommendation import recommend
from tests.browser.conftest import SMALL, open_at, settled

LIMITS = {"tensor_par": [2, 4], "pipeline_par": [1, 2]}
LIMITED = f"{SMALL}&limits=pipeline_par:1,2;tensor_par:2,4"
"""Limits in the order in which links have them."""


def tile(page: Page, label: str) -> Locator:
    return page.locator(".ss-tile").filter(has_text=label)


def press(page: Page, name: str) -> None:
    settled(page)
    page.get_by_role("button", name=name, exact=True).locator("visible=true").first.click()


def test_a_comparison_travels_as_one_file(page: Page, stranger: Page, server: str, tmp_path: Path) -> None:
    first = Scenario.of("gpt3-13B", "h100_80g_nvl8", num_procs=16, max_batch_size=32, datatype="float16", limits=LIMITS)
    second = whatif.changed(first, {"hbm_bandwidth": 6144})
    rates = []
    for scenario in (first, second):
        advised = recommend(explore_scenario(scenario)).execution
        assert advised is not None
        rates.append(format_value("sample_rate", advised["sample_rate"]).split()[0])
    open_at(page, f"{server}/compare?{LIMITED}&compare_b=~hbm_bandwidth:6144&compare_domain=logarithmic")
    expect(tile(page, "B · throughput")).to_contain_text(rates[1])
    press(page, "Share")
    with page.expect_download() as download:
        page.get_by_role("button", name="Comparison file").click()
    file = tmp_path / "comparison.json"
    download.value.save_as(file)
    # The stranger had a what-if and another comparison of their own, which the file replaces.
    open_at(stranger, f"{server}/whatif?{LIMITED}&whatif_changes=hbm_bandwidth:4096")
    open_at(stranger, f"{server}/scenarios")
    press(stranger, "Open a file")
    stranger.locator("[data-testid=stFileUploaderDropzoneInput]").set_input_files(file)
    stranger.get_by_role("button", name="Open it").click()
    for letter, rate in zip("AB", rates, strict=True):
        expect(tile(stranger, f"{letter} · throughput")).to_contain_text(rate)
    expect(stranger.get_by_text("A with HBM bandwidth 6.14 TB/s (×2)")).to_be_visible()
    expect(stranger.get_by_role("radio", name="logarithmic")).to_be_checked()
    settled(stranger)
    assert parse_qs(urlsplit(stranger.url).query) == parse_qs(urlsplit(page.url).query)


def test_the_start_page_written_out_opens_it_with_what_the_link_says(page: Page, server: str) -> None:
    open_at(page, f"{server}/memory?{LIMITED}")
    expect(page.locator(".st-key-sentence")).to_contain_text("GPT-3 13B")
    for path in ("explore", "explore/"):
        page.goto(f"{server}/{path}?{LIMITED}&metric=mfu")
        expect(page.get_by_role("radio", name="MFU")).to_be_checked()
        expect(page.locator(".st-key-sentence")).to_contain_text("GPT-3 13B")
        assert urlsplit(page.url).path == "/"
        assert parse_qs(urlsplit(page.url).query) == parse_qs(f"{LIMITED}&metric=mfu")
        assert page.get_by_role("dialog").count() == 0
        expect(page.get_by_test_id("stTopNav").get_by_role("button", name=re.compile("^Explore"))).to_have_count(1)
        page.go_back()
        expect(page).to_have_url(re.compile(r"/memory\?"))


def test_an_address_that_is_none_is_told_of(second: BrowserContext, server: str) -> None:
    page = second.new_page()  # the browser logs it as an error, too
    page.goto(f"{server}/nothing?{LIMITED}")
    expect(page.get_by_role("heading", level=1)).to_contain_text("There is no page /nothing")
    page.get_by_role("link", name="Memory", exact=True).click()
    expect(page.locator(".st-key-sentence")).to_contain_text("GPT-3 13B")
    page.close()

"""A server that is started again takes the first thing done on a page that was open all the while."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser.conftest import Server, Window, drawn_again, open_at, settled

QUERY = "model=llama-3.1-8B&system=h100_80g_sxm&procs=8&serving_ttft=500&serving_tpot=50"


def test_the_first_thing_done_after_the_server_was_started_again_is_done(
    process: Server, first: Window, other: Window
) -> None:
    page = other.page
    field = page.locator("[class*=st-key-_serving_ttft] input").first
    open_at(page, f"{process.address}/serving?{QUERY}")
    expect(field).to_have_value("500")
    expect(page.locator("canvas").first).to_be_visible()
    expect(page.get_by_test_id("stSkeleton")).to_have_count(0)
    page.wait_for_load_state("networkidle")  # all scripts are there
    settled(page)
    process.stop()
    error = page.get_by_text("Connection error")
    expect(error).to_be_visible()
    with drawn_again(page):  # by itself, as soon as the server is found again
        process.start()
        expect(error).to_have_count(0)
    field.fill("")
    field.press("Enter")
    expect(page).to_have_url(re.compile("serving_ttft=none"))
    expect(page).to_have_url(re.compile("serving_tpot=50"))
    settled(page)
    expect(field).to_have_value("")
    for window in (first, other):  # what other tests work on has found the server again as well
        expect(window.page.get_by_text("Connection error")).to_have_count(0)
        settled(window.page)
        window.complaints.clear()

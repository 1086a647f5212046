"""Explore in a real browser: after any clicks every part of the page is about what was clicked last."""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import SMALL

Visit = Callable[..., Page]


def menu(page: Page, label: str) -> Locator:
    """What is in a menu of the page, opened."""
    shut(page)
    button = page.get_by_test_id("stMain").get_by_test_id("stPopover").get_by_role("button", name=re.compile(label))
    button.locator("visible=true").first.click()
    body = page.get_by_test_id("stPopoverBody").locator("visible=true")
    expect(body).to_have_count(1)
    return body


def shut(page: Page) -> None:
    """Shuts whatever menu is open."""
    opened = page.get_by_test_id("stPopoverBody").locator("visible=true")
    for _ in range(5):
        if opened.count():
            page.keyboard.press("Escape")
            page.wait_for_timeout(200)
    expect(opened).to_have_count(0)


def metric(page: Page, name: str) -> None:
    page.locator(".st-key-explore_toolbar [role=radio]").filter(has_text=name).click()


def click_cell(page: Page, tensor: int, pipeline: int) -> None:
    """Clicks a cell of the map, on which the pointer rests first as a person's does."""
    # What a menu shows is scrolled to: the map may be above the window.
    page.locator(".st-key-explore_toolbar").scroll_into_view_if_needed()
    find = """([tensor, pipeline]) => {
      const plot = document.querySelector('.st-key-explore_map .js-plotly-plot');
      const place = plot.data[0].customdata.findIndex(cell => cell[0] == tensor && cell[1] == pipeline);
      const box = plot.querySelectorAll('.barlayer .point path')[place].getBoundingClientRect();
      return [box.x + box.width / 2, box.y + box.height / 2];
    }"""
    across, down = page.evaluate(find, [tensor, pipeline])
    page.mouse.move(across, down, steps=3)
    page.wait_for_timeout(400)
    page.mouse.click(across, down)


def expect_cell(page: Page, tensor: int, pipeline: int) -> None:
    expect(page.locator(".st-key-panel .ss-head").first).to_contain_text(f"TP {tensor} × PP {pipeline}")
    expect(page).to_have_url(re.compile(f"cell={tensor}x{pipeline}(&|$)"))


def expect_metric(page: Page, key: str, name: str) -> None:
    expect(page).to_have_url(re.compile(f"metric={key}(&|$)"))
    # While the page is drawn with other buttons the former ones are there as well.
    chosen = page.locator(".st-key-explore_toolbar [role=radio][aria-checked=true]").filter(has_text=name)
    expect(chosen.first).to_be_visible()


def test_list_download_and_link_name_the_cell_and_the_metric_that_were_clicked(visit: Visit) -> None:
    page = visit()
    click_cell(page, 2, 2)
    expect_cell(page, 2, 2)
    metric(page, "MFU")
    expect_metric(page, "mfu", "MFU")
    click_cell(page, 4, 2)
    expect_cell(page, 4, 2)
    metric(page, "Step time")
    expect_metric(page, "total_time", "Step time")
    expect_cell(page, 4, 2)
    expect(page.get_by_text("best step time with the choice fixed")).to_be_visible()
    lists = menu(page, "View")
    expect(lists.get_by_role("combobox", name="Metric", exact=True)).to_have_value("Step time")
    expect(lists.get_by_role("combobox", name="Cell", exact=True)).to_have_value("TP 4 × PP 2")
    expect(menu(page, "Terms").get_by_text("Step time", exact=False).first).to_be_visible()
    expect(menu(page, "Download").get_by_text("TP 4 × PP 2 only")).to_be_visible()
    shut(page)
    page.get_by_role("button", name="Share", exact=True).locator("visible=true").click()
    link = page.locator("[data-testid=stCode] code").first
    expect(link).to_contain_text("cell=4x2")
    expect(link).to_contain_text("metric=total_time")


def test_relaxing_a_filter_in_the_panel_changes_the_whole_page(page: Page, server: str) -> None:
    page.goto(f"{server}/?{SMALL}&results_where=tensor_par:4&cell=2x8")
    clear = page.locator(".st-key-panel .st-key-explore_clear_all button")
    expect(clear).to_be_visible()
    expect(page.locator(".st-key-explore_filters")).to_contain_text("Tensor parallel 4")
    clear.click()
    expect(page.locator(".st-key-explore_filters")).to_have_count(0)
    expect(page.get_by_text("Meet the filters")).to_have_count(0)
    expect(page.locator(".st-key-explore_map .barlayer path").first).to_be_visible()
    expect(page.locator(".st-key-panel .ss-facts")).to_be_visible()
    assert "results_where" not in page.url

"""Explore in a real browser: after any clicks every part of the page is about what was clicked last."""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import SMALL, open_at, settled

Visit = Callable[..., Page]
CLICK = """names => {
  const all = [...document.querySelectorAll('.st-key-explore_toolbar [role=radio], [class*=st-key-_map_table] input')];
  for (const name of names) all.find(each => each.innerText.trim() == name || each.type == name).click();
}"""


def menu(page: Page, label: str) -> Locator:
    """What is in a menu of the page, opened."""
    shut(page)
    settled(page)
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


def choose(page: Page, label: str, text: str) -> None:
    """Chooses from a list under View, in which the pointer rests first as a person's does.

    A long list draws its entries as it is scrolled: pressed at once, the button is released over another entry.
    """
    menu(page, "View").get_by_role("combobox", name=label, exact=True).click()
    option = page.get_by_role("option", name=text, exact=True)
    option.hover()
    page.wait_for_timeout(400)
    option.click()
    expect(option).to_have_count(0)
    shut(page)


def metric(page: Page, name: str) -> None:
    settled(page)  # while the page is drawn with other buttons the former ones are there as well
    page.locator(".st-key-explore_toolbar [role=radio]").filter(has_text=name).click()


def click_cell(page: Page, tensor: int, pipeline: int) -> None:
    """Clicks a cell of the map, on which the pointer rests first as a person's does."""
    settled(page)
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
    chosen = page.locator(".st-key-explore_toolbar [role=radio][aria-checked=true]").filter(has_text=name)
    expect(chosen.first).to_be_visible()


def expect_named(page: Page, cell: tuple[int, int], key: str, label: str) -> None:
    """Lists, downloads and the link name the cell and the metric."""
    name = f"TP {cell[0]} × PP {cell[1]}"
    expect(page.get_by_text(re.compile(f"best {label} with the choice fixed", re.IGNORECASE))).to_be_visible()
    lists = menu(page, "View")
    expect(lists.get_by_role("combobox", name="Metric", exact=True)).to_have_value(label)
    expect(lists.get_by_role("combobox", name="Cell", exact=True)).to_have_value(name)
    expect(menu(page, "Download").get_by_text(f"{name} only")).to_be_visible()
    shut(page)
    page.get_by_role("button", name="Share", exact=True).locator("visible=true").click()
    link = page.locator("[data-testid=stCode] code").first
    expect(link).to_contain_text(f"cell={cell[0]}x{cell[1]}")
    expect(link).to_contain_text(f"metric={key}")
    shut(page)


def test_all_name_what_was_clicked_last_and_back_takes_back_one_click_at_a_time(visit: Visit) -> None:
    """What was chosen in a menu does not come back with later clicks, but with Back."""
    page = visit(f"{SMALL}&cell=2x4&id=377497")
    choose(page, "Colours", "logarithmic")
    expect(page).to_have_url(re.compile("map_domain=log"))
    choose(page, "Cell", "TP 2 × PP 2")
    expect_cell(page, 2, 2)
    click_cell(page, 4, 2)
    expect_cell(page, 4, 2)
    choose(page, "Metric", "Energy of 1 T tokens")
    expect_metric(page, "energy", "Energy of 1 T tokens")
    expect_cell(page, 4, 2)
    metric(page, "MFU, full")
    expect_metric(page, "mfu", "MFU, full")
    click_cell(page, 1, 2)
    expect_cell(page, 1, 2)
    expect_metric(page, "mfu", "MFU, full")
    metric(page, "Step time")
    expect_metric(page, "total_time", "Step time")
    expect_cell(page, 1, 2)
    expect_named(page, (1, 2), "total_time", "Step time")
    page.go_back()
    expect_metric(page, "mfu", "MFU, full")
    expect_cell(page, 1, 2)
    page.go_back()
    expect_cell(page, 4, 2)
    page.go_back()
    expect_metric(page, "energy", "Energy of 1 T tokens")
    page.go_back()
    expect(page).not_to_have_url(re.compile("metric="))
    chosen = page.locator(".st-key-explore_toolbar [role=radio][aria-checked=true]")
    expect(chosen.filter(has_text="Throughput").first).to_be_visible()
    expect_cell(page, 4, 2)
    page.go_back()
    expect_cell(page, 2, 2)
    page.go_back()
    expect_cell(page, 2, 4)
    assert "id=377497" in page.url
    page.go_back()
    expect(page).not_to_have_url(re.compile("map_domain"))
    page.go_forward()
    expect(page).to_have_url(re.compile("map_domain=log"))


def test_relaxing_a_filter_in_the_panel_changes_the_whole_page(page: Page, server: str) -> None:
    open_at(page, f"{server}/?{SMALL}&results_where=tensor_par:4&cell=2x8")
    clear = page.locator(".st-key-panel .st-key-explore_clear_all button")
    expect(clear).to_be_visible()
    expect(page.locator(".st-key-explore_filters")).to_contain_text("Tensor parallel 4")
    clear.click()
    expect(page.locator(".st-key-explore_filters")).to_have_count(0)
    expect(page.get_by_text("Meet the filters")).to_have_count(0)
    expect(page.locator(".st-key-explore_map .barlayer path").first).to_be_visible()
    expect(page.locator(".st-key-panel .ss-facts").first).to_be_visible()
    assert "results_where" not in page.url


def test_of_quick_clicks_none_is_lost(visit: Visit) -> None:
    page = visit()
    menu(page, "View")
    expect(page.locator("[class*=st-key-_map_table] input")).to_be_attached()
    page.evaluate(CLICK, ["MFU, full", "checkbox", "Step time"])
    expect_metric(page, "total_time", "Step time")
    expect(page.locator("[class*=st-key-explore_cells] canvas").first).to_be_visible()
    expect(page.locator(".st-key-explore_map")).to_have_count(0)
    assert "map_table=on" in page.url


def test_a_row_of_the_panel_s_table_names_its_cell_everywhere_and_its_mark_stays_there(visit: Visit) -> None:
    page = visit()

    def row(number: int) -> None:
        settled(page)  # or else it may be the table of the cell before, which goes away
        table = page.locator("[class*=st-key-explore_top]").first
        table.scroll_into_view_if_needed()
        expect(table.locator("canvas").first).to_be_visible()
        page.wait_for_timeout(400)
        box = table.locator("canvas").first.bounding_box()
        assert box is not None
        page.mouse.click(box["x"] + 12, box["y"] + 36 + 28 * number + 12)

    row(2)
    expect(page).to_have_url(re.compile("id="))
    cell = re.search(r"cell=(\d+)x(\d+)", page.url)
    assert cell is not None
    name = f"TP {cell[1]} × PP {cell[2]}"
    expect(menu(page, "View").get_by_role("combobox", name="Cell", exact=True)).to_have_value(name)
    expect(menu(page, "Download").get_by_text(f"{name} only")).to_be_visible()
    shut(page)
    click_cell(page, 2, 2)
    expect_cell(page, 2, 2)
    assert "id=" not in page.url
    row(2)
    expect(page).to_have_url(re.compile("id="))

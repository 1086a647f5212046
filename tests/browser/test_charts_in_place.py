"""Charts change where they are: a click draws anew what differs, and nothing that a person did to one is lost."""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import Page, expect

from dashboard.link.own_studies import packed_study
from engine.codesign import Study
from tests.browser.conftest import open_at, settled
from tests.browser.test_click_flows import click_cell, expect_cell, expect_metric, metric

Visit = Callable[[], Page]
MAP = ".st-key-explore_map .js-plotly-plot"


def test_the_map_stays_frames_a_clicked_cell_at_once_and_draws_only_what_it_changes(visit: Visit) -> None:
    page = visit()
    settled(page)
    page.locator(MAP).evaluate("plot => { plot.querySelector('.main-svg').dataset.first = 'yes'; }")
    metric(page, "MFU, full")
    expect_metric(page, "mfu", "MFU, full")
    expect(page.locator(MAP)).to_have_attribute("aria-label", re.compile("MFU, full attention by tensor parallel"))
    settled(page)
    page.locator(MAP).evaluate("plot => { plot.querySelector('.barlayer .point path').dataset.first = 'yes'; }")
    page.locator(".ss-strip").evaluate("strip => { strip.dataset.first = 'yes'; }")
    framed = f"""() => document.querySelector('{MAP}')._fullLayout.shapes.filter(({{name}}) => name === 'clicked')
      .map(({{x0, x1, y0, y1}}) => [(x0 + x1) / 2, (y0 + y1) / 2].map(Math.round))"""
    before = page.evaluate(framed)
    # What the browser tells the server is lost: the frame is the browser's own.
    page.evaluate("window.kept = WebSocket.prototype.send; WebSocket.prototype.send = () => {}; null")
    click_cell(page, 2, 2)
    page.wait_for_function(f"before => JSON.stringify(({framed})()) !== JSON.stringify(before)", arg=before)
    page.evaluate("WebSocket.prototype.send = window.kept; null")
    own = page.evaluate(framed)
    click_cell(page, 1, 2)
    expect_cell(page, 1, 2)
    click_cell(page, 2, 2)
    expect_cell(page, 2, 2)
    settled(page)
    assert page.evaluate(framed) == own  # the server frames the same
    for what in (f"{MAP} .main-svg", f"{MAP} .barlayer .point path", ".ss-strip"):
        expect(page.locator(what).first).to_have_attribute("data-first", "yes")
    # Plotly fades what is not selected: nothing ever is, charts frame what was clicked.
    assert page.locator(MAP).evaluate("plot => plot._fullLayout.clickmode") == "event"
    page.set_viewport_size({"width": 820, "height": 900})
    room = "plot => plot._fullLayout.width - plot.clientWidth"
    page.wait_for_function(f"() => ({room})(document.querySelector('{MAP}')) === 0")


def test_a_zoom_outlives_what_does_not_change_the_axes(page: Page, server: str) -> None:
    open_at(page, f"{server}/schedules?schedules_from=numbers&schedules_microbatches=12")
    lanes = ".st-key-schedules_lanes_a .js-plotly-plot"
    page.wait_for_selector(f"{lanes} .main-svg")
    settled(page)
    box = page.locator(f"{lanes} .nsewdrag").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + box["height"] / 2, steps=6)
    page.mouse.up()
    shown = f"() => document.querySelector('{lanes}')._fullLayout.xaxis.range.map(each => +each.toPrecision(6))"
    whole = page.evaluate(f"() => document.querySelector('{lanes}')._fullLayout.xaxis._rangeInitial1")
    page.wait_for_function(f"whole => ({shown})()[1] < 0.9 * whole", arg=whole)
    zoomed = page.evaluate(shown)
    page.get_by_text("Critical path", exact=True).first.click()
    page.wait_for_function(f"() => document.querySelector('{lanes}').data.some(({{name}}) => name === 'Critical path')")
    settled(page)
    assert page.evaluate(shown) == zoomed


STUDY = {
    "format": "shardscape-study/1",
    "models": ["megatron-126M"],
    "systems": ["h100_80g_nvl8"],
    "sizes": [4],
    "edits": [{"parameter": "hbm_capacity", "values": [20, 40, 80]}],
    "datatypes": ["float16"],
    "batches": [4],
    "cost_model": "calculon",
    "costs": {"preset": "h100_2024"},
}


def test_a_box_over_designs_is_a_brush_of_their_axes_and_the_other_way_round(page: Page, server: str) -> None:
    own = packed_study(Study.from_document(STUDY))
    open_at(page, f"{server}/codesign?codesign_study=own&codesign_own={own}")
    page.get_by_role("button", name="Search the designs").click()
    front = ".st-key-codesign_front .js-plotly-plot"
    expect(page.locator(".ss-strip")).to_contain_text("3 of 3")
    page.wait_for_selector(f"{front} .main-svg")
    settled(page)
    box = page.locator(f"{front} .nsewdrag").first.bounding_box()
    assert box is not None
    at = page.locator(front).evaluate("""plot => plot._fullLayout.xaxis.d2p(
        Math.min(...plot.calcdata.flatMap(trace => trace.map(({x}) => x))))""")
    page.mouse.move(box["x"] + at + 20, box["y"] + 1)
    page.mouse.down()
    page.mouse.move(box["x"] + at - 20, box["y"] + box["height"] - 2, steps=4)
    page.mouse.up()
    expect(page.locator(".st-key-codesign_kept_line")).to_contain_text("1 of 3 designs that run")
    page.get_by_text("All choices", exact=True).first.click()
    axes = ".st-key-codesign_parallel .js-plotly-plot"
    page.wait_for_selector(f"{axes} .axis-brush")
    settled(page)
    held = "plot => plot.data[0].dimensions.filter(each => each.constraintrange).map(({name}) => name)"
    assert page.locator(axes).evaluate(held) == ["usd"]
    memory = page.locator(f"{axes} .axis-brush").first.bounding_box()
    assert memory is not None
    across = memory["x"] + memory["width"] / 2
    page.mouse.move(across, memory["y"] + 0.4 * memory["height"])
    page.mouse.down()
    page.mouse.move(across, memory["y"] + 0.9 * memory["height"], steps=4)
    page.mouse.up()
    expect(page.locator(".st-key-codesign_kept_line")).to_contain_text("HBM")


def test_charts_say_in_words_what_they_show_where_the_library_does_not_come(page: Page, server: str) -> None:
    page.route("**/plotly/*.js", lambda route: route.abort())
    page.goto(f"{server}/validation")
    chart = page.locator(".st-key-validation_plot [role=figure]")
    expect(chart).to_have_text(chart.get_attribute("aria-label") or "no sentence")

"""Charts change where they are: a click draws anew what differs, and nothing that a person did to one is lost."""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import Page, expect

from tests.browser.conftest import open_at, settled
from tests.browser.test_click_flows import click_cell, expect_cell, expect_metric, metric

Visit = Callable[[], Page]
MAP = ".st-key-explore_map .js-plotly-plot"


def test_the_map_stays_frames_a_clicked_cell_at_once_and_draws_only_what_it_changes(visit: Visit) -> None:
    page = visit()
    settled(page)
    page.locator(MAP).evaluate("plot => { plot.querySelector('.main-svg').dataset.first = 'yes'; }")
    metric(page, "MFU")
    expect_metric(page, "mfu", "MFU")
    expect(page.locator(MAP)).to_have_attribute("aria-label", re.compile("utilisation by tensor parallel"))
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
    settled(page)
    assert page.evaluate(shown) == zoomed


def test_charts_say_in_words_what_they_show_where_the_library_does_not_come(page: Page, server: str) -> None:
    page.route("**/plotly/*.js", lambda route: route.abort())
    page.goto(f"{server}/validation")
    chart = page.locator(".st-key-validation_plot [role=figure]")
    expect(chart).to_have_text(chart.get_attribute("aria-label") or "no sentence")

"""Back in a real browser: whatever was clicked, one click is one step, and what was shown before is shown again."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Locator, Page, expect

from dashboard.pages import registry
from tests.browser.conftest import PATIENCE, SMALL, Window, drawn_again, go_to, open_at, settled

FILTERED = f"{SMALL}&limits=pipeline_par:1,2;tensor_par:2,4&results_where=weight_offload:off&cell=4x2"
STEPS = 3
SEED = 2
LONGEST = 60
"""After how many seconds a walk goes no further."""

PLACE = "navigation.currentEntry.index"
"""Where the page stands in its history."""
SHOWN = """() => {
  const texts = (what) => [...document.querySelectorAll(what)].filter(each => each.checkVisibility())
    .map(each => each.innerText.replace(/\\s+/g, ' ').trim());
  return {
    page: texts('h1'),
    sentence: texts('.st-key-sentence'),
    tiles: texts('.st-key-whatif_card ~ * .ss-tile, .ss-strip'),
    heads: texts('.ss-head, .ss-facts, .ss-chips'),
    chosen: texts('[data-testid=stMain] [role=radio][aria-checked=true]'),
    switches: [...document.querySelectorAll('[data-testid=stMain] [role=switch]')].map(each => each.checked),
  };
}"""
"""What somebody sees of a page that any click may have changed."""
CLICKABLE = """() => {
  const never = new RegExp('^([a-z_]+ )?(save|share|delete|download|duplicate|fit|keep|log|stop|explore again|' +
    'open a file|csv|parquet|excel|report)', 'i');
  const kinds = '[data-testid=stPageLink] a[href], [role=radio]:not([aria-checked=true]), ' +
    '[data-testid=stButton] button:not([disabled])';
  document.querySelectorAll('[data-walk]').forEach(each => each.removeAttribute('data-walk'));
  return [...document.querySelectorAll(kinds)].filter(each => each.checkVisibility() && each.getClientRects().length)
    .filter(each => !each.closest('.st-key-sentence_limits'))
    .filter(each => !(each.tagName == 'A' && new URL(each.href).pathname == location.pathname))
    .map((each, place) => {
      each.setAttribute('data-walk', place);
      return each.innerText.replace(/\\s+/g, ' ').trim();
    }).map((name, place) => [place, name]).filter(([_, name]) => !never.test(name));
}"""
"""Links, alternatives and buttons that are there, but for those that make files, keep something or open a dialog."""


@pytest.fixture(scope="module")
def lasting(first: Window) -> Iterator[Page]:
    """A page of its own for all tests here, whose history is short: browsers forget the beginning of long ones."""
    yield from first.opened()


def shown(page: Page) -> dict[str, Any]:
    """What the page shows once nothing changes any more."""
    before: dict[str, Any] = {}
    alike = 0
    for _ in range(PATIENCE // 150):
        settled(page)
        now: dict[str, Any] = {"address": page.url, **page.evaluate(SHOWN)}
        busy = page.locator("[role=progressbar], [data-testid=stSpinner]").count()
        alike = alike + 1 if now == before else 0
        if alike and not busy and (now["heads"] or alike > 10):  # some pages have no headings of their own
            break
        before = now
        page.wait_for_timeout(150)
    return before


def assert_shown(page: Page, before: dict[str, Any], how: str) -> None:
    """What was shown before comes to be shown again: under way the former page may still stand there."""
    expect(page).to_have_url(before["address"])
    latest = time.monotonic() + PATIENCE / 1000
    while (now := {"address": page.url, **page.evaluate(SHOWN)}) != before and time.monotonic() < latest:
        page.wait_for_timeout(50)
    assert now == before, how
    settled(page)


def test_a_walk_of_clicks_is_taken_back_click_by_click(lasting: Page, server: str) -> None:
    page = lasting
    chance = random.Random(SEED)
    open_at(page, f"{server}/?{FILTERED}")
    expect(page.get_by_text("Cost of each choice")).to_be_visible()  # the first page is drawn in stages
    seen, clicked, end = [shown(page)], [], time.monotonic() + LONGEST
    while len(clicked) < STEPS and time.monotonic() < end:
        place_before = page.evaluate(PLACE)
        found = page.evaluate(CLICKABLE)
        if len(clicked) % 2:
            here = registry.page(urlsplit(page.url).path.strip("/"))
            name = chance.choice([each.name for each in registry.PAGES if each is not here])
            go_to(page, name)
        else:
            place, name = chance.choice(found)
            if not clicked:  # what selects an execution and opens another page at once
                place, name = next(each for each in found if "Open execution" in each[1])
            page.locator(f"[data-walk='{place}']").first.click()
        now = shown(page)
        if now["address"] == seen[-1]["address"]:
            continue
        clicked.append(f"{name} -> {now['address']}")
        assert page.evaluate(PLACE) == place_before + 1, clicked
        seen.append(now)
    assert len(clicked) > 2
    for place in range(len(seen) - 2, -1, -1):
        page.go_back()
        assert_shown(page, seen[place], f"back from: {clicked[place]}")
    page.evaluate("steps => history.go(steps)", len(clicked))
    assert_shown(page, seen[-1], "forward to the end in one go")


def test_what_one_click_changes_is_one_step_back(lasting: Page, server: str) -> None:
    page = lasting

    def one_step(click: Callable[[], None], done: Callable[[], None]) -> None:
        settled(page)
        before, place = page.url, page.evaluate(PLACE)
        click()
        done()
        settled(page)
        assert page.evaluate(PLACE) == place + 1, (before, page.url)
        with drawn_again(page):
            page.go_back()
        expect(page).to_have_url(before)

    def button(key: str) -> Locator:
        return page.locator(f".st-key-{key} button").first

    # While the page is drawn again the former sentence may stand beside the new one.
    sentence = page.locator(".ss-head").filter(has_text="feasible executions").first
    open_at(page, f"{server}/results?{SMALL}&cell=2x4&results_where=microbatch_size:1&results_page=2")
    expect(page.locator(".st-key-results_filters")).to_contain_text("Tensor parallel 2")
    one_step(
        button("results_drop_tensor_par").click, lambda: expect(button("results_drop_tensor_par")).to_have_count(0)
    )
    one_step(button("results_clear").click, lambda: expect(sentence).to_contain_text("All"))
    open_at(page, f"{server}/?{SMALL}&cell=2x4&map_x=data_par&map_y=microbatch_size")
    expect(page.locator(".st-key-explore_pairs .barlayer path").first).to_be_visible()
    settled(page)
    page.locator(".st-key-explore_pairs").scroll_into_view_if_needed()
    find = """chart => {
      const box = document.querySelector(`.st-key-${chart} .barlayer .point path`).getBoundingClientRect();
      return [box.x + box.width / 2, box.y + box.height / 2];
    }"""

    def click(chart: str) -> None:
        across, up = page.evaluate(find, chart)
        page.mouse.move(across, up, steps=3)
        page.wait_for_timeout(400)
        page.mouse.click(across, up)

    one_step(lambda: click("explore_pairs"), lambda: expect(page).to_have_url(re.compile("map_at=.*id=|id=.*map_at=")))
    open_at(page, f"{server}/whatif?{SMALL}&limits=microbatch_size:1;pipeline_par:1,2;tensor_par:2,4")
    expect(page.locator(".st-key-whatif_two .barlayer path")).to_have_count(64)
    settled(page)
    page.locator(".st-key-whatif_two").scroll_into_view_if_needed()
    one_step(
        lambda: click("whatif_two"),  # a cell is a value of each of two parameters
        lambda: expect(page).to_have_url(re.compile("whatif_changes=net1_bandwidth%3A12.5%3Bhbm_capacity%3A20")),
    )

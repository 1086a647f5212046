"""Back in a real browser: whatever was clicked, one click is one step, and what was shown before is shown again."""

from __future__ import annotations

import random
import time
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Page, expect

from dashboard.pages import registry
from tests.browser.conftest import PATIENCE, SMALL, go_to, settled

FILTERED = f"{SMALL}&limits=pipeline_par:1,2;tensor_par:2,4&results_where=weight_offload:off&cell=4x2"
STEPS = 3
SEED = 2
LONGEST = 60
"""After how many seconds a walk goes no further."""

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


def test_a_walk_of_clicks_is_taken_back_click_by_click(fresh: Page, server: str) -> None:
    page = fresh
    chance = random.Random(SEED)
    page.goto(f"{server}/?{FILTERED}")
    expect(page.get_by_text("What each choice costs")).to_be_visible()  # the first page is drawn in stages
    seen, clicked, end = [shown(page)], [], time.monotonic() + LONGEST
    while len(clicked) < STEPS and time.monotonic() < end:
        length = page.evaluate("history.length")
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
        assert page.evaluate("history.length") == length + 1, clicked
        seen.append(now)
    assert len(clicked) > 2
    for place in range(len(seen) - 2, -1, -1):
        page.go_back()
        assert_shown(page, seen[place], f"back from: {clicked[place]}")
    page.evaluate("steps => history.go(steps)", len(clicked))
    assert_shown(page, seen[-1], "forward to the end in one go")

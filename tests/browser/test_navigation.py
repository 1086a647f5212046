"""The navigation in a real browser: every page in at most two clicks, by keyboard, and on a phone."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Page, expect

from dashboard.pages.registry import PAGES, sections
from tests.browser.conftest import go_to, new_context, open_at, settled

LINK = "model=megatron-1T&system=h100_80g_nvl8&procs=16&batch=32&type=float16"
"""A scenario in which nothing fits: what is asked here is asked of pages with little on them."""
PHONE = "Mozilla/5.0 (Linux; Android 14; Pixel 8) AppleWebKit/537.36 Chrome/156.0.0.0 Mobile Safari/537.36"
"""By what it says of itself Streamlit knows a phone, on which the menu closes once a page was chosen."""


def test_every_page_is_two_clicks_away_and_named_in_its_section_and_the_keyboard_reaches_it(
    page: Page, server: str
) -> None:
    open_at(page, f"{server}/?{LINK}")
    expect(page.locator(".st-key-sentence")).to_contain_text("Megatron 1T")
    buttons = page.get_by_test_id("stTopNavSection").locator("visible=true")
    expect(buttons).to_have_count(len(sections()))
    page.get_by_test_id("stSkipToContent").focus()
    for place, (group, pages) in enumerate(sections().items()):
        page.keyboard.press("Tab")
        expect(buttons.nth(place)).to_be_focused()
        page.keyboard.press("Enter")
        for each in pages:
            expect(page.get_by_role("menuitem", name=each.title, exact=True)).to_be_focused()
            page.keyboard.press("ArrowDown")
        page.keyboard.press("Escape")
        expect(page.get_by_role("menu")).to_have_count(0)
        expect(buttons.nth(place)).to_be_focused()
        expect(buttons.nth(place)).to_have_text(re.compile(f"^{group}"))
    buttons.first.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("menuitem", name="Map", exact=True)).to_be_focused()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url("**/memory?**")
    for each in [pages[-1] for pages in sections().values()][::-1]:  # what else is in their menus: see below
        go_to(page, each.name)
        assert urlsplit(page.url).path == f"/{'' if each is PAGES[0] else each.name}"
        named = page.get_by_test_id("stTopNav").get_by_role("button", name=f"{each.group} · {each.title}")
        expect(named).to_have_count(1)
        settled(page)
    expect(page.locator(".st-key-sentence")).to_contain_text("Megatron 1T")


CALLED = """name => getComputedStyle(document.querySelector("[data-testid=stExpandSidebarButton]"), "::after").content
  === name"""
"""Whether the button that opens the navigation is called so."""


def test_on_a_phone_every_page_is_behind_one_button(browser: Browser, server: str) -> None:
    context = new_context(browser, user_agent=PHONE, is_mobile=True, has_touch=True)
    page = context.new_page()
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{server}/memory?{LINK}")
    settled(page)
    opener = page.get_by_test_id("stExpandSidebarButton")
    expect(opener).to_be_visible()
    page.wait_for_function(CALLED, arg='"Memory"')  # its style comes with the page, which may come after the button
    opener.click()
    menu = page.get_by_test_id("stSidebarNav")
    for each in PAGES:
        link = menu.get_by_role("link", name=each.title, exact=True)
        link.scroll_into_view_if_needed()  # the list scrolls on a small screen
        expect(link).to_be_in_viewport()
        box = link.bounding_box()
        assert box is not None
        assert box["height"] >= 24
    menu.get_by_role("link", name="Scenarios", exact=True).click()
    expect(page.get_by_role("heading", level=1, name="Scenarios")).to_be_attached()
    expect(page.locator(".st-key-scenarios_bar")).to_be_in_viewport()
    expect(menu).not_to_be_in_viewport()
    context.close()

"""Every page in a real browser, as people meet it who hear it, magnify it or have it on a phone.

Pages follow each other as through the navigation, every second one from a phone to a wide screen: what is drawn anew
for another width is seen in both directions.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from dashboard.charts.elements.advice import rows_table
from dashboard.pages.contract import Needs
from dashboard.pages.contract import Page as Entry
from dashboard.pages.registry import PAGES
from tests.browser.axe import VERSION, axe_script, violations
from tests.browser.conftest import ROOT, SMALL, open_at, settled

LOOKS = (Path(__file__).parent / "looks.js").read_text(encoding="utf-8")
LINK = f"{SMALL}&limits=pipeline_par:1,2;tensor_par:2,4&cell=4x2&compare_b=~hbm_capacity:40"
CALIBRATED = "model=llama-3-8B&system=h100_80g_sxm&procs=8&batch=16&limits=tensor_par:2"
"""A scenario of the other cost model, whose Execution page has other charts."""
OWN_LINKS = {"schedules": SMALL, "whatif": LINK.replace("limits=", "limits=microbatch_size:1;")}
"""Links of pages on which limits leave too little to be seen, such as the ranks of a schedule, and of What-if, whose
chart of parameters then has two numbers where there is the least room."""
FINE = f"{SMALL}&schedules_from=numbers&schedules_b=zbv&schedules_microbatches=32"
"""Schedules whose bars are as narrow as bars of the ready examples."""
LOOKED_AT = [
    *((entry, OWN_LINKS.get(entry.name, LINK)) for entry in PAGES),
    *((each, CALIBRATED) for each in PAGES if each.name == "execution"),
    *((each, FINE) for each in PAGES if each.name == "schedules"),
]
WIDE, TABLET, PHONE = 1280, 768, 390
SEVERAL_COLUMNS = ("execution", "memory", "whatif", "compare", "serving", "validation")
"""Pages whose charts are next to each other: on a tablet they have the least room."""
HIDDEN_COLUMNS = """() => [...document.querySelectorAll(".ss-wraps")].filter((each) =>
  each.scrollWidth > each.parentElement.clientWidth).map((each) => each.textContent.slice(0, 60))"""
"""Tables that are to be seen whole, but are wider than their place."""
TALL = 5000
"""So high that whole pages are drawn [px]."""
MARKUP = re.compile(r"\*\*|:[a-z-]+\[|:material|</?[a-z]+[ >]|\\[-_*\[(]")
NAMED = {"button", "checkbox", "combobox", "heading", "link", "radio", "slider", "spinbutton", "switch", "textbox"}
SENTENCE = ("Model:", "GPUs:", "System:", "Datatype:", "Batch:", "Limits:", "Cost model:")
ANSWER_FIRST = {
    "explore": (
        ".ss-strip",
        ".st-key-explore_band_line",
        ".st-key-map_place",
        ".st-key-panel",
        ".st-key-explore_choices",
    ),
    "pareto": (".ss-strip", ".st-key-pareto_pickers", ".st-key-pareto_plot"),
}
"""What stands one below the other on a phone."""
IN_ORDER = """order => {
  const tops = order.map((each) => document.querySelector(each)?.getBoundingClientRect().top);
  return tops.every((top, place) => place === 0 || top > tops[place - 1]) && tops[1] < 844 / 2;
}"""
"""Whether parts of a page stand one below the other, the second within the upper half of a phone."""


OTHERWISE_ANEW = """async () => {
  const odd = [];
  for (const plot of document.querySelectorAll(".ss-chart.js-plotly-plot")) {
    const anew = document.createElement("div");
    anew.style.cssText = "position: absolute; visibility: hidden";
    document.body.append(anew);
    await Plotly.newPlot(anew, structuredClone(plot.data), structuredClone(plot.layout));
    const [there, here] = [plot, anew].map(({_fullLayout: {_size: {l, r, t, b}}}) => [l, r, t, b].map(Math.round));
    if (there.join() !== here.join()) odd.push(`${plot.ariaLabel}: margins ${there}, drawn anew ${here}`);
    Plotly.purge(anew);
    anew.remove();
  }
  return odd;
}"""
"""The charts whose margins are, after all that changed them where they are, not those of a chart drawn anew."""


class Screen:
    """A page that is high enough to be drawn whole, light and wide or dark and as narrow as a phone."""

    def __init__(self, page: Page, server: str) -> None:
        self.page, self._server, self._width = page, server, WIDE
        self.show(self._width)

    def visit(self, name: str, link: str) -> tuple[int, int]:
        """Opens a page; the width that it is opened at, which is the one before's last, and the one to follow."""
        open_at(self.page, f"{self._server}/{name}?{link}")
        expect(self.page.get_by_role("heading", level=2).first).to_be_visible()
        settled(self.page)
        return self._width, WIDE + PHONE - self._width

    def show(self, width: int) -> None:
        self.page.emulate_media(color_scheme="light" if width == WIDE else "dark")
        self.page.set_viewport_size({"width": width, "height": TALL})
        self._width = width


@pytest.fixture(scope="session")
def axe(pytestconfig: pytest.Config) -> str | None:
    """The script of axe-core; None without the registry of npm, which the workflow must reach."""
    assert pytestconfig.cache is not None
    try:
        return axe_script(Path(pytestconfig.cache.mkdir("axe-core")))
    except OSError:
        if os.environ.get("GITHUB_ACTIONS"):
            raise
        return None


@pytest.fixture(scope="module")
def screen(warm: BrowserContext, server: str) -> Iterator[Screen]:
    """Shows pages one after the other."""
    opened = warm.new_page()
    yield Screen(opened, server)
    opened.close()


def looks(page: Page) -> dict[str, list[str]]:
    """What is wrong with the looks of a page once it is drawn; charts follow the window's width a little later."""
    found: dict[str, list[str]] = {}
    for _ in range(40):
        settled(page)
        found = page.evaluate(LOOKS)
        if not found:
            break
        page.wait_for_timeout(100)
    return found


def heard(page: Page) -> list[dict[str, Any]]:
    """The accessibility tree: role, name and level of what is in it."""
    session = page.context.new_cdp_session(page)
    nodes = session.send("Accessibility.getFullAXTree")["nodes"]
    session.detach()
    return [
        {
            "role": node.get("role", {}).get("value"),
            "name": node.get("name", {}).get("value", "").strip(),
            "level": next(
                (one["value"]["value"] for one in node.get("properties", ()) if one["name"] == "level"), None
            ),
        }
        for node in nodes
        if not node.get("ignored")
    ]


@pytest.mark.parametrize(
    ("entry", "link"), LOOKED_AT, ids=lambda each: each.name if isinstance(each, Entry) else each.partition("&")[0]
)
def test_a_page_is_heard_and_seen_on_screens_of_any_width(
    screen: Screen, entry: Entry, link: str, axe: str | None
) -> None:
    page = screen.page
    for width in screen.visit("" if entry is PAGES[0] else entry.name, link):
        screen.show(width)
        assert looks(page) == {}, f"{width} wide"
        if axe is not None:
            assert violations(page, axe) == [], f"{width} wide"
        (check_wide if width == WIDE else check_phone)(page, entry, axe)
    if entry.name in SEVERAL_COLUMNS:
        page.set_viewport_size({"width": TABLET, "height": TALL})
        assert looks(page) == {}, f"{TABLET} wide"
        assert page.evaluate(HIDDEN_COLUMNS) == []
    assert page.evaluate(OTHERWISE_ANEW) == []


def test_the_rules_of_accessibility_are_there(axe: str | None) -> None:
    if axe is None:
        pytest.skip(f"no axe-core {VERSION}: the registry of npm cannot be reached")


def check_wide(page: Page, entry: Entry, axe: str | None) -> None:
    """What people hear of a page, and what they print."""
    assert page.title().split(" · ")[0] == entry.title
    sentence = SENTENCE if entry.needs is not Needs.NOTHING else ()
    for begin in sentence:
        # A script names the sentence's parts when they are drawn, one by one: what is drawn again has no name before.
        expect(page.locator(".st-key-bar").get_by_role("button", name=re.compile(f"^{begin}"))).to_have_count(1)
    nodes = heard(page)
    buttons = [node["name"] for node in nodes if node["role"] == "button"]
    assert [sum(name.startswith(begin) for name in buttons) for begin in sentence] == [1] * len(sentence)
    assert [node["name"] for node in nodes if node["role"] == "heading" and node["level"] == 1] == [entry.title]
    assert [node for node in nodes if MARKUP.search(node["name"])] == []
    assert [node for node in nodes if node["role"] in NAMED and not node["name"]] == []
    if entry.name == "memory":
        assert_printed_beside_the_logo(page)
    page.emulate_media(color_scheme="dark")
    if entry.name in ("explore", "whatif"):  # what no phone shows
        assert looks(page) == {}, "wide, in the dark"
    if axe is not None:  # the other rules are not about colours
        assert violations(page, axe, ["color-contrast"]) == [], "wide, in the dark"


def check_phone(page: Page, entry: Entry, axe: str | None) -> None:
    """What stands where on a phone."""
    assert page.evaluate(HIDDEN_COLUMNS) == []
    if entry.name in ANSWER_FIRST:
        page.wait_for_function(IN_ORDER, arg=ANSWER_FIRST[entry.name])
    if entry.name == "whatif":
        assert_answer_stays_in_sight(page)
        page.set_viewport_size({"width": PHONE, "height": TALL})


def assert_answer_stays_in_sight(page: Page) -> None:
    """On a phone What-if's answer stands before what changes it, and stays there."""
    page.set_viewport_size({"width": PHONE, "height": 844})
    answer, sliders = page.locator(".ss-strip"), page.locator(".st-key-whatif_card")
    first, second = answer.bounding_box(), sliders.bounding_box()
    assert first is not None
    assert second is not None
    assert first["y"] + first["height"] <= min(second["y"], 844)
    page.locator(".st-key-whatif_model").scroll_into_view_if_needed()
    expect(answer).to_be_in_viewport()


def assert_printed_beside_the_logo(page: Page) -> None:
    """Printed, nothing is over the sentence."""
    page.emulate_media(media="print")
    logo, sentence = (page.locator(each).bounding_box() for each in ("header img", ".st-key-sentence"))
    assert logo is not None
    assert sentence is not None
    assert logo["y"] + logo["height"] <= sentence["y"]
    page.emulate_media(media="screen")


def test_the_keyboard_follows_into_menus_and_back(screen: Screen) -> None:
    page = screen.page
    screen.show(WIDE)
    screen.visit("", LINK)
    buttons = page.get_by_test_id("stPopoverButton").locator("visible=true")
    for place in range(buttons.count()):
        button = buttons.nth(place)
        name = " ".join(button.locator("p").all_inner_texts()[0].split())
        button.focus()
        page.keyboard.press("Enter")
        menu = page.get_by_role("dialog", name=name, exact=True)
        expect(menu).to_be_visible()
        expect(menu.locator(":focus").or_(page.locator("[role=dialog]:focus"))).to_have_count(1)
        for _ in range(3):
            page.keyboard.press("Tab")
        page.wait_for_function("() => document.activeElement.closest('[role=dialog]') !== null")
        page.keyboard.press("Escape")
        expect(menu).to_have_count(0)
        expect(button).to_be_focused()
        expect(page.locator("[role=tooltip]").locator("visible=true")).to_have_count(0)
    share = page.get_by_role("button", name=re.compile("Share")).locator("visible=true")
    for pause in (0, 20, 40, 50, 60, 70, 100):  # dismissed while the server still fills it, or draws it anew
        share.focus()
        page.keyboard.press("Enter")
        page.wait_for_timeout(pause)
        page.keyboard.press("Escape")
        settled(page)
        expect(page.get_by_role("dialog")).to_have_count(0)
        expect(share).to_be_focused()
    button = page.get_by_role("button", name=re.compile("GPUs: 16"))
    button.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("spinbutton", name="GPUs")).to_be_focused()
    page.keyboard.press("Control+A")
    page.keyboard.type("8\n")
    page.wait_for_url("**procs=8**")
    settled(page)
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name=re.compile("GPUs: 8"))).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.locator("[role=tooltip]").locator("visible=true").first).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("[role=tooltip]").locator("visible=true")).to_have_count(0)
    # What is typed at once, before there is a field, is not lost, nor is a key that Streamlit has a meaning for.
    page.keyboard.press("Control+k")
    page.keyboard.type("r")
    page.keyboard.press("Backspace")
    page.keyboard.type("use this modxx")
    page.keyboard.press("Backspace")
    page.keyboard.press("Backspace")
    expect(page.locator(".st-key-search_field input")).to_have_value("use this mod")
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("Control+k")
    page.keyboard.type("pareto\n")
    page.wait_for_url("**/pareto**procs=8**")
    expect(page.get_by_role("dialog")).to_have_count(0)
    settled(page)
    page.keyboard.press("Control+k")
    page.keyboard.type("gpt-3 1.3b use this\n")
    page.wait_for_url("**/pareto**model=gpt3-1.3B**procs=8**limits=**")


def test_cells_of_the_map_are_chosen_by_keyboard(screen: Screen) -> None:
    page = screen.page
    screen.show(WIDE)
    screen.visit("", LINK)
    page.wait_for_selector(".st-key-explore_map .barlayer path")
    settled(page)
    chart, heard_cell = (page.locator(f".st-key-explore_map {each}").first for each in (".ss-chart", ".ss-heard"))
    chart.focus()
    page.keyboard.press("ArrowRight")  # begins at the selected cell, TP 4 and PP 2
    expect(heard_cell).to_contain_text("samples/s")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    page.wait_for_url("**cell=2x1**")
    expect(chart).to_be_focused()


def test_no_redraw_takes_the_focus_out_of_an_open_menu(screen: Screen) -> None:
    page = screen.page
    screen.show(WIDE)
    screen.visit("", LINK)
    menu = page.get_by_role("dialog")
    inside = "() => document.activeElement.closest('[role=dialog]') !== null"

    def open_menu(name: str) -> None:
        settled(page)
        page.get_by_role("button", name=re.compile(name)).locator("visible=true").first.focus()
        page.keyboard.press("Enter")
        expect(menu).to_have_count(1)
        settled(page)

    def close_menu() -> None:
        page.keyboard.press("Escape")
        expect(menu).to_have_count(0)

    # The first button of this menu, which copies the code, is hidden until the pointer is over it.
    open_menu("^rocket_launch Launch|Launch$")
    expect(menu.get_by_test_id("stCode")).to_be_visible()
    for direction in ("Tab", "Shift+Tab"):
        for _ in range(12):
            page.keyboard.press(direction)
            page.wait_for_timeout(20)
            assert page.evaluate(inside), f"{direction} left the menu"
    close_menu()
    # Whatever the last key was, an element that is replaced, removed or disabled hands the focus on.
    redraws = {
        "replaced": "each => each.replaceWith(each.cloneNode(true))",
        "removed": "each => each.remove()",
        "disabled": "each => { each.disabled = true; }",
    }
    for key in ("Tab", "ArrowRight", "Shift"):
        for name, redraw in redraws.items():
            menu_body = "document.querySelector('[data-testid=stPopoverBody]')"
            open_menu("^GPUs: ")
            expect(menu.get_by_role("spinbutton")).to_be_focused()
            page.evaluate(
                f"""() => {{
                  {menu_body}.insertAdjacentHTML(
                    'beforeend', '<div id=drawn><button>One</button><button>Two</button></div>');
                  drawn.firstChild.focus();
                }}"""
            )
            page.keyboard.press(key)
            page.evaluate(f"() => ({redraw})(document.activeElement)")
            page.wait_for_function(inside, timeout=5_000)
            assert page.evaluate("() => !document.activeElement.disabled"), (key, name)
            page.evaluate("() => document.querySelector('#drawn').remove()")
            page.wait_for_function(inside, timeout=5_000)
            close_menu()
    page.reload()  # elements were changed behind the back of the page
    settled(page)


def test_reasons_wrap_in_a_table_of_a_menu(fresh: Page) -> None:
    reason = "may not fit: 72.2 of 79.6 GiB HBM leave less than the 14 % kept free; takes context parallel 2, TP ring"
    table = rows_table(("Layout", "HBM", "Why not"), [("TP 4 × PP 1 × DP 64 × CP 2", "66.7", reason)], texts=(0, 2))
    style = (ROOT / "dashboard/charts/elements/style.css").read_text("utf-8")
    fresh.set_content(f"<style>{style}</style><div style='width: 666px'>{table}</div>")
    assert fresh.eval_on_selector(".ss-scroll", "each => each.scrollWidth - each.clientWidth") == 0


@pytest.mark.parametrize("width", [WIDE, PHONE], ids=["light", "dark"])
def test_code_of_a_launch_file_can_be_read(screen: Screen, axe: str | None, width: int) -> None:
    """Words of code have colours of their own, which a page has only once its answer is there."""
    if axe is None:
        pytest.skip("axe-core is not at hand: the registry of npm was not reached")
    screen.show(width)
    screen.visit("post_training", "model=qwen3-1.7B&system=h100_80g_sxm&procs=8&post_training_mode=colocated")
    expect(screen.page.locator("[data-testid=stCode] .token.comment").first).to_be_visible(timeout=60_000)
    assert looks(screen.page) == {}
    assert violations(screen.page, axe, ["color-contrast"]) == []

"""Times of the dashboard as a person sees them: from the press of a key or button to the paint of what it changes.

The clock runs in the page. A press is timed by its own event, a change by observing the document's mutations and
waiting for the frame that paints them; what counts is the last change before the page is quiet, not the first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

__all__ = ["measured"]

CHROMIUM: Final = Path("/usr/bin/chromium")
MAP: Final = ".st-key-explore_map"
PANEL: Final = ".st-key-panel"
STRIP: Final = ".ss-strip"
WHY: Final = ".st-key-whatif_why"
WAIT: Final = 15_000.0
"""Longest wait for anything in the page [ms]."""
SLIDERS: Final = ("HBM bandwidth", "HBM capacity", "Matrix")

# What a figure or panel shows: its texts, and the shapes and colours of its marks; not what hovering adds.
_OBSERVE: Final = """
window.shown = selector => [...document.querySelectorAll(selector)].map(box =>
  box.innerText + [...box.querySelectorAll('.barlayer path, .scatterlayer path, .scatterlayer text')]
    .map(mark => mark.textContent + (mark.getAttribute('d') || '') + mark.style.fill).join()).join();
window.watch = (event, selectors, quiet, longest) => {
  const before = selectors.map(shown), last = selectors.map(() => 0);
  let start = 0;
  document.addEventListener(event, press => { start = press.timeStamp; }, {capture: true, once: true});
  window.outcome = new Promise(done => {
    const observer = new MutationObserver(() => selectors.forEach((selector, index) => {
      const now = shown(selector);
      if (start && now !== before[index]) {
        before[index] = now;
        requestAnimationFrame(() => setTimeout(() => { last[index] = performance.now(); }));
      }
    }));
    observer.observe(document.body, {subtree: true, childList: true, attributes: true, characterData: true});
    const armed = performance.now();
    const timer = setInterval(() => {
      const now = performance.now();
      if ((last.every(Boolean) && now - Math.max(...last) > quiet) || now - armed > longest) {
        clearInterval(timer);
        observer.disconnect();
        done(last.map(each => each ? (each - start) / 1000 : null));
      }
    }, 15);
  });
};
"""
_DRAWN: Final = """
new MutationObserver((_, observer) => {
  if (document.querySelector('.st-key-explore_map .barlayer path')) {
    observer.disconnect();
    requestAnimationFrame(() => setTimeout(() => { window.drawn = performance.now(); }));
  }
}).observe(document, {subtree: true, childList: true});
"""


def measured(address: str, repeats: int) -> dict[str, list[float]]:
    """Times of every case in the browser by name [s]."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox", "--disable-gpu"])
        try:
            return _all(browser, address, repeats)
        finally:
            browser.close()


def _all(browser: Browser, address: str, repeats: int) -> dict[str, list[float]]:
    context = browser.new_context(viewport={"width": 1440, "height": 1000})
    context.add_init_script(_OBSERVE + _DRAWN)
    found = {"warm page": _pages(context, address, repeats)}
    page = _opened(context, f"{address}/")
    found["metric, first time"], found["metric, again"] = _metrics(page)
    found["cell, first time"] = _cells(page, range(0, 35, 3))
    found["cell, again"] = _cells(page, range(0, 35, 3))
    page.close()
    found["what-if, figures"], found["what-if, everything"] = _sliders(context, f"{address}/whatif", repeats)
    return found


def _opened(context: BrowserContext, address: str) -> Page:
    page = context.new_page()
    page.goto(address)
    page.wait_for_function("window.drawn", timeout=60_000)
    page.wait_for_selector(f"{PANEL} .ss-head")
    _settle(page)
    return page


def _settle(page: Page) -> None:
    """Waits until the page has shown the same for half a second, and its server is idle."""
    before, since, latest = "", time.monotonic(), time.monotonic() + WAIT / 1000
    while time.monotonic() < latest and time.monotonic() - since < 0.5:
        page.wait_for_timeout(60)
        idle = page.locator("[data-testid=stStatusWidget]").count() == 0
        now = str(page.evaluate("shown('[data-testid=stMain]')"))
        if now != before or not idle:
            before, since = now, time.monotonic()


def _pages(context: BrowserContext, address: str, repeats: int) -> list[float]:
    """From the start of navigation to the painted map, scripts cached and the exploration stored."""
    times = []
    for number in range(repeats + 2):
        page = context.new_page()
        page.goto(f"{address}/")
        page.wait_for_function("window.drawn", timeout=60_000)
        if number >= 2:  # the first explores and fills the caches
            times.append(float(page.evaluate("window.drawn")) / 1000)
        page.wait_for_selector(f"{PANEL} .ss-head")
        page.close()
    return times


def _timed(page: Page, event: str, selectors: Sequence[str], press: Callable[[], None]) -> list[float]:
    """Seconds from an event to the last change of each selection; raises if one does not change."""
    page.evaluate("([event, selectors, longest]) => watch(event, selectors, 350, longest)",
                  [event, list(selectors), WAIT])  # fmt: skip
    press()
    times: list[Any] = page.evaluate("outcome")
    if None in times:
        raise RuntimeError(f"After a {event}, {selectors[times.index(None)]} did not change within {WAIT / 1000:g} s.")
    _settle(page)
    return times


def _metrics(page: Page) -> tuple[list[float], list[float]]:
    """From pressing a metric's button to the redrawn map: every metric for the first time, and twice more."""
    buttons = page.locator(".st-key-explore_toolbar [role=radio]:visible")
    count = buttons.count()
    rounds = []
    for _ in range(3):
        times = []
        for number in [*range(1, count), 0]:
            label = buttons.nth(number)
            times += _timed(page, "pointerdown", [MAP], lambda label=label: label.click())  # type: ignore[misc]
        rounds.append(times)
    return rounds[0], rounds[1] + rounds[2]


def _cells(page: Page, numbers: range) -> list[float]:
    """From pressing a cell of the map to its panel. The pointer rests on the cell first, as a person's does."""
    times = []
    for number in numbers:
        box = page.locator(f"{MAP} .barlayer .point path").nth(number).bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=3)
        page.wait_for_timeout(300)

        def press(x: float = box["x"] + box["width"] / 2, y: float = box["y"] + box["height"] / 2) -> None:
            page.mouse.click(x, y)

        times += _timed(page, "pointerdown", [PANEL], press)
    return times


def _sliders(context: BrowserContext, address: str, repeats: int) -> tuple[list[float], list[float]]:
    """From moving a slider by a step to the figures of the new optimum, and to all of the answer."""
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector(f"{WHY} .plotly .barlayer path", timeout=60_000)
    page.wait_for_function("!document.querySelector('[data-testid=stProgress]')", timeout=60_000)
    _settle(page)
    figures, everything = [], []
    names = [name for name in page.get_by_role("slider").all() if name.is_visible()]
    chosen = [thumb for thumb in names if any(word in (thumb.get_attribute("aria-label") or "") for word in SLIDERS)]
    for thumb in chosen or names[:3]:
        for _ in range(max(2, repeats // 2)):
            thumb.focus()
            first, whole = _timed(page, "keydown", [STRIP, WHY], lambda: page.keyboard.press("ArrowRight"))
            figures.append(first)
            everything.append(max(first, whole))
    page.close()
    return figures, everything

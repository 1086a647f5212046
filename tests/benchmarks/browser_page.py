"""Times of the dashboard as a person sees them: from the press of a key or button to the paint of what it changes.

The clock runs in the page. A press is timed by its own event, a change by observing the document's mutations and
waiting for the frame that paints them; what counts is the last change before the page is quiet, not the first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Browser, BrowserContext, Error, Locator, Page, sync_playwright

__all__ = ["Measured", "measured"]

CHROMIUM: Final = Path("/usr/bin/chromium")
MAP: Final = ".st-key-explore_map"
PANEL: Final = ".st-key-panel"
STRIP: Final = ".ss-strip"
WHY: Final = ".st-key-whatif_why"
WAIT: Final = 15_000.0
"""Longest wait for anything in the page [ms]."""
SLIDERS: Final = ("HBM bandwidth", "HBM capacity", "Matrix")

# What a figure or panel shows: its texts, and the shapes and colours of its marks; not what hovering adds. Streamlit
# keeps a replaced chart in the document, without any size, until the run of the page ends: that nobody sees.
_OBSERVE: Final = """
window.shown = selector => [...document.querySelectorAll(selector)].filter(box => box.offsetHeight).map(box =>
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
window.painted = (name, selector) => new MutationObserver((_, observer) => {
  if (document.querySelector(selector)) {
    observer.disconnect();
    requestAnimationFrame(() => setTimeout(() => { window[name] ??= performance.now(); }));
  }
}).observe(document, {subtree: true, childList: true});
painted('seen', '.ss-still i, .st-key-explore_map .barlayer path');
painted('drawn', '.st-key-explore_map .barlayer path');
"""


class Measured:
    """What was measured, within a time that does not depend on how slow it is."""

    def __init__(self, longest: float) -> None:
        """longest: of everything [s]."""
        self.seconds: dict[str, list[float]] = {}
        """Times by case [s]."""
        self.problems: list[str] = []
        self.skipped = 0
        """Actions that there was no time for."""
        self._start, self._longest = time.monotonic(), longest
        self._until = self._start

    def share(self, part: float) -> None:
        """What follows may last until this part of the time is over, at the most."""
        self._until = self._start + part * self._longest

    def take(self, *names: str, action: Callable[[], Sequence[float]]) -> None:
        """Does something and notes its times under these names, unless time is up. What goes wrong is told."""
        if time.monotonic() > self._until:
            self.skipped += 1
            return
        try:
            times = action()
        except (RuntimeError, Error) as problem:
            self.problems.append(f"{names[0]}: {str(problem).splitlines()[0]}")
            return
        for name, seconds in zip(names, times, strict=True):
            self.seconds.setdefault(name, []).append(seconds)


def measured(address: str, repeats: int, longest: float) -> Measured:
    """Times of every case in the browser by name, measured for at most so long [s]."""
    found = Measured(longest)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox", "--disable-gpu"])
        try:
            _all(browser, address, repeats, found)
        except (RuntimeError, Error) as problem:  # a page that does not open ends it, and the others are told
            found.problems.append(str(problem).splitlines()[0])
        finally:
            browser.close()
    return found


def _all(browser: Browser, address: str, repeats: int, found: Measured) -> None:
    context = browser.new_context(viewport={"width": 1440, "height": 1000})
    context.add_init_script(_OBSERVE + _DRAWN)
    found.share(0.25)
    _pages(context, address, repeats, found)
    page = _opened(context, f"{address}/")
    found.share(0.5)
    _metrics(page, found)
    found.share(0.75)
    for name in ("cell, first time", "cell, again"):
        _cells(page, range(0, 35, 5), name, found)
    page.close()
    found.share(1.0)
    _sliders(context, f"{address}/whatif", repeats, found)


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


def _pages(context: BrowserContext, address: str, repeats: int, found: Measured) -> None:
    """From the start of navigation to the painted map, scripts cached and the exploration stored.

    Seen is its picture, whose every cell has its colour and value; drawn is the chart that answers the pointer.
    """

    def visit() -> list[float]:
        page = context.new_page()
        try:
            page.goto(f"{address}/")
            page.wait_for_function("window.drawn", timeout=40_000)
            page.wait_for_selector(f"{PANEL} .ss-head")
            return [float(page.evaluate(f"window.{moment}")) / 1000 for moment in ("seen", "drawn")]
        finally:
            page.close()

    for _ in range(2):  # the first explores and fills the caches
        visit()
    for _ in range(repeats):
        found.take("warm page", "warm page, chart", action=visit)


def _timed(page: Page, event: str, selectors: Sequence[str], press: Callable[[], None]) -> list[float]:
    """Seconds from an event to the last change of each selection; raises if one does not change."""
    page.evaluate(
        "([event, selectors, longest]) => watch(event, selectors, 350, longest)", [event, list(selectors), WAIT]
    )
    press()
    times: list[Any] = page.evaluate("outcome")
    if None in times:
        raise RuntimeError(f"After a {event}, {selectors[times.index(None)]} did not change within {WAIT / 1000:g} s.")
    _settle(page)
    return times


def _metrics(page: Page, found: Measured) -> None:
    """From pressing a metric's button to the redrawn map: every metric for the first time, and twice more."""
    buttons = page.locator(".st-key-explore_toolbar [role=radio]:visible")
    count = buttons.count()
    for name in ("metric, first time", "metric, again", "metric, again"):
        for number in [*range(1, count), 0]:
            label = buttons.nth(number)
            found.take(
                name,
                action=lambda label=label: _timed(page, "pointerdown", [MAP], lambda: label.click()),  # type: ignore[misc]
            )


def _cells(page: Page, numbers: range, name: str, found: Measured) -> None:
    """From pressing a cell of the map to its panel. The pointer rests on the cell first, as a person's does."""

    def visit(number: int) -> list[float]:
        cell = page.locator(f"{MAP} .barlayer .point path").nth(number)
        cell.scroll_into_view_if_needed()
        box = cell.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=3)
        page.wait_for_timeout(300)

        def press(x: float = box["x"] + box["width"] / 2, y: float = box["y"] + box["height"] / 2) -> None:
            page.mouse.click(x, y)

        return _timed(page, "pointerdown", [PANEL], press)

    for number in numbers:
        found.take(name, action=lambda number=number: visit(number))  # type: ignore[misc]


def _sliders(context: BrowserContext, address: str, repeats: int, found: Measured) -> None:
    """From moving a slider by a step to the figures of the new optimum, and to all of the answer."""
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector(f"{WHY} .plotly .barlayer path", timeout=40_000)
    page.wait_for_function("!document.querySelector('[data-testid=stProgress]')", timeout=40_000)
    _settle(page)

    def move(thumb: Locator) -> list[float]:
        thumb.focus()
        first, whole = _timed(page, "keydown", [STRIP, WHY], lambda: page.keyboard.press("ArrowRight"))
        return [first, max(first, whole)]

    names = [name for name in page.get_by_role("slider").all() if name.is_visible()]
    chosen = [thumb for thumb in names if any(word in (thumb.get_attribute("aria-label") or "") for word in SLIDERS)]
    for thumb in chosen or names[:3]:
        for _ in range(max(2, repeats // 2)):
            found.take("what-if, figures", "what-if, everything", action=lambda thumb=thumb: move(thumb))  # type: ignore[misc]
    page.close()

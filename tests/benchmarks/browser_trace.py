"""Where the time of a click goes in the browser, by Chromium's own trace of the page's main thread.

`python -m tests.benchmarks browser --part trace`. Times of the main thread are those that it ran, so that other work on
the machine does not count; the moments of messages are as they came.
"""

from __future__ import annotations

import json
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from playwright.sync_api import Page, sync_playwright

from engine.cli.output import text_table
from tests.benchmarks.browser_page import CHROMIUM, MAP, SLIDERS, WHY

__all__ = ["traced"]

CATEGORIES: Final = ["devtools.timeline", "v8", "disabled-by-default-v8.cpu_profiler"]
QUIET: Final = 1_500
"""How long after an action its trace ends [ms]."""
STREAMLIT: Final = "Streamlit's scripts"
"""Among them what they call of the charts', until that is told apart."""
KINDS: Final = {
    "UpdateLayoutTree": "style, layout",
    "Layout": "style, layout",
    "PrePaint": "paint",
    "Paint": "paint",
    "Layerize": "paint",
    "Commit": "paint",
}
"""Event of a trace -> what it is told as; what is neither among these nor a script is `other`."""
SCRIPTS: Final = {"FunctionCall", "EvaluateScript", "v8.callFunction"}
COLUMNS: Final = ("messages", "first answer", "last answer", STREAMLIT, "charts", "style, layout", "paint", "other")


def traced(address: str, repeats: int) -> str:
    """Returns a table of actions at an address: messages of the server, when they came, what the main thread did."""
    rows = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox", "--disable-gpu"])
        for name, actions in {"another metric": _metrics, "a cell": _cells, "What-if slider": _slider}.items():
            page = browser.new_context(viewport={"width": 1440, "height": 1000}).new_page()
            found: dict[str, list[float]] = defaultdict(list)
            for act in actions(page, address, repeats):
                browser.start_tracing(page=page, categories=CATEGORIES)
                act()
                page.wait_for_timeout(QUIET)
                for column, value in _told(json.loads(browser.stop_tracing())["traceEvents"]).items():
                    found[column].append(value)
            rows.append([name, *(f"{statistics.median(found[column] or [0.0]):.0f}" for column in COLUMNS)])
        browser.close()
    return text_table(("[ms], medians", *COLUMNS), rows, left=(0,))


def _metrics(page: Page, address: str, repeats: int) -> Sequence[Callable[[], None]]:
    page.goto(address)
    page.wait_for_selector(f"{MAP} .barlayer path")
    page.wait_for_timeout(2 * QUIET)
    buttons = page.locator(".st-key-explore_toolbar [role=radio]:visible")
    return [lambda number=number: buttons.nth(number % 3).click() for number in range(1, repeats + 1)]  # type: ignore[misc]


def _cells(page: Page, address: str, repeats: int) -> Sequence[Callable[[], None]]:
    page.goto(address)
    page.wait_for_selector(f"{MAP} .barlayer path")
    page.wait_for_timeout(2 * QUIET)
    cells = page.locator(f"{MAP} .barlayer .point path")

    def click(number: int) -> None:
        box = cells.nth(number).bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=3)
        page.wait_for_timeout(300)
        page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)

    return [lambda number=number: click(5 * number) for number in range(repeats)]  # type: ignore[misc]


def _slider(page: Page, address: str, repeats: int) -> Sequence[Callable[[], None]]:
    page.goto(f"{address}/whatif")
    page.wait_for_selector(f"{WHY} .plotly .barlayer path", timeout=40_000)
    page.wait_for_function("!document.querySelector('[data-testid=stProgress]')", timeout=40_000)
    page.wait_for_timeout(2 * QUIET)
    page.get_by_role("slider", name=SLIDERS[0]).locator("visible=true").first.focus()
    return [lambda: page.keyboard.press("ArrowRight") for _ in range(repeats)]


def _told(events: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """What happened from the last press on, by column [ms]; nothing where there was none."""
    pressed = [
        each
        for each in events
        if each.get("name") == "EventDispatch" and each["args"]["data"]["type"] in {"pointerdown", "keydown"}
    ]
    if not pressed:
        return {}
    start, thread = pressed[-1]["ts"], (pressed[-1]["pid"], pressed[-1]["tid"])
    answers = [each["ts"] - start for each in events if each.get("name") == "WebSocketReceive" and each["ts"] > start]
    spent: Counter[str] = Counter()
    around: list[tuple[float, str]] = []
    mine = (each for each in events if each.get("ph") == "X" and (each["pid"], each["tid"]) == thread)
    for each in sorted((one for one in mine if one["ts"] >= start), key=lambda one: (one["ts"], -one["dur"])):
        while around and each["ts"] >= around[-1][0]:
            around.pop()
        kind, ran = _kind(each, around[-1][1] if around else "other"), each.get("tdur", 0.0)
        spent[kind] += ran
        if around:  # what is within another is not counted for both
            spent[around[-1][1]] -= ran
        around.append((each["ts"] + each["dur"], kind))
    charts = _share_of_charts([each for each in events if each["pid"] == thread[0]], start)
    spent["charts"], spent[STREAMLIT] = charts * spent[STREAMLIT], (1.0 - charts) * spent[STREAMLIT]
    came = {"first answer": min(answers, default=0.0), "last answer": max(answers, default=0.0)}
    return {"messages": len(answers)} | {column: value / 1e3 for column, value in {**spent, **came}.items()}


def _share_of_charts(events: Sequence[Mapping[str, Any]], start: float) -> float:
    """The share of the scripts' time that is the charts': Plotly's, and of the component that calls it. Streamlit calls
    that from within its own, so that only the profiler's samples tell them apart."""
    parents: dict[int, int] = {}
    places: dict[int, str] = {}
    at, taken = 0.0, [0.0, 0.0]
    for each in events:
        if each.get("name") == "Profile":
            at = each["args"]["data"]["startTime"]
        if each.get("name") != "ProfileChunk":
            continue
        data = each["args"]["data"]
        profile = data.get("cpuProfile", {})
        for node in profile.get("nodes", ()):
            places[node["id"]] = node["callFrame"].get("url", "")
            parents[node["id"]] = node.get("parent", 0)
        for sample, passed in zip(profile.get("samples", ()), data.get("timeDeltas", ()), strict=False):
            at += passed
            urls = []
            while sample:
                urls.append(places.get(sample, ""))
                sample = parents.get(sample, 0)
            if at >= start and any(urls):
                taken[any(url and "/static/js/" not in url for url in urls)] += passed
    return taken[True] / max(sum(taken), 1e-9)


def _kind(event: Mapping[str, Any], around: str) -> str:
    """What an event is told as. around: the same of the one that it is within."""
    if event["name"] in SCRIPTS:
        return STREAMLIT
    return KINDS.get(event["name"], around if around == STREAMLIT else "other")

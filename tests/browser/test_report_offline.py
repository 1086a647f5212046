"""A report opens in a browser without a network, draws every figure, and runs nothing that a name smuggled in."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from dashboard.files import comparison_report, report
from dashboard.link.comparison import Comparison
from tests.dashboard.files.test_report import EVIL, evil_exploration
from tests.dashboard.page_runs import exploration


def of_comparison() -> bytes:
    found = [evil_exploration(), exploration("hopeless")]
    return comparison_report.build(Comparison(tuple(each.scenario for each in found)), found, f"http://x/?{EVIL}")


@pytest.mark.parametrize(
    ("build", "last", "figures"),
    [
        (lambda: report.build(evil_exploration(), "http://x/", EVIL), "traffic", 7),
        (of_comparison, "map-B", 4),
    ],
    ids=["scenario", "comparison"],
)
def test_the_report_draws_itself_offline(
    tmp_path: Path, browser: Browser, build: Callable[[], bytes], last: str, figures: int
) -> None:
    file = tmp_path / "report.html"
    file.write_bytes(build())
    complaints: list[str] = []
    asked: list[str] = []
    context = browser.new_context(offline=True, color_scheme="dark")
    try:
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda problem: complaints.append(str(problem)))
        page.on("dialog", lambda dialog: complaints.append(f"dialog {dialog.message}"))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(file.as_uri())
        page.wait_for_selector(f"#figure-{last} .main-svg")
        drawn = page.evaluate("document.querySelectorAll('[id^=figure-]').length")
        filled = page.evaluate("[...document.querySelectorAll('[id^=figure-]')].filter(e => e.innerText).length")
    finally:
        context.close()
    assert drawn == filled >= figures
    assert complaints == []
    assert [url for url in asked if not re.match(r"file:|data:|blob:", url)] == []

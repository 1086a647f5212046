"""A report opens in a browser without a network, draws every figure, and runs nothing that a name smuggled in."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import Browser

from dashboard import report
from tests.dashboard.test_report import EVIL, evil_exploration


def test_the_report_draws_itself_offline(tmp_path: Path, browser: Browser) -> None:
    file = tmp_path / "report.html"
    file.write_bytes(report.build(evil_exploration(), "http://x/", EVIL))
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
        page.wait_for_selector("#figure-traffic .main-svg")
        drawn = page.evaluate("document.querySelectorAll('[id^=figure-]').length")
        filled = page.evaluate("[...document.querySelectorAll('[id^=figure-]')].filter(e => e.innerText).length")
    finally:
        context.close()
    assert drawn == filled >= 7
    assert complaints == []
    assert [url for url in asked if not re.match(r"file:|data:|blob:", url)] == []

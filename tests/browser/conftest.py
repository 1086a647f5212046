"""A server of its own and a real Chromium for the tests of this folder; all are skipped where there is no Chromium."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Locator, Page, expect, sync_playwright
from playwright.sync_api import TimeoutError as PlaywrightTimeout

from dashboard.pages import registry

ROOT = Path(__file__).parent.parent.parent
CHROMIUM = Path(os.environ.get("CHROMIUM", "/usr/bin/chromium"))
SMALL = "model=gpt3-13B&system=h100_80g_nvl8&procs=16&batch=32&type=float16"
PATIENCE = 60_000
"""How long a page is waited for [ms]. Other tests keep the machine busy beside these, which ask what a page shows;
how soon it does is measured by `tests/benchmarks`."""

expect.set_options(timeout=PATIENCE)

_FAULTS = re.compile(r"Traceback|Exception|Error|[Ww]arning|[Dd]eprecat")
_NOT_OURS = re.compile(r"^.*(?:AuthlibDeprecationWarning|Error during authentication: access_denied).*$", re.MULTILINE)
"""What the library that logs people in says of what it uses itself, and of somebody who breaks a login off."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(item.path).parent == Path(__file__).parent:
            item.add_marker(pytest.mark.browser)
            if not CHROMIUM.exists():
                item.add_marker(pytest.mark.skip(reason=f"no Chromium at {CHROMIUM}: apt-get install chromium"))


def free_port() -> int:
    """A port of this machine on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@contextmanager
def serving(folder: Path, port: int, *options: str, apart: bool = True) -> Iterator[str]:
    """The address of a server whose store is in a folder; its log must stay free of faults.

    apart: False for tests that are not about what is computed, which start sooner without processes beside the server.
    """
    log = folder / "log.txt"
    command = [
        sys.executable, "-m", "streamlit", "run", str(ROOT / "app.py"), "--server.port", str(port),
        "--server.fileWatcherType", "none", *options,
    ]  # fmt: skip
    environment = {
        **os.environ, "SHARDSCAPE_STORE": str(folder / "results.duckdb"), "SHARDSCAPE_PROCESS": "on" if apart else "off"
    }  # fmt: skip
    with log.open("w") as output:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT)
        try:
            _wait_until_healthy(f"http://127.0.0.1:{port}", process, log)
            yield f"http://127.0.0.1:{port}"
        finally:
            text = _NOT_OURS.sub("", log.read_text())
            process.terminate()
            process.wait(20)
    assert _FAULTS.search(text) is None, f"The server's log has a fault:\n{text}"


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server with an empty store."""
    with serving(tmp_path_factory.mktemp("server"), free_port()) as address:
        yield address


def _wait_until_healthy(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(200):
        assert process.poll() is None, log.read_text()
        try:
            with urllib.request.urlopen(f"{address}/_stcore/health", timeout=2) as answer:
                if answer.read() == b"ok":
                    return
        except OSError:
            time.sleep(0.2)
    raise AssertionError(f"The server did not start:\n{log.read_text()}")


FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    # The pages of a context share a process, which has read the application's scripts once for all of them ...
    "--process-per-site",
    # ... and do not live long enough for compiling them better to pay.
    "--js-flags=--no-opt --no-maglev",
)
"""With these, opening a page takes the browser half the work."""


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield made
        made.close()


def new_context(browser: Browser, **options: Any) -> BrowserContext:
    """A context with a small window, in which pages are waited for patiently.

    It asks for little motion, as people may: what turns and fades while a page waits is drawn 60 times a second, which
    takes a fifth of the browser's work where the machine is busy.
    """
    context = browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce", **options)
    context.set_default_timeout(PATIENCE)
    return context


def warmed(browser: Browser, server: str, **options: Any) -> BrowserContext:
    """A context in which the application's scripts are read, and stay so: a page stays open that nothing is done on."""
    context = new_context(browser, **options)
    page = context.new_page()
    page.goto(f"{server}/?{SMALL}")
    page.wait_for_selector(".st-key-explore_map .barlayer path")
    return context


def go_to(page: Page, name: str) -> None:
    """Goes to a page by its name through the navigation: its section, then its entry."""
    there = registry.page(name)
    section = page.get_by_test_id("stTopNav").get_by_role("button", name=re.compile(f"^{there.group}"))
    section.locator("visible=true").click()
    page.get_by_role("menuitem", name=there.title, exact=True).click()
    expect(page.get_by_role("heading", level=1, name=there.title, exact=True)).to_be_attached()


def settled(page: Page) -> None:
    """Waits until nothing is drawn any more: on a busy machine a popover that was opened before would be shut by it."""
    expect(page.locator("[data-test-script-state=notRunning]")).to_be_attached()


def choose_from(box: Locator, option: Locator) -> None:
    """Chooses from a list.

    A list that is opened while the page is still being drawn is shut by what is drawn after it, which nobody can tell
    beforehand on a busy machine: it is then opened again, as a person would.
    """
    latest = time.monotonic() + PATIENCE / 1000
    while True:
        settled(box.page)
        box.click()
        try:
            option.click(timeout=5_000)
        except PlaywrightTimeout:
            if time.monotonic() > latest:
                raise
            box.page.keyboard.press("Escape")
        else:
            expect(option).to_have_count(0)
            return


@pytest.fixture(scope="session")
def warm(browser: Browser, server: str) -> BrowserContext:
    """The context of most tests."""
    return warmed(browser, server)


@pytest.fixture(scope="session")
def second(browser: Browser, server: str) -> BrowserContext:
    """A context that shares nothing with the first, for links that were sent to somebody else."""
    return warmed(browser, server)


def _watched(context: BrowserContext) -> Iterator[Page]:
    """A page that must neither open a dialog nor meet an error of a script, nor log one, as charts do."""
    opened = context.new_page()
    complaints: list[str] = []

    def logged(message: ConsoleMessage) -> None:
        # Streamlit asks on every page first whether it is served below the page's address, which it is not.
        if message.type == "error" and "Failed to load resource" not in message.text:
            complaints.append(message.text)

    opened.on("console", logged)
    opened.on("dialog", lambda dialog: complaints.append(dialog.message))
    opened.on("pageerror", lambda problem: complaints.append(str(problem)))
    yield opened
    opened.close()
    assert complaints == []


@pytest.fixture
def page(warm: BrowserContext) -> Iterator[Page]:
    """A page in the first context."""
    yield from _watched(warm)


@pytest.fixture
def stranger(second: BrowserContext) -> Iterator[Page]:
    """A page in the other context."""
    yield from _watched(second)


@pytest.fixture
def visit(warm: BrowserContext, server: str) -> Iterator[Callable[[str], Page]]:
    """Opens the application at a link and waits for the map."""
    pages: list[Page] = []

    def opened(query: str = SMALL) -> Page:
        page = warm.new_page()
        pages.append(page)
        page.goto(f"{server}/?{query}")
        page.wait_for_selector(".st-key-explore_map .barlayer path")
        page.wait_for_selector(".st-key-panel .ss-facts, .st-key-panel .ss-chips")
        return page

    yield opened
    for page in pages:
        page.close()

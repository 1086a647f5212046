"""A server of its own and a real Chromium for the tests of this folder; all are skipped where there is no Chromium."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Locator,
    Page,
    ViewportSize,
    expect,
    sync_playwright,
)
from playwright.sync_api import TimeoutError as PlaywrightTimeout
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.proto.SessionStatus_pb2 import SessionStatus

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


class Server:
    """A server whose store is in a folder, and which may be started again; its log must stay free of faults.

    apart: False for tests that are not about what is computed, which start sooner without processes beside the server.
    """

    def __init__(self, folder: Path, *options: str, apart: bool = True) -> None:
        port = free_port()
        self.address = f"http://127.0.0.1:{port}"
        self._log = folder / "log.txt"
        self._command = [
            sys.executable,
            "-m",
            "streamlit",
            "run",
            str(ROOT / "app.py"),
            "--server.port",
            str(port),
            *options,
        ]
        store = {"SHARDSCAPE_STORE": str(folder / "results.duckdb"), "SHARDSCAPE_PROCESS": "on" if apart else "off"}
        self._environment = {**os.environ, **store}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("w") as output:
            self._process = subprocess.Popen(
                self._command, cwd=ROOT, env=self._environment, stdout=output, stderr=subprocess.STDOUT
            )
        _wait_until_healthy(self.address, self._process, self._log)

    def stop(self) -> None:
        """Ends it, whatever its log says."""
        if self._process is None:
            return
        text = _NOT_OURS.sub("", self._log.read_text())
        self._process.terminate()
        self._process.wait(20)
        self._process = None
        assert _FAULTS.search(text) is None, f"The server's log has a fault:\n{text}"


@contextmanager
def serving(folder: Path, *options: str, apart: bool = True) -> Iterator[str]:
    """The address of a server whose store is in a folder."""
    own = Server(folder, *options, apart=apart)
    try:
        own.start()
        yield own.address
    finally:
        own.stop()


@pytest.fixture(scope="session")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server of most tests, with a store that was empty."""
    own = Server(tmp_path_factory.mktemp("server"))
    try:
        own.start()
        yield own
    finally:
        own.stop()


@pytest.fixture(scope="session")
def server(process: Server) -> str:
    """The address of the server."""
    return process.address


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


VIEWPORT: ViewportSize = {"width": 1280, "height": 900}
FLAGS = (
    "--no-sandbox",
    # Nothing is drawn by a GPU: what draws instead needs no process of its own, to which every picture would be copied.
    "--disable-gpu",
    "--in-process-gpu",
    # The pages of a context share a process, which has read the application's scripts once for all of them ...
    "--process-per-site",
    # ... and do not live long enough for the last of the compilers to pay, though for the one before it.
    "--js-flags=--no-opt",
)
"""With these, opening a page takes the browser half the work."""


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield made
        made.close()


_RUN_ENDED = ForwardMsg(session_status_changed=SessionStatus()).SerializeToString()
"""What the server sends when a run of the page has ended."""
_COUNT_RUNS = """
  window.runs = 0;
  window.WebSocket = class extends WebSocket {
    constructor(...given) {
      super(...given);
      this.addEventListener('message', ({data}) => {
        if (data.byteLength === ENDED.length && String(new Uint8Array(data)) === String(ENDED))
          requestIdleCallback(() => { window.runs += 1; }, {timeout: 1000});
      });
    }
  };
""".replace("ENDED", str(list(_RUN_ENDED)))
"""Counts the runs of a page that have ended, once what they sent is drawn.

What is drawn does not tell: where a run is so short that the page is drawn once for all that it sent, nothing ever says
there that the page was running.
"""


def new_context(browser: Browser, **options: Any) -> BrowserContext:
    """A context with a small window, in which pages are waited for patiently.

    It asks for little motion, as people may: what turns and fades while a page waits is drawn 60 times a second, which
    takes a fifth of the browser's work where the machine is busy.
    """
    context = browser.new_context(viewport=VIEWPORT, reduced_motion="reduce", **options)
    context.add_init_script(_COUNT_RUNS)
    context.set_default_timeout(PATIENCE)
    return context


_OPEN = "address => { history.replaceState(null, '', address); dispatchEvent(new PopStateEvent('popstate')); }"


@contextmanager
def drawn_again(page: Page) -> Iterator[None]:
    """Waits until the server has drawn the page after what is done within, which must not load it anew.

    `settled` alone may look before the server has begun. A run that was under way counts as well.
    """
    before = page.evaluate("window.runs")
    yield
    page.wait_for_function("before => window.runs > before", arg=before, polling=20)
    settled(page)


def open_at(page: Page, address: str) -> None:
    """Opens a link as a step through the history does where the application runs already; loads it in a new page.

    The browser has half the work that loading it takes, and the server goes on with the same session.
    """
    if page.url == "about:blank":
        page.goto(address)
    else:
        settled(page)
        with drawn_again(page):
            page.evaluate(_OPEN, address)
    title = registry.page(urlsplit(address).path.strip("/") or registry.PAGES[0].name).title
    expect(page.get_by_role("heading", level=1, name=title, exact=True)).to_be_attached()
    settled(page)


def go_to(page: Page, name: str) -> None:
    """Goes to a page by its name through the navigation: its section, then its entry."""
    there = registry.page(name)
    section = page.get_by_test_id("stTopNav").get_by_role("button", name=re.compile(f"^{there.group}"))
    section.locator("visible=true").click()
    page.get_by_role("menuitem", name=there.title, exact=True).click()
    expect(page.get_by_role("heading", level=1, name=there.title, exact=True)).to_be_attached()


def settled(page: Page) -> None:
    """Waits until nothing is drawn any more: on a busy machine a popover that was opened before would be shut by it."""
    page.wait_for_function("() => document.querySelector('[data-test-script-state=notRunning]') !== null", polling=20)


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
            option.click(timeout=2_000)
        except PlaywrightTimeout:
            if time.monotonic() > latest:
                raise
            box.page.keyboard.press("Escape")
        else:
            expect(option).to_have_count(0)
            return


@dataclass
class Window:
    """A context with one page that stays open, so that the application's scripts stay read."""

    context: BrowserContext
    page: Page
    complaints: list[str] = field(default_factory=list)

    def watch(self, page: Page) -> None:
        """Notes dialogs, errors of scripts, and what they log, as charts do."""

        def logged(message: ConsoleMessage) -> None:
            # Streamlit asks on every page first whether it is served below the page's address, which it is not.
            if message.type == "error" and "Failed to load resource" not in message.text:
                self.complaints.append(message.text)

        page.on("console", logged)
        page.on("dialog", self._dismissed)
        page.on("pageerror", lambda problem: self.complaints.append(str(problem)))

    def opened(self) -> Iterator[Page]:
        """Another page, on which nothing may be complained of either."""
        page = self.context.new_page()
        self.watch(page)
        yield page
        page.close()
        self.assert_no_complaints()

    def assert_no_complaints(self) -> None:
        """Nothing was complained of since this was last asked."""
        complaints, self.complaints[:] = list(self.complaints), []
        assert complaints == []

    def _dismissed(self, dialog: Dialog) -> None:
        self.complaints.append(dialog.message)
        dialog.dismiss()


def _window(browser: Browser, server: str) -> Window:
    context = new_context(browser)
    window = Window(context, context.new_page())
    window.watch(window.page)
    window.page.goto(f"{server}/guide?{SMALL}")
    settled(window.page)
    return window


@pytest.fixture(scope="session")
def first(browser: Browser, server: str) -> Window:
    """The window of most tests."""
    return _window(browser, server)


@pytest.fixture(scope="session")
def other(browser: Browser, server: str) -> Window:
    """A window that shares nothing with the first, for links that were sent to somebody else."""
    return _window(browser, server)


@pytest.fixture(scope="session")
def warm(first: Window) -> BrowserContext:
    """The context of most tests."""
    return first.context


@pytest.fixture(scope="session")
def second(other: Window) -> BrowserContext:
    """The context of somebody else."""
    return other.context


FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        item.stash[FAILED] = True
    return report


def _lent(window: Window, server: str, failed: Callable[[], bool]) -> Iterator[Page]:
    """The page of a window, on which nothing may be complained of; after a test that failed there is another."""
    page = window.page
    page.unroute_all()
    yield page
    if failed():
        window.page = window.context.new_page()
        window.watch(window.page)
        window.page.goto(f"{server}/guide?{SMALL}")
        page.close()
    else:
        page.keyboard.press("Escape")
        page.set_viewport_size(VIEWPORT)
        settled(page)
    window.assert_no_complaints()


@pytest.fixture
def page(first: Window, server: str, request: pytest.FixtureRequest) -> Iterator[Page]:
    """The page of the first window as the test before left it: tests that ask for a fresh session load a link."""
    yield from _lent(first, server, lambda: request.node.stash.get(FAILED, False))


@pytest.fixture
def stranger(other: Window, server: str, request: pytest.FixtureRequest) -> Iterator[Page]:
    """The page of the other window."""
    yield from _lent(other, server, lambda: request.node.stash.get(FAILED, False))


@pytest.fixture
def fresh(first: Window) -> Iterator[Page]:
    """A page of its own, whose history is empty."""
    yield from first.opened()


@pytest.fixture
def visit(page: Page, server: str) -> Callable[[str], Page]:
    """Opens the application at a link and waits for the map."""

    def opened(query: str = SMALL) -> Page:
        open_at(page, f"{server}/?{query}")
        page.wait_for_selector(".st-key-explore_map .barlayer path")
        page.wait_for_selector(".st-key-panel .ss-facts, .st-key-panel .ss-chips")
        return page

    return opened

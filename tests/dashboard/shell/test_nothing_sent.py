"""Nothing is sent anywhere: a server whose every use of the network is watched, and who may open a session of it; and
it ends in the midst of whatever it is asked."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any, TypeVar

import httpx
import pytest
from websockets.exceptions import InvalidStatus

from dashboard.pages.contract import Page as Entry
from dashboard.pages.registry import PAGES
from dashboard.shell import middleware
from tests.benchmarks.browser_server import Server, running
from tests.benchmarks.visitor import visiting
from tests.dashboard.page_runs import BRIEF

Found = TypeVar("Found")

WATCH = """
import os, sys

def watch(event, arguments):
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        place = arguments[1]
        host = place[0] if isinstance(place, tuple) else "localhost"
    elif event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr", "socket.getnameinfo"):
        host = arguments[0][0] if isinstance(arguments[0], tuple) else arguments[0]
    else:
        return
    host = host.decode() if isinstance(host, bytes) else str(host)
    if not host.startswith("127.") and host not in ("localhost", "::1", "None", ""):
        with open(os.environ["WATCHED"], "a") as log:
            log.write(f"{event} {host}\\n")
        raise OSError("Nothing is to be sent anywhere.")

sys.addaudithook(watch)
"""
"""Runs in every Python process of the server before anything else; writes down every host but this machine."""
SMALL = {"model": "megatron-126M", "system": "h100_80g_nvl8", "procs": "4", "batch": "8", "type": "float16"}
MANY = 15
LONG = {
    "model": "deepseek-v3",
    "system": "h100_80g_sxm",
    "num_procs": 16_384,
    "max_batch_size": 16_384,
    "datatype": "bfloat16",
    "limits": {"context_par": [1, 2, 4, 8], "expert_tensor_par": [1, 2, 4]},
}
"""A question about it takes minutes."""


@pytest.fixture
def watched(tmp_path: Path) -> dict[str, str]:
    """The environment of a process that is watched; what it did is in the file that `WATCHED` names."""
    (tmp_path / "sitecustomize.py").write_text(WATCH)
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH", ""))))
    everything = {"SHARDSCAPE_PROCESS": "on", "SHARDSCAPE_API": "on"}
    return {"PYTHONPATH": path, "WATCHED": str(tmp_path / "watched.txt"), **everything}


def contacted(watched: dict[str, str]) -> list[str]:
    """Whom the server and its processes called upon, or asked about."""
    file = Path(watched["WATCHED"])
    return file.read_text().splitlines() if file.exists() else []


async def refused(server: Server, origin: str) -> int:
    """How the server answers who wants to open a session from a page of another site."""
    try:
        async with visiting(server.address, origin=origin):
            return 101
    except InvalidStatus as answer:
        return answer.response.status_code


def alone(work: Coroutine[Any, Any, Found]) -> Found:
    """What asynchronous work comes to, in a thread of its own: a browser of another test keeps this one's loop."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


async def opened(server: Server, pages: Sequence[Entry]) -> list[str]:
    """Opens pages, of a scenario that nobody has explored; returns what is wrong with them."""
    wrong = []
    async with visiting(server.address, origin=server.address) as visitor:
        for entry in pages:
            shown = await visitor.open("" if entry is PAGES[0] else entry.name, **SMALL, **BRIEF)
            wrong += shown.problems if "exception" in shown.kinds else []
            wrong += [] if {"html", "button"} & shown.kinds else [f"{entry.name} is empty"]
    return wrong


def test_the_watch_sees_what_a_process_does(watched: dict[str, str]) -> None:
    script = "import socket; socket.create_connection(('192.0.2.1', 9), 1)"
    subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, **watched}, stderr=subprocess.DEVNULL, check=False
    )
    assert contacted(watched) == ["socket.getaddrinfo 192.0.2.1"]


def assert_framed_by_nobody(server: Server) -> None:
    """No other site can frame an answer of the server."""
    for path in (
        "/",
        "/pareto",
        "/_stcore/health",
        "/_stcore/host-config",
        "/app/static/logo-light.svg",
        "/explore?procs=8",
        "/download/nothing",
        "/static/nothing.js",
        "/../etc/passwd",
    ):
        answer = httpx.get(server.address + path)
        assert answer.headers["X-Frame-Options"] == "SAMEORIGIN", path
        assert answer.headers["Content-Security-Policy"] == "frame-ancestors 'self'", path
        assert answer.headers["X-Content-Type-Options"] == "nosniff", path
        # A redirect passes its origin on, so that the login page knows visitors of an identity provider.
        policy = "strict-origin-when-cross-origin" if answer.is_redirect else "same-origin"
        assert answer.headers["Referrer-Policy"] == policy, path


def assert_metrics_are_hidden(server: Server) -> None:
    """Nobody learns from outside how many sessions there are and what they hold."""
    for path in ("/_stcore/metrics", "/_stcore/metrics/", "/_stcore/metrics?families=cache_memory_bytes"):
        for method in ("GET", "OPTIONS"):
            answer = httpx.request(method, server.address + path, headers={"Accept": "application/openmetrics-text"})
            assert (answer.status_code, answer.text) == (404, "Not Found"), path


def assert_parts_are_read_with_the_page(server: Server) -> None:
    """Every page names files of the front end that are there, seen from its own address; other answers name none."""
    for path in ("/", "/pareto"):
        page = httpx.get(server.address + path)
        named = re.findall(r"<([^>]+)>; rel=modulepreload", page.headers["Link"])
        assert named, path
        for part in named:
            answer = httpx.get(page.url.join(part))
            assert answer.headers["Content-Type"].startswith(("text/javascript", "application/javascript")), part
    assert "Link" not in httpx.get(f"{server.address}/_stcore/health").headers


def assert_stops_in_the_midst_of_a_question(server: Server) -> None:
    """The server answers programs as well, and waits for nobody when it is told to end."""
    api, ended = f"{server.address}/api", list[int]()
    assert httpx.post(f"{api}/list_models", json={"search": "gpt3"}, timeout=120).json()["models"]

    def ask() -> None:
        ended.append(httpx.post(f"{api}/sensitivity", json={"scenario": LONG}, timeout=300).status_code)

    asking = Thread(target=ask)
    asking.start()
    time.sleep(1.0)
    started = time.monotonic()
    os.kill(server.process, signal.SIGTERM)
    asking.join()
    state = Path(f"/proc/{server.process}/stat")
    while state.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() - started < 60
        time.sleep(0.05)
    assert time.monotonic() - started < 15  # the question takes longer than that on any machine
    assert ended == [503]
    assert "Traceback" not in server.log.read_text()


def test_nothing_is_sent_anywhere_and_nobody_frames_it_and_it_stops(watched: dict[str, str]) -> None:
    """The server is one that others reach: Streamlit has such a server ask the network for its own address."""
    ours = "https://shardscape.example.org"
    named = f"--server.corsAllowedOrigins={ours}"
    with running("--server.address", "0.0.0.0", named, variables=watched) as server:

        async def foreigners() -> list[int]:
            return await asyncio.gather(*(refused(server, f"http://{number}.example") for number in range(MANY)))

        assert alone(foreigners()) == [403] * MANY
        assert alone(refused(server, ours)) == 101
        # Pages of other programs on this machine, or of the same address by other names and ports.
        port = int(server.address.rpartition(":")[2])
        places = (
            f"http://127.0.0.1:{port + 1}",
            "http://localhost:3000",
            f"http://localhost:{port}",
            "http://127.0.0.1",
            f"{ours}:8443",
            "http://shardscape.example.org",
            "null",
        )
        assert [alone(refused(server, place)) for place in places] == [403] * len(places)
        assert alone(refused(server, server.address)) == 101
        assert alone(opened(server, PAGES)) == []
        assert_parts_are_read_with_the_page(server)
        assert_framed_by_nobody(server)
        assert_metrics_are_hidden(server)
        assert "Shardscape: http://" in server.log.read_text()
        assert server.faults() == []
        assert_stops_in_the_midst_of_a_question(server)
        assert contacted(watched) == []


@pytest.mark.parametrize(
    ("options", "there"),
    [
        ({"server.address": "0.0.0.0"}, "http://localhost:8600"),
        ({"server.address": "127.0.0.1", "server.baseUrlPath": "/tools/"}, "http://127.0.0.1:8600/tools"),
        ({"server.address": "::1", "server.sslCertFile": "a.pem"}, "https://[::1]:8600"),
    ],
)
def test_a_server_says_where_it_is_and_opens_a_browser_where_it_is_to(
    options: dict[str, str], there: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    known = {"server.port": 8600, "server.headless": False, "server.baseUrlPath": "", **options}
    opened, prepared = Queue[str](), Queue[str]()
    monkeypatch.setattr(middleware, "_prepare_server", lambda: prepared.put("ready"))
    monkeypatch.setattr("streamlit.get_option", known.get)
    monkeypatch.setattr("webbrowser.open", opened.put)

    async def live() -> None:
        async with middleware.greeting(None):
            pass

    alone(live())
    assert f"Shardscape: {there}" in capsys.readouterr().out
    assert opened.get(timeout=10) == there
    assert prepared.get(timeout=10) == "ready"

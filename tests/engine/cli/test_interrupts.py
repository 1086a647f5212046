"""Ctrl-C at any moment, from the loading of modules on: exit code 130, at most a sentence, never a traceback."""

from __future__ import annotations

import os
import pty
import re
import signal
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).parents[3]
MODULE, FUNCTION = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["scripts"][
    "shardscape"
].split(":")
# What an installed script does, with a sign that Python has begun it: what comes earlier is not ours.
SCRIPT = f"import os, sys; from {MODULE} import {FUNCTION}; os.write(3, b'.'); sys.exit({FUNCTION}())"
# The same, interrupted when it loads the module of a number: no sooner and no later on a machine that is busy.
INTERRUPTED = f"""
import itertools, os, signal, sys
from {MODULE} import {FUNCTION}
left = itertools.count(int(sys.argv.pop(1)), -1)
sys.addaudithook(lambda what, _: what == "import" and next(left) == 0 and os.kill(os.getpid(), signal.SIGINT))
sys.exit({FUNCTION}())
"""
BEST = (
    "best",
    "deepseek-v3",
    "h800_80g_sxm",
    "--procs",
    "2048",
    "--max-batch",
    "15360",
    "--datatype",
    "float8",
    "--limit",
    "context_par=1,2,4,8",
    "--limit",
    "launch=eager,fused,compiled,graphs",
    "--limit",
    "expert_overlap=on,off",
    "--limit",
    "stage_layout=even",
)
"""Four hundred million executions, which takes some seconds."""


def listening() -> None:
    """Whatever the tests were started by may ignore interrupts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


IN_SMALL_PARTS = "from engine.exploration import proven_optimum; proven_optimum.POINTS_SEARCHED_TOGETHER = 2_000; "
"""Has a search tell how far it is after tenths of a second, instead of when half of it is done."""


def begun(
    arguments: tuple[str, ...],
    stderr: int = subprocess.PIPE,
    environment: Mapping[str, str] | None = None,
    before: str = "",
) -> subprocess.Popen[str]:
    """A command, once Python has begun it."""
    ready, sign = os.pipe()

    def prepare() -> None:
        os.dup2(sign, 3)
        listening()

    process = subprocess.Popen(
        [sys.executable, "-c", before + SCRIPT, *arguments],
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        preexec_fn=prepare,
        close_fds=False,
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
    )
    os.close(sign)
    os.read(ready, 1)
    os.close(ready)
    return process


def interrupted(process: subprocess.Popen[str]) -> tuple[int, str, str | None]:
    """Interrupts a command: exit code, output, errors; it has to end soon."""
    process.send_signal(signal.SIGINT)
    sent = time.perf_counter()
    out, err = process.communicate(timeout=60)
    assert time.perf_counter() - sent < 30  # a server that is loading its pages does so to the end
    return process.returncode, out, err


SERVE = ("serve", "--port", "1", "--no-browser")


@pytest.mark.parametrize(("arguments", "module"), [(BEST, 0), (SERVE, 100), (BEST, 300), (BEST, 600), (BEST, 900)])
def test_an_interrupt_while_loading_is_quiet(arguments: tuple[str, ...], module: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(module), *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
        timeout=120,
        preexec_fn=listening,
    )
    assert (done.returncode, done.stdout) == (130, ""), done.stderr
    assert done.stderr in ("", "Interrupted.\n")


def test_a_search_shows_how_far_it_is_on_a_terminal_and_stops() -> None:
    screen, terminal = pty.openpty()
    process = begun(BEST, stderr=terminal, before=IN_SMALL_PARTS)
    os.close(terminal)
    shown = b""
    deadline = time.monotonic() + 60
    while b"s left" not in shown and process.poll() is None and time.monotonic() < deadline:
        shown += os.read(screen, 4096)
    code, out, _ = interrupted(process)
    assert re.search(rb"\[#*\.*\] +\d+%  [\d,]+ of 400,912,960  [\d.]+ [GM] executions/s  [\d.]+ s left", shown)
    shown += os.read(screen, 4096)
    os.close(screen)
    assert (code, out) == (130, "")
    assert shown.endswith(b"\r\x1b[KInterrupted.\r\n")


def test_a_server_has_no_api_unless_asked_for_and_is_interrupted_without_a_traceback(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = {"SHARDSCAPE_STORE": str(tmp_path / "results.duckdb"), "SHARDSCAPE_PROCESS": "off"}
    process = begun(("serve", "--port", str(port), "--no-browser"), environment=settings)
    assert process.stdout is not None
    while "http://" not in process.stdout.readline():
        assert process.poll() is None
    found = None
    while found is None:
        with suppress(httpx.ConnectError):  # it says where it is a moment before it listens
            found = httpx.get(f"http://127.0.0.1:{port}/api", timeout=60)
        assert process.poll() is None
    assert "json" not in found.headers.get("content-type", "")  # of the API it would be
    code, out, err = interrupted(process)
    assert (code, err) == (130, "")
    assert "Traceback" not in out

"""Many sessions at once, and memory over many scenarios, through Streamlit's interface for programs on loopback.

Every request runs the page on the server as a browser's would and is answered when the run has ended; what is missing
is the browser's drawing.
"""

from __future__ import annotations

import json
import random
import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from tests.benchmarks.browser_server import Server

__all__ = ["Load", "Memory", "memory", "sessions"]

READY: Final = '"explore_map"'
"""In the answer of a page that shows its map."""
BAD: Final = ('"status":"error"', '"type":"exception"', "explorations are waiting already")
LONGEST: Final = 20.0
"""Longest wait for one map [s]."""
METRICS: Final = ("total_time", "mfu", "proc_mem_tier1_cap_req", "sample_rate")


@dataclass
class Load:
    """What many sessions saw."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    """Times by what was done [s]."""
    problems: list[str] = field(default_factory=list)
    wall: float = 0.0


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident memory of a server [MiB] after so many changes of the scenario."""

    changes: list[int]
    resident: list[float]
    warm: int
    """Changes before the server counts as warm: its caches keep 64 of everything."""
    seconds: list[float]

    @property
    def slope(self) -> float:
        """Growth after warming up [MiB per 100 changes], by least squares."""
        later = [(x, y) for x, y in zip(self.changes, self.resident, strict=True) if x >= self.warm]
        counts, resident = np.array(later, dtype=np.float64).T
        return float(np.polyfit(counts, resident, 1)[0]) * 100


class Visitor:
    """One session of a server."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.session = ""

    def ask(self, **request: Any) -> None:
        """Sends a request and waits for the map that it leads to. Raises `RuntimeError` for anything else."""
        latest = time.monotonic() + LONGEST
        text = self._post(request)
        while READY not in text:
            if time.monotonic() > latest:
                raise RuntimeError(f"no map within {LONGEST:g} s")
            time.sleep(0.2)
            text = self._post({})

    def _post(self, request: dict[str, Any]) -> str:
        body = json.dumps({**request, **({"session_id": self.session} if self.session else {})}).encode()
        call = urllib.request.Request(
            f"{self.server.address}/_stcore/agent/interact", body, {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(call, timeout=LONGEST) as answer:
                text = str(answer.read().decode())
        except urllib.error.HTTPError as problem:
            raise RuntimeError(f"{problem.code}: {problem.read().decode()[:300]}") from problem
        self.session = json.loads(text)["session_id"]
        found = [word for word in BAD if word in text.replace(": ", ":")]
        if found:
            raise RuntimeError(f"the page says {found[0]}")
        return text


def _scenario(model: str, procs: int, batch: int) -> dict[str, list[str]]:
    named = {"model": model, "system": "h100_80g_nvl8", "procs": procs, "batch": batch, "type": "float16"}
    return {name: [str(value)] for name, value in named.items()}


def sessions(server: Server, count: int, seconds: float, pause: tuple[float, float]) -> Load:
    """Sessions that for some time change scenario, metric or cell, with a pause to look before each action [s].

    A quarter of the actions ask for a scenario of 0.4 to 2 million executions, mostly one nobody has asked for before.
    """
    load, lock = Load(), threading.Lock()
    latest = time.monotonic() + seconds

    def visit(number: int) -> None:
        draw = random.Random(number)
        visitor = Visitor(server)
        given = _scenario("gpt3-13B", 16, 32)
        what = "open"
        time.sleep(draw.uniform(0, pause[1]))
        while True:
            request: dict[str, Any] = {"query_params": given}
            start = time.monotonic()
            try:
                visitor.ask(**request)
            except (RuntimeError, OSError, ValueError) as problem:
                with lock:
                    load.problems.append(f"{what}: {problem}")
            with lock:
                load.seconds.setdefault(what, []).append(time.monotonic() - start)
            time.sleep(draw.uniform(*pause))
            if time.monotonic() > latest:
                return
            what = draw.choice(("scenario", "metric", "cell", "cell"))
            if what == "scenario":
                procs, model = draw.choice((16, 32)), draw.choice(("gpt3-13B", "gpt3-6.7B"))
                given = _scenario(model, procs, draw.randrange(procs, 4 * procs))
            elif what == "metric":
                given = {**given, "metric": [draw.choice(METRICS)]}
            else:
                given = {**given, "cell": [f"{draw.choice((1, 2, 4, 8))}x{draw.choice((1, 2))}"]}

    threads = [threading.Thread(target=visit, args=(number,)) for number in range(count)]
    start = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    load.wall = time.monotonic() - start
    return load


def memory(server: Server, changes: int, *, warm: int = 80, longest: float = 100.0) -> Memory:
    """Resident memory while one session goes from scenario to scenario, each asked for once; in bounded time [s]."""
    visitor = Visitor(server)
    visitor.ask(query_params=_scenario("gpt3-13B", 8, 8))
    counts, resident, seconds = [0], [server.resident()], []
    latest = time.monotonic() + longest
    for number in range(1, changes + 1):
        start = time.monotonic()
        visitor.ask(query_params=_scenario("gpt3-13B", 8, 8 + number))
        seconds.append(time.monotonic() - start)
        if number % 5 == 0:
            counts.append(number)
            resident.append(server.resident())
        if time.monotonic() > latest:
            break
    return Memory(counts, resident, min(warm, counts[-1] // 2), seconds)

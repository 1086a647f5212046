"""Twenty sessions that look at one map, and memory over many scenarios, by the protocol of a browser without one.

What is missing is the browser's drawing. Answers are timed from the click until the page has nothing more to wait for.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass
from typing import Final

import numpy as np
from websockets.exceptions import WebSocketException

from tests.benchmarks.browser_server import Server
from tests.benchmarks.visitor import METRICS, Seen, timed, visiting

__all__ = ["Load", "Memory", "memory", "sessions"]

LONGEST: Final = 60.0
"""Longest wait for a page [s]."""


@dataclass
class Load(Seen):
    """What many sessions saw, and how long that took [s]."""

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


def _scenario(model: str, procs: int, batch: int) -> dict[str, str]:
    named = {"model": model, "system": "h100_80g_nvl8", "procs": procs, "batch": batch, "type": "float16"}
    return {name: str(value) for name, value in named.items()}


def sessions(server: Server, count: int, seconds: float, pause: tuple[float, float]) -> Load:
    """Sessions that for some time change scenario, metric or cell, with a pause to look before each action [s].

    A quarter of the actions ask for a scenario of 0.4 to 2 million executions, mostly one nobody has asked for before.
    """
    load = Load()
    start = time.monotonic()

    async def visit(number: int) -> None:
        draw = random.Random(number)
        given = _scenario("gpt3-13B", 16, 32)
        what = "open"
        await asyncio.sleep(draw.uniform(0, pause[1]))
        try:
            async with visiting(server.address, longest=LONGEST) as visitor:
                while True:
                    await timed(visitor, what, "", given, draw.uniform(*pause), load)
                    if time.monotonic() > start + seconds:
                        return
                    what = draw.choice(("scenario", "metric", "cell", "cell"))
                    if what == "scenario":
                        procs, model = draw.choice((16, 32)), draw.choice(("gpt3-13B", "gpt3-6.7B"))
                        given = _scenario(model, procs, draw.randrange(procs, 4 * procs))
                    elif what == "metric":
                        given = {**given, "metric": draw.choice(METRICS)}
                    else:  # which all these scenarios have
                        given = {**given, "cell": f"{draw.choice((1, 2, 4))}x{draw.choice((1, 2))}"}
        except (OSError, WebSocketException) as problem:
            load.problems.append(f"connection: {type(problem).__name__}: {problem}")

    async def visits() -> None:
        await asyncio.gather(*map(visit, range(count)))

    asyncio.run(visits())
    load.wall = time.monotonic() - start
    return load


def memory(server: Server, changes: int, *, warm: int = 80, longest: float = 100.0) -> Memory:
    """Resident memory while one session goes from scenario to scenario, each asked for once; in bounded time [s]."""
    counts, resident, seconds = [0], [], []

    async def visit() -> None:
        latest = time.monotonic() + longest
        async with visiting(server.address, longest=LONGEST) as visitor:
            await visitor.open(**_scenario("gpt3-13B", 8, 8))
            resident.append(server.resident())
            for number in range(1, changes + 1):
                start = time.monotonic()
                shown = await visitor.open(**_scenario("gpt3-13B", 8, 8 + number))
                await visitor.look(shown, 0.0)
                seconds.append(time.monotonic() - start)
                if number % 5 == 0:
                    counts.append(number)
                    resident.append(server.resident())
                if time.monotonic() > latest:
                    break

    asyncio.run(visit())
    return Memory(counts, resident, min(warm, counts[-1] // 2), seconds)

"""Many people at once: sessions that read pages and explore new scenarios, by the protocol of a browser without one.

`python -m tests.benchmarks load`. Half of the actions ask for a scenario that nobody has asked for before; the others
read pages of what was explored. Answers are timed from the click until the page has nothing more to wait for.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Final

from websockets.exceptions import WebSocketException

from engine.cli.output import text_table
from tests.benchmarks.browser_server import Server, running
from tests.benchmarks.visitor import METRICS, Seen, Visitor, timed, visiting

__all__ = ["run"]

CASES: Final = ((20, False, 2.0), (50, True, 4.0))
"""Sessions, whether one of them explores a very large space meanwhile, and the target for what is read [s]."""
PAUSE: Final = (2.0, 5.0)
"""How long a session looks at a page before it does something [s]."""
SHARE_NEW: Final = 0.5
"""Actions that ask for a new scenario, of all."""
LONGEST: Final = 120.0
"""Longest wait for a page [s]."""
FIRST: Final = {"model": "gpt3-13B", "system": "h100_80g_nvl8", "procs": "16", "batch": "32", "type": "float16"}
NEW: Final = (
    ("gpt3-6.7B", "h100_80g_nvl8", (16, 32)),
    ("gpt3-13B", "h100_80g_nvl8", (16, 32)),
    ("gpt3-13B", "a100_80g", (16, 32)),
    ("llama-3-8B", "h100_80g_sxm", (32, 64)),
    ("llama-3-70B", "h100_80g_sxm", (32, 64)),
)
"""Models, systems and numbers of processors of new scenarios: 0.2 to 2 million executions each."""
LARGEST: Final = {
    "model": "deepseek-v3",
    "system": "h100_80g_sxm",
    "procs": "1024",
    "batch": "4096",
    "type": "float16",
    "limits": "expert_overlap:on,off;pipeline_overlap:on,off;launch:fused,graphs,eager;"
    "gradient_datatype:float32,bfloat16;optimizer_datatype:float32,bfloat16",
}
"""A space of 151 million executions."""
READS: Final = (
    ("cell", 6),
    ("metric", 3),
    ("execution", 3),
    ("whatif", 2),
    ("memory", 2),
    ("pareto", 2),
    ("results", 2),
    ("scenarios", 1),
    ("library", 1),
    ("validation", 1),
    ("serving", 1),
)
"""What is read, and how often: another cell or metric of the map, other pages."""


def _reads(seen: Seen) -> list[float]:
    """Times of all that only read [s]."""
    return [each for what, times in seen.seconds.items() if what in dict(READS) for each in times]


class _Scenarios:
    """Scenarios that nobody has asked for, the same ones in the same order for every server."""

    def __init__(self) -> None:
        self._numbers = itertools.count()

    def another(self) -> dict[str, str]:
        number = next(self._numbers)
        model, system, procs = NEW[number % len(NEW)]
        count = procs[number // len(NEW) % len(procs)]
        batch = count + number // (len(NEW) * len(procs))
        return {**FIRST, "model": model, "system": system, "procs": str(count), "batch": str(2 * batch)}


async def _visit(visitor: Visitor, number: int, new: _Scenarios, latest: float, seen: Seen) -> None:
    """One session: does something, looks at it, and so on until it is time to go."""
    draw = random.Random(number)
    kinds, weights = zip(*READS, strict=True)
    scenario: Mapping[str, str] = FIRST
    await asyncio.sleep(draw.uniform(0, PAUSE[1]))
    what = "first"
    while time.monotonic() < latest:
        if what == "new":
            scenario = new.another()
        page, view = "", {}
        if what == "cell":
            view = {"cell": f"{draw.choice((1, 2, 4))}x{draw.choice((1, 2))}"}
        elif what == "metric":
            view = {"metric": draw.choice(METRICS)}
        elif what not in ("new", "first"):
            page = what
        await timed(visitor, what, page, {**scenario, **view}, draw.uniform(*PAUSE), seen)
        what = "new" if draw.random() < SHARE_NEW else draw.choices(kinds, weights)[0]


async def _sessions(server: Server, count: int, seconds: float, largest: bool) -> Seen:
    async with visiting(server.address, longest=LONGEST) as visitor:  # who comes first waits for imports
        for page in ("", *(page for page, _ in READS if page not in ("cell", "metric"))):
            await visitor.open(page, **FIRST)
    seen, new = Seen(), _Scenarios()
    latest = time.monotonic() + seconds

    async def visit(number: int) -> None:
        try:
            async with visiting(server.address, longest=LONGEST) as visitor:
                await _visit(visitor, number, new, latest, seen)
        except (OSError, WebSocketException) as problem:
            seen.problems.append(f"connection: {type(problem).__name__}: {problem}")

    async def explore_largest() -> None:
        async with visiting(server.address, longest=seconds) as visitor:
            start = time.monotonic()
            try:
                await visitor.open("", **LARGEST)
                seen.seconds["largest"] = [time.monotonic() - start]
            except TimeoutError:
                seen.seconds["largest"] = [seconds]

    await asyncio.gather(*map(visit, range(count)), *([explore_largest()] if largest else []))
    return seen


def run(file: Path | None, seconds: float, only: int | None = None) -> None:
    """Measures every case for so long [s] and prints the tables. only: just the case with so many sessions."""
    document = {}
    for count, largest, target in CASES:
        if only not in (None, count):
            continue
        print(f"measuring {count} sessions for {seconds:.0f} s ...", file=sys.stderr)
        before = os.getloadavg()[0]
        with running() as server:
            start = time.monotonic()
            seen = asyncio.run(_sessions(server, count, seconds, largest))
            wall = time.monotonic() - start
            seen.problems += server.faults()
        document[f"{count} sessions"] = asdict(seen)
        print(_report(count, largest, target, seen, wall, before), end="\n\n")
    if file is not None:
        file.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def _report(count: int, largest: bool, target: float, seen: Seen, wall: float, before: float) -> str:
    reads = ", ".join(f"{what} {weight}" for what, weight in READS)
    done = sum(map(len, seen.seconds.values()))
    lines = [
        f"{count} sessions{' and one that explores 151 million executions' if largest else ''}; each pauses "
        f"{PAUSE[0]:g} to {PAUSE[1]:g} s before an action; {done} actions in {wall:.0f} s.",
        f"{SHARE_NEW:.0%} of the actions explore a scenario of 0.2 to 2 million executions that nobody has asked for; "
        f"the others read the session's latest, by weight: {reads}.",
        f"{os.cpu_count()} cores, these sessions among their work; load average {before:.1f} before, "
        f"{os.getloadavg()[0]:.1f} after; {len(seen.problems)} errors.",
        *(f"  {problem}" for problem in seen.problems[:5]),
        "",
    ]
    groups = {
        "reads": _reads(seen),
        "new scenarios": seen.seconds.get("new", []),
        "first page": seen.seconds.get("first", []),
        **{f"  {what}": seen.seconds.get(what, []) for what, _ in READS},
    }
    rows = []
    for label, times in groups.items():
        if not times:
            continue
        late = _percentile(times, 0.95)
        aim = [f"< {target:g}", "met" if late < target else "missed"] if label == "reads" else ["", ""]
        rows.append(
            [
                label,
                aim[0],
                f"{statistics.median(times):.2f}",
                f"{_percentile(times, 0.9):.2f}",
                f"{late:.2f}",
                f"{max(times):.2f}",
                str(len(times)),
                aim[1],
            ]
        )
    if largest:
        rows.append(["the large space", "", *([""] * 3), f"{seen.seconds['largest'][0]:.2f}", "1", ""])
    return (
        "\n".join(lines)
        + "\n"
        + text_table(("[s]", "target p95", "median", "p90", "p95", "worst", "actions", ""), rows, left=(0, 7))
    )


def _percentile(times: list[float], share: float) -> float:
    return sorted(times)[min(len(times) - 1, int(share * len(times)))]

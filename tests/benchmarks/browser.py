"""How fast the dashboard is: a real server and a real browser, targets beside what was measured.

`python -m tests.benchmarks browser`. Takes less than five minutes, however slow what it measures is: every part stops
at its own time, and says how much of what it meant to do it has done. Stops its servers by itself.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from engine.cli.output import text_table
from tests.benchmarks import load
from tests.benchmarks.browser_page import CHROMIUM, measured
from tests.benchmarks.browser_server import running
from tests.benchmarks.browser_trace import traced

__all__ = ["run"]

SESSIONS: Final = 20
PAUSE: Final = (2.0, 5.0)
"""How long a session looks at a page before it does something [s]."""
CHANGES: Final = 200
LONGEST: Final = {"page": 100.0, "sweep": 20.0, "sessions": 25.0, "memory": 85.0}
"""After how long a part begins nothing more [s]; starting and stopping come on top."""

ROWS: Final = (
    ("warm page", "warm page to drawn map", 2.0),
    ("warm page, chart", "warm page to the map that answers clicks", None),
    ("metric, first time", "metric to redrawn map, first time", 0.5),
    ("metric, again", "metric to redrawn map, again", 0.5),
    ("cell, first time", "click on a cell to its panel, first time", 0.4),
    ("cell, again", "click on a cell to its panel, again", 0.4),
    ("what-if, figures", "What-if slider to the re-optimised figures", 0.5),
    ("what-if, everything", "What-if slider to figures, chart and why", None),
    ("sweep", "20 x 20 sweep over 710,752 executions, one core", 10.0),
    ("sessions", f"{SESSIONS} sessions, any action", 2.0),
    ("sessions: scenario", "  a scenario, mostly new", None),
    ("sessions: metric", "  another metric", None),
    ("sessions: cell", "  another cell", None),
)


def run(repeats: int, file: Path | None, parts: frozenset[str]) -> None:
    """Measures the parts asked for, all but `trace` if none, and prints the tables."""
    start, before = time.monotonic(), os.getloadavg()
    found: dict[str, list[float]] = {}
    notes: list[str] = []
    document: dict[str, Any] = {"seconds": found}
    if not parts or "page" in parts:
        found.update(_page(repeats, notes))
    if not parts or "sweep" in parts:
        _say("sweep")
        command = [sys.executable, "-m", "tests.benchmarks.browser_sweep"]
        done = subprocess.run([*command, str(LONGEST["sweep"])], stdout=subprocess.PIPE, check=True, text=True)
        found["sweep"] = json.loads(done.stdout)["seconds"]
        notes.append(f"Sweep: {len(found['sweep'])} of 3 runs.")
    if not parts or "sessions" in parts:
        document["sessions"] = _sessions(found, notes)
    if "trace" in parts:
        _say("a trace")
        with running() as server:
            notes.append(traced(server.address, repeats))
    if not parts or "memory" in parts:
        document["memory"] = _memory(notes)
    print(
        f"{os.cpu_count()} cores; load average {before[0]:.1f} before, {os.getloadavg()[0]:.1f} after; "
        f"{time.monotonic() - start:.0f} s in all\n"
    )
    print(_table(found))
    print("\n" + "\n".join(notes))
    if file is not None:
        file.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def _say(what: str) -> None:
    print(f"measuring {what} ...", file=sys.stderr)


def _page(repeats: int, notes: list[str]) -> dict[str, list[float]]:
    if not CHROMIUM.exists():
        notes.append(f"No Chromium at {CHROMIUM}: nothing was measured in a browser.")
        return {}
    _say("pages in the browser")
    with running() as server:
        found = measured(server.address, repeats, LONGEST["page"])
        faults = server.faults()
    done = sum(len(times) for name, times in found.seconds.items() if name != "what-if, everything")
    meant = done + found.skipped + len(found.problems)
    notes.append(
        f"In the browser: {done} of {meant} actions measured; {found.skipped} left out for want of time, "
        f"{len(found.problems)} without the expected change."
    )
    notes += [f"  {problem}" for problem in found.problems[:5]] + [f"  The server's log: {line}" for line in faults[:5]]
    return found.seconds


def _sessions(found: dict[str, list[float]], notes: list[str]) -> dict[str, Any]:
    _say(f"{SESSIONS} sessions")
    with running() as server:
        load.sessions(server, 1, 2.0, (0.1, 0.2))  # the first visitor waits for imports
        seen = load.sessions(server, SESSIONS, LONGEST["sessions"], PAUSE)
        seen.problems += server.faults()
    found["sessions"] = [each for times in seen.seconds.values() for each in times]
    found.update({f"sessions: {what}": times for what, times in seen.seconds.items()})
    notes.append(
        f"{SESSIONS} sessions, each pausing {PAUSE[0]:g} to {PAUSE[1]:g} s before an action: {len(found['sessions'])} "
        f"actions in {seen.wall:.0f} s, {len(seen.problems)} errors; load average {os.getloadavg()[0]:.1f}."
    )
    notes += [f"  {problem}" for problem in seen.problems[:5]]
    return asdict(seen)


def _memory(notes: list[str]) -> dict[str, Any]:
    _say(f"memory over {CHANGES} scenarios")
    with running() as server:
        seen = load.memory(server, CHANGES, longest=LONGEST["memory"])
    if len(seen.changes) < 3:
        notes.append(f"Memory: only {len(seen.seconds)} of {CHANGES} scenario changes, too few to tell.")
        return asdict(seen)
    notes.append(
        f"Memory of the server: {seen.changes[-1]} of {CHANGES} scenario changes (median "
        f"{statistics.median(seen.seconds):.2f} s each); {seen.resident[0]:.0f} MiB after the first page, "
        f"{seen.resident[-1]:.0f} MiB at the end, {seen.slope:+.1f} MiB per 100 changes from the {seen.warm}th on."
    )
    points = [f"{change}: {size:.0f}" for change, size in zip(seen.changes, seen.resident, strict=True)]
    notes.append(f"  MiB after changes: {', '.join(points[:: max(1, len(points) // 10)])}")
    return asdict(seen)


def _table(found: dict[str, list[float]]) -> str:
    rows = []
    for key, label, target in ROWS:
        times = found.get(key)
        if not times:
            continue
        median, late = statistics.median(times), sorted(times)[min(len(times) - 1, int(0.95 * len(times)))]
        # Of many sessions the slowest visits count, of one browser the typical one.
        judged = late if key == "sessions" else median
        verdict = "" if target is None else "met" if judged < target else "missed"
        rows.append(
            [
                label,
                f"< {target:g}" if target else "",
                f"{median:.2f}",
                f"{late:.2f}",
                f"{max(times):.2f}",
                str(len(times)),
                verdict,
            ]
        )
    return text_table(("[s]", "target", "median", "p95", "worst", "runs", ""), rows, left=(0, 6))

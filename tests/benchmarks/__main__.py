"""Measures every case on one core and prints a table; `browser` measures the dashboard, `load` many people at once,
`codesign` studies."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

from engine.cli.output import text_table
from tests.benchmarks.measure import Times, pin

ORDER = ("large", "small", "store", "statistics", "optimum", "calibrated")

# Calculon 0.1.0, commit caa4b11, its own exhaustive search on one core of a machine like the one this was written on;
# noted here for scale, not measured again.
CALCULON = (45.0, 50.0)
CALCULON_WITHOUT_LOGGING = 1220.0


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument(
        "what", nargs="?", choices=("engine", "browser", "load", "codesign"), default="engine", help="what is measured"
    )
    parser.add_argument(
        "--part",
        action="append",
        choices=("page", "sweep", "sessions", "memory", "trace"),
        default=[],
        help="of the dashboard, only this; may be repeated",
    )
    parser.add_argument("--sessions", type=int, choices=(20, 50), help="of the load, only this many people at once")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long the load lasts (default 60)")
    parser.add_argument("--repeats", type=int, default=7, help="runs of each case (default 7)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every measured time, too")
    parser.add_argument("--case", choices=ORDER, help="run one case in this process and print its JSON")
    given = parser.parse_args()
    if given.repeats < 1:
        parser.error("--repeats must be at least 1")
    if given.what == "browser":
        from tests.benchmarks.browser import run

        run(given.repeats, given.json, frozenset(given.part))
        return
    if given.what == "load":
        from tests.benchmarks import load_sessions

        load_sessions.run(given.json, given.seconds, given.sessions)
        return
    if given.what == "codesign":
        from tests.benchmarks import codesign

        codesign.run(given.json, whole=given.repeats > 1)
        return
    if given.case:
        pin()
        from tests.benchmarks.cases import CASES

        print(json.dumps(CASES[given.case](given.repeats)))
        return
    found = {name: _measured(name, given.repeats) for name in ORDER}
    print(_machine(given.repeats))
    print()
    print(report(found))
    if given.json:
        given.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def _measured(name: str, repeats: int) -> dict[str, Any]:
    print(f"measuring {name} ...", file=sys.stderr)
    # One thread for libraries that would start several: on one core they only get in each other's way.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.benchmarks", "--case", name, "--repeats", str(repeats)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, env=environment)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def _machine(repeats: int) -> str:
    names = [line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    load = os.getloadavg()[0]
    return (
        f"{names[0] if names else platform.machine()}, one of {os.cpu_count()} cores, Python "
        f"{platform.python_version()}; {repeats} runs each; load average {load:.1f}"
    )


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []


def report(found: dict[str, dict[str, Any]]) -> str:
    """The tables of everything measured."""
    times = {name: Times(tuple(case["seconds"])) for name, case in found.items()}
    large, small, calibrated = found["large"], found["small"], found["calibrated"]
    peak = max(calibrated["peak_memory"], large["peak_memory"], small["peak_memory"], found["store"]["peak_memory"])
    rows = [
        _rate_row("175B on 512: explored", large["total"], times["large"], 20e6, "M executions/s"),
        _rate_row("  feasible ones of them", large["feasible"], times["large"], None, "M evaluations/s"),
        _rate_row("13B on 32: explored", small["total"], times["small"], 10e6, "M executions/s"),
        _rate_row("  feasible ones of them", small["feasible"], times["small"], None, "M evaluations/s"),
        _rate_row("all 96 statistics", found["statistics"]["rows"], times["statistics"], 0.5e6, "M rows/s"),
        _time_row("175B on 512: explored and stored", times["store"], 3.0, "s"),
        _time_row("  found again in the store", Times(tuple(found["store"]["open_seconds"])), None, "s"),
        _time_row("175B on 512: proven optimum", times["optimum"], 0.060, "s"),
        _rate_row("calibrated, 175B on 512, as many", calibrated["total"], times["calibrated"], 10e6, "M executions/s"),
        _rate_row("  feasible ones of them", calibrated["feasible"], times["calibrated"], None, "M evaluations/s"),
        _rate_row(
            "  what it tries without limits",
            calibrated["default_total"],
            Times(tuple(calibrated["default_seconds"])),
            10e6,
            "M executions/s",
        ),
        _rate_row(
            "  all its statistics", calibrated["rows"], Times(tuple(calibrated["rows_seconds"])), None, "M rows/s"
        ),
        _time_row("  proven optimum", Times(tuple(calibrated["best_seconds"])), None, "s"),
        ["peak memory, exploring and storing", f"{peak / 2**30:.2f}", "", "2", f"{2 * 2**30 / peak:.2f}", "GiB"],
    ]
    first = found["optimum"]["first"]
    lines = [
        text_table(("", "median", "best run", "target", "times better", ""), rows, left=(0, 5)),
        "",
        f"The optimum was found by evaluating {found['optimum']['evaluated']:,} of {found['optimum']['total']:,} "
        f"executions; the first call took {first * 1e3:.0f} ms.",
        f"The store takes {found['store']['bytes'] / 1e6:.1f} MB.",
        "",
        "Where the time goes [ms], medians by phase:",
        text_table(
            ("", "space", "prepare, reject", "evaluate", "reduce", "sum"),
            [_split_row("175B on 512", large["split"]), _split_row("13B on 32", small["split"])],
        ),
        "",
        _beside_calculon(large["total"], times["large"]),
    ]
    return "\n".join(lines)


def _rate_row(label: str, count: int, times: Times, target: float | None, unit: str) -> list[str]:
    median, best = count / times.median, count / times.best
    return [
        label,
        f"{median / 1e6:.2f}",
        f"{best / 1e6:.2f}",
        f"{target / 1e6:g}" if target else "",
        f"{median / target:.2f}" if target else "",
        unit,
    ]


def _time_row(label: str, times: Times, target: float | None, unit: str) -> list[str]:
    return [
        label,
        f"{times.median:.3f}",
        f"{times.best:.3f}",
        f"{target:g}" if target else "",
        f"{target / times.median:.2f}" if target else "",
        unit,
    ]


def _split_row(label: str, split: dict[str, float]) -> list[str]:
    parts = [split[name] for name in ("space", "prepare", "evaluate", "reduce")]
    return [label, *(f"{part * 1e3:.1f}" for part in (*parts, sum(parts)))]


def _beside_calculon(total: int, times: Times) -> str:
    rate = total / times.median
    low, high = CALCULON
    hours = f"{total / high / 3600:.0f} to {total / low / 3600:.0f} h"
    rows = [
        ["Calculon's search", f"{low:.0f} to {high:.0f}", hours, "1"],
        [
            "  without its debug logging",
            f"{CALCULON_WITHOUT_LOGGING:,.0f}",
            f"{total / CALCULON_WITHOUT_LOGGING / 60:.0f} min",
            f"{CALCULON_WITHOUT_LOGGING / high:,.0f}",
        ],
        ["Shardscape", f"{rate:,.0f}", f"{times.median:.2f} s", f"{rate / high:,.0f}"],
    ]
    return text_table(("One core, the larger space", "executions/s", "takes", "times"), rows)


if __name__ == "__main__":
    main()

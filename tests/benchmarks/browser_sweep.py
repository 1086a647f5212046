"""A sweep over two parameters, the space re-optimised at each of 20 x 20 points, on one core: prints JSON."""

from __future__ import annotations

import json
import sys
import time

from engine import whatif
from tests.benchmarks.cases import SMALL, scenario_of
from tests.benchmarks.measure import pin

SIDE = 20


def main(repeats: int = 3, longest: float = 60.0) -> None:
    """Measures, in a process of its own, and prints the seconds of each run and the number of points.

    After `longest` [s] no further run begins.
    """
    pin()
    ratios = [4 ** (2 * index / (SIDE - 1) - 1) for index in range(SIDE)]
    seconds: list[float] = []
    points = 0
    began = time.perf_counter()
    for run in range(repeats):
        if seconds and time.perf_counter() - began > longest:
            break
        scenario = scenario_of(SMALL)
        values = {which.name: which.value for which in whatif.parameters(scenario)}
        x, y = "hbm_capacity", "hbm_bandwidth"
        # Other values in every run, so that nothing of an earlier one is found again.
        xs, ys = ([values[name] * ratio * (1 + 1e-4 * run) for ratio in ratios] for name in (x, y))
        start = time.perf_counter()
        points = len(list(whatif.sweep_two(scenario, x, xs, y, ys)))
        seconds.append(time.perf_counter() - start)
    print(json.dumps({"seconds": seconds, "points": points, "total": scenario.space.total}))


if __name__ == "__main__":
    main(longest=float(sys.argv[1]) if len(sys.argv) > 1 else 60.0)

"""A sweep over two parameters, the space re-optimised at each of 20 x 20 points, on one core: prints JSON."""

from __future__ import annotations

import json
import time

from engine import whatif
from tests.benchmarks.cases import SMALL, scenario_of
from tests.benchmarks.measure import pin

SIDE = 20


def main(repeats: int = 3) -> None:
    """Measures, in a process of its own, and prints the seconds of each run and the number of points."""
    pin()
    ratios = [4 ** (2 * index / (SIDE - 1) - 1) for index in range(SIDE)]
    seconds, points = [], 0
    for run in range(repeats):
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
    main()

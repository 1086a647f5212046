"""The artifact's sweep: the best plan of the data-parallel family for every number of GPUs, CPU threads and level of
bandwidth, and the least of all three that reaches a throughput."""

from __future__ import annotations

from typing import Any

import pandas as pd

from engine.planners.elastic.best import CardLike
from engine.planners.elastic.cards import load_card
from engine.planners.elastic.enumeration import ResourceLimits
from engine.planners.elastic.limits import checked_whole
from engine.planners.elastic.performance.variants import FITTED
from engine.planners.elastic.resource_curve import KEEP_SMALLER, winners

__all__ = ["best_allocation", "sweep_resources"]

NODE = 8
"""GPUs up to which NVLink, level 0, is possible, and CPU threads are shared out."""
THREADS = 64
"""CPU threads of a node that its GPUs share. Source: the artifact's sweep (AlibabaPAI/reconfigurable-dl-scheduler at
80e8524)."""
LEVELS = 10
"""Highest level of bandwidth. Source: as for `THREADS`."""


def sweep_resources(model_card: CardLike, *, most_gpus: int = 64, keep_smaller: float = KEEP_SMALLER) -> pd.DataFrame:
    """Returns one row for each allocation of the artifact's sweep, in its order.

    Threads per GPU are 1 to 64 / n on up to 8 GPUs, else 1 to 8; levels of bandwidth 0 on one GPU, 0 to 10 on up to 8,
    else 1 to 10. An allocation is kept as that of one GPU less where this one is not better by more than
    `keep_smaller`, then as that of one thread less, then, above level 2, as that of one level less.

    Columns: `gpus`, `cpu_threads`, `bandwidth`; `raw_best` [samples/s], NaN where nothing can run, and `raw_plan`;
    `stored_best`, `stored_plan`, `stored_gpus`, `stored_cpu_threads`, `stored_bandwidth`.

    Args:
        model_card: a card, a document of one, a name of the library, or the path of a file.
        most_gpus: with which it ends.
        keep_smaller: share by which a larger allocation has to be better.

    Raises `engine.planners.contract.PlanError` for an invalid argument.
    """
    card = load_card(model_card)
    keys = [
        (gpus, threads, level)
        for gpus in range(1, checked_whole(most_gpus, "The most GPUs are", 1, 1_024) + 1)
        for threads in range(1, (THREADS // gpus if gpus <= NODE else NODE) + 1)
        for level in ((0,) if gpus == 1 else range(1 if gpus > NODE else 0, LEVELS + 1))
    ]
    limits = [ResourceLimits((gpus,), threads, float(level)) for gpus, threads, level in keys]
    found = winners(card, limits, variant=FITTED, families=("DP",))
    names, rates = found.names(), found.throughput.tolist()
    kept: dict[tuple[int, int, int], tuple[float, str, tuple[int, int, int]]] = {}
    rows: list[dict[str, Any]] = []
    for key, name, rate in zip(keys, names, rates, strict=True):
        gpus, threads, level = key
        stored = (rate if name else -1.0, name, key)
        for smaller, there in (
            ((gpus - 1, threads, level), gpus > 1),
            ((gpus, threads - 1, level), threads > 1),
            ((gpus, threads, level - 1), level > 2),
        ):
            if there and smaller in kept and kept[smaller][0] * (1 + keep_smaller) >= stored[0]:
                stored = kept[smaller]
        kept[key] = stored
        rows.append(
            {
                **dict(zip(("gpus", "cpu_threads", "bandwidth"), key, strict=True)),
                "raw_best": rate,
                "raw_plan": name,
                "stored_best": stored[0] if stored[1] else float("nan"),
                "stored_plan": stored[1],
                **dict(zip(("stored_gpus", "stored_cpu_threads", "stored_bandwidth"), stored[2], strict=True)),
            }
        )
    return pd.DataFrame(rows)


def best_allocation(table: pd.DataFrame, keep_smaller: float = KEEP_SMALLER) -> dict[str, Any]:
    """Returns the allocation that the artifact calls the one of the highest throughput: the first of the sweep that no
    later one beats by more than `keep_smaller`. Empty where nothing runs.

    Args:
        table: of `sweep_resources`.
        keep_smaller: share by which a later allocation has to be better.
    """
    best: dict[str, Any] = {}
    for row in table[["gpus", "cpu_threads", "bandwidth", "raw_best", "raw_plan"]].to_dict("records"):
        if row["raw_plan"] and best.get("raw_best", 0.0) * (1 + keep_smaller) < row["raw_best"]:
            best = {str(key): value for key, value in row.items()}
    return best

"""The best plan under each of several limits, beside what was measured of it and of the next best ones."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, Final

import pandas as pd

from engine.planners.contract import PlanError
from engine.planners.elastic.best import CardLike, plans_table
from engine.planners.elastic.cards import load_card
from engine.planners.elastic.limits import checked_bandwidth, checked_threads, checked_whole
from engine.planners.elastic.measured import Measurements, measurements_of
from engine.planners.elastic.performance import Variant
from engine.planners.elastic.placements import gpus_on_nodes, placement_text
from models.documents import shown

__all__ = ["best_plans"]

MOST_LIMITS: Final = 2_000


def best_plans(
    model_card: CardLike,
    limits: Iterable[Any] | pd.DataFrame,
    *,
    runners_up: int = 2,
    measured: Measurements | str | None = None,
    variant: str | Variant = "artifact",
    restricted: bool | None = None,
) -> pd.DataFrame:
    """Returns one row per limit and rank: the best plan and the next best ones.

    Columns: `placement`, `gpus`, `cpu_threads`, `bandwidth`, `rank` from 1, `plan`, `predicted_s`, `throughput`
    [samples/s], `slower`, its iteration over the best one, less one, `measured_s`, NaN where it does not run or was not
    measured, and `rejected`, how many plans cannot run. A limit under which nothing runs has one row without a plan.

    Args:
        model_card: a card, a document of one, a name of the library, or the path of a file.
        limits: placements, (placement, threads) or (placement, threads, bandwidth), rows with `placement`,
            `cpu_threads` and `bandwidth`, or a table of them.
        runners_up: next best plans of each limit.
        measured: measurements, or the name of a trace; that of the card where None, if there is one.
        variant, restricted: see `best_plan`.

    Raises `engine.planners.contract.PlanError` where something is not understood.
    """
    card = load_card(model_card)
    known = measurements_of(card.name, measured)
    count = 1 + checked_whole(runners_up, "Runners-up are", 0, 10_000)
    rows: list[dict[str, Any]] = []
    for nodes, threads, bandwidth in _limits(limits):
        table = plans_table(
            card, placement=nodes, cpu_threads=threads, bandwidth=bandwidth, variant=variant, restricted=restricted
        )
        running = table[table["feasible"]].head(count)
        limit = {
            "placement": placement_text(nodes),
            "gpus": sum(nodes),
            "cpu_threads": threads,
            "bandwidth": bandwidth,
        }
        rejected = int((~table["feasible"]).sum())
        found = running.to_dict("records") or [{"plan": "", "iteration_ms": math.nan, "throughput": math.nan}]
        for rank, row in enumerate(found, start=1):
            seconds = row["iteration_ms"] / 1e3
            real = known.iteration_s(row["plan"], nodes, threads) if known is not None and row["plan"] else math.nan
            rows.append(
                {
                    **limit,
                    "rank": rank,
                    "plan": row["plan"],
                    "predicted_s": seconds,
                    "throughput": row["throughput"],
                    "slower": row["iteration_ms"] / found[0]["iteration_ms"] - 1,
                    "measured_s": real,
                    "rejected": rejected,
                }
            )
    return pd.DataFrame(rows)


def _limits(limits: Iterable[Any] | pd.DataFrame) -> list[tuple[tuple[int, ...], int, float]]:
    rows = limits.to_dict("records") if isinstance(limits, pd.DataFrame) else limits
    if isinstance(rows, str | Mapping) or not isinstance(rows, Iterable):
        raise PlanError(f"{shown(limits)} are no limits; give placements, or rows with placement and cpu_threads.")
    found = [_limit(row) for row in islice(rows, MOST_LIMITS + 1)]
    if not 1 <= len(found) <= MOST_LIMITS:
        raise PlanError(f"There are 1 to {MOST_LIMITS:,} limits; {'more' if found else 'none'} were given.")
    return found


def _limit(row: Any) -> tuple[tuple[int, ...], int, float]:
    if isinstance(row, Mapping):
        if "placement" not in row:
            raise PlanError(f"The limit {shown(dict(row))} has no placement.")
        parts = [row["placement"], row.get("cpu_threads", 1), row.get("bandwidth", 0.0)]
    elif isinstance(row, tuple) and 1 <= len(row) <= 3:
        parts = [*row, *(1, 0.0)[max(len(row) - 1, 0) :]]
    else:
        parts = [row, 1, 0.0]
    return gpus_on_nodes(parts[0]), checked_threads(parts[1]), checked_bandwidth(parts[2])

"""Predictions against measurements, by either variant of the performance model."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from engine.executions.arrays import Floats
from engine.planners.elastic.best import CardLike
from engine.planners.elastic.cards import load_card
from engine.planners.elastic.enumeration import ResourceLimits, plan_table
from engine.planners.elastic.limits import checked_bandwidth, checked_threads
from engine.planners.elastic.measured import Measurements, measurements
from engine.planners.elastic.performance.variants import PerformanceVariant, variant_of
from engine.planners.elastic.placements import gpus_on_nodes
from engine.planners.elastic.plan_names import PLAIN, TITLES, PlanName, parse_plan

__all__ = ["against_measured", "by_class", "plan_class", "ranking", "spearman"]


def against_measured(
    model_card: CardLike,
    measured: Measurements | str | None = None,
    *,
    variant: str | PerformanceVariant = "artifact",
    cpu_threads: int = 4,
    bandwidth: float = 0.0,
    families: tuple[str, ...] = ("DP", "3D"),
    most_nodes: int | None = None,
) -> pd.DataFrame:
    """Returns one row for every measured iteration with its prediction.

    Columns: `plan`, `exec_plan`, `placement`, `gpus`, `cpu_threads`, `measured_ms`, `predicted_ms` (NaN where the
    variant has no such plan), `error_pct`, predicted over measured less one, and `reason`, why the plan cannot run
    according to the variant.

    Args:
        model_card: a card, a document of one, a name of the library, or the path of a file.
        measured: measurements, or the name of a trace; the card's trace where None.
        variant: of the performance model.
        cpu_threads: per GPU, for measurements without a number of threads.
        bandwidth: limit between nodes, 0 for none.
        families: of plans to look at.
        most_nodes: of placements to look at; any where None.

    Raises `engine.planners.contract.PlanError` for an invalid argument.
    """
    card, model = load_card(model_card), variant_of(variant)
    found = measurements(card.name) if measured is None else measured
    found = measurements(found) if isinstance(found, str) else found
    rows = found.table[found.table["runnable"]]
    if most_nodes is not None:
        rows = rows[rows["nodes"] <= most_nodes]
    threads = rows["cpu_threads"].fillna(checked_threads(cpu_threads)).astype(int).tolist()
    keys = [
        ResourceLimits(gpus_on_nodes(placement), number, checked_bandwidth(bandwidth))
        for placement, number in zip(rows["placement"], threads, strict=True)
    ]
    predicted: dict[tuple[ResourceLimits, str], tuple[float, str, str]] = {}
    if limits := list(dict.fromkeys(keys)):
        plans = plan_table(card, limits, restricted=False, families=families, atom_limits=False)
        figures = model.figures(card, plans)
        for at, name in enumerate(plans.names):
            known = float(figures.iteration_ms[at]), figures.reasons[at], name.family
            predicted[plans.limits[plans.limit[at]], name.text] = known
    told = [predicted.get((key, plan), (math.nan, "", "")) for key, plan in zip(keys, rows["plan"], strict=True)]
    table = rows[["plan", "exec_plan", "placement", "gpus"]].assign(
        cpu_threads=threads,
        measured_ms=rows["iteration_s"] * 1e3,
        predicted_ms=[each[0] for each in told],
        reason=[each[1] for each in told],
    )
    table["error_pct"] = 100 * (table["predicted_ms"] / table["measured_ms"] - 1)
    looked_at = np.array([bool(each[2]) for each in told], np.bool_)
    return table.loc[looked_at].reset_index(drop=True)


def plan_class(name: PlanName) -> str:
    """Returns the class of a plan, in the words of table 2.

    Args:
        name: of the plan.
    """
    if name.zero is None:
        return "TP+PP" if name.dp == 1 else "DP+TP+PP"
    word = TITLES[name.zero]
    if name.zero == PLAIN:
        return "GC" if name.recompute else word
    return f"{word}+GC" if name.recompute else word


def by_class(table: pd.DataFrame) -> pd.DataFrame:
    """Returns one row per class of plans, as table 2 has them: `plan_class`, mean and largest error [%] without sign,
    and the number of `cases`.

    Args:
        table: of `against_measured`.
    """
    known = table.dropna(subset="predicted_ms")
    classes = [plan_class(parse_plan(plan, gpus)) for plan, gpus in zip(known["plan"], known["gpus"], strict=True)]
    groups = known["error_pct"].abs().groupby(np.array(classes, object), sort=False)
    return groups.agg(avg_pct="mean", max_pct="max", cases="count").rename_axis("plan_class").reset_index()


def spearman(first: Floats, second: Floats) -> float:
    """Returns the rank correlation of two columns, equal values sharing a rank; NaN for fewer than three rows.

    Args:
        first, second: of one length.
    """
    if len(first) < 3:
        return math.nan
    return float(pd.Series(first).rank().corr(pd.Series(second).rank()))


def ranking(table: pd.DataFrame) -> pd.DataFrame:
    """Returns one row per placement and threads: agreement of the orders of predictions and measurements.

    Columns: `placement`, `cpu_threads`, `plans`, `best_measured`, `best_predicted` among the measured plans,
    `regret_pct`, by how much the latter is slower than the former, `mean_error_pct` and `worst_error_pct` without sign,
    and `spearman`.

    Args:
        table: of `against_measured`.
    """
    rows = []
    for (placement, threads), group in table.dropna(subset="predicted_ms").groupby(
        ["placement", "cpu_threads"], sort=False
    ):
        measured, predicted = group["measured_ms"].to_numpy(), group["predicted_ms"].to_numpy()
        best, picked = int(measured.argmin()), int(predicted.argmin())
        error = group["error_pct"].abs()
        rows.append(
            {
                "placement": str(placement),
                "cpu_threads": threads,
                "plans": len(group),
                "best_measured": group["plan"].iloc[best],
                "best_predicted": group["plan"].iloc[picked],
                "regret_pct": 100 * (measured[picked] / measured[best] - 1),
                "mean_error_pct": error.mean(),
                "worst_error_pct": error.max(),
                "spearman": spearman(measured, predicted),
            }
        )
    return pd.DataFrame(rows)

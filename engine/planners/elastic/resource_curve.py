"""Sensitivity: the best throughput against one resource, the best plan, and the gain of one more unit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import numpy as np
import pandas as pd

from engine.executions.arrays import Floats, Positions
from engine.planners.contract import PlanError
from engine.planners.elastic.best import CardLike
from engine.planners.elastic.cards import ModelCard, load_card
from engine.planners.elastic.enumeration import PlanTable, ResourceLimits, plan_table
from engine.planners.elastic.limits import checked_bandwidth, checked_threads, checked_whole
from engine.planners.elastic.performance.variants import PerformanceVariant, variant_of
from engine.planners.elastic.placements import MOST_GPUS, PlacementLike, gpus_on_nodes, placements_filling
from models.documents import shown

__all__ = ["KEEP_SMALLER", "RESOURCES", "Winners", "curve", "kept_smaller", "winners"]

KEEP_SMALLER: Final = 0.01
"""Least gain of a larger allocation over the next smaller one, below which the smaller one is kept."""

RESOURCES: Final = ("gpus", "cpu_threads", "bandwidth")
MOST_POINTS: Final = 20_000
"""Most points of a curve. Source: stated by us."""

DEFAULTS: Final[dict[str, tuple[float, ...]]] = {
    "gpus": tuple(range(1, 65)),
    "cpu_threads": tuple(range(1, 17)),
    "bandwidth": tuple(range(11)),
}
"""Default values of each resource, as in the artifact's sweep."""


@dataclass(frozen=True)
class Winners:
    """The best plan under each limit: `at` is its position in the table, -1 where nothing can run, `throughput` is NaN
    there [samples/s]."""

    plans: PlanTable
    at: Positions
    throughput: Floats

    def names(self) -> list[str]:
        """Returns the names of the winning plans, empty where nothing can run [limits]."""
        return [self.plans.names[at].text if at >= 0 else "" for at in self.at]


def winners(
    card: ModelCard,
    limits: Sequence[ResourceLimits],
    *,
    variant: PerformanceVariant,
    restricted: bool | None = None,
    families: tuple[str, ...] = ("DP", "3D"),
) -> Winners:
    """Returns the best plan under each of the limits, all of them evaluated at once.

    Args:
        card: of the model.
        limits: of its resources, one or more.
        variant: of the performance model.
        restricted: whether the card's table says what may run; what the variant needs where None.
        families: of plans to look at.
    """
    plans = plan_table(
        card,
        limits,
        restricted=variant.restricted if restricted is None else restricted,
        families=families,
        atom_limits=variant.restricted,
    )
    figures = variant.figures(card, plans)
    feasible = np.array([not reason for reason in figures.reasons], np.bool_)
    rate = np.where(feasible, 1e3 * card.global_batch / figures.iteration_ms, -1.0)
    best = np.maximum.reduceat(rate, plans.starts)
    # The first of equal plans: the lowest position that has its limit's best.
    positions = np.where(rate == best[plans.limit], np.arange(len(rate)), len(rate))
    at = np.minimum.reduceat(positions, plans.starts)
    return Winners(plans, np.where(best > 0, at, -1), np.where(best > 0, best, np.nan))


def kept_smaller(throughput: Floats, share: float = KEEP_SMALLER) -> Positions:
    """Returns the position of the allocation that replaces each allocation of a rising sequence: itself, or a smaller
    one.

    An allocation gives way where the one kept before it, times 1 + `share`, is at least as good; one that cannot run
    gives way to the last kept one, -1 where nothing runs so far. So the curve is the least of the resource that reaches
    a throughput.

    Args:
        throughput: of each allocation, NaN where nothing can run.
        share: by which a larger allocation has to be better.

    Source: artifact of Morphling/Rubick, performance model, resource matrix.
    """
    kept = np.full(len(throughput), -1, np.intp)
    last = -1
    for at, value in enumerate(throughput):
        if not np.isnan(value) and (last < 0 or throughput[last] * (1 + share) < value):
            last = at
        kept[at] = last
    return kept


def curve(
    model_card: CardLike,
    *,
    over: str = "gpus",
    values: Iterable[float] | None = None,
    placement: PlacementLike | None = None,
    gpus: int | None = None,
    gpus_per_node: int | None = None,
    cpu_threads: int = 1,
    bandwidth: float = 0.0,
    variant: str | PerformanceVariant = "artifact",
    restricted: bool | None = None,
    keep_smaller: float = KEEP_SMALLER,
) -> pd.DataFrame:
    """Returns the best throughput against one resource, the others fixed.

    One row per value, rising: the limits `gpus`, `cpu_threads`, `bandwidth`; `raw_best` [samples/s] and `raw_plan`, the
    best at exactly these limits, NaN and empty where nothing can run; `stored_best`, `stored_plan` and `stored_<over>`
    after the keep-smaller rule; `gain`, what the last unit of the resource brings by that curve [samples/s per unit];
    `slope`, the same of the next unit over the throughput of the curve's first allocation that runs.

    By the variant `artifact`, where no placement is given, only the data-parallel family is looked at, as the
    artifact's sweep does; with `gpus_per_node` GPUs fill whole nodes, and plans with degrees take part, as they always
    do by the variant `physical`.

    Args:
        model_card: a card, a document of one, a name of the library, or the path of a file.
        over: `gpus`, `cpu_threads` or `bandwidth`.
        values: of that resource; the artifact's sweep where None: 1 to 64 GPUs, 1 to 16 threads, 0 to 10.
        placement: GPUs on each node, for curves over other resources.
        gpus: their number, where no placement is given.
        gpus_per_node: GPUs of a node; the variant's where None.
        cpu_threads: per GPU.
        bandwidth: limit between nodes, 0 for none.
        variant: of the performance model.
        restricted: whether only plans in the card's table may run; the variant's default where None.
        keep_smaller: share by which a larger allocation has to be better.

    Raises `engine.planners.contract.PlanError` for an invalid argument.
    """
    card, model = load_card(model_card), variant_of(variant)
    if over not in RESOURCES:
        raise PlanError(f"There is no curve over {shown(over)}; there are {', '.join(RESOURCES)}.")
    asked = _check_values(over, values)
    size = model.node_size(card) if gpus_per_node is None else gpus_per_node
    node = None if size is None else checked_whole(size, "GPUs of a node are", 1, MOST_GPUS)
    fixed = _gpus_by_node(placement, gpus, node)
    limits = [
        ResourceLimits(
            _gpus_by_node(None, value, node) if over == "gpus" else fixed,
            checked_threads(value if over == "cpu_threads" else cpu_threads),
            checked_bandwidth(value if over == "bandwidth" else bandwidth),
        )
        for value in asked
    ]
    placed = node is not None or (placement is not None and over != "gpus")
    families = ("DP", "3D") if placed else ("DP",)
    found = winners(card, limits, variant=model, restricted=restricted, families=families)
    return _build_curve_table(card, over, asked, limits, found, keep_smaller)


def _check_values(over: str, values: Iterable[float] | None) -> list[Any]:
    asked = list(islice(DEFAULTS[over] if values is None else values, MOST_POINTS + 1))
    if not asked or len(asked) > MOST_POINTS:
        raise PlanError(f"A curve has 1 to {MOST_POINTS:,} values; {'more' if asked else 'none'} were given.")
    if over == "bandwidth":
        asked = [checked_bandwidth(value) for value in asked]
        # No limit is the most of it.
        return sorted(set(asked), key=lambda value: (value == 0, value))
    return sorted({checked_whole(value, f"Values of {over} are", 1, MOST_GPUS) for value in asked})


def _gpus_by_node(placement: PlacementLike | None, gpus: int | None, gpus_per_node: int | None) -> tuple[int, ...]:
    if placement is not None:
        return gpus_on_nodes(placement)
    number = checked_whole(1 if gpus is None else gpus, "GPUs are", 1, MOST_GPUS)
    return (number,) if gpus_per_node is None else placements_filling(number, gpus_per_node)


def _build_curve_table(
    card: ModelCard, over: str, asked: Sequence[Any], limits: Sequence[ResourceLimits], found: Winners, share: float
) -> pd.DataFrame:
    kept = kept_smaller(found.throughput, share)
    there = kept >= 0
    names = np.array([*found.names(), ""], object)
    stored = np.where(there, found.throughput[kept], np.nan)
    units = np.array(asked, np.float64)
    # Gain per unit: rise of the stored curve over the step of the resource; slope is that of the next step.
    rises = np.diff(np.where(there, stored, 0.0), prepend=0.0)
    steps = np.diff(units, prepend=0.0)
    gain = np.divide(rises, steps, out=np.full(len(units), np.nan), where=steps > 0)
    first = stored[there][0] if there.any() else np.nan
    base = card.baseline_throughput or first
    return pd.DataFrame(
        {
            "gpus": [each.gpus for each in limits],
            "cpu_threads": [each.cpu_threads for each in limits],
            "bandwidth": [each.bandwidth for each in limits],
            "raw_best": found.throughput,
            "raw_plan": names[:-1],
            "stored_best": stored,
            "stored_plan": names[np.where(there, kept, -1)],
            f"stored_{over}": np.where(there, units[kept], np.nan),
            "gain": gain,
            "slope": np.append(gain[1:], np.nan) / base,
        }
    )

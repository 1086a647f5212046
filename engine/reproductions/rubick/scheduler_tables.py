"""Tables that the artifact's scheduler reads of each model: its curve over the GPUs of a node, and its placements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from engine.planners.elastic.cards import ModelCard
from engine.planners.elastic.cluster.applications import Application
from engine.planners.elastic.cluster.speeds import Placement
from engine.planners.elastic.enumeration import ResourceLimits
from engine.planners.elastic.performance import variant_of
from engine.planners.elastic.placements import gpus_on_nodes
from engine.planners.elastic.plan_names import PLAIN, WORDS, PlanName
from engine.planners.elastic.resource_curve import kept_smaller, winners

__all__ = ["CurvePoint", "SchedulerTables", "gpu_curve", "scheduler_tables", "trace_word"]

NODE_GPUS: Final = 8
"""GPUs of a node in the artifact's cluster of 8 x 8 A800. Source: AlibabaPAI/reconfigurable-dl-scheduler at 80e8524."""


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """Predicted throughput [samples/s], -1 where nothing runs; the plan's word; and the GPUs that it takes."""

    throughput: float
    plan: str
    gpus: int


@dataclass(frozen=True)
class SchedulerTables:
    """Curve and placements of one model.

    `curve` has one point for each number of GPUs of a node, from none. `table` lists GPUs with their placements, in the
    order in which they are tried; it is empty for models that stay on one node. `plans` has the plan of each placement.
    """

    curve: tuple[CurvePoint, ...]
    table: tuple[tuple[int, tuple[Placement, ...]], ...]
    plans: Mapping[Placement, str]

    @property
    def large(self) -> bool:
        """Return whether the model is placed by its table."""
        return bool(self.table)

    def point(self, gpus: int) -> CurvePoint:
        """Return the point of the curve for a number of GPUs; nothing runs beyond the curve.

        Args:
            gpus: of a node, or of several.
        """
        return self.curve[gpus] if 0 <= gpus < len(self.curve) else CurvePoint(-1.0, "", gpus)


def scheduler_tables(model: Application, gpus_per_node: int) -> SchedulerTables:
    """Return the tables of a model from its card, or from its speeds without a card.

    Args:
        model: scheduler's view of the model.
        gpus_per_node: GPUs of a node of the cluster.
    """
    card = model.card
    if card is not None:
        table = tuple(
            (gpus, tuple(gpus_on_nodes(each) for each in placements))
            for gpus, placements in card.placements_of_gpus.items()
        )
        plans = {gpus_on_nodes(text): plan for text, plan in card.plan_of_placement.items()}
        return SchedulerTables(gpu_curve(card), table, plans)
    runs = sorted(model.speeds.runs, key=lambda run: sum(run.placement))
    sizes = [sum(run.placement) for run in runs]
    rates = np.full(gpus_per_node, np.nan)
    plans = {run.placement: run.plan for run in runs}
    for gpus, run in zip(sizes, runs, strict=True):
        if gpus <= gpus_per_node:
            rates[gpus - 1] = model.batch / run.seconds
    points = [CurvePoint(-1.0, "", 0)]
    for number, at in enumerate(kept_smaller(rates), start=1):
        kept = int(at) + 1
        points.append(CurvePoint(float(rates[at]), plans[kept,], kept) if kept else CurvePoint(-1.0, "", number))
    is_large = max(sizes) > gpus_per_node
    placed = tuple((gpus, (run.placement,)) for gpus, run in zip(sizes, runs, strict=True)) if is_large else ()
    return SchedulerTables(tuple(points), placed, plans)


def trace_word(plan: PlanName) -> str:
    """Returns the name in the artifact's scheduler and traces of a plan of the data-parallel family: its kind of ZeRO,
    or whether it recomputes where it has none.

    Args:
        plan: of that family.
    """
    if plan.zero in (None, PLAIN):
        return "gc" if plan.recompute else "ga"
    return WORDS[plan.zero or PLAIN]


def gpu_curve(card: ModelCard) -> tuple[CurvePoint, ...]:
    """Returns the predicted throughput of the best data-parallel plan on 0 to 8 GPUs of a node, with one CPU thread per
    GPU, and the fewest GPUs that reach it within 1 %.

    Args:
        card: of the model.
    """
    limits = [ResourceLimits((gpus,)) for gpus in range(1, NODE_GPUS + 1)]
    found = winners(card, limits, variant=variant_of("artifact"), families=("DP",))
    points = [CurvePoint(-1.0, "", 0)]
    for number, at in enumerate(kept_smaller(found.throughput), start=1):
        if at < 0:
            points.append(CurvePoint(-1.0, "", number))
        else:
            word = trace_word(found.plans.names[int(found.at[at])])
            points.append(CurvePoint(float(found.throughput[at]), word, int(at) + 1))
    return tuple(points)

"""The stored curve over the GPUs of a node: predicted throughput with the fewest GPUs that reach it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from engine.planners.elastic.cards import ModelCard
from engine.planners.elastic.enumeration import ResourceLimits
from engine.planners.elastic.performance import variant_of
from engine.planners.elastic.plan_names import PLAIN, WORDS, PlanName
from engine.planners.elastic.resource_curve import kept_smaller, winners

__all__ = ["CurvePoint", "gpu_curve", "trace_word"]

NODE_GPUS: Final = 8
"""GPUs of a node in the artifact's cluster of 8 x 8 A800. Source: AlibabaPAI/reconfigurable-dl-scheduler at 80e8524."""


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """Predicted throughput [samples/s], -1 where nothing runs; the plan's word; and the GPUs that it takes."""

    throughput: float
    plan: str
    gpus: int


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

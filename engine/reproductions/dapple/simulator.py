"""HPGO's simulator: the passes of a plan with its half-open stages, for comparison with the planner's estimate.

Source: HPGO (commit a40c6cf); see `engine.planners.layerwise.timeline` for the recurrences.
"""

from __future__ import annotations

from engine.planners.layerwise.latency import MicrobatchWork
from engine.planners.layerwise.result import LayerwisePlan
from engine.planners.layerwise.timeline import PipelineTimeline, replay_passes

__all__ = ["released_timeline"]


def released_timeline(plan: LayerwisePlan) -> PipelineTimeline:
    """Returns the passes as HPGO's simulator has them: each stage with the next one's first state, half of the time
    forward and half backward, and transfers of a whole batch's microbatch.

    Args:
        plan: one that `solve` returned.
    """
    states, cluster, count = plan.states, plan.problem.cluster, plan.microbatches
    assert states is not None
    works: list[MicrobatchWork] = []
    for number, stage in enumerate(plan.stages):
        half = states.span(states.time, stage.start, stage.end) / (stage.units * plan.copies * count) / 2
        reduce = cluster.reduce_time(stage.devices, states.span(states.parameters, stage.start, stage.end))
        works.append(MicrobatchWork(half, half, reduce))
        if number + 1 < len(plan.stages):
            rate = cluster.move_rate(stage.devices, plan.stages[number + 1].devices)
            moved = rate * float(states.out[stage.end - 1]) / count
            works.append(MicrobatchWork(moved, moved))
    return replay_passes(works, count)

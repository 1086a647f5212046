"""Value of a user's stages by the objective of a found plan."""

from __future__ import annotations

from collections.abc import Sequence

from engine.planners.contract import PlanError
from engine.planners.layerwise.paper import PaperSearch
from engine.planners.layerwise.result import LayerwisePlan
from engine.planners.layerwise.value import StageGroup, largest_block, microbatches, step_time

__all__ = ["valued"]


def valued(plan: LayerwisePlan, stages: Sequence[tuple[int, int, tuple[int, ...]]]) -> float:
    """Returns the speedup of other stages in the problem of a plan, with one copy of the pipeline.

    Args:
        plan: one that `solve` returned.
        stages: of each, its half-open range of states and its devices.

    Raises `engine.planners.contract.PlanError` where they cut what cannot be cut, or need more memory than there is.
    """
    states, problem = plan.states, plan.problem
    assert states is not None
    for start, stop, _ in stages:
        if start and not states.before[start - 1, stop - 1]:
            raise PlanError(
                f"The graph cannot be cut at {start}: what comes before is not all of the past of the rest."
            )
    count = microbatches(problem.global_batch, 1, problem.microbatch)
    if problem.mode == "released":
        last = len(states) - 1
        groups = [
            StageGroup(start, last if stop > last else stop, len(devices), devices) for start, stop, devices in stages
        ]
        block = largest_block(states, problem.cluster, groups)
        return states.total / float(step_time(states, problem.cluster, groups, 1, block, count).total)
    search = PaperSearch.of(problem, states)
    fitted = search.fitted(stages)
    if not search.fits(fitted):
        need, room, number = max(
            (need / problem.cluster.memory(stage.devices), problem.cluster.memory(stage.devices), at)
            for at, (need, stage) in enumerate(zip(search.memory(fitted), fitted, strict=True), start=1)
        )
        raise PlanError(f"Stage {number} needs {need * room / 1e9:.1f} GB of the {room / 1e9:.1f} GB of its devices.")
    return states.total / search.value(fitted).total

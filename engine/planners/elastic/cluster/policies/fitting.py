"""Placing options on nodes: levels of a model, and which nodes hold a placement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.planners.elastic.cluster.applications import Application
from engine.planners.elastic.cluster.jobs import ReplayedJob
from engine.planners.elastic.cluster.policies.policy import Allocations
from engine.planners.elastic.cluster.speeds import Option

__all__ = ["GAIN", "Level", "asked_options", "levels", "nodes_for", "put"]

GAIN = 1.01
"""Least speedup by more GPUs that makes a new level, as in the artifact's stored curve."""


@dataclass(frozen=True, slots=True)
class Level:
    """A number of GPUs at which a model is faster than at any smaller one, with its options there, the fastest
    first."""

    gpus: int
    options: tuple[Option, ...]

    @property
    def seconds(self) -> float:
        """Returns the seconds per iteration of the fastest option."""
        return self.options[0].seconds


def levels(model: Application, most: int) -> tuple[Level, ...]:
    """Returns the useful numbers of GPUs, rising: each is faster than the one before by at least `GAIN`.

    Args:
        model: with its measured options.
        most: GPUs of the cluster.
    """
    found: list[Level] = []
    by_gpus: dict[int, list[Option]] = {}
    for option in model.speeds.options:
        by_gpus.setdefault(option.gpus, []).append(option)
    for gpus in sorted(by_gpus):
        limit = found[-1].seconds / GAIN if found else float("inf")
        faster = tuple(each for each in by_gpus[gpus] if each.seconds < limit)
        if faster and gpus <= most:
            found.append(Level(gpus, faster))
    return tuple(found)


def asked_options(job: ReplayedJob) -> tuple[Option, ...]:
    """Returns how a job runs as it asks: its plan on its GPUs, on measured placements first, then on full nodes.

    Args:
        job: with its model.
    """
    asked, speeds = job.job, job.application.speeds
    measured = sorted(
        (run.seconds, run.placement)
        for run in speeds.runs
        if run.plan == asked.plan and sum(run.placement) == asked.gpus and len(set(run.placement)) == 1
    )
    if measured:
        return tuple(Option(placement, asked.plan, seconds) for seconds, placement in measured)
    nodes, rest = divmod(asked.gpus, 8)
    packed = (8,) * nodes + ((rest,) if rest else ())
    seconds = speeds.seconds(packed, asked.plan)
    return (Option(packed, asked.plan, seconds),) if seconds else ()


def nodes_for(option: Option, free: Mapping[int, int]) -> list[int] | None:
    """Returns the node of each GPU, None where the placement does not fit. The largest digit is placed first, each
    digit on the fitting node with the fewest free GPUs, and no node twice.

    Args:
        option: with its placement.
        free: GPUs by node.
    """
    left = dict(free)
    taken: list[int] = []
    for digit in sorted(option.placement, reverse=True):
        node = min((each for each in left if left[each] >= digit), key=lambda each: (left[each], each), default=None)
        if node is None:
            return None
        taken += [node] * digit
        del left[node]
    return taken


def put(plan: Allocations, name: str, options: Sequence[Option], free: Mapping[int, int]) -> Option | None:
    """Allocates the first option that fits to a job and returns it; None if none fits.

    Args:
        plan: is changed.
        name: of the job.
        options: the best first.
        free: GPUs by node, its own among them if it has any.
    """
    for option in options:
        nodes = nodes_for(option, free)
        if nodes is not None:
            plan.gpus[name] = nodes
            plan.plans[name] = option.plan
            return option
    return None

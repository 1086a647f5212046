"""The artifact's scheduler on one node, as the rule `greedy` among ways to split its GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from engine.executions.arrays import Floats
from engine.planners.elastic.cards import ModelCard
from engine.planners.elastic.placements import gpus_on_nodes
from engine.planners.elastic.plan_names import parse_plan
from engine.planners.elastic.resource_curve import kept_smaller
from engine.planners.elastic.splits.curves import JobCurves
from engine.planners.elastic.splits.jobs import SplitJob

__all__ = ["greedy_split"]

SCHEDULER_NODE: Final = 8
"""GPUs that the artifact's scheduler gives a job of one node at most when it grows it."""

SLACK: Final = 1.5
"""Factor by which the artifact's scheduler multiplies a prediction before it compares it with a guarantee."""


@dataclass(frozen=True)
class _ScheduledJob:
    """A job as the scheduler reads it: its predicted curve over 0 to all GPUs, and its card's table."""

    job: SplitJob
    predicted: Floats
    predicted_plans: Sequence[str]
    kept: Sequence[int]
    """Fewest GPUs that reach the throughput of each number of GPUs, as the artifact stores curves."""
    entries: Sequence[tuple[int, str]]
    """GPUs and plans that the card's table tries, in its order; empty for a model without one."""

    @classmethod
    def of(cls, curves: JobCurves) -> _ScheduledJob:
        """Return the view of a job with these curves."""
        card = None if curves.job.rates else curves.job.card
        kept = [0, *(int(at) + 1 for at in kept_smaller(curves.predicted[1:]))]
        return cls(curves.job, curves.predicted, curves.predicted_plans, kept, _table_entries(card) if card else ())


def _table_entries(card: ModelCard) -> list[tuple[int, str]]:
    return [
        (sum(gpus_on_nodes(placement)), _plan_on_placement(card, placement))
        for placements in card.placements_of_gpus.values()
        for placement in placements
        if len(gpus_on_nodes(placement)) == 1
    ]


def _plan_on_placement(card: ModelCard, placement: str) -> str:
    """Return the plan of the card's table for a placement, or an empty text."""
    plan = card.plan_of_placement.get(placement, "")
    return parse_plan(plan, sum(gpus_on_nodes(placement))).text if plan else ""


def greedy_split(curves: Sequence[JobCurves], gpus: int, notes: list[str]) -> list[tuple[int, str]]:
    """Return (GPUs, plan) of each job by the artifact's policy on one empty node.

    Guaranteed jobs come first, then the one that gains least of its first GPU. A model with a table of placements takes
    the first entry that is free, in the table's order, others all free GPUs, reduced to the fewest that reach the same
    throughput. Then the rest goes to the job that gains most, and models with a table take the largest entry that fits.

    Args:
        curves: of the jobs.
        gpus: of the node.
        notes: gets a sentence for each job that has no GPUs.

    Source: artifact of Morphling/Rubick, `policy/morphling.py`: order by slope, placement of jobs, growth.
    """
    jobs = [_ScheduledJob.of(each) for each in curves]

    def slope(at: int) -> float:
        rate = jobs[at].predicted[1]
        return 0.0 if np.isnan(rate) else float(rate) / _baseline_throughput(jobs[at])

    order = sorted(range(len(jobs)), key=lambda at: (jobs[at].job.guarantee is None, slope(at)))
    taken: list[tuple[int, str]] = [(0, "")] * len(jobs)
    free = gpus
    for at in order:
        taken[at] = _first_share(jobs[at], free)
        free -= taken[at][0]
        if not taken[at][0]:
            ends = "" if jobs[at].entries else "; the artifact ends there with an error"
            notes.append(f"The scheduler has no GPUs for {jobs[at].job.name}{ends}.")
    if free:
        free = _grow_best_share(jobs, taken, free)
    for at in order:
        own = taken[at][0]
        for count, plan in sorted(jobs[at].entries, key=lambda entry: -entry[0]):
            if own <= count <= own + free:
                taken[at] = (count, plan)
                free -= count - own
                break
    return taken


def _baseline_throughput(job: _ScheduledJob) -> float:
    card = job.job.card
    # For figure 8 the artifact's scheduler gets 1 for every job; cards without a baseline do the same.
    return 1.0 if card is None or not card.baseline_throughput else card.baseline_throughput


def _first_share(job: _ScheduledJob, free: int) -> tuple[int, str]:
    if job.entries:
        return next(((count, plan) for count, plan in job.entries if count <= free), (0, ""))
    count = max(job.kept[free], 0)
    rate = job.predicted[count] if count else np.nan
    if job.job.guarantee is not None and not SLACK * rate >= job.job.guarantee:
        return 0, ""
    return (count, job.predicted_plans[count]) if count else (0, "")


def _grow_best_share(jobs: Sequence[_ScheduledJob], taken: list[tuple[int, str]], free: int) -> int:
    """Give the remaining GPUs to the job that gains most, if it has no table; returns the number of GPUs still free."""
    gains = {}
    for at, each in enumerate(jobs):
        own = taken[at][0]
        more = min(own + free, max(SCHEDULER_NODE, own), len(each.predicted) - 1)
        if own:
            kept = [each.predicted[max(each.kept[count], 0)] for count in (own, more)]
            gains[at] = abs(float(kept[1] - kept[0])) / _baseline_throughput(each)
    if not gains:
        return free
    best = max(gains, key=lambda at: gains[at])
    each, own = jobs[best], taken[best][0]
    if each.entries:
        return free
    count = max(each.kept[min(own + free, max(SCHEDULER_NODE, own), len(each.predicted) - 1)], own)
    taken[best] = (count, each.predicted_plans[count])
    return free - (count - own)

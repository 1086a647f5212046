"""Ways to split GPUs among jobs: the artifact's scheduler on one node, and the best of all splits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from engine.executions.arrays import Floats
from engine.planners.contract import PlanError
from engine.planners.elastic.splits.curves import JobCurves, alone

__all__ = ["best_split", "greedy_split"]

SCHEDULER_NODE: Final = 8
"""GPUs that the artifact's scheduler gives a job of one node at most when it grows it."""

SLACK: Final = 1.5
"""Factor by which the artifact's scheduler multiplies a prediction before it compares it with a guarantee."""


def greedy_split(curves: Sequence[JobCurves], gpus: int, notes: list[str]) -> list[tuple[int, str]]:
    """Returns (GPUs, plan) of each job by the artifact's policy on one empty node.

    Args:
        curves: of the jobs.
        gpus: of the node.
        notes: gets a sentence for each job that has no GPUs.

    Source: artifact of Morphling/Rubick, `policy/morphling.py`: order by slope, placement of jobs, growth.
    """
    base = [_baseline_throughput(each) for each in curves]

    def slope(at: int) -> float:
        rate = curves[at].predicted[1]
        return 0.0 if np.isnan(rate) else float(rate) / base[at]

    order = sorted(range(len(curves)), key=lambda at: (curves[at].job.guarantee is None, slope(at)))
    taken: list[tuple[int, str]] = [(0, "")] * len(curves)
    free = gpus
    for at in order:
        taken[at] = _first_share(curves[at], free)
        free -= taken[at][0]
        if not taken[at][0]:
            ends = "" if curves[at].entries else "; the artifact ends there with an error"
            notes.append(f"The scheduler has no GPUs for {curves[at].job.name}{ends}.")
    if free:
        free = _grow_best_share(curves, taken, free)
    for at in order:
        own = taken[at][0]
        for count, plan in sorted(curves[at].entries, key=lambda entry: -entry[0]):
            if own <= count <= own + free:
                taken[at] = (count, plan)
                free -= count - own
                break
    return taken


def _baseline_throughput(curves: JobCurves) -> float:
    card = curves.job.card
    # For figure 8 the artifact's scheduler gets 1 for every job; cards without a baseline do the same.
    return 1.0 if card is None or not card.baseline_throughput else card.baseline_throughput


def _first_share(curves: JobCurves, free: int) -> tuple[int, str]:
    if curves.entries:
        return next(((count, plan) for count, plan in curves.entries if count <= free), (0, ""))
    count = max(curves.kept[free], 0)
    rate = curves.predicted[count] if count else np.nan
    if curves.job.guarantee is not None and not SLACK * rate >= curves.job.guarantee:
        return 0, ""
    return (count, curves.predicted_plans[count]) if count else (0, "")


def _grow_best_share(curves: Sequence[JobCurves], taken: list[tuple[int, str]], free: int) -> int:
    """Give the remaining GPUs to the job that gains most, if it has no table; returns the number of GPUs still free."""
    gains = {}
    for at, each in enumerate(curves):
        own = taken[at][0]
        more = min(own + free, max(SCHEDULER_NODE, own), len(each.predicted) - 1)
        if own:
            kept = [each.predicted[max(each.kept[count], 0)] for count in (own, more)]
            gains[at] = abs(float(kept[1] - kept[0])) / _baseline_throughput(each)
    if not gains:
        return free
    best = max(gains, key=lambda at: gains[at])
    each, own = curves[best], taken[best][0]
    if each.entries:
        return free
    count = max(each.kept[min(own + free, max(SCHEDULER_NODE, own), len(each.predicted) - 1)], own)
    taken[best] = (count, each.predicted_plans[count])
    return free - (count - own)


def best_split(curves: Sequence[JobCurves], gpus: int) -> list[int]:
    """Returns the GPUs of each job in the split of the largest sum of normalised throughputs that keeps every
    guarantee, by dynamic programming over jobs.

    Args:
        curves: of the jobs.
        gpus: of the node.

    Raises `engine.planners.contract.PlanError` where no split keeps the guarantees.
    """
    best = np.zeros(gpus + 1)
    choices: list[list[int]] = []
    for each in curves:
        value = _share_values(each)
        grown = np.full(gpus + 1, -np.inf)
        chosen = [0] * (gpus + 1)
        for total in range(gpus + 1):
            # best[j][n] = max_k best[j - 1][n - k] + value_j(k).
            options = best[total::-1] + value[: total + 1]
            chosen[total] = int(options.argmax())
            grown[total] = options[chosen[total]]
        best = grown
        choices.append(chosen)
    if not np.isfinite(best[gpus]):
        promised = ", ".join(each.job.name for each in curves if each.job.guarantee is not None)
        raise PlanError(f"No split of {gpus} GPUs keeps the guarantees of {promised}{_explain_unreachable(curves)}.")
    left, found = gpus, []
    for chosen in reversed(choices):
        found.append(chosen[left])
        left -= chosen[left]
    return found[::-1]


def _share_values(curves: JobCurves) -> Floats:
    """Normalised throughput by GPUs, minus infinity where a guarantee is not kept."""
    rates = np.nan_to_num(curves.basis, nan=0.0)
    # A job may leave GPUs idle that it cannot use.
    value = np.maximum.accumulate(rates) / alone(curves)
    if curves.job.guarantee is not None:
        value[np.maximum.accumulate(rates) < curves.job.guarantee] = -np.inf
    return np.asarray(value, np.float64)


def _explain_unreachable(curves: Sequence[JobCurves]) -> str:
    """Explains which job cannot keep its guarantee even alone on the node; empty if all can."""
    for each in curves:
        most = float(np.nan_to_num(each.basis, nan=0.0).max())
        if each.job.guarantee is not None and most < each.job.guarantee:
            return f": alone {each.job.name} reaches {most:,.4g} of {each.job.guarantee:,.4g} samples/s"
    return ""

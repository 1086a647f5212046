"""Ways to split GPUs among jobs: the best of all splits, and the registry of rules to compare it with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias

import numpy as np

from engine.executions.arrays import Floats
from engine.planners.contract import PlanError
from engine.planners.elastic.splits.curves import JobCurves, alone

__all__ = ["RULES", "SplitRule", "best_split", "register_rule"]

SplitRule: TypeAlias = Callable[[Sequence[JobCurves], int, list[str]], list[tuple[int, str]]]
"""Returns (GPUs, plan) of each job from the curves of the jobs and the GPUs of the node; adds notes for people."""

_REGISTERED: dict[str, SplitRule] = {}
RULES: Final[Mapping[str, SplitRule]] = MappingProxyType(_REGISTERED)
"""Rules by name added by packages above this one, such as `engine.reproductions`, or by users."""


def register_rule(name: str, rule: SplitRule) -> None:
    """Add a rule that splits are compared with, or replace the rule of that name.

    Args:
        name: name of the way in tables.
        rule: splits the GPUs.
    """
    _REGISTERED[name] = rule


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

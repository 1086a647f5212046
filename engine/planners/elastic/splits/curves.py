"""Throughput of a job on any number of GPUs of a node: predictions, and the basis on which splits are compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from engine.executions.arrays import Floats
from engine.planners.contract import PlanError
from engine.planners.elastic.enumeration import ResourceLimits
from engine.planners.elastic.measured.table import fastest_of_one_node
from engine.planners.elastic.performance import PerformanceVariant
from engine.planners.elastic.placements import placements_filling
from engine.planners.elastic.resource_curve import winners
from engine.planners.elastic.splits.jobs import SplitJob

__all__ = ["JobCurves", "alone", "curve_table", "job_curves"]


@dataclass(frozen=True)
class JobCurves:
    """A job's curves over 0 to all GPUs: predictions, and the basis on which splits are compared."""

    job: SplitJob
    predicted: Floats
    predicted_plans: Sequence[str]
    basis: Floats
    basis_plans: Sequence[str]


def job_curves(job: SplitJob, gpus: int, basis: str, cpu_threads: int, model: PerformanceVariant) -> JobCurves:
    """Returns the curves of a job over the GPUs of a node.

    Args:
        job: with a card, or rates of its own.
        gpus: of the node.
        basis: `measured` or `predicted`.
        cpu_threads: per GPU.
        model: variant of the performance model.

    Raises `engine.planners.contract.PlanError` where measurements are requested but missing.
    """
    if job.rates or job.card is None:
        rates = np.full(gpus + 1, np.nan)
        rates[1 : 1 + len(job.rates[:gpus])] = job.rates[:gpus]
        plans = ["", *job.plans[:gpus], *([""] * gpus)][: gpus + 1]
        return JobCurves(job, rates, plans, rates, plans)
    card = job.card
    size = model.node_size(card) or gpus
    limits = [ResourceLimits(placements_filling(number_, size), cpu_threads) for number_ in range(1, gpus + 1)]
    alone = winners(card, limits, variant=model, families=("DP",) if model.restricted else ("DP", "3D"))
    predicted = np.append(np.nan, alone.throughput)
    names = ["", *alone.names()]
    whole = winners(card, limits, variant=model)
    rates, plans = np.append(np.nan, whole.throughput), ["", *whole.names()]
    if basis == "measured":
        if job.measured is None:
            raise PlanError(f"There are no measurements of {job.name}; give some, or take the basis predicted.")
        fastest = fastest_of_one_node(job.measured)
        best = [fastest.get(count, ("", np.nan)) for count in range(1, gpus + 1)]
        rates = np.array([np.nan, *(card.global_batch / seconds for _, seconds in best)])
        plans = ["", *(plan for plan, _ in best)]
    return JobCurves(job, predicted, names, rates, plans)


def alone(curves: JobCurves) -> float:
    """Returns the throughput of the job alone on all GPUs, or on as many as it can use.

    Args:
        curves: of the job.
    """
    best = np.nan_to_num(curves.basis, nan=0.0)
    return float(best[-1] or best.max() or 1.0)


def curve_table(curves: JobCurves) -> pd.DataFrame:
    """Return the curves as one row per number of GPUs, from 0: `predicted` and `predicted_plan`; `throughput`, `plan`
    and `normalised` on the requested basis.

    Args:
        curves: of one job.
    """
    return pd.DataFrame(
        {
            "gpus": range(len(curves.basis)),
            "predicted": curves.predicted,
            "predicted_plan": list(curves.predicted_plans),
            "throughput": curves.basis,
            "plan": list(curves.basis_plans),
            "normalised": np.nan_to_num(curves.basis, nan=0.0) / alone(curves),
        }
    )

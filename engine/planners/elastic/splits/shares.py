"""Several jobs on one node: who gets how many GPUs, by equal shares, by registered rules, and at best."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pandas as pd

from engine.planners.contract import PlanError
from engine.planners.elastic.best import CardLike
from engine.planners.elastic.limits import checked_threads, checked_whole
from engine.planners.elastic.performance import PerformanceVariant, variant_of
from engine.planners.elastic.splits.curves import JobCurves, alone, curve_table, job_curves
from engine.planners.elastic.splits.jobs import SplitJob, jobs_of
from engine.planners.elastic.splits.ways import RULES, best_split
from models.documents import shown

__all__ = ["Split", "split"]

MOST_GPUS: Final = 1_024
"""Most GPUs that are shared out. Source: stated by us."""
BASES: Final = ("measured", "predicted")


@dataclass(frozen=True)
class Split:
    """Share of each job under each way of splitting.

    `table` has one row per way and job: `way` (`equal`, the name of a registered rule, or `exact`), `job`, `gpus`, the
    chosen `plan`, `planned`, the throughput on which the choice was made, and on the requested basis `best_plan`,
    `throughput` [samples/s], `iteration_s`, `normalised`, that over the throughput of the job alone on all GPUs, and
    `kept`, whether a guarantee is kept. `notes` name the failures of a way.
    """

    table: pd.DataFrame
    basis: str
    notes: tuple[str, ...] = ()
    curves: Mapping[str, pd.DataFrame] = field(default_factory=dict)

    def gpus(self, way: str) -> dict[str, int]:
        """Returns the GPUs of each job.

        Args:
            way: `equal`, the name of a registered rule, or `exact`.
        """
        rows = self.table[self.table["way"] == way]
        return dict(zip(rows["job"], rows["gpus"].astype(int), strict=True))

    def of(self, way: str) -> pd.DataFrame:
        """Returns the rows of one way.

        Args:
            way: `equal`, the name of a registered rule, or `exact`.
        """
        return self.table[self.table["way"] == way].reset_index(drop=True)

    @property
    def equal(self) -> pd.DataFrame:
        """Returns the rows of the equal split."""
        return self.of("equal")

    @property
    def exact(self) -> pd.DataFrame:
        """Returns the rows of the best split."""
        return self.of("exact")

    def totals(self) -> pd.Series:
        """Returns the sum of normalised throughputs of each way."""
        return self.table.groupby("way", sort=False)["normalised"].sum()


def split(
    jobs: Iterable[SplitJob | Mapping[str, Any] | CardLike] | pd.DataFrame | str,
    gpus: int,
    *,
    basis: str | None = None,
    cpu_threads: int = 1,
    variant: str | PerformanceVariant = "artifact",
) -> Split:
    """Returns how jobs can share the GPUs of one node.

    `equal` gives all jobs the same number, the last one the rest. Registered rules follow, such as `greedy`, the
    scheduler of Rubick's artifact, which `import engine.reproductions` adds. `exact` is the best of all splits by
    dynamic programming: the largest sum of normalised throughputs that keeps every guarantee.

    Args:
        jobs: see `jobs_of`.
        gpus: of the node.
        basis: `measured`, the fastest measurement on as many GPUs, or `predicted`; where None, measured if all jobs
            have measurements.
        cpu_threads: per GPU.
        variant: of the performance model.

    Raises `engine.planners.contract.PlanError` for an invalid argument, or where no split keeps the guarantees.
    """
    found = jobs_of(jobs)
    number_ = checked_whole(gpus, "GPUs are", 1, MOST_GPUS)
    chosen = basis or ("measured" if all(_has_measurements(job) for job in found) else "predicted")
    if chosen not in BASES:
        raise PlanError(f"There is no basis {shown(chosen)}; choose measured or predicted.")
    model = variant_of(variant)
    curves = [job_curves(job, number_, chosen, checked_threads(cpu_threads), model) for job in found]
    notes: list[str] = []
    share, rest = divmod(number_, len(found))
    equal = [share] * (len(found) - 1) + [share + rest]
    ways = {
        "equal": [(n, "") for n in equal],
        **{name: rule(curves, number_, notes) for name, rule in RULES.items()},
        "exact": [(n, "") for n in best_split(curves, number_)],
    }
    rows = [
        _share_row(way, each, *given) for way, all_ in ways.items() for each, given in zip(curves, all_, strict=True)
    ]
    shown_curves = {each.job.name: curve_table(each) for each in curves}
    return Split(pd.DataFrame(rows), chosen, tuple(notes), shown_curves)


def _has_measurements(job: SplitJob) -> bool:
    return job.measured is not None or bool(job.rates)


def _share_row(way: str, curves: JobCurves, gpus: int, plan: str) -> dict[str, Any]:
    used = gpus
    if way == "exact":
        rates = np.nan_to_num(curves.basis[: gpus + 1], nan=0.0)
        used = int(rates.argmax())
    rate = float(np.nan_to_num(curves.basis[used], nan=0.0))
    batch = curves.job.card.global_batch if curves.job.card else curves.job.batch or math.nan
    return {
        "way": way,
        "job": curves.job.name,
        "gpus": gpus,
        "plan": plan or (curves.basis_plans[used] if used else ""),
        "planned": float(curves.predicted[used]) if used else math.nan,
        "best_plan": curves.basis_plans[used] if used else "",
        "throughput": rate,
        "iteration_s": batch / rate if rate else math.nan,
        "normalised": rate / alone(curves),
        "kept": curves.job.guarantee is None or rate >= curves.job.guarantee,
    }

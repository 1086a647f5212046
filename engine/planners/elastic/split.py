"""Several jobs on one node: who gets how many GPUs, by equal shares, by the artifact's scheduler, and at best."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from numbers import Real
from typing import Any, Final

import numpy as np
import pandas as pd

from engine.executions.arrays import Floats
from engine.planners.contract import PlanError
from engine.planners.elastic.best import CardLike
from engine.planners.elastic.cards import ModelCard, load_card
from engine.planners.elastic.enumeration import Limits
from engine.planners.elastic.limits import checked_threads, checked_whole
from engine.planners.elastic.measured import Measurements, measurements
from engine.planners.elastic.measured.csv_rows import csv_rows, csv_text, number
from engine.planners.elastic.placements import gpus_on_nodes, placements_filling
from engine.planners.elastic.plan_names import parse_plan
from engine.planners.elastic.resource_curve import kept_smaller, winners
from engine.planners.elastic.variants import Variant, variant_of
from models.documents import shown

__all__ = ["Job", "Split", "jobs_of", "split"]

MOST_JOBS: Final = 200
MOST_GPUS: Final = 1_024
SCHEDULER_NODE: Final = 8
"""GPUs that the artifact's scheduler gives a job of one node at most when it grows it."""

SLACK: Final = 1.5
"""By which the artifact's scheduler multiplies a prediction before it compares it with what was guaranteed."""

BASES: Final = ("measured", "predicted")


@dataclass(frozen=True)
class Job:
    """A job: its model, what was measured of it, and what it was promised.

    `guarantee` is a throughput that it must reach [samples/s], None for a best-effort job. `rates` may give a curve of
    one's own, throughput by GPUs from 1 on [samples/s], NaN where nothing runs; `plans` its plans.
    """

    name: str
    card: ModelCard | None = None
    measured: Measurements | None = None
    guarantee: float | None = None
    rates: tuple[float, ...] = ()
    plans: tuple[str, ...] = ()


@dataclass(frozen=True)
class Split:
    """What each way of splitting gives each job.

    `table` has one row per way and job: `way` (`equal`, `greedy` or `exact`), `job`, `gpus`, `plan` that was chosen,
    `planned`, the throughput on which the choice was made, and on the basis that was asked for `best_plan`,
    `throughput` [samples/s], `iteration_s`, `normalised`, that over the throughput of the job alone on all GPUs, and
    `kept`, whether a guarantee is kept. `notes` say where a way could not do what it should.
    """

    table: pd.DataFrame
    basis: str
    notes: tuple[str, ...] = ()
    curves: Mapping[str, pd.DataFrame] = field(default_factory=dict)

    def gpus(self, way: str) -> dict[str, int]:
        """Returns the GPUs of each job.

        Args:
            way: `equal`, `greedy` or `exact`.
        """
        rows = self.table[self.table["way"] == way]
        return dict(zip(rows["job"], rows["gpus"].astype(int), strict=True))

    def of(self, way: str) -> pd.DataFrame:
        """Returns the rows of one way.

        Args:
            way: `equal`, `greedy` or `exact`.
        """
        return self.table[self.table["way"] == way].reset_index(drop=True)

    @property
    def equal(self) -> pd.DataFrame:
        """Returns the rows of the equal split."""
        return self.of("equal")

    @property
    def greedy(self) -> pd.DataFrame:
        """Returns the rows of the scheduler's split."""
        return self.of("greedy")

    @property
    def exact(self) -> pd.DataFrame:
        """Returns the rows of the best split."""
        return self.of("exact")

    def totals(self) -> pd.Series:
        """Returns the sum of normalised throughputs of each way."""
        return self.table.groupby("way", sort=False)["normalised"].sum()


@dataclass(frozen=True)
class _Curves:
    """A job's curves over 0 to all GPUs: predictions of the scheduler, and the basis on which splits are compared."""

    job: Job
    predicted: Floats
    predicted_plans: Sequence[str]
    kept: Sequence[int]
    basis: Floats
    basis_plans: Sequence[str]
    entries: Sequence[tuple[int, str]]
    """GPUs and plans that the card's table tries, in its order; empty for a model without one."""


def split(
    jobs: Iterable[Job | Mapping[str, Any] | CardLike] | pd.DataFrame | str,
    gpus: int,
    *,
    basis: str | None = None,
    cpu_threads: int = 1,
    variant: str | Variant = "artifact",
) -> Split:
    """Returns how jobs can share the GPUs of one node.

    `equal` gives all as many, the last one what is left. `greedy` is the artifact's policy on one node: guaranteed
    jobs first, then the one that gains least of its first GPU; a model with a table of placements takes the first entry
    that is free, in the table's order, others all that is free, cut back to the least that reaches its throughput; then
    what is left goes to who gains most, and models with a table take the largest entry that they can. `exact` is the
    best of all splits by dynamic programming: the largest sum of normalised throughputs that keeps every guarantee.

    Args:
        jobs: see `jobs_of`.
        gpus: of the node.
        basis: `measured`, the fastest measurement on as many GPUs, or `predicted`; measured where all jobs have
            measurements and None.
        cpu_threads: per GPU.
        variant: of the performance model.

    Raises `engine.planners.contract.PlanError` where something is not understood, or no split keeps the guarantees.
    """
    found = jobs_of(jobs)
    number_ = checked_whole(gpus, "GPUs are", 1, MOST_GPUS)
    chosen = basis or ("measured" if all(_has_measurements(job) for job in found) else "predicted")
    if chosen not in BASES:
        raise PlanError(f"There is no basis {shown(chosen)}; choose measured or predicted.")
    model = variant_of(variant)
    curves = [_curves(job, number_, chosen, checked_threads(cpu_threads), model) for job in found]
    notes: list[str] = []
    share, rest = divmod(number_, len(found))
    equal = [share] * (len(found) - 1) + [share + rest]
    ways = {
        "equal": [(n, "") for n in equal],
        "greedy": _scheduled(curves, number_, notes),
        "exact": [(n, "") for n in _exact(curves, number_)],
    }
    rows = [_row(way, each, *given) for way, all_ in ways.items() for each, given in zip(curves, all_, strict=True)]
    shown_curves = {each.job.name: _curve_table(each) for each in curves}
    return Split(pd.DataFrame(rows), chosen, tuple(notes), shown_curves)


def jobs_of(given: Iterable[Job | Mapping[str, Any] | CardLike] | pd.DataFrame | str) -> tuple[Job, ...]:
    """Returns jobs that are given as such, as model cards or their names, as documents or rows with `card`, `name`,
    `measured` and `guarantee`, as a table, or as a CSV file with these columns.

    A job measured by a trace of its card's name needs no `measured`.

    Args:
        given: any of these.

    Raises `engine.planners.contract.PlanError` naming the job at fault.
    """
    if isinstance(given, str):
        text, where = csv_text(given)
        rows: list[Any] = [
            {
                "card": row["card"],
                "name": row.get("name", ""),
                "measured": row.get("measured", ""),
                "guarantee": number(row, "guarantee", f"{where}, line {line}", absent=0.0) or None,
            }
            for line, row in csv_rows(text, where, ("card",))
        ]
    elif isinstance(given, pd.DataFrame):
        rows = list(given.astype(object).where(given.notna(), None).to_dict("records"))
    elif isinstance(given, Iterable) and not isinstance(given, Mapping):
        rows = list(islice(given, MOST_JOBS + 1))
    else:
        raise PlanError(f"{shown(given)} are no jobs; give model cards, jobs, a table or a CSV file.")
    if not 1 <= len(rows) <= MOST_JOBS:
        raise PlanError(f"There are 1 to {MOST_JOBS:,} jobs; {'more' if rows else 'none'} were given.")
    jobs: list[Job] = []
    for row in rows:
        job = _job(row)
        same = sum(each.name == job.name or each.name.startswith(f"{job.name} (") for each in jobs)
        jobs.append(
            job if not same else Job(f"{job.name} ({same + 1})", job.card, job.measured, job.guarantee, job.rates)
        )
    return tuple(jobs)


def _job(row: Any) -> Job:
    if isinstance(row, Job):
        return row
    asked = row if isinstance(row, Mapping) and "card" in row else {"card": row}
    unknown = [key for key in asked if key not in ("card", "name", "measured", "guarantee")]
    if unknown:
        raise PlanError(f"A job has card, name, measured and guarantee, but no {shown(unknown[0])}.")
    card = load_card(asked["card"])
    measured = asked.get("measured") or None
    if isinstance(measured, str):
        measured = measurements(measured)
    if measured is None:
        try:
            measured = measurements(card.name)
        except PlanError:
            measured = None
    guarantee = asked.get("guarantee")
    if guarantee is not None and (
        isinstance(guarantee, bool) or not isinstance(guarantee, Real) or not 0 <= float(guarantee) < math.inf
    ):
        raise PlanError(f"The guarantee of {card.name} is {shown(guarantee)}; give samples per second from 0 on.")
    return Job(str(asked.get("name") or card.name), card, measured, None if guarantee is None else float(guarantee))


def _has_measurements(job: Job) -> bool:
    return job.measured is not None or bool(job.rates)


def _curves(job: Job, gpus: int, basis: str, cpu_threads: int, model: Variant) -> _Curves:
    if job.rates or job.card is None:
        rates = np.full(gpus + 1, np.nan)
        rates[1 : 1 + len(job.rates[:gpus])] = job.rates[:gpus]
        plans = ["", *job.plans[:gpus], *([""] * gpus)][: gpus + 1]
        return _Curves(job, rates, plans, _kept(rates), rates, plans, ())
    card = job.card
    size = model.node_size(card) or gpus
    limits = [Limits(placements_filling(number_, size), cpu_threads) for number_ in range(1, gpus + 1)]
    alone = winners(card, limits, variant=model, families=("DP",) if model.restricted else ("DP", "3D"))
    predicted = np.append(np.nan, alone.throughput)
    names = ["", *alone.names()]
    entries = [
        (sum(gpus_on_nodes(placement)), _entry(card, placement))
        for placements in card.placements_of_gpus.values()
        for placement in placements
        if len(gpus_on_nodes(placement)) == 1
    ]
    whole = winners(card, limits, variant=model)
    rates, plans = np.append(np.nan, whole.throughput), ["", *whole.names()]
    if basis == "measured":
        if job.measured is None:
            raise PlanError(f"There are no measurements of {job.name}; give some, or take the basis predicted.")
        best = [job.measured.best_on((number_,)) for number_ in range(1, gpus + 1)]
        rates = np.array([np.nan, *(card.global_batch / seconds for _, seconds in best)])
        plans = ["", *(plan for plan, _ in best)]
    return _Curves(job, predicted, names, _kept(predicted), rates, plans, entries)


def _entry(card: ModelCard, placement: str) -> str:
    """The plan that the card's table takes on a placement, empty where it tells none."""
    plan = card.plan_of_placement.get(placement, "")
    return parse_plan(plan, sum(gpus_on_nodes(placement))).text if plan else ""


def _kept(rates: Floats) -> list[int]:
    return [0, *(int(at) + 1 for at in kept_smaller(rates[1:]))]


def _scheduled(curves: Sequence[_Curves], gpus: int, notes: list[str]) -> list[tuple[int, str]]:
    """GPUs and plan of each job by the artifact's policy on one empty node."""
    base = [_baseline(each) for each in curves]

    def slope(at: int) -> float:
        rate = curves[at].predicted[1]
        return 0.0 if np.isnan(rate) else float(rate) / base[at]

    order = sorted(range(len(curves)), key=lambda at: (curves[at].job.guarantee is None, slope(at)))
    taken: list[tuple[int, str]] = [(0, "")] * len(curves)
    free = gpus
    for at in order:
        taken[at] = _first(curves[at], free)
        free -= taken[at][0]
        if not taken[at][0]:
            notes.append(f"The scheduler has no GPUs for {curves[at].job.name}; the artifact ends there with an error.")
    if free:
        free = _grown(curves, taken, free)
    for at in order:
        own = taken[at][0]
        for count, plan in sorted(curves[at].entries, key=lambda entry: -entry[0]):
            if own <= count <= own + free:
                taken[at] = (count, plan)
                free -= count - own
                break
    return taken


def _baseline(curves: _Curves) -> float:
    card = curves.job.card
    # In figure 8 the artifact's scheduler is told 1 for every job; cards without a baseline follow it.
    return 1.0 if card is None or not card.baseline_throughput else card.baseline_throughput


def _first(curves: _Curves, free: int) -> tuple[int, str]:
    if curves.entries:
        return next(((count, plan) for count, plan in curves.entries if count <= free), (0, ""))
    count = max(curves.kept[free], 0)
    rate = curves.predicted[count] if count else np.nan
    if curves.job.guarantee is not None and not SLACK * rate >= curves.job.guarantee:
        return 0, ""
    return (count, curves.predicted_plans[count]) if count else (0, "")


def _grown(curves: Sequence[_Curves], taken: list[tuple[int, str]], free: int) -> int:
    """Gives what is left to who gains most of it, if it is a job without a table; returns what is left then."""
    gains = {}
    for at, each in enumerate(curves):
        own = taken[at][0]
        more = min(own + free, max(SCHEDULER_NODE, own), len(each.predicted) - 1)
        if own:
            kept = [each.predicted[max(each.kept[count], 0)] for count in (own, more)]
            gains[at] = abs(float(kept[1] - kept[0])) / _baseline(each)
    if not gains:
        return free
    best = max(gains, key=lambda at: gains[at])
    each, own = curves[best], taken[best][0]
    if each.entries:
        return free
    count = max(each.kept[min(own + free, max(SCHEDULER_NODE, own), len(each.predicted) - 1)], own)
    taken[best] = (count, each.predicted_plans[count])
    return free - (count - own)


def _exact(curves: Sequence[_Curves], gpus: int) -> list[int]:
    """GPUs of each job in the split of the largest sum of normalised throughputs that keeps every guarantee."""
    best = np.zeros(gpus + 1)
    choices: list[list[int]] = []
    for each in curves:
        value = _values(each)
        grown = np.full(gpus + 1, -np.inf)
        chosen = [0] * (gpus + 1)
        for total in range(gpus + 1):
            options = best[total::-1] + value[: total + 1]
            chosen[total] = int(options.argmax())
            grown[total] = options[chosen[total]]
        best = grown
        choices.append(chosen)
    if not np.isfinite(best[gpus]):
        promised = ", ".join(each.job.name for each in curves if each.job.guarantee is not None)
        raise PlanError(f"No split of {gpus} GPUs keeps the guarantees of {promised}.")
    left, found = gpus, []
    for chosen in reversed(choices):
        found.append(chosen[left])
        left -= chosen[left]
    return found[::-1]


def _values(curves: _Curves) -> Floats:
    """Normalised throughput by GPUs, minus infinity where a guarantee is not kept."""
    rates = np.nan_to_num(curves.basis, nan=0.0)
    # A job may leave GPUs idle that it cannot use.
    value = np.maximum.accumulate(rates) / _alone(curves)
    if curves.job.guarantee is not None:
        value[np.maximum.accumulate(rates) < curves.job.guarantee] = -np.inf
    return np.asarray(value, np.float64)


def _alone(curves: _Curves) -> float:
    """Throughput of the job alone on all GPUs, or on as many as it can use."""
    best = np.nan_to_num(curves.basis, nan=0.0)
    return float(best[-1] or best.max() or 1.0)


def _row(way: str, curves: _Curves, gpus: int, plan: str) -> dict[str, Any]:
    used = gpus
    if way == "exact":
        rates = np.nan_to_num(curves.basis[: gpus + 1], nan=0.0)
        used = int(rates.argmax())
    rate = float(np.nan_to_num(curves.basis[used], nan=0.0))
    batch = curves.job.card.global_batch if curves.job.card else math.nan
    return {
        "way": way,
        "job": curves.job.name,
        "gpus": gpus,
        "plan": plan or (curves.basis_plans[used] if used else ""),
        "planned": float(curves.predicted[used]) if used else math.nan,
        "best_plan": curves.basis_plans[used] if used else "",
        "throughput": rate,
        "iteration_s": batch / rate if rate else math.nan,
        "normalised": rate / _alone(curves),
        "kept": curves.job.guarantee is None or rate >= curves.job.guarantee,
    }


def _curve_table(curves: _Curves) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "gpus": range(len(curves.basis)),
            "predicted": curves.predicted,
            "predicted_plan": list(curves.predicted_plans),
            "throughput": curves.basis,
            "plan": list(curves.basis_plans),
            "normalised": np.nan_to_num(curves.basis, nan=0.0) / _alone(curves),
        }
    )

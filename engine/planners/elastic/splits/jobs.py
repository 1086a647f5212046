"""Jobs that share GPUs, as people give them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from numbers import Real
from typing import Any, Final

import pandas as pd

from engine.planners.contract import PlanError
from engine.planners.elastic.best import CardLike
from engine.planners.elastic.cards import ModelCard, load_card
from engine.planners.elastic.measured import Measurements, measurements_of
from engine.planners.elastic.measured.csv_rows import csv_rows, csv_text, number
from models.documents import shown

__all__ = ["SplitJob", "jobs_of"]

MOST_JOBS: Final = 200
"""Most jobs that share GPUs. Source: stated by us."""


@dataclass(frozen=True)
class SplitJob:
    """A job: its model, measurements and guarantee.

    `guarantee` is a throughput that it must reach [samples/s], None for a best-effort job. `rates` may give a curve of
    one's own, throughput by GPUs from 1 on [samples/s], NaN where nothing runs; `plans` its plans, `batch` the samples
    of an iteration.
    """

    name: str
    card: ModelCard | None = None
    measured: Measurements | None = None
    guarantee: float | None = None
    rates: tuple[float, ...] = ()
    plans: tuple[str, ...] = ()
    batch: int | None = None


def jobs_of(given: Iterable[SplitJob | Mapping[str, Any] | CardLike] | pd.DataFrame | str) -> tuple[SplitJob, ...]:
    """Returns jobs from jobs, model cards or their names, documents or rows with `card`, `name`, `measured` and
    `guarantee`, a table, or a CSV file with these columns.

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
    jobs: list[SplitJob] = []
    for row in rows:
        job = _job_of(row)
        same = sum(each.name == job.name or each.name.startswith(f"{job.name} (") for each in jobs)
        jobs.append(replace(job, name=f"{job.name} ({same + 1})") if same else job)
    return tuple(jobs)


def _job_of(row: Any) -> SplitJob:
    if isinstance(row, SplitJob):
        return row
    asked = row if isinstance(row, Mapping) and "card" in row else {"card": row}
    unknown = [key for key in asked if key not in ("card", "name", "measured", "guarantee")]
    if unknown:
        raise PlanError(f"A job has card, name, measured and guarantee, but no {shown(unknown[0])}.")
    card = load_card(asked["card"])
    measured = measurements_of(card.name, asked.get("measured") or None)
    guarantee = asked.get("guarantee")
    if guarantee is not None and (
        isinstance(guarantee, bool) or not isinstance(guarantee, Real) or not 0 <= float(guarantee) < math.inf
    ):
        raise PlanError(f"The guarantee of {card.name} is {shown(guarantee)}; give samples per second from 0 on.")
    return SplitJob(
        str(asked.get("name") or card.name), card, measured, None if guarantee is None else float(guarantee)
    )

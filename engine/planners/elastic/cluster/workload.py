"""Workloads: which jobs are submitted when, with how many steps; read from tables and checked."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from io import StringIO
from pathlib import Path
from typing import Any, Final, TypeAlias

import pandas as pd

from engine.planners.contract import PlanError

__all__ = ["MOST_JOBS", "Workload", "WorkloadJob", "WorkloadSource", "workload_from", "workload_names"]

MOST_JOBS: Final = 20_000
"""Jobs that a workload may have; a replay asks its policy about all active ones in every round."""

FOLDER: Final = Path(__file__).parent / "data"
MOST_BYTES: Final = 16 * 2**20
"""Largest workload file that is read [bytes]. Source: stated by us."""
MOST_SECONDS: Final = 1e9
"""Longest duration or time of submission [s], some 32 years. Source: stated by us."""
MOST_STEPS: Final = 10**9
"""Most steps of a job. Source: stated by us."""
COLUMNS: Final = ("name", "submission_time", "application", "num_gpus", "exec_plan")
BYTE_ORDER_MARK: Final = "\ufeff"


@dataclass(frozen=True, slots=True)
class WorkloadJob:
    """One job: its name, model, submission time [s], requested GPUs and plan, steps, and whether its performance is
    guaranteed. Without `steps`, `duration` [s] is given for the requested GPUs and plan."""

    name: str
    application: str
    submission: float
    gpus: int
    plan: str
    steps: int | None
    duration: float | None
    guaranteed: bool


@dataclass(frozen=True, slots=True)
class Workload:
    """Jobs, in the order in which they are submitted."""

    jobs: tuple[WorkloadJob, ...]

    def __len__(self) -> int:
        return len(self.jobs)

    @property
    def last_submission(self) -> float:
        """Returns when the last job is submitted [s]."""
        return max(each.submission for each in self.jobs)


WorkloadSource: TypeAlias = Workload | pd.DataFrame | str | os.PathLike[str] | Sequence[WorkloadJob | Mapping[str, Any]]


@lru_cache(maxsize=1)
def workload_names() -> tuple[str, ...]:
    """Returns the names of the published workloads that come with the planner, in alphabetical order."""
    return tuple(sorted(file.stem.removeprefix("workload_") for file in FOLDER.glob("workload_*.csv")))


def workload_from(source: WorkloadSource) -> Workload:
    """Returns a workload from a checked one, a table, rows, the text of a CSV file, its path, or the name of one that
    comes with the planner.

    A table has the columns `name`, `submission_time` [s], `application`, `num_gpus`, `exec_plan`, and `steps`, or else
    `duration` [s]; `is_sla` is 1 for jobs whose performance is guaranteed. Other columns are not read.

    Args:
        source: a workload, its table or rows, its text, the path of a file with it, or one of `workload_names()`.

    Raises `engine.planners.contract.PlanError` naming the row and the field that cannot be right.
    """
    if isinstance(source, Workload):
        return source
    if isinstance(source, pd.DataFrame):
        _check_job_count(len(source))
        rows: Iterable[Mapping[Any, Any]] = source.to_dict("records")
    elif isinstance(source, str | os.PathLike):
        table = _read_workload_table(source)
        _check_job_count(len(table))
        rows = table.to_dict("records")
    else:
        given = list(source)
        _check_job_count(len(given))
        if all(isinstance(each, WorkloadJob) for each in given):
            rows = [_row_of_job(each) for each in given if isinstance(each, WorkloadJob)]
        else:
            rows = [each if isinstance(each, Mapping) else {} for each in given]
    jobs = [_job_of_row(at, row) for at, row in enumerate(rows, start=1)]
    seen: set[str] = set()
    for at, job in enumerate(jobs, start=1):
        if job.name in seen:
            raise PlanError(f"Row {at}: there is a job {job.name[:60]!r} already; names of jobs must differ.")
        seen.add(job.name)
    return Workload(tuple(sorted(jobs, key=lambda job: job.submission)))


def _check_job_count(number: int) -> None:
    if number == 0:
        raise PlanError("The workload has no jobs; it needs one row per job.")
    if number > MOST_JOBS:
        raise PlanError(f"The workload has {number:,} jobs; a replay takes {MOST_JOBS:,} at most.")


def _read_workload_table(source: str | os.PathLike[str]) -> pd.DataFrame:
    if isinstance(source, str) and "\n" in source:
        text = source
        if len(text) > MOST_BYTES:
            raise PlanError(f"The workload has {len(text):,} characters; it may have {MOST_BYTES:,}.")
    else:
        path = FOLDER / f"workload_{source}.csv" if source in workload_names() else Path(source)
        try:
            size = path.stat().st_size
            if size > MOST_BYTES:
                raise PlanError(f"{path.name[:60]} has {size:,} bytes; a workload has {MOST_BYTES:,} at most.")
            text = path.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError:
            raise PlanError(f"{path.name[:60]} is no text in UTF-8.") from None
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else "no such file"
            names = ", ".join(workload_names())
            raise PlanError(
                f"The workload {str(source)[:120]!r} cannot be read: {why.lower()}; give a CSV file, or {names}."
            ) from None
    if "\x00" in text:
        raise PlanError("The workload has null characters; it must be CSV text.")
    try:
        return pd.read_csv(StringIO(text.removeprefix(BYTE_ORDER_MARK)), dtype=str, skipinitialspace=True)
    except (pd.errors.ParserError, pd.errors.EmptyDataError, ValueError) as error:
        raise PlanError(f"The workload is no CSV table ({' '.join(str(error).split())[:120]}).") from None


def _row_of_job(job: WorkloadJob) -> dict[str, Any]:
    return {
        "name": job.name,
        "submission_time": job.submission,
        "application": job.application,
        "num_gpus": job.gpus,
        "exec_plan": job.plan,
        "steps": job.steps,
        "duration": job.duration,
        "is_sla": int(job.guaranteed),
    }


def _job_of_row(at: int, row: Mapping[Any, Any]) -> WorkloadJob:
    missing = [name for name in COLUMNS if name not in row]
    if missing:
        raise PlanError(f"The workload has no column {missing[0]!r}; it needs {', '.join(COLUMNS)} and steps.")
    guaranteed = _number_field(at, row, "is_sla", least=0, most=1)
    steps = _number_field(at, row, "steps", least=0, most=MOST_STEPS, whole=True)
    duration = _number_field(at, row, "duration", least=0, most=MOST_SECONDS)
    if not steps and duration is None:
        raise PlanError(f"Row {at}: there are neither steps nor a duration; a job needs one of them.")
    submission = _number_field(at, row, "submission_time", least=0, most=MOST_SECONDS)
    gpus = _number_field(at, row, "num_gpus", least=1, most=1_000_000, whole=True)
    if submission is None or gpus is None:
        name = "submission_time" if submission is None else "num_gpus"
        raise PlanError(f"Row {at}: {name} is empty; it must be a number.")
    return WorkloadJob(
        name=_text_field(at, row, "name"),
        application=_text_field(at, row, "application"),
        submission=submission,
        gpus=int(gpus),
        plan=_text_field(at, row, "exec_plan"),
        steps=int(steps) if steps else None,
        duration=duration,
        guaranteed=bool(guaranteed),
    )


def _text_field(at: int, row: Mapping[Any, Any], name: str) -> str:
    value = row[name]
    text = "" if value is None or (isinstance(value, float) and math.isnan(value)) else str(value).strip()
    if not text or len(text) > 200 or not text.isprintable():
        raise PlanError(f"Row {at}: {name} is {text[:40]!r}; it must be a text of 1 to 200 characters.")
    return text


def _number_field(
    at: int, row: Mapping[Any, Any], name: str, *, least: float, most: float, whole: bool = False
) -> float | None:
    value = row.get(name)
    if value is None or value == "" or (name not in COLUMNS and isinstance(value, float) and math.isnan(value)):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    kind = "whole number" if whole else "number"
    if not (math.isfinite(number) and least <= number <= most) or (whole and number != int(number)):
        raise PlanError(f"Row {at}: {name} is {str(value)[:40]}; it must be a {kind} from {least:,.0f} to {most:,.0f}.")
    return number

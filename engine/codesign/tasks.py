"""Task: a range of places of a study's order, computed and written as a part. What every worker runs."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from engine.codesign.errors import ClusterError, FolderError
from engine.codesign.folder import ResultFolder
from engine.codesign.points import rows_of
from engine.codesign.study import Study
from engine.codesign.versions import version

__all__ = ["Done", "StudyTask", "compute_task"]


@dataclass(frozen=True, slots=True)
class StudyTask:
    """Places `first` to `first + count` of the order of a study; `version` is the caller's Shardscape."""

    place: str
    key: str
    first: int
    count: int
    version: str
    skipped: Mapping[int, float] = field(default_factory=dict)
    """Highest rates that the skipped points of the task can reach [samples/s]."""


@dataclass(frozen=True, slots=True)
class Done:
    """Outcome of a task: points by status, duration [s], and the size of its part [bytes]."""

    first: int
    count: int
    points: int
    found: int
    problems: int
    skipped: int
    seconds: float
    size: int
    rates: tuple[tuple[int, float, float], ...] = ()
    """(point, best rate, what no worse design exceeds) of what was found [samples/s], where designs are skipped."""


@lru_cache(maxsize=4)
def _open_study(place: str, key: str) -> tuple[ResultFolder, Study]:
    """The folder and its study, read once per process."""
    folder = ResultFolder(place)
    content = folder.study()
    if content is None:
        raise FolderError(f"{place} holds no study here; workers and caller must see the same folder, or give a URL.")
    study = Study.from_json(content, f"the study in {place}")
    if study.key != key:
        raise FolderError(f"{place} holds another study here; workers and caller must see the same folder.")
    return folder, study


def compute_task(task: StudyTask) -> Done:
    """Computes a task and writes its part; returns how it went.

    Writing a part twice leaves it there once, so a task may run again after its worker was lost.
    Raises `ClusterError` where this process runs another version than the caller's, and `FolderError`.

    Args:
        task: the task.
    """
    if task.version != version():
        raise ClusterError(
            f"A worker runs Shardscape {version()}, and the caller {task.version}: figures may differ, so install the "
            "same version everywhere and run the study again; what is written stays good."
        )
    start = time.perf_counter()
    folder, study = _open_study(task.place, task.key)
    rows = rows_of(study, study.designs_at(task.first, task.count), task.skipped)
    size = folder.keep(task.first, task.count, rows)
    counts = (
        dict(zip(*(each.to_pylist() for each in pc.value_counts(rows["status"].cast("string")).flatten()), strict=True))
        if len(rows)
        else {}
    )
    return Done(
        task.first,
        task.count,
        len(rows),
        counts.get("ok", 0),
        counts.get("problem", 0),
        counts.get("skipped", 0),
        time.perf_counter() - start,
        size,
        _list_rates(rows) if study.document.prune else (),
    )


def _list_rates(rows: pa.Table) -> tuple[tuple[int, float, float], ...]:
    found = rows.filter(pc.equal(rows["status"].cast("string"), "ok"))
    return tuple(
        (point, rate, math.inf if bound is None else bound)
        for point, rate, bound in zip(
            *(found[name].to_pylist() for name in ("point", "samples_per_s", "bound")), strict=True
        )
    )

"""Co-design studies off the page: a study runs into a folder of the server, which answers while it grows."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

from dashboard.jobs.job import Job, JobKind
from dashboard.jobs.worker import Task, Worker
from dashboard.settings import Settings
from engine import ExplorationCancelled
from engine.codesign import (
    PointTime,
    Results,
    Study,
    StudyCancelled,
    results,
    run,
    time_points,
)

__all__ = ["CodesignJob", "StudyTimesJob", "codesign_studies", "folder_of", "so_far", "study_times"]

STUDY: Final = "study.json"
MOST_KEPT: Final = 16
"""Studies of which it is remembered how they ended; their results stay in their folders."""


def folder_of(study: Study, settings: Settings) -> str:
    """Return the folder of a study's points: next to the store, or temporary without one.

    Studies of the same points share it: prices, weights, objectives and constraints are no part of its name.
    """
    store = settings.store
    return str((store.parent if store is not None else Path(_temporary_folder())) / "codesign" / study.key)


@cache
def _temporary_folder() -> str:
    return tempfile.mkdtemp(prefix="shardscape-codesign-")


def so_far(study: Study, folder: str) -> Results | None:
    """Returns the computed points of a study, under its current prices and objectives; None if there are none.

    Args:
        study: the study; the folder may hold one that differs in prices, weights or objectives.
        folder: folder of its points.

    Raises:
        FolderError: the folder is damaged.
    """
    if not (Path(folder) / STUDY).is_file():
        return None
    found = results(folder)
    if not len(found.rows) or found.study.key != study.key:
        return None
    return replace(found, study=study)


def found_points(task: Task, study: Study, folder: str, point_seconds: float | None) -> None:
    """Runs what a folder lacks of a study, in this process; for a worker."""
    try:
        run(study, folder, workers=1, progress=task.tell, cancel=task.stops, point_seconds=point_seconds)
    except StudyCancelled:
        raise ExplorationCancelled from None


class CodesignJob(Job):
    """One study on its way."""

    def __init__(
        self, kind: JobKind, study: Study, folder: str, about: str, point_seconds: float | None = None
    ) -> None:
        super().__init__(kind, study.key, "Searching the designs", about)
        self.study, self.folder, self.point_seconds = study, folder, point_seconds

    def work(self) -> bool:
        """Runs it."""
        self.run(found_points, self.study, self.folder, self.point_seconds)
        return False


def found_times(task: Task, study: Study) -> tuple[PointTime, ...]:
    """Returns the times of a few points of a study; for a worker."""
    try:
        return time_points(study, cancel=task.stops)
    except StudyCancelled:
        raise ExplorationCancelled from None


class StudyTimesJob(Job):
    """Timing of a few points of one study."""

    def __init__(self, kind: JobKind, study: Study) -> None:
        super().__init__(kind, study.key, "Timing a few points", study.document.name)
        self.study = study
        self.times: tuple[PointTime, ...] = ()

    def work(self) -> bool:
        """Times them."""
        self.times = self.run(found_times, self.study)
        return False


def study_times(worker: Worker) -> JobKind:
    """Returns the kind of jobs that time points, worked on by a worker."""
    return JobKind(name="timing", doing="Timing", unit="point", most_kept=MOST_KEPT, workers={"": worker})


def codesign_studies(worker: Worker) -> JobKind:
    """Returns the kind of such jobs, worked on by a worker."""
    return JobKind(name="co-design study", doing="Searching", unit="point", most_kept=MOST_KEPT, workers={"": worker})

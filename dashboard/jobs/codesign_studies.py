"""Co-design studies off the page: a study runs into a folder of the server, which answers while it grows."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

from dashboard.jobs.job import Job, Kind
from dashboard.jobs.worker import Task, Worker
from dashboard.settings import Settings
from engine import ExplorationCancelled
from engine.codesign import Results, Study, StudyCancelled, StudyError, results, run

__all__ = ["CodesignJob", "codesign_studies", "folder_of", "so_far"]

MOST_KEPT: Final = 16
"""Studies of which it is remembered how they ended; their results stay in their folders."""


def folder_of(study: Study, settings: Settings) -> str:
    """Returns where the server keeps the points of a study: beside its store, or in a folder that ends with it.

    Studies of the same points share it: prices, weights, objectives and constraints are no part of its name.
    """
    store = settings.store
    return str((store.parent if store is not None else Path(_passing())) / "codesign" / study.key)


@cache
def _passing() -> str:
    return tempfile.mkdtemp(prefix="shardscape-codesign-")


def so_far(study: Study, folder: str) -> Results | None:
    """Returns the points of a study that are there, asked as this study asks; None where there is none.

    Args:
        study: the study, of which the folder may hold one that differs in prices, weights or objectives.
        folder: where its points are.
    """
    if not Path(folder).is_dir():
        return None
    try:
        found = results(folder)
    except StudyError:  # nothing is written yet
        return None
    if not len(found.rows) or found.study.key != study.key:
        return None
    return replace(found, study=study)


def found_points(task: Task, study: Study, folder: str) -> None:
    """Runs what a folder lacks of a study, in this process; for a worker."""
    try:
        run(study, folder, workers=1, progress=task.tell, cancel=task.stops)
    except StudyCancelled:
        raise ExplorationCancelled from None


class CodesignJob(Job):
    """One study on its way."""

    def __init__(self, kind: Kind, study: Study, folder: str, about: str) -> None:
        super().__init__(kind, study.key, "Searching the designs", about)
        self.study, self.folder = study, folder

    def work(self) -> bool:
        """Runs it."""
        self.run(found_points, self.study, self.folder)
        return False


def codesign_studies(worker: Worker) -> Kind:
    """Returns the kind of such jobs, worked on by a worker."""
    return Kind(name="co-design study", doing="Searching", unit="point", most_kept=MOST_KEPT, workers={"": worker})

"""Figures of papers off the page: some take seconds."""

from __future__ import annotations

from typing import Final

import pandas as pd

from dashboard.jobs.job import Job, JobKind
from dashboard.jobs.worker import Task, Worker
from engine import ExplorationCancelled
from engine.reproductions import Paper, PaperFigure, find_figure, find_paper

__all__ = ["PaperFigureJob", "paper_figures"]

MOST_KEPT: Final = 64
"""Figures that are remembered, each a table of some hundred rows at most."""


def computed_table(task: Task, paper: str, figure: str) -> pd.DataFrame:
    """Return the table of a figure; for a worker. paper, figure: their names."""
    if task.stops():
        raise ExplorationCancelled
    return find_figure(find_paper(paper), figure).compare_values()


class PaperFigureJob(Job):
    """One figure on its way."""

    def __init__(self, kind: JobKind, paper: Paper, figure: PaperFigure) -> None:
        super().__init__(kind, f"{paper.name}.{figure.name}", "Computing", f"{figure.title} of {paper.short_citation}")
        self._names = paper.name, figure.name
        self.table: pd.DataFrame | None = None

    def work(self) -> bool:
        """Computes."""
        self.table = self.run(computed_table, *self._names)
        return False


def paper_figures(worker: Worker) -> JobKind:
    """Return the kind of such jobs, worked on by a worker."""
    return JobKind(name="paper figure", doing="Computing", unit="figure", most_kept=MOST_KEPT, workers={"": worker})

"""Best use of one more dollar from a design of a co-design study, off the page: about 20 searches for every model."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Final

import pandas as pd

from dashboard.jobs.job import Job, JobKind
from dashboard.jobs.worker import Task, Worker
from dashboard.link.own_studies import document_of
from engine import ExplorationCancelled
from engine.codesign import Results, Study, StudyCancelled, sensitivity
from engine.codesign.answers import At

__all__ = ["SensitivityJob", "SensitivityQuestion", "design_sensitivity"]

MOST_KEPT: Final = 64
"""Designs of which it is remembered."""


@dataclass(frozen=True, slots=True)
class SensitivityQuestion:
    """Question to `engine.codesign.sensitivity`."""

    study: Study
    design: int
    objective: str
    of: str
    at: At

    @property
    def key(self) -> str:
        """Key of the question. It includes prices, weights and tokens, which are not part of a study's own key."""
        study = sha256(document_of(self.study).encode()).hexdigest()
        return f"{study} {self.design} {self.objective} {self.of} {self.at}"


def found_worth(task: Task, asked: SensitivityQuestion) -> pd.DataFrame:
    """Returns what more of everything is worth to a design; for a worker."""
    found = Results(asked.study, pd.DataFrame())
    try:
        return sensitivity(found, asked.design, objective=asked.objective, of=asked.of, at=asked.at, cancel=task.stops)
    except StudyCancelled:
        raise ExplorationCancelled from None


class SensitivityJob(Job):
    """One design on its way."""

    worth: pd.DataFrame | None

    def __init__(self, kind: JobKind, question: SensitivityQuestion) -> None:
        super().__init__(kind, question.key, "Searching around the design", f"Design {question.design:,}")
        self.question, self.worth = question, None

    def work(self) -> bool:
        """Searches."""
        self.worth = self.run(found_worth, self.question)
        return False


def design_sensitivity(worker: Worker) -> JobKind:
    """Returns the kind of such jobs, worked on by a worker."""
    return JobKind(name="sensitivity", doing="Searching", unit="design", most_kept=MOST_KEPT, workers={"": worker})

"""Verb about accuracy: predictions for measured runs, and how far they are off."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd
from pydantic import Field

from engine import validation
from engine.questions.bounds import Context
from engine.questions.documents.validations import ValidationQuestion
from engine.questions.plain import plain
from engine.questions.verb import Document, Row, Verb
from engine.validation import Runs
from engine.validation.reading import runs_in

__all__ = ["VALIDATE", "RunPredictions", "find_predictions"]

MOST_RUNS = 20_000
"""Runs of a question."""


@dataclass(frozen=True)
class RunPredictions:
    """Predictions for measured runs, with their errors."""

    runs: Runs
    table: pd.DataFrame
    """One row per run, as `engine.validation.validate` returns it."""
    is_packaged: bool
    """True for the runs of the package."""

    @property
    def predicted(self) -> int:
        """Number of runs with a prediction."""
        return int((self.table["status"] == "predicted").sum())

    @property
    def unsupported_by_reason(self) -> dict[str, int]:
        """Number of runs without a prediction, by the code of the reason."""
        counts = self.table.loc[self.table["status"] != "predicted", "reason"].value_counts()
        return {str(reason): int(count) for reason, count in counts.items()}

    @property
    def runs_by_fit(self) -> dict[str, int]:
        """Number of predicted runs by whether their predicted memory fits, with its error; all of them ran."""
        counts = self.table["memory_fit"].value_counts()
        return {word: int(counts.get(word, 0)) for word in ("fits", "may not fit", "may fit", "does not fit")}

    @cached_property
    def errors(self) -> pd.DataFrame:
        """Errors of step times by set, source, hardware and family [%]; see `engine.validation.error_table`."""
        return validation.error_table(self.runs.table, self.table)

    @cached_property
    def memory_errors(self) -> pd.DataFrame:
        """Errors of memory by source [%]; see `engine.validation.memory_table`."""
        return validation.memory_table(self.runs.table, self.table)

    @cached_property
    def coverage(self) -> pd.DataFrame:
        """Share of measured times inside the error intervals: stored for the package's runs, which fits without their
        source predict, and by the shipped fit for others."""
        if self.is_packaged:
            return validation.stored_coverage()
        return validation.coverage_of(validation.map_runs(self.runs), self.table)

    @cached_property
    def releases(self) -> pd.DataFrame:
        """Errors of the package's runs by release (`engine.validation.releases`); without rows for other runs."""
        found = validation.stored_releases()
        return found if self.is_packaged else found.head(0)

    def document(self) -> dict[str, Any]:
        """Return the counts and errors as JSON has them."""
        return {
            "rows": len(self.table),
            "predicted": self.predicted,
            "unsupported_by_reason": self.unsupported_by_reason,
            "errors": self.errors.to_dict("records"),
            "memory_errors": self.memory_errors.to_dict("records"),
            "runs_by_fit": self.runs_by_fit,
            "coverage": self.coverage.to_dict("records"),
            "releases": self.releases.to_dict("records"),
        }


class ValidationAnswer(Document):
    """Errors of predictions for measured runs. Errors are |predicted / measured - 1| in percent; bias is signed."""

    rows: int = Field(description="Measured runs.")
    predicted: int = Field(description="Runs with a prediction.")
    unsupported_by_reason: dict[str, int] = Field(description="Runs without a prediction.")
    errors: list[Row] = Field(description="Errors of the step time by set, source, hardware and family.")
    memory_errors: list[Row] = Field(description="Errors of the memory of the fullest GPU by source.")
    runs_by_fit: dict[str, int] = Field(
        description="Predicted runs whose predicted memory fits, may not fit, may fit (above the capacity, within its "
        "error) or does not fit. All of them ran."
    )
    coverage: list[Row] = Field(description="Share of measured times inside the intervals of figures.")
    releases: list[Row] = Field(
        description="Errors of the package's runs by date of the fit and set of runs: mean and median, and the mean "
        "of fits without the half (halves) or source (sources) of the run."
    )
    predictions: list[Row] | None = Field(
        default=None, description="Prediction of every run: step time [s], tokens/s per GPU, memory [GiB], errors."
    )


def find_predictions(
    asked: ValidationQuestion,
    runs: Runs | None = None,
    *,
    progress: Callable[[int, int], None] | None = None,
    cancel: Callable[[], bool] | None = None,
) -> RunPredictions:
    """Return predictions for the runs of a question.

    Args:
        asked: the question.
        runs: runs that were read from a file, instead of the question's.
        progress: called with (done, all) runs while Calculon's model predicts.
        cancel: returns True to stop.

    Raises `engine.validation.RunsFileError` for a text that is no table of runs, and `engine.ExplorationCancelled`.
    """
    is_packaged = runs is None and asked.runs is None
    if runs is None:
        runs = (
            validation.library_runs()
            if asked.runs is None
            else runs_in(asked.runs.encode(), "The table of runs", most_runs=MOST_RUNS)
        )
    table = validation.validate(runs, calculon=asked.calculon, progress=progress, cancel=cancel)
    return RunPredictions(runs, table, is_packaged)


def _answer(asked: ValidationQuestion, context: Context) -> dict[str, Any]:
    def report(done: int, total: int) -> None:
        context.tell(done / total, f"{done:,} of {total:,} runs")

    found = find_predictions(asked, progress=report, cancel=context.stops)
    document = {name: plain(value) for name, value in found.document().items()}
    if asked.predictions:
        document["predictions"] = plain(found.table.to_dict("records"))
    return document


VALIDATE = Verb(
    "validate",
    "Validate predictions",
    "Predicts measured training runs with the calibrated model and says how far off it is, by source and hardware.",
    ValidationQuestion,
    ValidationAnswer,
    _answer,
)

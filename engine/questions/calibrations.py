"""Verb about calibrations: parameters of the cost model fitted to measured runs of one system."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field

import hardware
from engine import calibrate
from engine.calibrate import CalibrationOutcome, CheckedRuns, MeasuredRuns, Reranked
from engine.questions.bounds import Context
from engine.questions.documents.calibrations import CalibrationChoices
from engine.questions.plain import plain
from engine.questions.scenario_documents import ScenarioDocument, found_system, scenario_of
from engine.questions.verb import Document, Row, Verb
from engine.scenarios.scenario import Scenario, load_entity
from hardware import Calibration
from models.documents import Accepts, Text

__all__ = ["CALIBRATE", "FittedCalibration", "find_calibration"]

CountProgress = Callable[[int, int, str], None]
"""Called with (done, all, unit in the plural)."""


class CalibrationQuestion(CalibrationChoices):
    """Question for a calibration by measured runs of one system."""

    runs: Annotated[
        dict[str, Annotated[str, Text(1_000_000, shortest=1)]], Accepts("an object with texts by file name")
    ] = Field(
        min_length=1,
        max_length=200,
        description="Text of each file by its name: a CSV table of runs, or a training log of Megatron-LM, NeMo, "
        "Megatron-Bridge or torchtitan with its arguments.",
    )
    scenario: ScenarioDocument | None = Field(
        default=None, description="Scenario whose best executions are ranked by the old and the new calibration."
    )


class RefusedRun(Document):
    """A run that cannot be used for a fit."""

    row: str = Field(description="Its row in the table, or the name of its log.")
    id: str
    reason: str
    reason_text: str
    missing: list[str] = Field(description="Needed fields that the run does not give.")


class UsedRun(Document):
    """A run that was fitted."""

    row: str = Field(description="Its row in the table, or the name of its log.")
    id: str = Field(description="Its id, as given.")
    remark: str = Field(description="What was converted, or taken from the library.")
    measured_step_time_s: float
    predicted_before_s: float = Field(description="By the calibration that the fit started from.")
    predicted_unseen_s: float | None = Field(description="By a fit that left it out; null if none did.")


class CalibrationRanking(Document):
    """Best executions of a scenario by either calibration, ranked by both."""

    changed: bool = Field(description="True if another execution is best now.")
    gain: float = Field(description="How much faster the new best is than the old best, as a share.")
    tau: float | None = Field(description="Kendall's tau between both orders.")
    best: list[Row] = Field(description="Executions with rank, step time [s] and rate [samples/s] before and after.")


class CalibrationAnswer(Document):
    """A calibration with its errors. Errors are |predicted / measured - 1| in percent; bias is signed."""

    rows: int
    accepted: int = Field(description="Runs that were fitted; with 0 all below is null.")
    refused: list[RefusedRun]
    used: list[UsedRun] = Field(default_factory=list, description="Runs that were fitted.")
    configurations: int | None = Field(default=None, description="Different configurations among the fitted runs.")
    held_out: str | None = Field(default=None, description="Runs that were left out together to measure the error.")
    helps: bool | None = Field(default=None, description="True if unseen runs are predicted better; null if unknown.")
    verdict: str | None = None
    errors_before: dict[str, float | None] | None = None
    errors_unseen: dict[str, float | None] | None = Field(default=None, description="Of runs left out of the fit.")
    errors_fitted: dict[str, float | None] | None = None
    influence: dict[str, float | None] | None = Field(
        default=None, description="Change of step times by one prior width of each parameter, as a share."
    )
    calibration: dict[str, Any] | None = Field(default=None, description="Document of the calibration.")
    ranking: CalibrationRanking | None = None


@dataclass(frozen=True)
class FittedCalibration:
    """Measured runs, and the calibration fitted to the usable ones."""

    checked: CheckedRuns
    outcome: CalibrationOutcome | None
    """None if no run can be used."""
    calibration: Calibration | None
    ranking: Reranked | None

    @property
    def refused(self) -> list[dict[str, Any]]:
        """Runs that cannot be used, with the reason of each."""
        checked = self.checked
        return [
            {
                "row": checked.labels[row],
                "id": str(checked.table["id"].iloc[row]),
                "reason": str(checked.reason[row]),
                "reason_text": str(checked.reason_text[row]),
                "missing": list(checked.missing[row]),
            }
            for row in np.flatnonzero(~checked.accepted)
        ]

    @property
    def used(self) -> list[dict[str, Any]]:
        """Runs that were fitted, each with measurement and predictions."""
        checked, outcome = self.checked, self.outcome
        if outcome is None:
            return []
        unseen = outcome.predicted_unseen
        return [
            {
                "row": checked.labels[row],
                "id": str(checked.table["id"].iloc[row]),
                "remark": str(checked.remarks[row]),
                "measured_step_time_s": float(checked.measured[row]),
                "predicted_before_s": float(outcome.predicted_before[row]),
                "predicted_unseen_s": None if np.isnan(unseen[row]) else float(unseen[row]),
            }
            for row in np.flatnonzero(checked.accepted)
        ]

    def document(self) -> dict[str, Any]:
        """Return the fit as JSON has it; without usable runs, their number and the refused ones only."""
        outcome, calibration = self.outcome, self.calibration
        runs = {"rows": len(self.checked.labels), "accepted": int(self.checked.accepted.sum()), "refused": self.refused}
        if outcome is None or calibration is None:
            return runs
        ranked = self.ranking
        return {
            **runs,
            "used": self.used,
            "configurations": outcome.configurations,
            "held_out": outcome.held_out.described,
            "helps": outcome.helps,
            "verdict": outcome.verdict,
            "errors_before": dict(outcome.errors_before),
            "errors_unseen": None if outcome.errors_unseen is None else dict(outcome.errors_unseen),
            "errors_fitted": dict(outcome.errors_after),
            "influence": dict(outcome.influence),
            "calibration": hardware.calibration_document(calibration),
            "ranking": None
            if ranked is None
            else {
                "changed": ranked.changed,
                "gain": ranked.gain,
                "tau": ranked.tau,
                "best": ranked.table.to_dict("records"),
            },
        }


def find_calibration(
    asked: CalibrationChoices,
    measured: MeasuredRuns,
    scenario: Scenario | None = None,
    *,
    progress: CountProgress | None = None,
    cancel: Callable[[], bool] | None = None,
) -> FittedCalibration:
    """Return the calibration fitted to measured runs.

    Args:
        asked: the question.
        measured: its runs.
        scenario: scenario to rank by the old and the new calibration; None for no ranking.
        progress: called with the number of fits, then of searched executions, that are done.
        cancel: returns True to stop.

    Raises `engine.calibrate.CalibrateError`, the errors of loading system and calibration, and
    `engine.ExplorationCancelled`.
    """
    start = load_entity(asked.base, "calibration", hardware.load_calibration, hardware.load_calibration_document)
    name = calibrate.checked_name(asked.name, start)
    checked = calibrate.check(measured, found_system(asked.system), calibrate.parameters_of(start))
    if not checked.accepted.any():
        return FittedCalibration(checked, None, None, None)

    def report(unit: str) -> Callable[[int, int], None]:
        return lambda done, total: None if progress is None else progress(done, total, unit)

    outcome = calibrate.calibrate(checked, asked.parameters, start, progress=report("fits"), cancel=cancel)
    found = calibrate.document(outcome, name)
    ranking = None
    if scenario is not None:
        ranking = calibrate.rerank(scenario, outcome.base, found, progress=report("executions"), cancel=cancel)
    return FittedCalibration(checked, outcome, found, ranking)


def _answer(asked: CalibrationQuestion, context: Context) -> dict[str, Any]:
    scenario = None if asked.scenario is None else context.bounds.searchable(scenario_of(asked.scenario))

    def report(done: int, total: int, unit: str) -> None:
        share = done / total if total else 1.0
        if scenario is not None:  # the ranking takes about as long as the fits
            share = share / 2 if unit == "fits" else 0.5 + share / 2
        context.tell(share, f"{done:,} of {total:,} {unit}")

    contents = {name: text.encode() for name, text in asked.runs.items()}
    measured = calibrate.read_contents(contents, calibrate.checked_fields(asked.given))
    found = find_calibration(asked, measured, scenario, progress=report, cancel=context.stops)
    return {name: plain(value) for name, value in found.document().items()}


CALIBRATE = Verb(
    "calibrate",
    "Calibrate the cost model",
    "Fits a few parameters of the calibrated model to measured runs of one system, with errors on unseen runs.",
    CalibrationQuestion,
    CalibrationAnswer,
    _answer,
)

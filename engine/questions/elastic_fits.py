"""Verbs about measurements of elastic plans: a card fitted to runs, its predictions next to runs, loss parity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import pandas as pd
from pydantic import Field

from engine.planners.contract import Cancel, PlanCancelledError, PlanError, Progress, never, unheard
from engine.planners.elastic.accuracy import against_measured, by_class, ranking
from engine.planners.elastic.cards import Environment
from engine.planners.elastic.fitting import CardFit, fit_parameters, held_out
from engine.planners.elastic.measured.profiles import Profile, joined_profile, profile_names, profile_of, profile_table
from engine.questions.bounds import Context
from engine.questions.documents.elastic import CardAccuracyQuestion, LossesQuestion, ProfileFitQuestion
from engine.questions.elastic_cards import find_card, find_measurements
from engine.questions.plain import plain, table_rows
from engine.questions.verb import Document, Row, Verb
from engine.reproductions.rubick.losses import loss_differences, losses, parity
from engine.reproductions.rubick.table_2 import table_2_models

__all__ = [
    "CARD_ACCURACY",
    "COMPARE_LOSSES",
    "FIT_CARD",
    "FittedProfile",
    "compare_card",
    "find_environment",
    "find_losses",
    "find_profile",
    "fit_profile",
]

HELD_OUT_STARTS: Final = 4
"""Starts of each leave-one-out fit; there is one fit per run."""


class FitAnswer(Document):
    """The seven parameters of a card that fit a profile."""

    performance: dict[str, float] = Field(description="The seven parameters; see the guide for their units.")
    objective: float = Field(description="Sum of three root mean squared logarithmic errors.")
    at_bound: list[str] = Field(description="Parameters at a bound.")
    unused: list[str] = Field(description="Parameters without effect on the objective.")
    warnings: list[str]
    runs: list[Row] = Field(description="Measured and predicted times of each run [ms], and errors [%].")
    held_out: list[Row] | None = Field(
        default=None, description="Errors of each run in the fit and left out [%], if asked for."
    )


class CardAccuracyAnswer(Document):
    """Predictions next to measurements."""

    card: str
    mean_error_pct: float | None = Field(description="Mean error without sign [%]; null without a run.")
    largest_error_pct: float | None = Field(description="Largest error without sign [%]; null without a run.")
    runs: list[Row] = Field(description="Measured and predicted iterations [ms] of each run, and the error [%].")
    classes: list[Row] = Field(description="Errors by class of plans.")
    picks: list[Row] = Field(description="By placement: the fastest measured plan, and the one picked.")


class LossesAnswer(Document):
    """Differences of losses."""

    runs: list[Row] = Field(description="Mean, largest and last difference of each run, without sign.")
    differences: list[Row] = Field(description="Difference of each run by minibatch, without sign.")


@dataclass(frozen=True, slots=True)
class FittedProfile:
    """The seven parameters, errors with each run left out in turn if asked for, and notes on the profile."""

    fit: CardFit
    held_out: pd.DataFrame | None
    notes: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """Return the fit as a document."""
        return {
            "performance": self.fit.parameters.model_dump(),
            "objective": self.fit.objective,
            "at_bound": self.fit.at_bound,
            "unused": self.fit.unused,
            "warnings": [*self.notes, *self.fit.warnings],
            "runs": self.fit.table.to_dict("records"),
            **({} if self.held_out is None else {"held_out": self.held_out.to_dict("records")}),
        }


def find_profile(asked: ProfileFitQuestion) -> Profile:
    """Return the profiled runs of a question.

    Args:
        asked: the question.

    Raises `engine.planners.contract.PlanError` naming row and field.
    """
    # A line end makes it text: never the path of a file.
    if asked.data is not None:
        return joined_profile(f"{asked.profile.rstrip()}\n", f"{asked.data.rstrip()}\n")
    if asked.profile in profile_names():
        return profile_of(asked.profile)
    return profile_table(f"{asked.profile.rstrip()}\n")


def find_environment(asked: ProfileFitQuestion) -> Environment:
    """Return the bandwidths of the node on which a profile was taken.

    Args:
        asked: the question.

    Raises `engine.planners.contract.PlanError` if they are missing for a profile that is not of the library.
    """
    own = {name: value for name, value in (("pcie", asked.pcie), ("nvlink", asked.nvlink)) if value is not None}
    if asked.data is None and asked.profile in profile_names():
        return Environment(**{**table_2_models()[asked.profile].environment.model_dump(), **own})
    if len(own) < 2:
        raise PlanError("Give pcie and nvlink, the bandwidths of the node in MiB/ms.")
    return Environment(**own)


def fit_profile(asked: ProfileFitQuestion, progress: Progress = unheard, cancel: Cancel = never) -> FittedProfile:
    """Return the seven parameters that fit profiled runs.

    Args:
        asked: the question.
        progress: called with the share done (0 to 1) and the current step.
        cancel: True stops between the fits.

    Raises `engine.planners.contract.PlanError`, `engine.planners.contract.PlanCancelledError`.
    """
    runs, environment = find_profile(asked), find_environment(asked)
    found = fit_parameters(runs, environment, starts=asked.starts)
    if cancel():
        raise PlanCancelledError("The fit was stopped.")
    left_out = None
    if asked.held_out:
        progress(0.3, "fitting with each run left out")
        left_out = held_out(runs, environment, starts=min(asked.starts, HELD_OUT_STARTS))
    return FittedProfile(found, left_out, runs.notes)


def compare_card(asked: CardAccuracyQuestion) -> pd.DataFrame:
    """Return predictions of a card next to its measured runs; see `engine.planners.elastic.accuracy`.

    Args:
        asked: the question.

    Raises `QuestionError`, and `engine.planners.contract.PlanError`, also if there are no measurements.
    """
    card = find_card(asked.card)
    return against_measured(
        card,
        find_measurements(card, asked.measurements),
        variant=asked.variant,
        cpu_threads=asked.cpu_threads,
        bandwidth=asked.bandwidth,
        families=("3D",) if asked.with_degrees else ("DP", "3D"),
        most_nodes=1 if asked.one_node else None,
    )


def find_losses(asked: LossesQuestion) -> pd.DataFrame:
    """Return the losses of a question by minibatch, one column per run.

    Args:
        asked: the question.

    Raises `engine.planners.contract.PlanError` naming row and field.
    """
    return losses(None if asked.losses is None else f"{asked.losses.rstrip()}\n")


def _answer_fit(asked: ProfileFitQuestion, context: Context) -> dict[str, Any]:
    found = fit_profile(asked, context.tell, context.stops).document()
    return {name: plain(list(value) if isinstance(value, tuple) else value) for name, value in found.items()}


def _answer_accuracy(asked: CardAccuracyQuestion, context: Context) -> dict[str, Any]:
    table = compare_card(asked)
    errors = table["error_pct"].dropna().abs()
    return {
        "card": find_card(asked.card).name,
        "mean_error_pct": float(errors.mean()) if len(errors) else None,
        "largest_error_pct": float(errors.max()) if len(errors) else None,
        "runs": table_rows(table),
        "classes": table_rows(by_class(table)),
        "picks": table_rows(ranking(table)),
    }


def _answer_losses(asked: LossesQuestion, context: Context) -> dict[str, Any]:
    table = find_losses(asked)
    return {
        "runs": table_rows(parity(table, asked.against)),
        "differences": table_rows(loss_differences(table, asked.against)),
    }


FIT_CARD = Verb(
    "fit_card",
    "Fit a model card",
    "Fits the seven parameters of a model card to profiled runs of one node, with bounds, from many starts.",
    ProfileFitQuestion,
    FitAnswer,
    _answer_fit,
)
CARD_ACCURACY = Verb(
    "card_accuracy",
    "Accuracy of a model card",
    "Compares predictions of a model card with measured runs, plan by plan, and whether it picks the fastest plan.",
    CardAccuracyQuestion,
    CardAccuracyAnswer,
    _answer_accuracy,
)
COMPARE_LOSSES = Verb(
    "compare_losses",
    "Compare losses",
    "Gives the differences between losses of one training under several plans, as figure 9 of Rubick has them.",
    LossesQuestion,
    LossesAnswer,
    _answer_losses,
)

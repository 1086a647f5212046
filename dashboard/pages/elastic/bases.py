"""Basis of the figures of the Elastic page, stated once in each part of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import pandas as pd

from dashboard.pages.elastic.answers import find_accuracy
from dashboard.pages.elastic.cards import ChosenCard
from dashboard.queries.accuracy import basis
from dashboard.words.numbers import counted, percent
from engine import Scenario
from engine.planners.contract import PlanError
from engine.questions.documents.elastic import CardAccuracyQuestion
from hardware import System
from models import Model

__all__ = ["of_cards", "of_models", "scenario_on"]

Variant = Literal["artifact", "physical"]


def scenario_on(model: Model, system: System, gpus: int, batch: int) -> Scenario:
    """Returns the scenario whose accuracy applies to figures of a library model.

    Args:
        model: the trained model.
        system: the system that runs it.
        gpus: most GPUs.
        batch: samples per step.
    """
    return Scenario.of(model, system, num_procs=gpus, max_batch_size=batch, datatype="bfloat16")


def of_cards(cards: Iterable[ChosenCard], variant: Variant, measured: bool) -> str:
    """Returns the basis of cards' throughputs: measured runs, or a fit and its error.

    Args:
        cards: cards of the jobs.
        variant: of the performance model.
        measured: True if times are measured ones.
    """
    if measured:
        return "Throughputs are measured."
    told, alone = [], list(dict.fromkeys(cards))
    for card in alone:
        name = "" if len(alone) == 1 else f"{card.card.title or card.card.name}: "
        told.append(f"{name}{_describe_error(card, variant)}")
    return f"Throughputs are predicted by each card's fitted performance model. {' '.join(told)}"


def _describe_error(card: ChosenCard, variant: Variant) -> str:
    """Return the error of a card's predictions against its measured runs, as a sentence."""
    try:
        asked = CardAccuracyQuestion(**card.arguments, variant=variant)
        errors = find_accuracy(asked)["error_pct"].dropna().abs() if card.measured is not None else pd.Series()
    except PlanError:
        errors = pd.Series()
    if not len(errors):
        return "No measured run shows their error."
    mean, most = (percent(float(each) / 100) for each in (errors.mean(), errors.max()))
    return f"Error against {counted(len(errors), 'measured run')}: {mean} on average, at most {most}."


def of_models(jobs: Iterable[tuple[Model, int]], system: System, gpus: int) -> str:
    """Returns the basis of throughputs of library models on a system; models with the same basis share a sentence.

    Args:
        jobs: models with their batches.
        system: the system that runs them.
        gpus: most GPUs.
    """
    said: dict[str, list[str]] = {}
    for model, batch in jobs:
        words = basis(scenario_on(model, system, gpus, batch), None, ranges=True)
        said.setdefault(words, []).append(model.title or model.name)
    if len(said) == 1:
        return next(iter(said))
    return " ".join(f"{', '.join(dict.fromkeys(names))}: {words}" for words, names in said.items())

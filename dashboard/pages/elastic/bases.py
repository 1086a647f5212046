"""What figures of the Elastic page rest on, said once on each part of it."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from dashboard.compat.caches import remembered
from dashboard.pages.elastic.cards import Chosen
from dashboard.queries.accuracy import basis
from dashboard.words.numbers import counted, percent
from engine import Scenario
from engine.planners.contract import PlanError
from engine.planners.elastic.accuracy import against_measured
from hardware import System
from models import Model

__all__ = ["against", "of_cards", "of_models", "scenario_on"]


def scenario_on(model: Model, system: System, gpus: int, batch: int) -> Scenario:
    """Returns the scenario that says what figures of a library model rest on.

    Args:
        model: what is trained.
        system: where.
        gpus: at most.
        batch: samples of a step.
    """
    return Scenario.of(model, system, num_procs=gpus, max_batch_size=batch, datatype="bfloat16")


@remembered(32)
def against(chosen: Chosen, variant: str, runs: str) -> pd.DataFrame:
    """Returns what a variant of the performance model predicts of a card's measured runs.

    Args:
        chosen: the card.
        variant: of the performance model.
        runs: "all", "one" for those on one node, "3d" for those with degrees.

    Raises `engine.planners.contract.PlanError`.
    """
    return against_measured(
        chosen.card, chosen.measured, variant=variant, families=("3D",) if runs == "3d" else ("DP", "3D"),
        most_nodes=1 if runs == "one" else None,
    )  # fmt: skip


def of_cards(cards: Iterable[Chosen], variant: str, measured: bool) -> str:
    """Returns what throughputs of cards rest on: measured runs, or a fit and how far it is from them.

    Args:
        cards: of the jobs.
        variant: of the performance model.
        measured: whether times are the measured ones.
    """
    if measured:
        return "Throughputs are measured."
    told, alone = [], list(dict.fromkeys(cards))
    for card in alone:
        name = "" if len(alone) == 1 else f"{card.card.title or card.card.name}: "
        told.append(f"{name}{_error(card, variant)}")
    return f"Throughputs are predicted by each card's fitted performance model. {' '.join(told)}"


def _error(card: Chosen, variant: str) -> str:
    """How far predictions of a card are from what was measured of it, as a sentence."""
    try:
        errors = against(card, variant, "all")["error_pct"].dropna().abs() if card.measured is not None else pd.Series()
    except PlanError:
        errors = pd.Series()
    if not len(errors):
        return "Nothing was measured that says how far they may be off."
    mean, most = (percent(float(each) / 100) for each in (errors.mean(), errors.max()))
    return f"Of {counted(len(errors), 'measured run')} they are {mean} off in the mean, {most} at most."


def of_models(jobs: Iterable[tuple[Model, int]], system: System, gpus: int) -> str:
    """Returns what throughputs of library models on a system rest on, each basis once.

    Args:
        jobs: models with their batches.
        system: where they run.
        gpus: at most.
    """
    said: dict[str, list[str]] = {}
    for model, batch in jobs:
        words = basis(scenario_on(model, system, gpus, batch), None, ranges=True)
        said.setdefault(words, []).append(model.title or model.name)
    if len(said) == 1:
        return next(iter(said))
    return " ".join(f"{', '.join(dict.fromkeys(names))}: {words}" for words, names in said.items())

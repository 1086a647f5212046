"""Verbs about model cards of elastic plans: the best plan under limits, curves, phases.

A card says of a model how long its parts take; `plan_elastic` needs none, for models of the library.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from pydantic import Field

import engine.reproductions  # noqa: F401 - adds the policies of papers to those of replays
from engine.planners import elastic
from engine.planners.elastic import ElasticPlan, Measurements, ModelCard, Timeline
from engine.planners.elastic.cards import sent_card
from engine.planners.elastic.measured import measurements_of
from engine.planners.elastic.over_time import FIGURE_7
from engine.planners.elastic.strategies import STATIC
from engine.questions.bounds import Context
from engine.questions.documents.elastic import (
    CardQuestion,
    CardsQuestion,
    CurveQuestion,
    PhasesQuestion,
    ResourceLimit,
)
from engine.questions.plain import plain, table_rows
from engine.questions.verb import Document, QuestionError, Row, Verb
from models.documents import did_you_mean, shown

__all__ = [
    "CARD_CURVE",
    "CARD_PHASES",
    "LIST_CARDS",
    "PLAN_CARD",
    "find_card",
    "find_measurements",
    "find_plan",
    "list_plans",
    "plan_curve",
    "plan_timeline",
]


class CardRow(Document):
    """A model card of the library."""

    name: str
    title: str
    global_batch: int = Field(description="Samples of an iteration.")
    parameters: float = Field(description="Of the model.")
    measured: bool = Field(description="Whether a trace of measurements comes with it.")
    physical: bool = Field(description="Whether it names a model of the library, which the variant physical needs.")


class CardsAnswer(Document):
    """Model cards of the library."""

    cards: list[CardRow]


class LimitAnswer(Document):
    """The best plan under one limit."""

    placement: str
    cpu_threads: int
    bandwidth: float
    plan: str = Field(description="Digits are pipeline, tensor, data degrees; empty where nothing runs.")
    throughput: float | None = Field(description="Predicted [samples/s].")
    iteration_s: float | None
    measured_s: float | None = Field(description="What was measured of the same plan there; null where nothing was.")
    plans: list[Row] = Field(description="Plans with the parts of their iterations, and why each is not the answer.")
    rejected: int = Field(description="How many plans cannot run there.")


class CardAnswer(Document):
    """The best plan under each limit."""

    card: str
    limits: list[LimitAnswer]


class CurveAnswer(Document):
    """Best throughput against one resource."""

    card: str
    points: list[Row] = Field(
        description="raw_best and raw_plan at exactly the limit, stored_best with up to as much, gain of each unit "
        "[samples/s]."
    )


class PhasesAnswer(Document):
    """Throughput over phases."""

    card: str
    basis: str
    phases: list[Row] = Field(description="Every strategy in every phase: plan, iteration, throughput [samples/s].")
    means: list[Row] = Field(description="Mean throughput of each strategy, and the planner's gain over it.")


def find_card(given: str | Mapping[str, Any]) -> ModelCard:
    """Return the card of a name or a document; a name is never opened as a path.

    Args:
        given: name of the library, or a document.

    Raises `QuestionError` for an unknown name, `engine.planners.contract.PlanError` for an invalid document.
    """
    if not isinstance(given, str):
        return sent_card(given)
    known = elastic.card_names()
    if given not in known:
        raise QuestionError(
            f"There is no model card {shown(given)}{did_you_mean(given, known)}; there are {', '.join(known)}."
        )
    return elastic.load_card(given)


def find_measurements(card: ModelCard, trace: str | None) -> Measurements | None:
    """Return the measurements of a question.

    Args:
        card: of the question.
        trace: text of a CSV, or the name of a trace of the library; None for the trace of the card's name.

    Raises `engine.planners.contract.PlanError` naming row and field.
    """
    if trace is None or trace in elastic.measurement_names():
        return measurements_of(card.name, trace)
    # A line end makes it text: never the path of a file.
    return elastic.read_measurements(f"{trace.rstrip()}\n", name=card.name)


def _limit_arguments(asked: CardQuestion, limit: ResourceLimit) -> dict[str, Any]:
    """Return a limit and the question's choices as keywords of `engine.planners.elastic.plans_table`."""
    return {
        "placement": limit.placement,
        "cpu_threads": asked.cpu_threads if limit.cpu_threads is None else limit.cpu_threads,
        "bandwidth": asked.bandwidth if limit.bandwidth is None else limit.bandwidth,
        "variant": asked.variant,
        "restricted": False if asked.every_plan else None,
    }


def list_plans(asked: CardQuestion, limit: ResourceLimit) -> pd.DataFrame:
    """Return every plan of a card under one limit, the best first; see `engine.planners.elastic.plans_table`.

    Args:
        asked: the question.
        limit: one of its limits.

    Raises `QuestionError`, `engine.planners.contract.PlanError`.
    """
    return elastic.plans_table(find_card(asked.card), **_limit_arguments(asked, limit))


def find_plan(asked: CardQuestion, limit: ResourceLimit) -> ElasticPlan:
    """Return the best plan of a card under one limit.

    Args:
        asked: the question.
        limit: one of its limits.

    Raises `QuestionError`, and `engine.planners.contract.PlanError`, also if no plan runs there.
    """
    return elastic.best_plan(find_card(asked.card), **_limit_arguments(asked, limit))


def plan_curve(asked: CurveQuestion) -> pd.DataFrame:
    """Return the best throughput of a card against one resource; see `engine.planners.elastic.curve`.

    Args:
        asked: the question.

    Raises `QuestionError`, `engine.planners.contract.PlanError`.
    """
    return elastic.curve(
        find_card(asked.card),
        over=asked.over,
        values=None if asked.values is None else [int(each) if each.is_integer() else each for each in asked.values],
        placement=asked.placement,
        gpus=asked.gpus,
        gpus_per_node=asked.gpus_per_node,
        cpu_threads=asked.cpu_threads,
        bandwidth=asked.bandwidth,
        variant=asked.variant,
        restricted=False if asked.every_plan else None,
    )


def plan_timeline(asked: PhasesQuestion) -> Timeline:
    """Return the throughput of a card over phases, under the planner and under static strategies.

    Args:
        asked: the question.

    Raises `QuestionError`, `engine.planners.contract.PlanError`.
    """
    card = find_card(asked.card)
    return elastic.timeline(
        card,
        FIGURE_7 if asked.phases is None else [each.model_dump() for each in asked.phases],
        strategies=tuple(STATIC) if asked.strategies is None else asked.strategies,
        measured=find_measurements(card, asked.measurements),
        basis=asked.basis,
        pause_s=asked.pause_s,
        variant=asked.variant,
        restricted=False if asked.every_plan else None,
    )


def _answer_list(asked: CardsQuestion, context: Context) -> dict[str, Any]:
    traces = set(elastic.measurement_names())
    cards = [elastic.load_card(name) for name in elastic.card_names()]
    return {
        "cards": [
            {
                "name": each.name,
                "title": each.title,
                "global_batch": each.global_batch,
                "parameters": each.parameters_mi * 2**20,
                "measured": each.name in traces,
                "physical": each.library_model is not None,
            }
            for each in cards
        ]
    }


def _answer_plan(asked: CardQuestion, context: Context) -> dict[str, Any]:
    card = find_card(asked.card)
    measured = find_measurements(card, asked.measurements)
    found = []
    for number, limit in enumerate(asked.limits):
        context.tell(number / len(asked.limits), f"Plans on {limit.placement[:40]}")
        table, resources = list_plans(asked, limit), _limit_arguments(asked, limit)
        runs = len(table) > 0 and bool(table["feasible"].iloc[0])
        best = table.iloc[0] if runs else None
        seconds = None
        if best is not None and measured is not None:
            seconds = plain(measured.iteration_s(str(best["plan"]), limit.placement, resources["cpu_threads"]))
        found.append(
            {
                "placement": limit.placement,
                "cpu_threads": resources["cpu_threads"],
                "bandwidth": resources["bandwidth"],
                "plan": "" if best is None else str(best["plan"]),
                "throughput": None if best is None else float(best["throughput"]),
                "iteration_s": None if best is None else float(best["iteration_ms"]) / 1e3,
                "measured_s": seconds,
                "plans": table_rows(table.head(asked.top)),
                "rejected": int((~table["feasible"]).sum()) if len(table) else 0,
            }
        )
    return {"card": card.name, "limits": found}


def _answer_curve(asked: CurveQuestion, context: Context) -> dict[str, Any]:
    return {"card": find_card(asked.card).name, "points": table_rows(plan_curve(asked))}


def _answer_phases(asked: PhasesQuestion, context: Context) -> dict[str, Any]:
    found = plan_timeline(asked)
    return {
        "card": find_card(asked.card).name,
        "basis": found.basis,
        "phases": table_rows(found.table),
        "means": table_rows(found.summary()),
    }


LIST_CARDS = Verb(
    "list_cards",
    "List model cards",
    "Lists the model cards of elastic plans that come with it.",
    CardsQuestion,
    CardsAnswer,
    _answer_list,
)
PLAN_CARD = Verb(
    "plan_card",
    "Plan a model card",
    "Finds the best plan of a model card under each limit of GPUs, CPU threads and bandwidth (Rubick), with runners-up "
    "and why every other plan is rejected.",
    CardQuestion,
    CardAnswer,
    _answer_plan,
)
CARD_CURVE = Verb(
    "card_curve",
    "Sensitivity of a model card",
    "Gives the best throughput of a model card against GPUs, CPU threads or bandwidth, and what each unit brings.",
    CurveQuestion,
    CurveAnswer,
    _answer_curve,
)
CARD_PHASES = Verb(
    "card_phases",
    "A job through phases",
    "Takes a model card through phases of changing resources, under the planner and under static strategies.",
    PhasesQuestion,
    PhasesAnswer,
    _answer_phases,
)

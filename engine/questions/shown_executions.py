"""Execution whose figures an answer shows, with its fit into memory, its error and its unmeasured parts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from pydantic import Field

from engine.executions.arrays import Ints
from engine.exploration.proven_optimum import Optimum, best_of
from engine.questions.documents.explorations import FiguresQuestion
from engine.questions.plain import rows_of
from engine.questions.recommendations import find_recommendation
from engine.questions.verb import Document, Row
from engine.recommendation import ProvenBest, Recommendation, with_fit
from engine.recommendation.shown import FiguresOf, ShownExecution, choose_shown
from engine.scenarios.scenario import Scenario

__all__ = [
    "ShownAnswer",
    "StepInterval",
    "evaluated_row",
    "find_shown",
    "prediction_confidence",
    "show_beside_fastest",
    "shown_document",
    "simplest_best",
]


class StepInterval(Document):
    """Error interval of the step time of an execution."""

    low: float = Field(description="[s]")
    high: float = Field(description="[s]")
    share: float = Field(description="Share of comparable measured runs between them.")
    rows: int = Field(description="How many runs those are.")
    sources: int = Field(description="From how many sources.")
    runs: str = Field(description="Which runs, in words.")
    held_of_sources_left_out: float | None = Field(
        description="Share of runs inside where their source had no part in the interval, every source counted once."
    )
    few_sources: bool = Field(description="Whether they are too few sources to speak for another.")


class ShownAnswer(Document):
    """Execution whose figures are shown."""

    figures_of: FiguresOf = Field(
        description="Role of the execution: fastest also where the recommended one was asked for and there is none."
    )
    remark: str = Field(description="Reason for showing another execution than the one asked for; empty otherwise.")
    execution: Row = Field(description="Id, fields, outcome, fit into memory where its error is known, statistics.")
    step_time_interval: StepInterval | None = Field(description="Null where no measured runs tell.")
    not_measured: list[str] = Field(description="Properties of the execution that no measured run had.")


def prediction_confidence(scenario: Scenario, execution: Mapping[Any, Any] | None) -> dict[str, Any]:
    """Return the error interval of an execution's step, and its parts that no measured run had.

    Args:
        scenario: scenario of the execution.
        execution: fields and statistics by name, or None.
    """
    from engine.validation.uncertainty import interval_of

    if execution is None:
        return {"step_time_interval": None, "not_measured": []}
    found = interval_of(scenario, execution)
    told = None
    if found is not None:
        step = float(execution["total_time"])
        told = {
            "low": step * found.low,
            "high": step * found.high,
            "share": found.share,
            "held_of_sources_left_out": found.held if math.isfinite(found.held) else None,
            "rows": found.rows,
            "sources": found.sources,
            "runs": found.described,
            "few_sources": found.is_weak,
        }
    return {"step_time_interval": told, "not_measured": list(scenario.not_measured(execution))}


def evaluated_row(scenario: Scenario, execution: int) -> pd.DataFrame:
    """Return an execution with all statistics and its fit [1 row].

    Args:
        scenario: scenario of the execution.
        execution: id.
    """
    table = scenario.evaluate(scenario.space.table([execution]))
    table.insert(0, "id", [execution])
    return with_fit(scenario, table)


def find_shown(
    scenario: Scenario,
    asked: FiguresQuestion,
    *,
    advice: Recommendation | None = None,
    optimum: Optimum | None = None,
) -> ShownExecution | None:
    """Return the execution whose figures are shown, evaluated, with its fit; None if nothing runs.

    Args:
        scenario: the scenario to search.
        asked: the choice, and the terms of the recommendation.
        advice: the recommendation on these terms, if it is known.
        optimum: the proven best executions, if they are known.
    """
    if asked.figures_of == "recommended":
        if advice is None:
            known = None if optimum is None else ProvenBest.of(optimum)
            advice = find_recommendation(scenario, asked, contenders=0, best=known)
        own = advice.execution
        if own is not None:
            return choose_shown(asked.figures_of, _first_row(evaluated_row(scenario, int(own["id"]))), None)
    best = simplest_best(scenario, (optimum if optimum is not None else best_of(scenario)).tied)
    return choose_shown(asked.figures_of, None, _first_row(best) if len(best) else None)


def show_beside_fastest(
    scenario: Scenario, fastest: Mapping[str, Any], asked: FiguresQuestion
) -> ShownExecution | None:
    """Return the execution whose figures are shown, with its fit, where the fastest is known.

    Args:
        scenario: scenario of the executions.
        fastest: the proven best: id, fields and statistics.
        asked: the choice, and the terms of the recommendation.
    """
    recommended = None
    if asked.figures_of == "recommended":
        best = ProvenBest(float(fastest["sample_rate"]), np.array([fastest["id"]], np.int64), fastest)
        own = find_recommendation(scenario, asked, contenders=0, best=best).execution
        recommended = None if own is None else _first_row(evaluated_row(scenario, int(own["id"])))
    return choose_shown(asked.figures_of, recommended, _first_row(with_fit(scenario, pd.DataFrame([dict(fastest)]))))


def simplest_best(scenario: Scenario, tied: Ints) -> pd.DataFrame:
    """Return the fastest execution, of equal ones the simplest, as pages show it [1 row]; empty if nothing runs.

    Args:
        scenario: scenario of the executions.
        tied: ids of the fastest, which are equally fast.
    """
    if len(tied) < 2:
        return evaluated_row(scenario, int(tied[0])) if len(tied) else pd.DataFrame()
    from engine.executions.tie_order import plainest_of  # pyarrow is loaded only where executions tie

    fields = scenario.space.table(tied)
    fields.insert(0, "id", tied)
    return evaluated_row(scenario, plainest_of(fields))


def shown_document(
    scenario: Scenario, found: ShownExecution | None, statistics: Sequence[str] | None = None
) -> dict[str, Any] | None:
    """Return the execution whose figures are shown as JSON has it; None if nothing runs.

    Args:
        scenario: scenario of the execution.
        found: the execution.
        statistics: names of statistics; all columns if None.
    """
    if found is None:
        return None
    row = dict(found.execution)
    if statistics is not None:
        row = rows_of(pd.DataFrame([row]), scenario.cost_model, statistics)[0]
    return {
        "figures_of": found.figures_of,
        "remark": found.remark,
        "execution": row,
        **prediction_confidence(scenario, found.execution),
    }


def _first_row(table: pd.DataFrame) -> dict[str, Any]:
    return {str(name): value for name, value in table.iloc[0].to_dict().items()}

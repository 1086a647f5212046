"""Verbs about whole spaces: every execution of a scenario, and the proven best."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pandas as pd
from pydantic import Field

from engine.columns import headline_of
from engine.exploration.proven_optimum import Optimum, best_of
from engine.exploration.reductions import PRIMARY
from engine.exploration.result import Exploration
from engine.exploration.run import explore_scenario
from engine.questions.bounds import Context
from engine.questions.documents.explorations import BestQuestion, ExploreQuestion
from engine.questions.framework_costs import FrameworkCostRow, framework_cost_of, searchable_scenario
from engine.questions.plain import chosen_statistics, plain, rows_of, units_of
from engine.questions.scenario_documents import ScenarioSummary, summary_of
from engine.questions.verb import Document, QuestionError, Row, Verb
from engine.recommendation import FIT_NEEDS, fit_bounds_of, with_fit
from engine.scenarios.scenario import Scenario
from models.documents import did_you_mean, shown

__all__ = [
    "BEST",
    "EXPLORE",
    "best_document",
    "best_table",
    "cell_rows",
    "check_headline",
    "exploration_document",
    "prediction_confidence",
]


_TOP: Final = (
    "The best executions, best first: id, fields, outcome, fit into memory where its error is known (fits, may not "
    "fit, may fit), statistics."
)


class StepInterval(Document):
    """Error interval of the step time of the best execution."""

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


class BestAnswer(ScenarioSummary):
    """The best executions, proven."""

    total: int = Field(description="Executions of the space.")
    feasible: int = Field(description="How many of them run.")
    evaluated: int = Field(description="How many had to be evaluated; the others are proven to be no better.")
    step_time_interval: StepInterval | None = Field(description="Of the best; null where no measured runs tell.")
    not_measured: list[str] = Field(description="What no measured run had of what the best rests on.")
    framework_cost: FrameworkCostRow | None = Field(description=FrameworkCostRow.summary)
    top: list[Row] = Field(description=_TOP)
    units: dict[str, str] = Field(description="Units of the statistics by name.")
    seconds: float = Field(description="What finding out took [s].")


class CellRow(Document):
    """The executions that share a pair of tensor and pipeline parallel degrees."""

    tensor_par: int
    pipeline_par: int
    total: int = Field(description="Executions that share the pair.")
    feasible: int = Field(description="How many of them run.")
    value: float | None = Field(description="Best of them by the figure that was asked for; null where none runs.")
    id: int = Field(description="Which execution that is; -1 where none runs.")
    fit: str | None = Field(
        description="Whether that fits into memory; null where none runs or its error is not known."
    )
    reason: str = Field(description="Where none runs: code of what is nearest to being overcome.")
    reason_text: str = Field(description="The same as a sentence.")


class ExploreAnswer(ScenarioSummary):
    """Contents of a space."""

    total: int = Field(description="Executions of the space.")
    feasible: int = Field(description="How many of them run.")
    may_fit: int = Field(
        description="How many of those exceed a capacity, within the limit memory_excess; 0 without that limit."
    )
    infeasible_by_reason: dict[str, int] = Field(description="Why the others do not: how many by code of the reason.")
    reasons: dict[str, str] = Field(description="What the codes mean.")
    step_time_interval: StepInterval | None = Field(description="Of the fastest; null where no measured runs tell.")
    not_measured: list[str] = Field(description="What no measured run had of what the fastest rests on.")
    framework_cost: FrameworkCostRow | None = Field(description=FrameworkCostRow.summary)
    top: list[Row] = Field(description=_TOP)
    cells: list[CellRow] | None = Field(
        description="Best of each pair of tensor and pipeline degrees, and why a pair has none; null unless asked for."
    )
    units: dict[str, str] = Field(description="Units of the statistics by name.")
    seconds: float = Field(description="What finding out took [s].")


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


def best_document(found: Optimum, table: pd.DataFrame) -> dict[str, Any]:
    """Return the result of a search for the best executions, without the rows.

    Args:
        found: result of the search.
        table: its best executions, evaluated [rows].
    """
    return {
        **summary_of(found.scenario),
        "total": found.total,
        "feasible": found.feasible,
        "evaluated": found.evaluated,
        "framework_cost": framework_cost_of(found.scenario),
        **prediction_confidence(found.scenario, table.iloc[0].to_dict() if len(table) else None),
    }


def exploration_document(found: Exploration) -> dict[str, Any]:
    """Returns what an exploration found, without rows.

    Args:
        found: the exploration.
    """
    return {
        **summary_of(found.scenario),
        "total": found.total,
        "feasible": found.feasible,
        "may_fit": found.may_fit,
        "infeasible_by_reason": found.infeasible_by_reason,
        "framework_cost": framework_cost_of(found.scenario),
        **prediction_confidence(found.scenario, found.best),
    }


def best_table(found: Optimum) -> pd.DataFrame:
    """Returns the best executions of a search, evaluated: `id`, fields, outcome, statistics.

    Args:
        found: the search.
    """
    ids = found.top["id"].to_numpy()
    table = found.scenario.evaluate(found.scenario.space.table(ids))
    table.insert(0, "id", ids)
    return with_fit(found.scenario, table)


def check_headline(scenario: Scenario, by: str) -> None:
    """Raise `QuestionError` if a figure is no headline figure of the scenario's cost model.

    Args:
        scenario: of the exploration.
        by: name of the figure.
    """
    headline = [column.name for column in headline_of(scenario.cost_model)]
    if by not in headline:
        raise QuestionError(f"by is {shown(by)}{did_you_mean(by, headline)}; it is one of {', '.join(headline)}.")


def cell_rows(found: Exploration, by: str) -> Any:
    """Return the best execution of every pair of tensor and pipeline degrees, or why it has none, as JSON has them.

    Args:
        found: the exploration.
        by: headline figure that they are best by.
    """
    table, bounds = found.by_pair(by).assign(fit=None), fit_bounds_of(found.scenario)
    runs = np.flatnonzero((table["feasible"] > 0).to_numpy())
    if bounds is not None and len(runs):
        needs = found.evaluate_ids(table["id"].to_numpy()[runs])
        fits = np.full(len(table), None, object)
        fits[runs] = bounds.find_fits(*(needs[name] for name in FIT_NEEDS))
        table["fit"] = fits
    return plain(table[list(CellRow.model_fields)].to_dict("records"))


def _answer_best(asked: BestQuestion, context: Context) -> dict[str, Any]:
    start = time.perf_counter()
    scenario = context.bounds.searchable(searchable_scenario(asked.scenario))
    statistics = chosen_statistics(scenario.cost_model, asked.statistics)
    found = best_of(scenario, k=context.bounds.listable(asked.top), progress=context.progress, cancel=context.stops)
    table = best_table(found)
    return {
        **best_document(found, table),
        "top": rows_of(table, scenario.cost_model, statistics),
        "units": units_of(statistics),
        "seconds": time.perf_counter() - start,
    }


def _answer_explore(asked: ExploreQuestion, context: Context) -> dict[str, Any]:
    from engine.executions.reasons import BY_CODE

    start = time.perf_counter()
    scenario = context.bounds.searchable(searchable_scenario(asked.scenario))
    statistics = chosen_statistics(scenario.cost_model, asked.statistics)
    check_headline(scenario, asked.by)
    found = explore_scenario(scenario, progress=context.progress, cancel=context.stops, workers=1)
    table = _top_executions(found, context.bounds.listable(asked.top), asked.by, context)
    return {
        **exploration_document(found),
        "reasons": {code: BY_CODE[code].label for code in found.infeasible_by_reason},
        "top": [] if table is None else rows_of(table, scenario.cost_model, statistics),
        "cells": cell_rows(found, asked.by) if asked.cells else None,
        "units": units_of(statistics),
        "seconds": time.perf_counter() - start,
    }


def _top_executions(found: Exploration, top: int, by: str, context: Context) -> pd.DataFrame | None:
    """The best executions; those by throughput are found by bounds, so that no rows are kept."""
    if not top or not found.feasible:
        return None
    if by == PRIMARY:
        return best_table(best_of(found.scenario, k=top, cancel=context.stops))
    if found.feasible > context.bounds.rows_kept:
        raise QuestionError(
            f"{found.feasible:,} executions run; up to {context.bounds.rows_kept:,} can be sorted by {by}. "
            f"Limit some fields, or ask by {PRIMARY}."
        )
    return with_fit(found.scenario, found.top(top, by))


BEST = Verb(
    "best",
    "Best executions",
    "Finds the executions with the highest throughput of a model on a system, proven, without evaluating all.",
    BestQuestion,
    BestAnswer,
    _answer_best,
)
EXPLORE = Verb(
    "explore",
    "Explore a space",
    "Evaluates every execution of a model on a system: how many run, why others do not, the best by a headline figure.",
    ExploreQuestion,
    ExploreAnswer,
    _answer_explore,
)

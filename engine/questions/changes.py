"""Verbs about other hardware: one change with the space optimised again, and the value of each part."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from functools import lru_cache
from typing import Any, Final

import pandas as pd
from pydantic import Field

import models
from engine.columns.percentages import format_percent
from engine.exploration.result import first_row
from engine.exploration.run import ExplorationCancelled
from engine.questions.bounds import Context
from engine.questions.documents.changes import HardwareSensitivityQuestion, ParametersQuestion, WhatIfQuestion
from engine.questions.documents.explorations import FiguresQuestion, RecommendationTermsQuestion
from engine.questions.plain import chosen_statistics, plain, rows_of, units_of
from engine.questions.scenario_documents import ScenarioDocument, ScenarioSummary, scenario_of, summary_of
from engine.questions.shown_executions import ShownAnswer, shown_document
from engine.questions.verb import Document, QuestionError, Row, Verb
from engine.recommendation import (
    FiguresOf,
    RecommendationLimits,
    ShownChange,
    ShownExecution,
    reoptimise_shown,
    with_fit,
)
from engine.recommendation.change_tables import change_table
from engine.scenarios.scenario import Scenario
from engine.whatif import Choice, Parameter, changed, parameters, parse_amounts, reoptimise, sensitivity
from engine.whatif.search import first_enumerated
from models.documents import did_you_mean
from models.documents import shown as shown_text

__all__ = [
    "LIST_PARAMETERS",
    "SENSITIVITY",
    "WHAT_IF",
    "change_question",
    "explain_less_from_more",
    "find_change",
    "recommendation_limits",
]

SCENARIOS_READ: Final = 16
"""Scenarios that need not be read again for the next change: users change one many times."""


class ParameterRow(Document):
    """A number of a scenario that can be another."""

    name: str
    label: str
    unit: str
    value: float = Field(description="Value in the scenario, in the unit.")
    lowest: float
    highest: float
    description: str
    whole: bool = Field(description="Whether only whole numbers are values.")
    can_be_off: bool = Field(description="Whether 0 is a value, and means that there is none.")


class ParametersAnswer(ScenarioSummary):
    """Parameters of a scenario that can be changed."""

    parameters: list[ParameterRow]


class ChangeTableRow(Document):
    """Effect of one change, or of all together, for one model on one number of processors."""

    model: str
    num_procs: int
    parameters: list[str] = Field(description="What changes.")
    label: str = Field(description="The change in words.")
    before: float | None = Field(description="Throughput before [samples/s]; null where nothing runs.")
    after: float | None = Field(description="Throughput after [samples/s].")
    gain: float | None = Field(description="Relative gain [fraction].")
    kept_gain: float | None = Field(description="The same for the execution before, kept as it is.")
    fastest_gain: float | None = Field(description="The same for the fastest executions.")
    execution: str = Field(description="Name of the execution after the change.")
    figures_of: FiguresOf
    remark: str = Field(description="Reason for an execution of another role than the one asked for.")
    problem: str = Field(description="Why there is no such scenario, or nothing runs.")


class WhatIfAnswer(ScenarioSummary):
    """The execution after a change, beside the one before, and that one kept as it is."""

    changes: dict[str, float] = Field(description="New values, in the parameters' units.")
    gain: float | None = Field(description="Gain of the execution after [fraction]; null where nothing compares.")
    kept_gain: float | None = Field(description="The same for the execution before, kept as it is.")
    fastest_gain: float | None = Field(description="The same for the fastest executions.")
    base: Row | None = Field(description="Recommended or fastest before the change, as asked.")
    best: Row | None = Field(description="Recommended or fastest after it, as asked.")
    kept: Row | None = Field(description="The one before, as it runs after the change.")
    explanation: str = Field(description="Why a recommended one is slower although the fastest is not; mostly empty.")
    shown: ShownAnswer | None = Field(description="The execution after the change, with its error.")
    shown_before: ShownAnswer | None = Field(description="The execution before the change.")
    table: list[ChangeTableRow] = Field(description="Each change alone and all together; empty unless asked for.")
    total: int = Field(description="Executions of the changed space.")
    feasible: int
    base_feasible: int = Field(description="How many ran before.")
    units: dict[str, str] = Field(description="Units of the statistics by name.")
    seconds: float


class Gain(Document):
    """Gain from one change."""

    parameter: str
    factor: float
    value: float = Field(description="In the parameter's unit.")
    unit: str
    gain: float | None = Field(description="Of the best executions after and before it [fraction].")
    kept_gain: float | None = Field(description="The same for the old best kept as it is.")
    problem: str = Field(description="Why there is no such scenario; empty where there is one.")


class SensitivityAnswer(ScenarioSummary):
    """Gains of the fastest executions from changes of one parameter at a time, the space searched again for each."""

    sample_rate: float | None = Field(description="Best throughput without a change [samples/s].")
    gains: list[Gain]
    seconds: float


def _parameter_row(which: Parameter) -> dict[str, Any]:
    return {
        "name": which.name,
        "label": which.label,
        "unit": which.unit,
        "value": which.value,
        "lowest": which.lowest,
        "highest": which.highest,
        "description": which.description,
        "whole": which.discrete,
        "can_be_off": which.can_be_off,
    }


def _answer_parameters(asked: ParametersQuestion, context: Context) -> dict[str, Any]:
    scenario = scenario_of(asked.scenario)
    _ = scenario.space  # so that what cannot be is said here, too
    return {**summary_of(scenario), "parameters": [_parameter_row(each) for each in parameters(scenario)]}


def change_question(
    scenario: Scenario, changes: Mapping[str, float], figures: FiguresQuestion | None = None
) -> WhatIfQuestion:
    """Return the question for the effect of changes of a scenario.

    Args:
        scenario: scenario before the changes.
        changes: new values by parameter.
        figures: execution whose figures are shown; the recommended one if None.
    """
    terms = {} if figures is None else {name: getattr(figures, name) for name in FiguresQuestion.model_fields}
    document = ScenarioDocument.model_validate(scenario.to_document())
    return WhatIfQuestion(scenario=document, changes=dict(changes), **terms)


def find_change(asked: WhatIfQuestion, choose: Choice = first_enumerated) -> ShownChange:
    """Return the execution before and after the changes of a question.

    Args:
        asked: the question.
        choose: chooses among executions that tie, before and after.

    Raises the errors of the scenario, and `ValueError` for a change that cannot be.
    """
    scenario = _scenario(asked.scenario.model_dump_json(exclude_unset=True))
    changes = parse_amounts(scenario, asked.changes)
    return reoptimise_shown(scenario, changes, asked.figures_of, recommendation_limits(asked), choose)


def recommendation_limits(terms: RecommendationTermsQuestion) -> RecommendationLimits:
    """Return the terms of a recommendation.

    Args:
        terms: the question that has them.
    """
    return RecommendationLimits(terms.headroom, terms.offload, terms.unmeasured)


def explain_less_from_more(found: ShownChange) -> str:
    """Return why the shown execution is slower although the fastest is not, in a sentence; empty where it is not.

    Args:
        found: effect of a change.
    """
    if not found.has_less_from_more:
        return ""
    return (
        f"The fastest gains {format_percent(found.of_fastest.gain)}; on the changed system another execution is the "
        "simplest within the error."
    )


@lru_cache(maxsize=SCENARIOS_READ)
def _scenario(document: str) -> Scenario:
    return scenario_of(ScenarioDocument.model_validate_json(document))


def _what_if(asked: WhatIfQuestion, context: Context) -> dict[str, Any]:
    scenario = context.bounds.searchable(scenario_of(asked.scenario))
    statistics = chosen_statistics(scenario.cost_model, asked.statistics)
    changes = parse_amounts(scenario, asked.changes)
    after = context.bounds.searchable(changed(scenario, changes))
    found = reoptimise_shown(scenario, changes, asked.figures_of, recommendation_limits(asked))

    def row(execution: Mapping[str, Any] | None) -> dict[str, Any] | None:
        if execution is None:
            return None
        return rows_of(pd.DataFrame([dict(execution)]), scenario.cost_model, statistics)[0]

    def shown(of: Scenario, execution: dict[str, Any] | None, role: FiguresOf, remark: str) -> Any:
        if execution is None:
            return None
        known = first_row(with_fit(of, pd.DataFrame([execution])))
        return plain(shown_document(of, ShownExecution(known, role, remark), statistics))

    return {
        **summary_of(scenario),
        "changes": changes,
        "gain": plain(found.gain),
        "kept_gain": plain(found.kept_gain),
        "fastest_gain": plain(found.of_fastest.gain),
        "base": row(found.base),
        "best": row(found.best),
        "kept": row(found.kept),
        "explanation": explain_less_from_more(found),
        "shown": shown(after, found.best, found.figures_of, found.remark),
        "shown_before": shown(scenario, found.base, found.base_figures_of, found.base_remark),
        "table": _table_rows(scenario, asked, context),
        "total": found.total,
        "feasible": found.feasible,
        "base_feasible": found.base_feasible,
        "units": units_of(statistics),
        "seconds": found.seconds,
    }


def _table_rows(scenario: Scenario, asked: WhatIfQuestion, context: Context) -> list[dict[str, Any]]:
    """Return the rows of the table that a question asks for."""
    if not (asked.each_alone or asked.models or asked.counts):
        return []
    for name in asked.models:
        if name not in models.names():
            hint = did_you_mean(name, models.names()) or "; `shardscape models` lists those of the library"
            raise QuestionError(f"There is no model {shown_text(name)}{hint}.")
    table = change_table(
        scenario,
        asked.changes,
        asked.models,
        asked.counts,
        asked.figures_of,
        recommendation_limits(asked),
        largest=context.bounds.largest_space,
    )
    rows = []
    for number, row in enumerate(table):
        if context.stops():
            raise ExplorationCancelled("The table was stopped.")
        context.tell((number + 1) / len(table), row.label)
        rows.append({name: plain(value) for name, value in asdict(row).items()} | {"parameters": list(row.parameters)})
    return rows


def _answer_sensitivity(asked: HardwareSensitivityQuestion, context: Context) -> dict[str, Any]:
    start = time.perf_counter()
    scenario = context.bounds.searchable(scenario_of(asked.scenario))
    base = reoptimise(scenario, {}).base
    rate = None if base is None else float(base["sample_rate"])
    study = sensitivity(scenario, asked.factors, asked.names, largest=context.bounds.largest_space)
    gains = []
    for number, (which, factor, point) in enumerate(study):
        if context.stops():
            raise ExplorationCancelled("The study was stopped.")
        context.tell(number / len(study), which.label)
        gains.append(
            {
                "parameter": which.name,
                "factor": factor,
                "value": which.value * factor,
                "unit": which.unit,
                "gain": None if rate is None else plain(point.rate / rate - 1),
                "kept_gain": None if rate is None else plain(point.kept / rate - 1),
                "problem": point.problem,
            }
        )
    return {
        **summary_of(scenario),
        "sample_rate": rate,
        "gains": gains,
        "seconds": time.perf_counter() - start,
    }


LIST_PARAMETERS = Verb(
    "list_parameters",
    "List what can be changed",
    "Lists the numbers of a scenario that `what_if` can change, with values, units and bounds.",
    ParametersQuestion,
    ParametersAnswer,
    _answer_parameters,
)
WHAT_IF = Verb(
    "what_if",
    "What if",
    "Changes hardware, model or size of a scenario and searches the whole space anew: the gain, and what becomes best.",
    WhatIfQuestion,
    WhatIfAnswer,
    _what_if,
)
SENSITIVITY = Verb(
    "sensitivity",
    "What each part is worth",
    "Changes each number of the hardware by some factors, one at a time, and says what the best execution gains.",
    HardwareSensitivityQuestion,
    SensitivityAnswer,
    _answer_sensitivity,
)

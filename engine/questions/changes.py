"""Verbs about other hardware: one change with the space optimised again, and the value of each part."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import pandas as pd
from pydantic import Field

from engine.exploration.run import ExplorationCancelled
from engine.questions.bounds import Context
from engine.questions.documents.changes import HardwareSensitivityQuestion, ParametersQuestion, WhatIfQuestion
from engine.questions.plain import chosen_statistics, plain, rows_of, units_of
from engine.questions.scenario_documents import ScenarioDocument, ScenarioSummary, scenario_of, summary_of
from engine.questions.verb import Document, Row, Verb
from engine.scenarios.scenario import Scenario
from engine.whatif import Answer, Choice, Parameter, changed, parameters, reoptimise, sensitivity
from engine.whatif.search import first_enumerated

__all__ = ["LIST_PARAMETERS", "SENSITIVITY", "WHAT_IF", "change_question", "find_change"]

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


class WhatIfAnswer(ScenarioSummary):
    """The best execution after a change, beside the one before, and that one kept as it is."""

    changes: dict[str, float]
    gain: float | None = Field(description="How much faster the new best is [fraction]; null where nothing compares.")
    kept_gain: float | None = Field(description="The same for the old best kept as it is.")
    base: Row | None = Field(description="Best before the change.")
    best: Row | None = Field(description="Best after it.")
    kept: Row | None = Field(description="The best before, as it runs after the change.")
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
    """Gains from changes of one parameter at a time, the space optimised again for each."""

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


def change_question(scenario: Scenario, changes: Mapping[str, float]) -> WhatIfQuestion:
    """Return the question for the effect of changes of a scenario.

    Args:
        scenario: scenario before the changes.
        changes: new values by parameter.
    """
    return WhatIfQuestion(scenario=ScenarioDocument.model_validate(scenario.to_document()), changes=dict(changes))


def find_change(asked: WhatIfQuestion, choose: Choice = first_enumerated) -> Answer:
    """Return the best execution before and after the changes of a question.

    Args:
        asked: the question.
        choose: chooses among executions that tie, before and after.

    Raises the errors of the scenario, and `ValueError` for a change that cannot be.
    """
    scenario = _scenario(asked.scenario.model_dump_json(exclude_unset=True))
    return reoptimise(scenario, _values(asked), choose)


@lru_cache(maxsize=SCENARIOS_READ)
def _scenario(document: str) -> Scenario:
    return scenario_of(ScenarioDocument.model_validate_json(document))


def _values(asked: WhatIfQuestion) -> dict[str, float]:
    return {name: float(value) for name, value in asked.changes.items()}


def _what_if(asked: WhatIfQuestion, context: Context) -> dict[str, Any]:
    scenario = context.bounds.searchable(scenario_of(asked.scenario))
    statistics = chosen_statistics(scenario.cost_model, asked.statistics)
    changes = _values(asked)
    context.bounds.searchable(changed(scenario, changes))
    found = reoptimise(scenario, changes)

    def row(execution: Mapping[str, Any] | None) -> dict[str, Any] | None:
        if execution is None:
            return None
        return rows_of(pd.DataFrame([dict(execution)]), scenario.cost_model, statistics)[0]

    return {
        **summary_of(scenario),
        "changes": changes,
        "gain": plain(found.gain),
        "kept_gain": plain(found.kept_gain),
        "base": row(found.base),
        "best": row(found.best),
        "kept": row(found.kept),
        "total": found.total,
        "feasible": found.feasible,
        "base_feasible": found.base_feasible,
        "units": units_of(statistics),
        "seconds": found.seconds,
    }


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

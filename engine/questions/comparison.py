"""Verb that compares scenarios: their differences, the best execution of each, and gains against the first."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pandas as pd
from pydantic import Field

from engine.columns import ALL_FIELDS
from engine.economics import derived_of
from engine.exploration.proven_optimum import Optimum, best_of
from engine.questions.bounds import Context
from engine.questions.documents.comparison import CompareQuestion
from engine.questions.plain import chosen_statistics, plain, rows_of, units_of
from engine.questions.recommendations import find_recommendation
from engine.questions.scenario_documents import ScenarioSummary, scenario_of, summary_of
from engine.questions.shown_executions import ShownAnswer, evaluated_row, find_shown, shown_document, simplest_best
from engine.questions.verb import Document, Row, Verb
from engine.recommendation import ProvenBest, ShownExecution
from engine.scenarios.differences import scenario_differences
from engine.scenarios.scenario import Scenario

__all__ = ["COMPARE", "ComparedBest", "compare_scenarios", "comparison_document"]

LETTERS: Final = "ABCD"


class ComparedScenario(ScenarioSummary):
    """A scenario of a comparison with its best execution."""

    letter: str
    total: int = Field(description="Executions of the space.")
    feasible: int = Field(description="Executions that run.")
    best: Row | None = Field(description="The fastest execution, of equal ones the simplest; null if nothing runs.")
    shown: ShownAnswer | None = Field(
        description="Execution that is compared, by figures_of: the recommended or the fastest; null if nothing runs."
    )
    figures: dict[str, float] | None = Field(
        description="Figures that follow from the shown throughput: utilisation, and time, cost and energy of tokens."
    )
    gain: float | None = Field(description="Shown throughput against A's, less 1; null if either has none.")
    recommended: Row | None = Field(description="The execution to run; null unless asked for.")


class FieldDifference(Document):
    """A field that is not the same in all."""

    field: str = Field(description="Path of the field, such as num_procs or system.mem1.capacity_gib.")
    values: list[Any] = Field(description="Value in each scenario; null where it has none.")


class CompareAnswer(Document):
    """Scenarios side by side."""

    scenarios: list[ComparedScenario]
    differences: list[FieldDifference] = Field(description="Fields that results depend on and that differ.")
    choices: list[FieldDifference] = Field(description="Fields in which the shown executions differ.")
    units: dict[str, str] = Field(description="Units of statistics and figures by name.")
    seconds: float


@dataclass(frozen=True, slots=True)
class ComparedBest:
    """A scenario of a comparison, with its proven best execution."""

    letter: str
    scenario: Scenario
    found: Optimum
    table: pd.DataFrame
    """The fastest execution, of equal ones the simplest, evaluated [1 row]; empty if nothing runs."""
    recommended: pd.DataFrame | None
    """The recommended execution, evaluated [1 row]; None unless asked for."""
    shown: ShownExecution | None
    """The execution whose figures are compared; None if nothing runs."""

    @property
    def best(self) -> dict[str, Any] | None:
        """Fields and statistics of the fastest execution; None if nothing runs."""
        return {str(name): value for name, value in self.table.iloc[0].items()} if len(self.table) else None

    @property
    def rate(self) -> float | None:
        """Throughput of the execution whose figures are compared [samples/s]."""
        return None if self.shown is None else float(self.shown.execution["sample_rate"])


def compare_scenarios(asked: CompareQuestion, context: Context | None = None) -> list[ComparedBest]:
    """Return the scenarios of a question with their best executions.

    Args:
        asked: the question.
        context: bounds, progress and cancellation; the usual ones if None.

    Raises `engine.questions.QuestionError`, `engine.ExplorationCancelled`, and the errors of the scenarios.
    """
    context = context or Context()
    scenarios = [
        context.bounds.searchable(scenario_of(each, f"scenario {letter}"))
        for letter, each in zip(LETTERS, asked.scenarios, strict=False)
    ]
    found = []
    for number, (letter, scenario) in enumerate(zip(LETTERS, scenarios, strict=False)):
        part = replace(context, tell=_part_of_progress(context, number, len(scenarios)))
        optimum = best_of(scenario, k=1, progress=part.progress, cancel=part.stops)
        advice = None
        if asked.recommend or asked.figures_of == "recommended":
            advice = find_recommendation(scenario, asked, contenders=0, best=ProvenBest.of(optimum))
        own = None if advice is None or not asked.recommend else advice.execution
        recommended = None if own is None else evaluated_row(scenario, int(own["id"]))
        shown = find_shown(scenario, asked, advice=advice, optimum=optimum)
        found.append(ComparedBest(letter, scenario, optimum, simplest_best(scenario, optimum.tied), recommended, shown))
    return found


def _part_of_progress(context: Context, number: int, count: int) -> Any:
    def tell(share: float, doing: str) -> None:
        context.tell((number + share) / count, f"scenario {LETTERS[number]}: {doing}")

    return tell


def comparison_document(asked: CompareQuestion, found: Sequence[ComparedBest]) -> dict[str, Any]:
    """Return a comparison as JSON has it, without the time that it took.

    Args:
        asked: the question.
        found: its scenarios.
    """
    statistics = [chosen_statistics(each.scenario.cost_model, asked.statistics) for each in found]
    first = found[0].rate
    scenarios = [
        {
            **summary_of(each.scenario),
            "letter": each.letter,
            "total": each.found.total,
            "feasible": each.found.feasible,
            "best": _first_row(each, each.table, names),
            "shown": plain(shown_document(each.scenario, each.shown, names)),
            "figures": None if each.rate is None else _rate_figures(each.scenario, each.rate),
            "gain": None if each.rate is None or first is None else each.rate / first - 1,
            "recommended": _first_row(each, each.recommended, names),
        }
        for each, names in zip(found, statistics, strict=True)
    ]
    differences = scenario_differences([each.scenario for each in found])
    derived = {name: one.column.unit for each in found for name, one in derived_of(each.scenario).items()}
    every = dict.fromkeys(name for names in statistics for name in names)
    return {
        "scenarios": scenarios,
        "differences": [{"field": path, "values": plain(values)} for path, values in differences],
        "choices": _differing_choices(found),
        "units": {**units_of(every), **{name: unit for name, unit in derived.items() if unit}},
    }


def _first_row(each: ComparedBest, table: pd.DataFrame | None, statistics: Sequence[str]) -> dict[str, Any] | None:
    return None if table is None or not len(table) else rows_of(table, each.scenario.cost_model, statistics)[0]


def _rate_figures(scenario: Scenario, rate: float) -> dict[str, float]:
    return {name: one.of(np.array(rate)).item() for name, one in derived_of(scenario).items()}


def _differing_choices(found: Sequence[ComparedBest]) -> list[dict[str, Any]]:
    choices = []
    running = [each.shown.execution for each in found if each.shown is not None]
    for column in ALL_FIELDS:
        if all(column.name in one for one in running) and len({plain(one[column.name]) for one in running}) > 1:
            values = [None if each.shown is None else plain(each.shown.execution[column.name]) for each in found]
            choices.append({"field": column.name, "values": values})
    return choices


def _answer_compare(asked: CompareQuestion, context: Context) -> dict[str, Any]:
    start = time.perf_counter()
    document = comparison_document(asked, compare_scenarios(asked, context))
    return {**document, "seconds": time.perf_counter() - start}


COMPARE = Verb(
    "compare",
    "Compare scenarios",
    "Compares two to four scenarios: what differs between them, the best execution of each, gains against the first.",
    CompareQuestion,
    CompareAnswer,
    _answer_compare,
)

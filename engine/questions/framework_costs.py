"""Cost of the framework of a scenario, in the answers of questions about spaces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from engine.executions.frameworks.registry import ANY
from engine.launch.framework_choice import find_framework_cost, find_model_refusal
from engine.questions.scenario_documents import ScenarioDocument, scenario_of
from engine.questions.verb import Document, QuestionError
from engine.scenarios.scenario import Scenario

__all__ = ["FrameworkCostRow", "framework_cost_of", "searchable_scenario"]


class FrameworkCostRow(Document):
    """Fastest execution that a framework runs, next to the fastest of all."""

    summary: ClassVar[str] = (
        "What the framework costs against the fastest execution of any framework; null for any framework."
    )

    sentence: str = Field(description="The same in words.")
    sample_rate: float | None = Field(description="Of the fastest that it runs [samples/s]; null where none runs.")
    sample_rate_of_any: float | None = Field(description="Of the fastest of any framework [samples/s].")
    slowdown: float | None = Field(description="Share of the throughput that is lost.")
    obstacles: list[str] = Field(description="What the fastest of any has that the framework does not run.")


def framework_cost_of(scenario: Scenario) -> dict[str, Any] | None:
    """Return what the framework of a scenario costs, as JSON has it; None for any framework.

    Args:
        scenario: the scenario that is searched.
    """
    if scenario.framework == ANY:
        return None
    found = find_framework_cost(scenario, scenario.framework)
    rates = [None if row is None else float(row["sample_rate"]) for row in (found.best, found.fastest)]
    return {
        "sentence": found.sentence,
        "sample_rate": rates[0],
        "sample_rate_of_any": rates[1],
        "slowdown": found.slowdown,
        "obstacles": list(found.obstacles),
    }


def searchable_scenario(document: ScenarioDocument | Mapping[str, Any]) -> Scenario:
    """Return the scenario of a document.

    Args:
        document: parsed JSON.

    Raises what `scenario_of` raises, and `QuestionError` for a framework that does not train the model.
    """
    scenario = scenario_of(document)
    if scenario.framework != ANY:
        refusal = find_model_refusal(scenario.model, scenario.framework, scenario.datatype)
        if refusal:
            raise QuestionError(refusal)
    return scenario

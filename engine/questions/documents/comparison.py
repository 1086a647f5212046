"""Question about several scenarios: what differs between them, and the best execution of each."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from engine.questions.documents.explorations import FiguresQuestion
from engine.questions.fields import Asked
from engine.questions.plain import Statistics
from engine.questions.scenario_documents import ScenarioDocument

__all__ = ["MOST_SCENARIOS", "CompareQuestion"]

MOST_SCENARIOS: Final = 4


class CompareQuestion(FiguresQuestion):
    """Question for the best executions of two to four scenarios, and the differences between the scenarios."""

    scenarios: Annotated[list[ScenarioDocument], Asked("Scenarios", repeats=True)] = Field(
        min_length=2, max_length=MOST_SCENARIOS, description="Scenarios, A first; gains are against A."
    )
    recommend: bool = Field(default=False, description="Also recommend an execution of each scenario.")
    statistics: Statistics = None

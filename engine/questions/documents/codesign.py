"""Question about co-design: which of many machines is the best for a mix of models, under budgets and limits."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from engine.questions.documents.explorations import FiguresQuestion
from engine.questions.fields import Asked
from models.documents import Accepts, Number, Text, Whole

__all__ = ["CodesignQuestion", "DesignsQuestion"]


class DesignsQuestion(FiguresQuestion):
    """Question about the designs of a study whose points are computed; the fastest executions rank them."""

    objectives: Annotated[
        list[Annotated[str, Text(100, shortest=1)]] | None, Asked("Objectives", option="objective", repeats=True)
    ] = Field(
        default=None, min_length=1, max_length=3, description="Two or three for the front; the study's by default."
    )
    budgets: Annotated[
        list[Annotated[float, Number(0, 1e30)]] | None, Asked("Budgets", option="budget", repeats=True)
    ] = Field(default=None, max_length=1_000, description="Budgets; by default all at which the best design changes.")
    of: Annotated[str, Text(200, shortest=1), Asked("Of")] = Field(
        default="mix", description="Answers of the mix, or of a model of the study."
    )
    at: Annotated[
        Literal["low", "middle", "high"],
        Asked("Prices", words={"middle": "Middle prices", "low": "Low prices", "high": "High prices"}),
    ] = Field(default="middle", description="Which end of price ranges to use.")
    sensitivity: Annotated[int, Whole(0, 10**15)] | None = Field(
        default=None, description="Number of a design: also compute its gain per dollar from each part."
    )
    beside: Annotated[
        list[Annotated[int, Whole(0, 10**15)]] | None, Asked("Two designs", option="beside", metavar="N,M")
    ] = Field(
        default=None,
        min_length=2,
        max_length=2,
        description="Two designs next to each other: differences of hardware, price, rate and times of the step.",
    )


class CodesignQuestion(DesignsQuestion):
    """Question for the best designs of a study, whose points are computed first."""

    study: Annotated[str | dict[str, Any], Accepts("the name of a ready study or a whole study document")] = Field(
        description="Study: the name of a ready one, or a whole document as the guide explains it."
    )

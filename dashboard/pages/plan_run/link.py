"""Parameters of the Plan a run page in links besides its question, declared once."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from engine.questions.fields import Asked
from engine.questions.verb import Document
from models.documents import Number, Whole

__all__ = ["PAGE_NAME", "PlanRunLink"]

PAGE_NAME: Final = "plan_run"


class PlanRunLink(Document):
    """Parameters of the page besides its question: the goal in the units of the page, systems and prices."""

    goal: Annotated[
        Literal["deadline", "budget", "both", "gpus", "most"],
        Asked(
            "Goal",
            words={
                "deadline": "Deadline",
                "budget": "Budget",
                "both": "Deadline and budget",
                "gpus": "GPUs",
                "most": "Most tokens",
            },
        ),
    ] = "deadline"
    tokens_bn: Annotated[float, Number(1e-3, 9_999_999), Asked("Tokens, bn", parameter="tokens")] = 1_000.0
    days: Annotated[float, Number(1e-3, 36_500), Asked("Days")] = 30.0
    budget_kusd: Annotated[float, Number(1e-3, 9_999_999), Asked("Budget, thousand USD", parameter="budget")] = 1_000.0
    gpus: Annotated[int, Whole(1, 2**20), Asked("GPUs")] = 512
    systems: Annotated[list[str], Asked("Systems")] = Field(
        default_factory=list, description="GPUs that can be had; prices are under Prices."
    )
    prices: Annotated[str, Asked("Prices")] = Field(
        default="", description="System~terms~lowest~highest~reserved days of each own price, with a semicolon between."
    )

"""Questions about whole spaces: every execution of a scenario, the proven best, and the one to run."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from engine.exploration.reductions import PRIMARY
from engine.questions.fields import Asked
from engine.questions.plain import Statistics
from engine.questions.scenario_documents import ScenarioDocument
from engine.questions.verb import Document
from engine.recommendation.shown import FIGURES_OF, FiguresOf
from models.documents import Number, Whole

__all__ = [
    "BestQuestion",
    "ExploreQuestion",
    "FiguresQuestion",
    "RecommendQuestion",
    "RecommendationTermsQuestion",
    "ScenarioQuestion",
]

MOST_ROWS: Final = 10_000


class ScenarioQuestion(Document):
    """Question about a scenario."""

    scenario: ScenarioDocument


class RecommendationTermsQuestion(Document):
    """Terms for recommending an execution."""

    headroom: Annotated[Annotated[float, Number(0.0, 10.0)] | None, Asked("Memory kept free", metavar="SHARE")] = Field(
        default=None, description="Share of predicted memory that is kept free; the error of measured runs by default."
    )
    offload: Annotated[bool, Asked("Allow offload", option="allow-offload")] = Field(
        default=False, description="The recommended execution may keep data in host memory."
    )
    unmeasured: Annotated[bool, Asked("Allow unmeasured", option="allow-unmeasured")] = Field(
        default=False, description="The recommended execution may rest on something never measured."
    )


class FiguresQuestion(RecommendationTermsQuestion):
    """Execution whose figures an answer shows."""

    figures_of: Annotated[FiguresOf, Asked("Figures of", words=FIGURES_OF)] = Field(
        default="recommended", description="Execution whose figures are shown."
    )


class BestQuestion(FiguresQuestion, ScenarioQuestion):
    """Question for the best executions."""

    top: Annotated[int, Whole(1, MOST_ROWS), Asked("Executions")] = Field(
        default=1, description="Best executions to find; servers answer with up to 100."
    )
    statistics: Statistics = None


class ExploreQuestion(FiguresQuestion, ScenarioQuestion):
    """Question for the figures of all executions of a scenario."""

    top: Annotated[int, Whole(0, MOST_ROWS), Asked("Executions")] = Field(
        default=10, description="Best executions to list; servers answer with up to 100."
    )
    by: Annotated[str, Asked("Best by", metavar="METRIC")] = Field(
        default=PRIMARY,
        description="Headline figure to rank them by, such as sample_rate or proc_mem_tier1_cap_req.",
    )
    statistics: Statistics = None
    cells: bool = Field(
        default=False, description="List the best of every pair of tensor and pipeline parallel degrees."
    )


class RecommendQuestion(RecommendationTermsQuestion, ScenarioQuestion):
    """Question for the execution to run."""

    statistics: Statistics = None

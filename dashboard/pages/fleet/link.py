"""Parameters of the Fleet page in links besides its question, declared once."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from engine.fleet.ready import READY_FLEETS
from engine.questions.fields import Asked
from engine.questions.verb import Document
from models.documents import Whole

__all__ = ["ASKED_FIELDS", "OWN", "OWN_PARAMETER", "PAGE_NAME", "FleetLink"]

PAGE_NAME: Final = "fleet"
OWN_PARAMETER: Final = f"{PAGE_NAME}_own"
OWN: Final = "own"
"""Value of `example` for a fleet of one's own."""
ASKED_FIELDS: Final = ("objective", "figures_of", "why")
"""Fields of a `FleetQuestion` that the page reads besides its document."""


class FleetLink(Document):
    """Parameters of the page besides its question: the fleet."""

    example: Annotated[str, Asked("Fleet")] = next(iter(READY_FLEETS))
    stage: Annotated[int, Whole(1, 64), Asked("Stage")] = Field(
        default=1, description="Stage whose hours are drawn, where jobs wait for others."
    )
    lost: Annotated[str, Asked("Lose a node of")] = Field(
        default="", description="System that loses a node, to see the difference."
    )
    own: Annotated[str, Asked("Own fleet")] = Field(default="", description="A fleet of one's own, folded.")

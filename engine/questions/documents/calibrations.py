"""Question for a calibration: parameters of the cost model fitted to measured runs of one system."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from engine.questions.fields import Asked
from engine.questions.verb import Document, Named
from models.documents import Accepts, Text

__all__ = ["MOST_PARAMETERS", "CalibrationChoices"]

MOST_PARAMETERS: Final = 6
"""Parameters that a fit moves at most; see `engine.calibrate.choice`."""


class CalibrationChoices(Document):
    """Question for a calibration, without the measured runs and the scenario to rank."""

    system: Annotated[Named, Asked("System of the runs")] = Field(
        description="System that the runs were measured on; it has an accelerator of the library."
    )
    parameters: Annotated[list[str] | None, Asked("Parameters to fit")] = Field(
        default=None,
        max_length=MOST_PARAMETERS,
        description="Parameters to fit (1 to 6); the best-determined three to six by default.",
    )
    given: Annotated[dict[str, str], Accepts("an object with texts by field name")] = Field(
        default_factory=dict, description='Fields of all runs that do not give them, such as {"vocab": "128256"}.'
    )
    base: Annotated[Named, Asked("Start from", option="from")] = Field(
        default="global", description="Calibration with the starting values of the fit."
    )
    name: Annotated[str, Text(400)] = Field(
        default="", description="Name of the calibration; made from the system if empty."
    )

"""Question about the accuracy of the calibrated model: predictions for measured runs."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from engine.questions.fields import Asked
from engine.questions.verb import Document
from models.documents import Text

__all__ = ["ValidationQuestion"]


class ValidationQuestion(Document):
    """Question for the errors of predictions for measured training runs."""

    runs: Annotated[str, Text(2_000_000, shortest=1)] | None = Field(
        default=None, description="Text of a CSV with a measured run per row; null for the runs of the package."
    )
    calculon: Annotated[bool, Asked("Calculon's too")] = Field(
        default=False, description="Predict with Calculon's model as well, where it can express the run."
    )
    predictions: bool = Field(default=False, description="Give the prediction of every run.")

"""Parameters of a measured figure in links: its value and its unit."""

from __future__ import annotations

from typing import Annotated, Literal

from engine.questions.fields import Asked
from engine.questions.verb import Document
from models.documents import Number

__all__ = ["MeasuredLink"]


class MeasuredLink(Document):
    """A person's measured figure of an execution."""

    measured: Annotated[Annotated[float, Number(1e-4, 9_999_999)] | None, Asked("Your measurement")] = None
    measured_as: Annotated[
        Literal["step", "tokens", "causal", "full", "memory"],
        Asked(
            "Measured as",
            words={
                "step": "step time, s",
                "tokens": "tokens/s per GPU",
                "causal": "TFLOP/s per GPU, causal",
                "full": "TFLOP/s per GPU, full",
                "memory": "peak memory, GiB",
            },
        ),
    ] = "step"

"""Question for microbenchmarks of the machine that answers: for its command only, never for JSON."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from engine.questions.fields import Asked
from engine.questions.verb import Document, Named
from models.documents import Number, Whole

__all__ = ["MeasurementQuestion"]

Processes = Annotated[int, Whole(1, 64)]


class MeasurementQuestion(Document):
    """Question for a system and a calibration measured on this machine."""

    like: Named | None = Field(default=None, description="System whose values are used for parts without measurements.")
    name: str | None = Field(default=None, description="Name of the system; the device's by default.")
    quick: bool = Field(default=False, description="Fewer, smaller benchmarks: seconds, and less precise.")
    seconds: Annotated[Annotated[float, Number(1, 3_600)] | None, Asked(unit="s")] = Field(
        default=None, description="Time for timing, besides warming up; 120, or 8 with --quick."
    )
    device: Literal["auto", "cuda", "cpu"] = Field(default="auto", description="Device; cuda also for ROCm.")
    ranks: Processes | None = Field(
        default=None, description="Processes for collectives; all accelerators, 2 on a CPU, 1: none."
    )
    threads: Processes | None = Field(default=None, description="Threads that a CPU computes with.")

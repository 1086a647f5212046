"""Question whether the throughput of a training run is normal."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from engine.questions.documents.executions import ExecutionFiguresQuestion
from engine.questions.fields import Asked
from engine.questions.verb import Execution
from models.documents import Number, Whole

__all__ = ["MOST_NEAREST", "NormalQuestion"]

MOST_NEAREST = 50
Positive = Annotated[float, Number(1e-9, 1e18)]


class NormalQuestion(ExecutionFiguresQuestion):
    """Question for the measured runs nearest to an execution, and for the place of a measured figure among them.

    The measured figure is one of step time, tokens per second, and TFLOP/s with `attention`; or none. A measured peak
    of memory may stand next to it, or alone.
    """

    execution: Execution
    nearest: Annotated[int, Whole(1, MOST_NEAREST), Asked("Nearest runs")] = Field(
        default=5, description="Measured runs to list, the nearest first."
    )
    step_time_s: Annotated[Positive | None, Asked("Measured step time", "s")] = Field(
        default=None, description="Time of a step that you measured."
    )
    tokens_per_s: Annotated[Positive | None, Asked("Measured rate", "tokens/s", option="tokens-per-s")] = Field(
        default=None, description="Instead: rate of all GPUs together that you measured."
    )
    tflops: Annotated[Positive | None, Asked("Measured TFLOP/s", "TFLOP/s")] = Field(
        default=None,
        description="Instead: model FLOP/s of one GPU that your program printed; needs attention.",
    )
    peak_memory_gib: Annotated[Positive | None, Asked("Measured memory", "GiB", option="peak-memory-gib")] = Field(
        default=None, description="Peak memory of the fullest GPU that you measured, as the allocator reports it."
    )

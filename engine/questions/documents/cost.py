"""Question about the cost of a training run: time, processors, money and energy, failures included."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from engine.questions.fields import Asked
from engine.questions.scenario_documents import AttentionName
from engine.questions.verb import Document, Execution, Named
from models.documents import Number, Whole

__all__ = ["CostQuestion"]

Positive = Annotated[float, Number(1e-9, 1e18)]
Assumption = Annotated[float, Number(0, 1e30)]
"""A number whose bounds and default `engine.economics.INPUTS` has."""


class CostQuestion(Document):
    """Question for time, cost, energy and goodput of training so many tokens.

    The speed is one of step time with batch, tokens per second, FLOP/s, or an execution that is evaluated.
    """

    model: Annotated[Named, Asked("Model", option_help="Library name or JSON file of the model.")] = Field(
        description="Model: a name that `list_models` has, or a whole model document."
    )
    system: Annotated[Named, Asked("System", option_help="Library name or JSON file of the system.")] = Field(
        description="System: a name that `list_systems` has, or a whole system document."
    )
    num_procs: Annotated[Annotated[int, Whole(1, 2**31 - 1)] | None, Asked("Processors", option="procs")] = Field(
        default=None, description="Processors; those of the execution by default."
    )
    step_time_s: Annotated[Positive | None, Asked("Step time", "s")] = Field(
        default=None, description="Time of a step; needs batch."
    )
    batch: Annotated[Annotated[int, Whole(1, 2**31 - 1)] | None, Asked("Batch")] = Field(
        default=None, description="Sequences of a step."
    )
    tokens_per_s: Annotated[Positive | None, Asked("Rate", "tokens/s", option="tokens-per-s")] = Field(
        default=None, description="Instead: rate of the whole system."
    )
    tflops: Annotated[Positive | None, Asked("Rate of a processor", "TFLOP/s")] = Field(
        default=None, description="Instead: rate of one processor on model arithmetic; needs attention."
    )
    execution: Execution | None = Field(
        default=None, description="Instead: an execution, such as a row of `best`, which is evaluated."
    )
    tokens: Annotated[Assumption | None, Asked("Tokens to train", "tokens")] = Field(
        default=None, description="Tokens to train; 1e12 by default."
    )
    usd_low: Annotated[Assumption | None, Asked("Lowest price", "USD/h")] = Field(
        default=None, description="Lowest price of a processor and hour; the system's by default."
    )
    usd_high: Annotated[Assumption | None, Asked("Highest price", "USD/h")] = Field(
        default=None, description="Highest price of a processor and hour; the system's by default."
    )
    power_w: Annotated[Assumption | None, Asked("Design power", "W", option="power")] = Field(
        default=None, description="Design power of a processor; the system's by default."
    )
    power_share: Assumption | None = Field(
        default=None, description="Draw, server included, over design power; 1.5 by default."
    )
    pue: Assumption | None = Field(default=None, description="Power usage effectiveness; 1.1 by default.")
    mtbf_h: Annotated[Assumption | None, Asked("Time between failures", "h", option="mtbf")] = Field(
        default=None, description="Time between failures of one processor; Llama 3's by default."
    )
    bytes_per_parameter: Annotated[Assumption | None, Asked("Checkpoint size", "bytes", option="checkpoint")] = Field(
        default=None, description="Checkpoint per parameter; 14 by default."
    )
    storage_gb_per_s: Annotated[Assumption | None, Asked("Storage bandwidth", "GB/s")] = Field(
        default=None, description="Storage bandwidth per processor; 0.083 by default."
    )
    restart_s: Annotated[Assumption | None, Asked("Restart", "s")] = Field(
        default=None, description="Time from a failure to computing again; 600 by default."
    )
    interval_s: Annotated[Assumption | None, Asked("Checkpoint interval", "s")] = Field(
        default=None, description="Time between checkpoints; the optimum by default."
    )
    datatype: str | None = Field(
        default=None,
        description="Datatype whose peak utilisation counts; bfloat16, float16 or the execution's by default.",
    )
    attention: AttentionName = None
    recompute: Literal["none", "attn_only", "full"] | None = Field(
        default=None, description="Recomputation, for hardware utilisation; the execution's, or none, by default."
    )

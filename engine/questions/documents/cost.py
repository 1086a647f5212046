"""Questions about training runs: the cost of one, and how many GPUs hold a deadline or a budget."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from engine.questions.documents.explorations import RecommendationTermsQuestion
from engine.questions.documents.run_phases import RunPhase
from engine.questions.fields import Asked
from engine.questions.scenario_documents import LIMITS_SCHEMA, AttentionName, CostModelName, Limits
from engine.questions.verb import Document, Execution, Named
from engine.recommendation.shown import FIGURES_OF, FiguresOf
from models.documents import Number, Whole

__all__ = ["CostQuestion", "PlanRunQuestion", "RunAssumptionsQuestion", "SystemOffer"]

Positive = Annotated[float, Number(1e-9, 1e18)]
Assumption = Annotated[float, Number(0, 1e30)]
"""A number whose bounds and default `engine.economics.INPUTS` has."""


class RunAssumptionsQuestion(Document):
    """Assumptions about failures, checkpoints and power of a training run."""

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


class CostQuestion(RunAssumptionsQuestion):
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
    datatype: str | None = Field(
        default=None,
        description="Datatype whose peak utilisation counts; bfloat16, float16 or the execution's by default.",
    )
    attention: AttentionName = None
    recompute: Literal["none", "attn_only", "full"] | None = Field(
        default=None, description="Recomputation, for hardware utilisation; the execution's, or none, by default."
    )


class SystemOffer(Document):
    """System that can be had for a training run, and its price."""

    system: Named = Field(description="System: a name that `list_systems` has, or a whole system document.")
    terms: Literal["rent", "reserve", "buy"] = Field(
        default="rent",
        description="rent: USD per GPU-hour of the run; reserve: the same for at least `reserved_days`; buy: USD per "
        "GPU with its share of server and network, written off over `lifetime_years`.",
    )
    usd_low: Assumption | None = Field(
        default=None, description="Lowest price; the library's hourly price by default, which bought GPUs do not have."
    )
    usd_high: Assumption | None = Field(default=None, description="Highest price; as the lowest by default.")
    reserved_days: Annotated[float, Number(0, 36_500)] = Field(
        default=0.0, description="Time that is paid at least, for reserve [days]."
    )
    lifetime_years: Annotated[float, Number(0.1, 100)] = Field(
        default=5.0, description="Time over which a bought GPU is written off [years]."
    )
    usd_per_kwh: Annotated[float, Number(0, 1_000)] = Field(
        default=0.0, description="Price of electricity where it is paid beside the GPUs; not counted by default."
    )
    most_procs: Annotated[int, Whole(1, 2**20)] = Field(default=16_384, description="GPUs available.")


class PlanRunQuestion(RecommendationTermsQuestion, RunAssumptionsQuestion):
    """Question for how many GPUs of which system train a model: two or more of tokens, days, budget and GPUs."""

    model: Annotated[Named, Asked("Model", option_help="Library name or JSON file of the model.")] = Field(
        description="Model: a name that `list_models` has, or a whole model document."
    )
    systems: Annotated[
        list[SystemOffer],
        Asked(
            "Systems",
            option="system",
            repeats=True,
            metavar="NAME[,FIELD=VALUE...]",
            option_help="System that can be had, with its price: NAME, or NAME,terms=buy,usd_low=30000; repeatable. "
            "Fields: terms (rent, reserve, buy), usd_low, usd_high, reserved_days, lifetime_years, usd_per_kwh, "
            "most_procs.",
        ),
    ] = Field(min_length=1, max_length=8, description="Systems that can be had, with their prices.")
    tokens: Annotated[Assumption | None, Asked("Tokens to train", "tokens")] = Field(
        default=None, description="Tokens to train; as many as the other limits allow by default."
    )
    phases: Annotated[list[RunPhase], Field(min_length=1, max_length=8)] | None = Field(
        default=None,
        description="Phases in their order instead of tokens: pretrain, sft, lora, rl and serve. Deadline, budget and "
        "GPUs are then those of all phases together.",
    )
    deadline_days: Annotated[
        Annotated[float, Number(1e-3, 36_500)] | None, Asked("Deadline", "days", option="days", parameter="days")
    ] = Field(default=None, description="Longest wall-clock time, failures included; none by default.")
    budget_usd: Annotated[Annotated[float, Number(1e-3, 1e15)] | None, Asked("Budget", "USD", option="budget")] = Field(
        default=None, description="Most that the run may cost; none by default."
    )
    num_procs: Annotated[Annotated[int, Whole(1, 2**20)] | None, Asked("GPUs", option="procs", parameter="procs")] = (
        Field(default=None, description="Number of GPUs; chosen by default.")
    )
    max_batch_size: Annotated[
        int, Whole(1, 2**31 - 1), Asked("Largest batch", option="max-batch", parameter="batch")
    ] = Field(description="Largest global batch [samples], the same at every number of GPUs.")
    datatype: Annotated[str, Asked("Datatype")] = Field(
        default="bfloat16", description="Datatype of the matrix arithmetic; every system must compute in it."
    )
    limits: Limits = Field(
        default_factory=dict,
        description="What fields of executions may be; see `explore`.",
        json_schema_extra=LIMITS_SCHEMA,
    )
    cost_model: CostModelName = Field(default=None, description="Null for what each system's figures are meant for.")
    figures_of: Annotated[FiguresOf, Asked("Figures of", words=FIGURES_OF)] = Field(
        default="recommended", description="Execution that counts at each size."
    )
    room_for_error: Annotated[bool, Asked("Room for error")] = Field(
        default=False, description="Deadline and budget hold at the upper end of each interval too."
    )

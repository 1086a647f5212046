"""Question about a fleet: GPUs of several kinds, training jobs and services that share them over a day or a week."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import Field, create_model

from engine.fleet.problem import OBJECTIVES, Objective
from engine.questions.documents.explorations import RecommendationTermsQuestion
from engine.questions.documents.post_training import PostTrainingQuestion
from engine.questions.documents.serving import FIRST_TOKEN_S, PER_TOKEN_S, Limit
from engine.questions.fields import Asked
from engine.questions.scenario_documents import (
    LIMITS_SCHEMA,
    AdapterRank,
    AdapterTargets,
    CostModelName,
    FrozenWeightBits,
    Limits,
    LossChunk,
    SampleLengths,
)
from engine.questions.verb import Document, Named
from engine.recommendation.shown import FIGURES_OF, FiguresOf
from models.documents import Accepts, Number, Text, Whole

__all__ = [
    "OF_SHAPE",
    "OF_TRAINING",
    "FleetJobDocument",
    "FleetPoolDocument",
    "FleetPostTraining",
    "FleetQuestion",
    "FleetServiceDocument",
]

WEEK: Final = 168
"""Hours of the longest plan."""
Name = Annotated[str, Text(100, shortest=1)]
Rate = Annotated[float, Number(0, 1e9)]
Share = Annotated[float, Number(0, 1)]


class FleetPoolDocument(Document):
    """Equal GPUs of a fleet."""

    system: Named = Field(description="System: a name that `list_systems` has, or a whole system document.")
    num_procs: Annotated[int, Whole(1, 2**20)] = Field(description="GPUs, spares included.")
    usd_per_h: Annotated[float, Number(0, 1e6)] | None = Field(
        default=None, description="Price of a GPU [USD/h]; the middle of the recorded prices by default."
    )
    spare_nodes: Annotated[int, Whole(0, 2**20)] | None = Field(
        default=None, description="Nodes that are kept free for failures; as many as suffice in 99 % by default."
    )


OF_THE_FLEET: Final = {
    "format",
    "model",
    "system",
    "num_procs",
    "split",
    "measured_step_s",
    "price_usd_per_h",
    "sizes",
}
"""Fields of a question about post-training that the fleet answers, or that are about one number of GPUs."""

if TYPE_CHECKING:

    class FleetPostTraining(Document):
        """Reinforcement learning of a job: the fields of `PostTrainingQuestion` that do not depend on the fleet."""

else:
    FleetPostTraining = create_model(
        "FleetPostTraining",
        __base__=Document,
        __doc__="Reinforcement learning of a job, as `plan_post_training` has it; GPUs and split come from the plan.",
        **{
            name: (info.annotation, info)
            for name, info in PostTrainingQuestion.model_fields.items()
            if name not in OF_THE_FLEET
        },
    )

OF_TRAINING: Final = (
    "max_batch_size",
    "tokens",
    "datatype",
    "limits",
    "adapter_rank",
    "adapter_targets",
    "frozen_weight_bits",
    "loss_chunk",
    "sample_lengths",
)
"""Fields of a job that trains on given tokens; reinforcement learning has its own."""


class FleetJobDocument(Document):
    """A job of a fleet: training or fine-tuning on given tokens, or reinforcement learning."""

    model: Named = Field(description="Model: a name that `list_models` has, or a whole model document.")
    name: Name | None = Field(default=None, description="Name in the plan; the model's by default.")
    max_batch_size: Annotated[int, Whole(1, 2**31 - 1)] | None = Field(
        default=None, description="Largest global batch [samples]; all jobs but reinforcement learning need it."
    )
    post_training: FleetPostTraining | None = Field(
        default=None,
        description="Reinforcement learning: its terms, as `plan_post_training` has them, without GPUs and split. Its "
        "tokens are the samples' of all steps.",
    )
    tokens: Annotated[float, Number(1, 1e18)] | None = Field(
        default=None, description="Tokens to train; null for a job that goes on."
    )
    deadline_days: Annotated[float, Number(1e-3, 36_500)] | None = Field(
        default=None,
        description="Days within which it must be done, counted from now, jobs before it included; needs tokens.",
    )
    after: Name | None = Field(default=None, description="Name of the job that must end before it starts.")
    weight: Annotated[float, Number(0, 1e6)] = Field(
        default=1.0, description="Worth of its progress beside other jobs'."
    )
    elastic: bool = Field(default=False, description="It may change its size, or pause, every hour.")
    restart_s: Annotated[float, Number(0, 3_600)] = Field(
        default=600.0,
        description="Time without progress after each change of an elastic job [s]. Replicas of an asynchronous or "
        "one-step-off rollout come and go without it; a change of the GPUs that train needs it.",
    )
    systems: list[Name] | None = Field(
        default=None, min_length=1, max_length=8, description="Names of the systems that it may use; all by default."
    )
    datatype: Name = Field(default="bfloat16", description="Datatype of the matrix arithmetic.")
    limits: Limits = Field(
        default_factory=dict,
        description="What fields of executions may be; see `explore`.",
        json_schema_extra=LIMITS_SCHEMA,
    )
    adapter_rank: AdapterRank = None
    adapter_targets: AdapterTargets = None
    frozen_weight_bits: FrozenWeightBits = None
    loss_chunk: LossChunk = None
    sample_lengths: SampleLengths = None


OF_SHAPE: Final = ("peak_rate", "trough_share", "peak_hour")
"""Fields of a demand that rises and falls once a day."""


class FleetServiceDocument(Document):
    """A service of a fleet."""

    model: Named = Field(description="Model: a name that `list_models` has, or a whole model document.")
    name: Name | None = Field(default=None, description="Name in the plan; the model's by default.")
    prompt: Annotated[int, Whole(1, 2**30)] = Field(description="Tokens of a request's prompt.")
    output: Annotated[int, Whole(1, 2**30)] = Field(description="Tokens that a request generates.")
    demand: list[Rate] | None = Field(
        default=None,
        description="Requests per second of each hour: 24 numbers for a day, or 168 for a week. Or give `peak_rate`.",
    )
    peak_rate: Annotated[float, Number(1e-6, 1e9)] | None = Field(
        default=None, description="Highest demand of a day that rises and falls once [1/s], instead of `demand`."
    )
    trough_share: Share = Field(default=0.3, description="Lowest demand over the highest, with `peak_rate`.")
    peak_hour: Annotated[float, Number(0, 24)] = Field(
        default=14.0, description="Hour of the highest demand, with `peak_rate`."
    )
    after: Name | None = Field(default=None, description="Name of the job that must end before it starts.")
    startup_s: Annotated[float, Number(0, 3_600)] = Field(
        default=0.0,
        description="Time from the start of a replica, on the hour, until it serves [s]; a replica that grows with "
        "the demand then starts an hour early, or serves the rest of its first hour.",
    )
    headroom: Annotated[float, Number(0, 10)] = Field(
        default=0.1, description="Share of the demand for which replicas are ready beyond it."
    )
    time_to_first_token_s: Limit | None = Field(
        default=FIRST_TOKEN_S, description="Limit on the time to first token [s]; null for none."
    )
    time_per_output_token_s: Limit | None = Field(
        default=PER_TOKEN_S, description="Limit on the time per output token [s]; null for none."
    )
    held_at: Literal["mean", "p50", "p90", "p99"] = Field(
        default="p99", description="Statistic of each latency that its limit holds for."
    )
    limits: Annotated[dict[str, Any], Accepts("an object with limits by field name")] = Field(
        default_factory=dict, description="Values of fields of deployments; see `find_deployments`."
    )
    systems: list[Name] | None = Field(
        default=None, min_length=1, max_length=8, description="Names of the systems that it may use; all by default."
    )


class FleetQuestion(RecommendationTermsQuestion):
    """Question for who gets which GPUs of a fleet in which hour."""

    pools: list[FleetPoolDocument] = Field(min_length=1, max_length=8, description="GPUs of the fleet, by system.")
    jobs: list[FleetJobDocument] = Field(default_factory=list, max_length=32, description="Training jobs.")
    services: list[FleetServiceDocument] = Field(default_factory=list, max_length=16, description="Services.")
    objective: Annotated[Objective, Asked("Objective", words=OBJECTIVES)] = Field(
        default="progress",
        description="What is made best while demand and deadlines hold: progress of the jobs over that alone on the "
        "fleet, by weight; the end of the last job; or the cost of the GPUs in use.",
    )
    why: Annotated[bool, Asked("Explain")] = Field(
        default=False, description="Also plan with a node more, and with constraints lifted alone and in pairs."
    )
    mtbf_h: Annotated[
        Annotated[float, Number(1e-3, 1e12)] | None, Asked("Time between failures", "h", option="mtbf")
    ] = Field(default=None, description="Time between failures of one GPU; Llama 3's by default.")
    repair_h: Annotated[float, Number(0, 8_760), Asked("Repair", "h", option="repair")] = Field(
        default=24.0, description="Time until a failed node is back, for the number of spare nodes."
    )
    longest_s: Annotated[float, Number(0.1, 600), Asked("Longest search", "s", option="longest")] = Field(
        default=30.0, description="Time after which the best plan found so far is returned with its bound."
    )
    cost_model: CostModelName = Field(default=None, description="Null for what each system's figures are meant for.")
    figures_of: Annotated[FiguresOf, Asked("Figures of", words=FIGURES_OF)] = Field(
        default="recommended", description="Execution that counts at each size of a job."
    )

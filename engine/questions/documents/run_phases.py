"""Phases of a run: pre-training, fine-tuning, reinforcement learning and serving, in the order in which they come."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field, create_model

from engine.questions.documents.fine_tuning import FineTuningQuestion
from engine.questions.documents.post_training import PostTrainingQuestion
from engine.questions.documents.serving import FIRST_TOKEN_S, PER_TOKEN_S, Limit
from engine.questions.fields import Asked
from engine.questions.scenario_documents import LIMITS_SCHEMA, Limits
from engine.questions.verb import Document, Named
from models.documents import Accepts, Number, Text, Whole

__all__ = [
    "PHASE_WORDS",
    "LoraPhase",
    "PretrainPhase",
    "ReinforcementPhase",
    "RunPhase",
    "ServePhase",
    "TuningPhase",
]

PHASE_WORDS: Final = {
    "pretrain": "Pre-training",
    "sft": "SFT",
    "lora": "LoRA",
    "rl": "Reinforcement learning",
    "serve": "Serving",
}
"""Kinds of phases on screen, in the order in which they may come first."""
Name = Annotated[str, Text(100, shortest=1)]
PhaseTokens = Annotated[float, Number(1, 1e18)]
Samples = Annotated[int, Whole(1, 10**12)]
Batch = Annotated[int, Whole(1, 2**31 - 1)]
PhaseLimits = Annotated[
    Limits,
    Field(
        default_factory=dict,
        description="What fields of executions may be; those of the whole question besides. See `explore`.",
        json_schema_extra=LIMITS_SCHEMA,
    ),
]


class _Phase(Document):
    """Fields of all phases."""

    name: Name | None = Field(default=None, description="Name in the plan; made of the kind by default.")


class PretrainPhase(_Phase):
    """Pre-training on tokens; comes before fine-tuning and reinforcement learning."""

    kind: Literal["pretrain"]
    tokens: PhaseTokens = Field(description="Tokens to train.")
    max_batch_size: Batch | None = Field(
        default=None, description="Largest global batch [samples]; the whole question's by default."
    )
    limits: PhaseLimits


def _other_fields(question: type[Document], *left_out: str) -> Any:
    """Return a phase with the fields of a question, without the fields that a plan of phases answers itself."""
    chosen_by_plan = {"format", "model", "system", "num_procs", "price_usd_per_h", *left_out}
    others: dict[str, Any] = {
        name: (field.annotation, field) for name, field in question.model_fields.items() if name not in chosen_by_plan
    }
    return create_model(f"{question.__name__}Terms", __base__=_Phase, **others)


_TUNING: Any = _other_fields(FineTuningQuestion, "method", "samples", "adapter_rank", "adapter_targets")
_ADAPTERS: Any = _other_fields(FineTuningQuestion, "method", "samples")
_REINFORCEMENT: Any = _other_fields(PostTrainingQuestion, "split", "sizes")


class TuningPhase(_TUNING):  # type: ignore[misc]
    """Fine-tuning of all weights; fields as in `plan_fine_tuning`."""

    kind: Literal["sft"]
    tokens: PhaseTokens | None = Field(default=None, description="Tokens of the data set. Or give `samples`.")
    samples: Samples | None = Field(default=None, description="Samples of the data set, instead of `tokens`.")


class LoraPhase(_ADAPTERS):  # type: ignore[misc]
    """Fine-tuning of adapters on frozen weights; fields as in `plan_fine_tuning`."""

    kind: Literal["lora"]
    tokens: PhaseTokens | None = Field(default=None, description="Tokens of the data set. Or give `samples`.")
    samples: Samples | None = Field(default=None, description="Samples of the data set, instead of `tokens`.")


class ReinforcementPhase(_REINFORCEMENT):  # type: ignore[misc]
    """Reinforcement learning; fields as in `plan_post_training`."""

    kind: Literal["rl"]
    measured_procs: Annotated[int, Whole(1, 2**20)] | None = Field(
        default=None, description="GPUs on which `measured_step_s` was measured; needed with it."
    )


class ServePhase(_Phase):
    """Serving, beside the training phases or after them."""

    kind: Literal["serve"]
    when: Annotated[
        Literal["after", "meanwhile"], Asked("Serve", words={"after": "Afterwards", "meanwhile": "Meanwhile"})
    ] = Field(
        default="after",
        description="after: once the phases before are done, and not within the deadline; meanwhile: on GPUs of its "
        "own from the first day to the last.",
    )
    days: Annotated[float, Number(0, 36_500)] = Field(
        default=0.0, description="Days that serving afterwards costs, for the budget; 0 leaves it out."
    )
    model: Named | None = Field(default=None, description="Model that is served; the trained one by default.")
    prompt: Annotated[int, Whole(1, 2**30)] = Field(description="Tokens of a request's prompt.")
    output: Annotated[int, Whole(1, 2**30)] = Field(description="Tokens that a request generates.")
    rate: Annotated[float, Number(1e-6, 1e9)] | None = Field(
        default=None, description="Requests per second [1/s]. Or give `users`."
    )
    users: Annotated[float, Number(1e-6, 1e9)] | None = Field(
        default=None, description="Users, each with one request or pause at a time, instead of `rate`."
    )
    think_s: Annotated[float, Number(0, 86_400)] = Field(
        default=0.0, description="Pause of a user between requests [s], with `users`."
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


RunPhase = Annotated[
    PretrainPhase | TuningPhase | LoraPhase | ReinforcementPhase | ServePhase, Field(discriminator="kind")
]
"""One phase, by its kind."""

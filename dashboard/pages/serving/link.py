"""Parameters of the Serving page in links besides its question, declared once."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from engine.questions.fields import Asked
from engine.questions.verb import Document

__all__ = ["LOAD_FIELDS", "PAGE_NAME", "ServingLink"]

PAGE_NAME: Final = "serving"
LOAD_FIELDS: Final = (
    "request_rate",
    "users",
    "think_s",
    "held_at",
    "mean_first_token_s",
    "mean_per_token_s",
    "room_for_error",
    "request_latency_s",
    "arrival_cv",
    "prompt_cv",
    "output_cv",
    "disaggregated",
    "transfer_gb_per_s",
)
"""Fields of a `ServiceQuestion` that the page reads besides its other question's."""


class ServingLink(Document):
    """Parameters of the page besides its question: precisions, launch modes and engines to try, and display options."""

    weight_bits: Annotated[list[int], Asked("Weight bits")] = Field(default_factory=list)
    kv_bits: Annotated[list[int], Asked("KV cache bits")] = Field(default_factory=list)
    attention_bits: Annotated[list[int], Asked("Attention bits")] = Field(default_factory=list)
    compute_bits: Annotated[list[int], Asked("Compute bits")] = Field(default_factory=list)
    launch: Annotated[list[str], Asked("Launch")] = Field(default_factory=list)
    engine: Annotated[list[str], Asked("Engine")] = Field(default_factory=list)
    only: Annotated[bool, Asked("Frontier only")] = Field(
        default=False, description="Pareto-optimal deployments: throughput per GPU against speed per user."
    )
    columns: Annotated[bool, Asked("All columns")] = Field(
        default=False, description="Adds columns with equal values, and all figures."
    )

"""Parameters of the Post-train page in links."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from engine.questions.fields import Asked
from engine.questions.verb import Document

__all__ = [
    "ASKED_FIELDS",
    "LENGTH_FIELDS",
    "PAGE_NAME",
    "ROLLOUT_FIELDS",
    "SAMPLE_FIELDS",
    "TUNING_FIELDS",
    "PostTrainingLink",
]

PAGE_NAME: Final = "post_training"
ASKED_FIELDS: Final = (
    "model",
    "system",
    "num_procs",
    "method",
    "prompts",
    "group",
    "prompt_tokens",
    "updates",
    "steps",
    "mode",
    "staleness",
    "synchronisation",
    "reward_s",
    "tool_s",
    "price_usd_per_h",
)
"""Fields of a `PostTrainingQuestion` that the page reads."""
LENGTH_FIELDS: Final = ("mean", "cap", "cv")
"""Fields of its `ResponseLengths`."""
ROLLOUT_FIELDS: Final = ("datatype", "memory_share", "max_sequences")
"""Fields of its `RolloutChoices`."""
TUNING_FIELDS: Final = (
    "model",
    "system",
    "num_procs",
    "method",
    "samples",
    "epochs",
    "pack_to",
    "batch",
    "adapter_rank",
    "adapter_targets",
    "loss_chunk",
    "price_usd_per_h",
)
"""Fields of a `FineTuningQuestion` that the page reads."""
SAMPLE_FIELDS: Final = ("mean", "cap", "cv")
"""Fields of its `DataSetLengths`."""


class PostTrainingLink(Document):
    """Parameters of the page besides its questions."""

    part: Annotated[
        Literal["reinforcement", "tuning"],
        Asked("Kind", words={"reinforcement": "Reinforcement learning", "tuning": "Fine-tuning"}, parameter="kind"),
    ] = "reinforcement"

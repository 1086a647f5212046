"""Parameters of the Post-train page in links."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from engine.questions.fields import Asked
from engine.questions.verb import Document

__all__ = [
    "ASKED_FIELDS",
    "CHOSEN_FIELDS",
    "JUDGE_FIELDS",
    "LENGTH_FIELDS",
    "PAGE_NAME",
    "ROLLOUT_FIELDS",
    "SAMPLE_FIELDS",
    "SPECULATION_FIELDS",
    "TRAINING_FIELDS",
    "TUNING_FIELDS",
    "USUAL_SYSTEM",
    "PostTrainingLink",
]

PAGE_NAME: Final = "post_training"
USUAL_SYSTEM: Final = "h100_80g_sxm"
"""System in place of one that lacks the datatype of the page."""
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
    "framework",
    "measured_step_s",
    "software",
    "helping",
    "launched",
)
"""Fields of a `PostTrainingQuestion` that the page reads as they are."""
CHOSEN_FIELDS: Final = ("split", "teacher")
"""Its fields that the page reads otherwise: a text of two numbers, and a model."""
LENGTH_FIELDS: Final = ("mean", "cap", "cv")
"""Fields of its `ResponseLengths`."""
ROLLOUT_FIELDS: Final = ("datatype", "memory_share", "max_sequences", "tensor_par")
"""Fields of its `RolloutChoices`."""
TRAINING_FIELDS: Final = ("limits",)
"""Fields of its `TrainingChoices`."""
JUDGE_FIELDS: Final = ("scored_by", "own_gpus", "answer_tokens")
"""Fields of its `JudgeChoices`."""
SPECULATION_FIELDS: Final = ("accepted", "drafted", "draft_cost")
"""Fields of its `SpeculationChoices`."""
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

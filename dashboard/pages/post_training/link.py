"""Parameters of the Post-train page in links."""

from __future__ import annotations

from typing import Final

__all__ = ["ASKED_FIELDS", "LENGTH_FIELDS", "PAGE_NAME", "ROLLOUT_FIELDS"]

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

"""Executions of a forward pass alone, made of training steps: for log-probabilities, values, judges and teachers."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd

__all__ = ["forward_executions"]

_OF_TRAINING: Final[dict[str, Any]] = {
    "training": False,
    "activation_recompute": "none",
    "selective_recompute": "attention",
    "recompute_blocks": 0,
    "seq_par_ag_redo": False,
    "data_par_overlap": False,
    "activations_offload": False,
    "optimizer_offload": False,
}
"""Values without effect of the fields that only a training step reads."""
_FULLY_SHARDED: Final = 3
"""ZeRO stage that shards weights, which a forward pass gathers too. Source: Rajbhandari et al. 2020, section 5.3."""


def forward_executions(executions: pd.DataFrame) -> pd.DataFrame:
    """Return the forward pass alone of training steps on the same processors, with the same degrees and batch.

    Recomputation, sharded gradients and optimizer state, their offloading and schedules of backward passes have no
    meaning there and are off; weights that are sharded or offloaded stay so.

    Args:
        executions: training steps, a table with the fields that `engine.evaluate` reads [rows].
    """
    known = set(executions.columns)
    # Fields of training that a table leaves out have these values already, except for the flag itself.
    found = executions.assign(**{name: value for name, value in _OF_TRAINING.items() if name in known})
    sharded = pd.Series(False, index=executions.index)
    if "zero_stage" in known:
        sharded = executions["zero_stage"] == _FULLY_SHARDED
        found["zero_stage"] = np.where(sharded, _FULLY_SHARDED, 0)
    if "optimizer_sharding" in known:
        found["optimizer_sharding"] = sharded.to_numpy(bool)
    if "schedule" in known:
        chunks = executions["pipeline_interleaving"] > 1
        found["schedule"] = np.where(chunks, "interleaved", "1f1b")
    return found

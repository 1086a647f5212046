"""The options with which a framework cuts a model into the stages of a pipeline, for pages and commands to show."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, Final

from engine.cost_models.registry import cost_model_with
from engine.launch.contract import LaunchError
from engine.launch.megatron.layouts import options_of
from engine.launch.megatron.pattern_writing import write_pattern
from models import Model

__all__ = ["megatron_options", "stage_options"]

_SCHEDULES: Final = ("1f1b", "interleaved", "combined_1f1b")
"""Schedules that Megatron-Core has."""


def stage_options(model: Model, execution: Mapping[Any, Any]) -> str:
    """Returns Megatron-LM's options for an execution's stages; empty where it needs none or lacks the schedule, and for
    executions of cost models without stage layouts.

    Args:
        model: what runs.
        execution: its fields by name.

    Raises `engine.executions.layer_splits.LayerSplitError` where the stage layout does not divide the model's blocks.
    """
    layout, chunks = execution.get("stage_layout"), int(execution["pipeline_interleaving"])
    schedule = str(execution.get("schedule") or _SCHEDULES[chunks > 1])
    if not layout or schedule not in _SCHEDULES:
        return ""
    return megatron_options(model, int(execution["pipeline_par"]), chunks, str(layout))


def megatron_options(model: Model, ranks: int, chunks: int, layout: str) -> str:
    """Returns the options with which Megatron-LM cuts a model into stages; empty where it does so by itself, or lacks
    some of the model's layers.

    Args:
        model: what runs.
        ranks: ranks of the pipeline.
        chunks: chunks of each rank.
        layout: in the words of the field `stage_layout`.

    Raises `engine.executions.layer_splits.LayerSplitError` where the layout does not divide the model's blocks.
    """
    if ranks == 1:
        return ""
    if model.layers is not None:
        cut = cost_model_with("stage_layout").stage_cut(model, ranks, chunks, layout)
        try:
            return f"--hybrid-layer-pattern={shlex.quote(write_pattern(model, cut.blocks))}"
        except LaunchError:  # Megatron-LM has not all of the layers
            return ""
    return options_of(cost_model_with("stage_layout").stage_cut(model, ranks, chunks, layout), ranks, layout)

"""Times of one chunk of one microbatch on a stage, from the statistics of an execution.

Source: Calculon 0.1.0, `llm.py` `_compute_batch_stats`, for base and edge blocks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.executions.rules import most_blocks

__all__ = ["ChunkTimes", "chunk_times", "microbatches_of", "tells_blocks_apart"]


@dataclass(frozen=True, slots=True)
class ChunkTimes:
    """Time of one stage for one chunk of one microbatch [s], and for the gradient exchange and optimizer once per step
    [s]."""

    forward: float
    backward: float
    exchange: float
    optimizer: float
    missing: float
    """Share of a chunk by which a stage is shorter that has a block less (uneven pipelines)."""
    short_stages: int
    """Stages at the end of the pipeline that have a block less."""


def chunk_times(execution: Mapping[Any, Any], num_blocks: int) -> ChunkTimes:
    """Returns the durations of an execution's schedule, from its fields and statistics.

    Raises ValueError for an execution without statistics, because it is infeasible.

    Args:
        execution: the execution's fields and statistics by name.
        num_blocks: blocks of the model [count].
    """
    if execution["total_time"] is None or math.isnan(float(execution["total_time"])):
        raise ValueError("The execution does not run, so it has no schedule.")
    pipeline, chunks = int(execution["pipeline_par"]), int(execution["pipeline_interleaving"])
    microbatches = microbatches_of(execution)
    edges = float(microbatches * chunks)
    if not tells_blocks_apart(execution):
        return _slowest_stage(execution, edges)
    blocks: int = most_blocks(num_blocks, pipeline)
    base = blocks // chunks - 1
    passes = 2.0 if bool(execution["training"]) else 1.0
    # A transfer takes as long forward as backward: both move one activation tensor.
    transfer = float(execution["pp_comm_exposed_time"]) / (edges * passes)

    def exposed(stage: str) -> float:
        return base * float(execution[f"baseblock_{stage}_tp_time_exposed"]) + float(
            execution[f"edgeblock_{stage}_tp_time_exposed"]
        )

    forward = (
        (float(execution["fw_time"]) + float(execution["fw_offload_exposed_time"])) / edges + exposed("fw") + transfer
    )
    backward = 0.0
    if passes > 1:
        work = ("bw_time", "recompute_time", "recomm_exposed_time", "bw_offload_exposed_time")
        backward = sum(float(execution[name]) for name in work) / edges + exposed("agrad") + transfer
    short = pipeline - num_blocks % pipeline if num_blocks % pipeline else 0
    return ChunkTimes(
        forward=forward,
        backward=backward,
        exchange=float(execution["dp_comm_exposed_time"]),
        optimizer=float(execution["optim_step_time"]),
        missing=1.0 / (base + 1) if short else 0.0,
        short_stages=short,
    )


def tells_blocks_apart(execution: Mapping[Any, Any]) -> bool:
    """Return whether the statistics have separate base and edge blocks, so that stages differ; else all equal the
    slowest.

    Args:
        execution: the execution's fields and statistics by name.
    """
    return not math.isnan(float(execution.get("baseblock_fw_tp_time", math.nan)))


def _slowest_stage(execution: Mapping[Any, Any], edges: float) -> ChunkTimes:
    """Return the times of the slowest stage for every stage, for statistics without separate base and edge blocks.

    Exposed communication of tensor, context, expert and pipeline parallelism is shared equally by the two passes, each
    of which has the same collectives.
    """
    names = ("tp_comm_exposed_time", "cp_comm_exposed_time", "ep_comm_exposed_time", "pp_comm_exposed_time")
    shared = sum(float(execution.get(name, 0.0)) for name in names) / 2.0
    work = ("bw_time", "recompute_time", "recomm_exposed_time", "bw_offload_exposed_time")
    return ChunkTimes(
        forward=(float(execution["fw_time"]) + float(execution["fw_offload_exposed_time"]) + shared) / edges,
        backward=(sum(float(execution[name]) for name in work) + shared) / edges,
        exchange=float(execution["dp_comm_exposed_time"]),
        optimizer=float(execution["optim_step_time"]),
        missing=0.0,
        short_stages=0,
    )


def microbatches_of(execution: Mapping[Any, Any]) -> int:
    """Returns how many microbatches a replica takes in one step.

    Args:
        execution: its fields by name.
    """
    return int(execution["batch_size"]) // int(execution["data_par"]) // int(execution["microbatch_size"])

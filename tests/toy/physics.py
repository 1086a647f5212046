"""The figures of executions: two formulas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from engine.executions.arrays import Floats
from engine.executions.codes import FULL
from hardware import System
from models import Model, dimensions
from models.token_flops import parameter_count, token_flops

__all__ = ["COMPUTED", "memory_of", "statistics_of"]

COMPUTED = (
    "fw_time",
    "bw_time",
    "recompute_time",
    "bubble_time",
    "total_time",
    "sample_rate",
    "total_efficiency",
    "compute_efficiency",
    "system_efficiency",
    "useful_flops",
    "weight_space",
    "act_space",
    "proc_mem_tier1_cap_req",
)
"""The statistics that are told; all others of the headline are zero, and the rest is undefined."""
BYTES_PER_WEIGHT = 18.0
"""Weight, gradient and optimizer state in mixed precision [bytes]."""


def memory_of(model: Model, fields: Mapping[str, Any]) -> dict[str, Floats]:
    """The memory of a processor [bytes] by statistic; `fields` are arrays of one shape."""
    tensor, pipeline = (np.asarray(fields[name], np.float64) for name in ("tensor_par", "pipeline_par"))
    sizes, micro = dimensions(model), np.asarray(fields["microbatch_size"], np.float64)
    weights = parameter_count(model) * BYTES_PER_WEIGHT / (tensor * pipeline)
    kept = np.where(np.asarray(fields["activation_recompute"]) == FULL, 2.0, 34.0)
    blocks = sizes.num_blocks / pipeline
    activations = kept * micro * model.seq_size * sizes.hidden * blocks * pipeline / tensor
    return {"weight_space": weights, "act_space": activations, "proc_mem_tier1_cap_req": weights + activations}


def statistics_of(model: Model, system: System, datatype: str, fields: Mapping[str, Any]) -> dict[str, Floats]:
    """The statistics of executions by name; `fields` are arrays of one shape.

    Times are operations over the peak [s], and a pipeline of p stages is idle for p - 1 of m microbatches.
    """
    peak = system.matrix[datatype].tflops * 1e12
    batch, pipeline, data, micro = (
        np.asarray(fields[name], np.float64) for name in ("batch_size", "pipeline_par", "data_par", "microbatch_size")
    )
    processors = np.asarray(fields["tensor_par"], np.float64) * pipeline * data
    flops = token_flops(model).forward() * model.seq_size * batch / processors
    forward = flops / peak
    again = np.where(np.asarray(fields["activation_recompute"]) == FULL, forward, 0.0)
    backward = 2.0 * forward
    bubble = (forward + backward + again) * (pipeline - 1.0) / (batch / data / micro)
    computing = forward + backward
    total = computing + again + bubble
    return {
        "fw_time": forward,
        "bw_time": backward,
        "recompute_time": again,
        "bubble_time": bubble,
        "total_time": total,
        "sample_rate": batch / total,
        "useful_flops": 3.0 * flops,
        "total_efficiency": 3.0 * flops / peak / total,
        "compute_efficiency": 3.0 * flops / peak / computing,
        "system_efficiency": computing / total,
        **memory_of(model, fields),
    }

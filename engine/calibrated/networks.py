"""Where the ranks of every group are placed on the networks of a system, and which networks a group needs.

Ranks are numbered innermost first: tensor, context, data, pipeline. Experts are spread over the numbers of data x
context x tensor, the `expert_tensor_par` slices of one expert next to each other. A group of n ranks whose neighbours
are `stride` processors apart reaches over n stride processors. It needs every network up to the first that is as large.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from hardware import System

__all__ = ["GROUPS", "networks_used", "reaches"]

Ints = npt.NDArray[np.int64]

GROUPS = ("tensor", "context", "expert", "data", "pipeline")
"""Kinds of groups. Gradients are exchanged over data x context ranks, which are the group called data."""


def reaches(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Processors that the groups of each kind reach over, by names of `GROUPS`; 1 where a group is one rank.

    Args:
        fields: tensor_par, context_par, data_par, pipeline_par, expert_par and expert_tensor_par of executions, numbers
            or arrays of one shape.
    """
    tensor, context, data, pipeline, expert, split = (
        np.asarray(fields[name]) for name in (
            "tensor_par", "context_par", "data_par", "pipeline_par", "expert_par", "expert_tensor_par",
        )
    )  # fmt: skip
    replicas = context * data
    return {
        "tensor": tensor,
        "context": np.where(context > 1, tensor * context, 1),
        "expert": np.where(expert > 1, expert * split, 1),
        "data": np.where(replicas > 1, tensor * replicas, 1),
        "pipeline": np.where(pipeline > 1, tensor * replicas * pipeline, 1),
    }


def networks_used(system: System, fields: Mapping[str, Any]) -> dict[str, Ints]:
    """Position of the outermost network that the groups of each kind need, by names of `GROUPS`.

    0 is the innermost, which groups of one rank have too. What reaches further than the outermost network, and so
    cannot run, has the number of networks.

    Args:
        system: whose networks. fields: as for `reaches`.

    Returns:
        For every kind an array [rows] of the fields' shape.
    """
    sizes = np.maximum.accumulate([network.size for network in system.networks])
    return {name: np.searchsorted(sizes, reach).astype(np.int64) for name, reach in reaches(fields).items()}

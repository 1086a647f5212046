"""Where the ranks of every group are placed on the networks of a system, and which networks a group needs.

Ranks are numbered innermost first: tensor, context, data, pipeline. Experts are spread over the numbers of data x
context x tensor, the `expert_tensor_par` slices of one expert next to each other. A group of n ranks whose neighbours
are `stride` processors apart reaches over n stride processors. It needs every network up to the first that is as large.

No group straddles a network in which it fits, as schedulers of clusters place jobs: a network of 72 processors holds
nine groups of 8, but four of 16, and the eight processors left over stay idle. So floor(size / stride) ranks of a
group fit into a network at most; the group takes the largest number not above that which divides it, so that none of
its ranks has fewer neighbours than others. 128 ranks that are 8 apart take 8 of every 72 (64 processors), 18 take 9.
A number with few divisors is spread thin: 11 ranks that are 8 apart take one of every 72, which is slower than the
nine and two that an uneven placement would have. With three tiers or more each takes its number by itself. Idle
processors are not counted where a network's reach is compared with the processors of an execution.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from engine.cost_models.calibrated.physics.inputs import Accelerators, Floats
from engine.cost_models.calibrated.physics.rates import Rates
from engine.executions.arrays import Ints
from engine.space.space import divisors
from hardware import System

__all__ = ["GROUPS", "LARGEST_HOST", "farthest", "networks_used", "rate_over", "reaches", "shared_by"]


GROUPS = ("tensor", "context", "expert", "data", "pipeline")
"""Kinds of groups. Gradients are exchanged over data x context ranks, which are the group called data."""

LARGEST_HOST = 8.0
"""Processors of the largest usual host; larger scale-up domains are racks."""


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


def farthest(system: System) -> int:
    """How many processors the networks of a system connect. The groups of an execution together reach all of its own:
    whatever its degrees, it cannot run on more."""
    return max(network.size for network in system.networks)


def rate_over(reach: Floats, accelerator: Accelerators, rates: Rates) -> Floats:
    """Sustained rate of the outermost network that a group with this reach [processors] needs [bytes/s]."""
    found = rates.networks[-1]
    for size, rate in zip(accelerator.network_sizes[-2::-1], rates.networks[-2::-1], strict=True):
        found = np.where(reach <= size, rate, found)
    return found


def shared_by(ranks: Floats, stride: Floats | float, sizes: Sequence[Floats]) -> tuple[Floats, ...]:
    """How many ranks of a group share a network of each tier, innermost first; all share the outermost.

    Args:
        ranks: size of the group. stride: distance between neighbouring ranks [processors].
        sizes: processors that one network of each tier connects, as of `Accelerators.network_sizes`.
    """
    return (*(_most_even(ranks, np.floor(size / stride)) for size in sizes[:-1]), ranks)


def _most_even(ranks: Floats, most: Floats) -> Floats:
    """The largest divisor of `ranks` that is not above `most`, and at least 1."""
    found = np.clip(most, 1.0, ranks)
    # Shares of an execution that measured runs only print are no whole numbers, and have no divisors.
    uneven = (np.mod(ranks, found) != 0) & (np.mod(ranks, 1.0) == 0)
    if not uneven.any():
        return found
    of, below = (np.broadcast_to(values, found.shape)[uneven].astype(np.int64) for values in (ranks, found))
    pairs, which = np.unique(of * (below.max() + 1) + below, return_inverse=True)
    parts = [divmod(pair, int(below.max()) + 1) for pair in pairs.tolist()]
    best = np.array([max(each for each in divisors(number) if each <= limit) for number, limit in parts], np.float64)
    found = np.array(found)
    found[uneven] = best[which]
    return found

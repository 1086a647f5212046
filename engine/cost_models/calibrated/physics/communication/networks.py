"""Placement of the ranks of every group on the networks of a system, and the networks that a group needs.

Ranks are numbered innermost first: tensor, context, data, pipeline. Experts are spread over the numbers of data x
context x tensor, the `expert_tensor_par` slices of one expert next to each other. A group of n ranks whose neighbours
are `stride` processors apart reaches over n stride processors. It needs every network up to the first that is as large.

**Groups stay together.** No group straddles a network in which it fits, as schedulers of clusters place jobs: a domain
of 72 processors holds nine tensor parallel groups of 8, but four of 16, and the eight processors left over stay idle.
The largest groups that fit, tensor, context or expert parallel, are placed in a network: where 64 expert ranks
share a domain of 72, so do eight tensor parallel groups of 8, not nine. A group that does not fit takes networks of its
own. Of two groups neither of which consists of whole ones of the other, such as 12 expert ranks over tensor parallel
groups of 8, each is placed as if there were no other.

**Evenly, on the fewest networks.** Of n such groups, k of which fit in a network, each of ceil(n / k) networks holds
floor(n / ceil(n / k)) or one more. A collective takes as long as in a network with fewest, whose links carry most of
the traffic from outside: 11 groups of 8 take two domains of 72, six groups in one and five in the other, and count as
five to a domain; 128 groups count as eight to a domain, and 18 as nine.

**Sizes count processors in use.** A processor that stays idle takes no port of the networks further out, and each of
the others has a port of its own in every one of them, so that a domain may lie in two networks of the next tier where
sizes are no multiples of each other. Calculon's check counts no idle processors either. Any other count would let a
larger domain do harm: nine groups of 16 fill nine domains of 16 of a network of 144, and would not run on the same
network with domains of 72. As nothing has to be ruled out for networks to be filled, `must_be_filled` of a system is
not read.

Source: stated by us, after how schedulers of clusters place jobs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from engine.cost_models.calibrated.physics.inputs import Accelerators, Floats
from engine.cost_models.calibrated.physics.layers.rates import SustainedRates
from engine.executions.arrays import Flags, Ints
from hardware import System

__all__ = ["GROUPS", "LARGEST_HOST", "farthest", "group_spans", "networks_used", "rate_over", "shared_by"]


GROUPS = ("tensor", "context", "expert", "data", "pipeline")
"""Kinds of groups. Gradients are exchanged over data x context ranks, which are the group called data."""

LARGEST_HOST = 8.0
"""Processors of the largest usual host [processors]; larger scale-up domains are racks. Source: stated by us."""


def group_spans(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the number of processors that the groups of each kind span, by names of `GROUPS`.

    Args:
        fields: tensor_par, context_par, data_par, pipeline_par, expert_par and expert_tensor_par of executions, numbers
            or arrays of one shape.

    Returns:
        For every kind an array of the fields' shape [processors]; 1 for groups of one rank.
    """
    tensor, context, data, pipeline, expert, split = (
        np.asarray(fields[name])
        for name in (
            "tensor_par",
            "context_par",
            "data_par",
            "pipeline_par",
            "expert_par",
            "expert_tensor_par",
        )
    )
    replicas = context * data
    return {
        "tensor": tensor,
        "context": np.where(context > 1, tensor * context, 1),
        "expert": np.where(expert > 1, expert * split, 1),
        "data": np.where(replicas > 1, tensor * replicas, 1),
        "pipeline": np.where(pipeline > 1, tensor * replicas * pipeline, 1),
    }


def networks_used(system: System, fields: Mapping[str, Any]) -> dict[str, Ints]:
    """Returns the position of the outermost network that the groups of each kind need, by names of `GROUPS`.

    0 is the innermost, which groups of one rank have too. What reaches further than the outermost network, and so
    cannot run, has the number of networks.

    Args:
        system: whose networks.
        fields: as for `group_spans`.

    Returns:
        For every kind an array [rows] of the fields' shape.
    """
    return {name: system.tiers_spanning(reach) for name, reach in group_spans(fields).items()}


def farthest(system: System) -> int:
    """Return how many processors the networks of a system connect [processors].

    The groups of an execution together span all its processors, so it cannot run on more.

    Args:
        system: the system.
    """
    return system.reach


def rate_over(reach: Floats, accelerator: Accelerators, rates: SustainedRates) -> Floats:
    """Returns the sustained rate of the outermost network that a group needs [rows] [bytes/s].

    Args:
        reach: processors that the group reaches over [processors] [rows].
        accelerator: accelerators, for the sizes of their networks [processors].
        rates: sustained rates of all networks [bytes/s].
    """
    outermost, *inner = zip(reversed(accelerator.network_sizes), reversed(rates.networks), strict=True)
    _, found = outermost
    for size, rate in inner:
        found = np.where(reach <= size, rate, found)
    return found


def shared_by(
    ranks: Floats, stride: Floats | float, sizes: Sequence[Floats], groups: Sequence[Floats] = ()
) -> tuple[Floats, ...]:
    """Returns how many ranks of a group share a network of each tier, innermost first; all share the outermost [ranks].

    Of networks that hold unequal numbers it is one with fewest. It never falls where a network grows.

    Args:
        ranks: size of the group [processors] [rows].
        stride: distance between neighbouring ranks [processors].
        sizes: processors that one network of each tier connects, as of `Accelerators.network_sizes`.
        groups: processors of all groups that are placed together, as of `Layout.groups`.
    """
    return (*(_fewest_ranks(ranks, stride, size, groups) for size in sizes[:-1]), ranks)


def _fewest_ranks(ranks: Floats, stride: Floats | float, size: Floats, groups: Sequence[Floats]) -> Floats:
    """Return the ranks in the network with the fewest, among the networks of `size` that a group needs
    [dimensionless]."""
    reach = ranks * stride
    # What is placed whole, and what takes networks of its own.
    unit, block = np.asarray(stride, np.float64), reach
    for group in groups:
        part, fits = _is_whole(group / unit) & _is_whole(block / group), group <= size
        unit, block = np.where(part & fits, group, unit), np.where(part & ~fits, group, block)
    # Evenly on the fewest networks: n units, k to a network, floor(n / ceil(n / k)) on the emptiest.
    units = block / unit
    networks = np.ceil(units / np.maximum(np.floor(size / unit), 1.0))
    # Groups of runs that print shares only may hold fewer than two ranks, though more than one.
    each = np.maximum(np.floor(units / networks), 1.0)
    return np.where(block > size, each * (unit / stride), ranks)


def _is_whole(ratio: Floats) -> Flags:
    """Return whether ratios of whole numbers are whole; a division is several times faster than a remainder."""
    return np.asarray(ratio == np.floor(ratio))

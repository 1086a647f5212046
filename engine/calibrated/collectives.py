"""Hierarchical collectives over any number of network tiers.

A group of n ranks occupies r0 ranks of the innermost tier (the scale-up domain), r1 groups of those in the next, and so
on, r0 r1 ... = n. A reduce-scatter or all-gather runs tier by tier: what reaches tier i is the buffer divided by all
ranks below, because every rank of the lower tiers carries its own shard over its own link. An all-reduce is both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from engine.calibrated.inputs import Accelerators, Floats
from engine.calibrated.parameters import Parameters
from engine.calibrated.rates import Rates

__all__ = ["Tier", "collective", "gather_ring_latency", "network_tiers"]

SWITCH_HOP = 0.1
"""Latency of one more rank in a switched scale-up domain, as a share of the base latency."""
NETWORK_HOPS = 1.5
"""Latency of leaving the domain, in base latencies, before the logarithm of the groups."""


class Tier(NamedTuple):
    """One tier of the network: ranks (or groups of ranks) of the collective in it and its rate [bytes/s]."""

    ranks: Floats
    bandwidth: Floats


def network_tiers(ranks: Floats, stride: Floats | float, accelerator: Accelerators, rates: Rates) -> tuple[Tier, ...]:
    """Where the ranks of a group are: in the scale-up domain, across domains of one host, across hosts.

    Args:
        ranks: size of the group; stride: distance between neighbouring ranks, which is the size of the groups that
            are placed more tightly (tensor-parallel neighbours first).
        accelerator: for the sizes of domain and host. rates: sustained rates of the three tiers [bytes/s].
    """
    inside = np.clip(accelerator.domain / stride, 1.0, ranks)
    hosted = np.clip(np.maximum(accelerator.host_size, accelerator.domain) / stride, inside, ranks)
    return Tier(inside, rates.scale_up), Tier(hosted / inside, rates.host), Tier(ranks / hosted, rates.scale_out)


def collective(size: Floats, tiers: Sequence[Tier], p: Parameters, *, passes: float) -> Floats:
    """Seconds of a collective of the full buffer `size` [bytes] over `tiers`, innermost first [s]; broadcasts.

    Args:
        size: bytes of the full (unsharded) buffer.
        tiers: ranks and rate of every tier.
        passes: 1 for an all-gather or reduce-scatter, 2 for an all-reduce.
    """
    total: Floats = np.zeros(())
    below: Floats = np.ones(())
    for position, tier in enumerate(tiers):
        share = (tier.ranks - 1.0) / tier.ranks
        if position == 0:
            hops = 1.0 + SWITCH_HOP * (tier.ranks - 1.0)
        else:
            hops = NETWORK_HOPS + np.log2(np.maximum(tier.ranks, 1.0))
        latency = np.where(tier.ranks > 1.0, passes / 2.0 * p.latency * hops, 0.0)
        total = total + passes * share * (size / below) / tier.bandwidth + latency
        below = below * tier.ranks
    return total


def gather_ring_latency(tiers: Sequence[Tier], p: Parameters) -> Floats:
    """Latency of a ring over all ranks that a small layer-wise gather cannot hide in its volume [s]."""
    inner, *outer = tiers
    hops = SWITCH_HOP * (inner.ranks - 1.0)
    for tier in outer:
        hops = hops + tier.ranks - 1.0
    return hops * p.ring_latency

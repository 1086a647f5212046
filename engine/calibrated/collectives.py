"""Hierarchical collectives over any number of network tiers.

A group of n ranks occupies r0 ranks of the innermost tier (the scale-up domain), r1 groups of those in the next, and so
on, r0 r1 ... = n. A reduce-scatter or all-gather runs tier by tier: what reaches tier i is the buffer divided by all
ranks below, because every rank of the lower tiers carries its own shard over its own link. An all-reduce is both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from engine.calibrated.inputs import Floats
from engine.calibrated.parameters import Parameters

__all__ = ["Tier", "collective", "gather_ring_latency", "tiers_of_two"]

SWITCH_HOP = 0.1
"""Latency of one more rank in a switched scale-up domain, as a share of the base latency."""
NETWORK_HOPS = 1.5
"""Latency of leaving the domain, in base latencies, before the logarithm of the groups."""


class Tier(NamedTuple):
    """One tier of the network: ranks (or groups of ranks) of the collective in it and its rate [bytes/s]."""

    ranks: Floats
    bandwidth: Floats


def tiers_of_two(ranks: Floats, inside: Floats, scale_up: Floats, scale_out: Floats) -> tuple[Tier, Tier]:
    """A group of `ranks`, `inside` of them in one scale-up domain, the rest over the scale-out network."""
    inside = np.clip(inside, 1.0, ranks)
    return Tier(inside, scale_up), Tier(ranks / inside, scale_out)


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

"""Hierarchical collectives over any number of network tiers.

A group of n ranks occupies r0 ranks of the innermost tier (the scale-up domain), r1 groups of those in the next, and so
on, r0 r1 ... = n. A reduce-scatter or all-gather runs tier by tier: what reaches tier i is the buffer divided by all
ranks below, because every rank of the lower tiers carries its own shard over its own link. An all-reduce is both.
Its latency is that of the domain, and once that of all networks beyond it.

Sources: a ring moves (n - 1) / n of the buffer per pass, Thakur, Rabenseifner and Gropp 2005; the hierarchy and its
latencies, the calibration study on 1,147 measured rows; that a larger domain is never slower, stated by us.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from engine.cost_models.calibrated.physics.communication.networks import shared_by
from engine.cost_models.calibrated.physics.inputs import Accelerators, Floats
from engine.cost_models.calibrated.physics.layers.rates import SustainedRates
from engine.cost_models.calibrated.physics.parameters import Parameters

__all__ = ["Tier", "collective", "gather_ring_latency", "hops_over", "network_tiers", "tiers_of"]

SWITCH_HOP = 0.1
"""Latency of one more rank in a switched scale-up domain, as a share of the base latency [dimensionless]. Source: the
calibration study on 1,147 measured rows; stated, not fitted."""
RANKS_IN_A_RING = 1.0 / (SWITCH_HOP * math.log(2.0))
"""Ranks up to which every one of a domain adds as much [ranks]; beyond, twice as many add one base latency, as in a
tree, which is as steep there. Source: stated by us, from the slopes of both."""
NETWORK_HOPS = 1.5
"""Latency of leaving the domain, in base latencies, before the logarithm of the groups [dimensionless]. Source: the
calibration study on 1,147 measured rows; stated, not fitted."""


class Tier(NamedTuple):
    """One tier of the network: ranks (or groups of ranks) of the collective in it and its rate [bytes/s]."""

    ranks: Floats
    bandwidth: Floats


def network_tiers(
    ranks: Floats,
    stride: Floats | float,
    accelerator: Accelerators,
    rates: SustainedRates,
    groups: Sequence[Floats] = (),
) -> tuple[Tier, ...]:
    """Return the placement of the ranks of a group: ranks per innermost network, across networks of the next tier, and
    so on.

    Args:
        ranks: size of the group [processors] [rows].
        stride: distance between neighbouring ranks, which is the size of the groups that are placed more tightly
            (tensor-parallel neighbours first) [processors].
        accelerator: accelerators, for the sizes of their networks [processors].
        rates: sustained rates of all networks [bytes/s].
        groups: processors of all groups that are placed together, as of `Layout.groups`.
    """
    return tiers_of(shared_by(ranks, stride, accelerator.network_sizes, groups), rates)


def tiers_of(shared: Sequence[Floats], rates: SustainedRates) -> tuple[Tier, ...]:
    """Return the tiers of a group from the ranks that share a network of each tier, innermost first.

    Args:
        shared: what `networks.shared_by` returns [ranks] [rows].
        rates: sustained rates of all networks [bytes/s].
    """
    return tuple(Tier(ranks, rate) for ranks, rate in zip(_ranks_by_tier(shared), rates.networks, strict=False))


def _ranks_by_tier(shared: Sequence[Floats]) -> Iterator[Floats]:
    """Ranks, or groups of those in the tier below, that share a network of each tier."""
    return (each / inner for each, inner in zip(shared, (np.ones(()), *shared), strict=False))


def hops_over(shared: Sequence[Floats]) -> Floats:
    """Returns the latency of a collective over a group, in base latencies [rows] [dimensionless].

    Args:
        shared: what `networks.shared_by` returns [ranks] [rows].
    """
    inside, *outer = _ranks_by_tier(shared)
    return _latency_hops(inside, math.prod(outer, start=inside))


def collective(
    size: Floats, tiers: Sequence[Tier], p: Parameters, *, passes: float, hops: Floats | None = None
) -> Floats:
    """Returns the seconds of a collective over all `tiers` [rows] [s]; broadcasts.

    Never longer with more ranks in an inner tier: 1 / (ranks up to a tier) of the buffer passes to the outer tiers,
    whose rates are no higher.

    Args:
        size: bytes of the full (unsharded) buffer [bytes].
        tiers: ranks and rate [bytes/s] of every tier, innermost first.
        p: parameters of a calibration.
        passes: 1 for an all-gather or reduce-scatter, 2 for an all-reduce [dimensionless].
        hops: what `hops_over` says of the group, where several collectives over it share that [dimensionless].
    """
    total: Floats = np.zeros(())
    below: Floats = np.ones(())
    for tier in tiers:
        # Thakur et al. 2005: (r - 1)/r of the buffer per pass; what reaches this tier is divided by all ranks below.
        share = (tier.ranks - 1.0) / tier.ranks
        total = total + passes * share * (size / below) / tier.bandwidth
        below = below * tier.ranks
    if hops is None:
        hops = _latency_hops(tiers[0].ranks, below)
    # The base latency is that of an all-reduce; a single pass takes half of it.
    return total + passes / 2.0 * p.latency * hops


def _latency_hops(inside: Floats, ranks: Floats) -> Floats:
    """Latency of a collective of `ranks`, `inside` of them in a domain, in base latencies [dimensionless].

    One over two levels never takes longer than one that ignores the domains. So a larger domain never takes longer:
    twice as many ranks in it add at most one base latency there, and halve the domains, which takes one away.
    """
    domains = ranks / inside
    # alpha (1 + 0.1 (r - 1)) in the domain, as long as it is small (`RANKS_IN_A_RING`).
    within = np.where(inside > 1.0, 1.0 + _switched_latency(inside), 0.0)
    # alpha (1.5 + log2 m) across m domains.
    two_levels = within + NETWORK_HOPS + np.log2(domains)
    return np.where(domains > 1.0, np.minimum(two_levels, NETWORK_HOPS + np.log2(ranks)), within)


def _switched_latency(ranks: Floats) -> Floats:
    """Latency that all ranks but the first of a switched domain add, in base latencies [dimensionless]."""
    few = np.minimum(ranks, RANKS_IN_A_RING)
    return SWITCH_HOP * (few - 1.0) + np.log2(ranks / few)


def gather_ring_latency(tiers: Sequence[Tier], p: Parameters) -> Floats:
    """Returns the latency of a ring over all ranks that a small layer-wise gather cannot hide in its volume [rows] [s].

    Args:
        tiers: ranks and rate [bytes/s] of every tier, innermost first.
        p: parameters of a calibration.
    """
    inner, *outer = tiers
    domains = math.prod((tier.ranks for tier in outer), start=np.ones(()))
    # A ring has one hop per domain, and those of the switched domain inside.
    return (_switched_latency(inner.ranks) + domains - 1.0) * p.ring_latency

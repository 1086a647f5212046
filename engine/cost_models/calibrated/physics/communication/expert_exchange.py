"""The all-to-all exchange of tokens between expert ranks.

Tokens go to `experts_per_token` experts. An expert rank that holds several of a token's experts receives it once, so
the exchanged volume counts distinct destinations: n (1 - (1 - 1/n)^k) of n ranks are hit by k draws. All of it passes
the innermost network; what leaves the domain of its rank is sent once to every domain that it goes to, and so on
outwards. Where routing is limited to some groups of experts, as in DeepSeek-V3, whose groups are hosts, fewer are hit.

An exchange is that of collectives (`all_to_all`), network by network, or that of kernels that forward tokens from the
network to the links of a host as they come (`deepep`, `hybridep`): all networks work at once, and the slowest sets the
pace.
Tokens may be sent to their experts in 8 bits, forward and as gradients; what comes back is summed in 16 bits.

Source: the calibration study on 1,147 measured rows; sending once to every domain of several networks, stated by us;
groups, forwarding and datatypes, DeepSeek-V3 (arXiv:2412.19437, sections 2.1.2, 3.2.2 and 3.3.3).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, pairwise, repeat

import numpy as np

from engine.cost_models.calibrated.physics.case_cache import once_per_case
from engine.cost_models.calibrated.physics.communication.networks import LARGEST_HOST, shared_by
from engine.cost_models.calibrated.physics.inputs import DISPATCHERS, Case, Floats, ModelShapes
from engine.cost_models.calibrated.physics.layers.rates import SustainedRates
from engine.cost_models.calibrated.physics.parameters import Parameters

__all__ = ["HIDDEN_EXCHANGE", "destinations", "distinct_destinations", "exchange"]

HIDDEN_EXCHANGE = 0.3
"""Share of the exchange left where it overlaps with another microbatch's computation [dimensionless]. Source: the
calibration study on 1,147 measured rows; stated, not fitted."""
COMBINED_BYTES = 2.0
"""Bytes per element of the experts' results on their way back [bytes]: they are summed in 16 bits. Source: DeepSeek-V3
(arXiv:2412.19437, section 3.3.3)."""
FORWARDED_UP, FORWARDED_OUT = 0.85, 1.12
"""Rates of kernels that forward tokens over what large collectives sustain, inside a domain and beyond it
[dimensionless]. Source: DeepEP's table of its kernels on H800, without what stays on its own rank or host of the bytes
counted there: 134 to 138 of 200 GB/s, and 43 to 45 of 50 GB/s; collectives sustain 0.8 and 0.78 of the links."""


def distinct_destinations(ranks: Floats, draws: Floats) -> Floats:
    """Returns the expected number of distinct ranks among uniform draws [ranks].

    Args:
        ranks: ranks to draw from [ranks].
        draws: independent draws, with repetition.
    """
    # n (1 - (1 - 1/n)^k): each rank is missed by k uniform draws with probability (1 - 1/n)^k.
    return ranks * (1.0 - (1.0 - 1.0 / ranks) ** draws)


def destinations(model: ModelShapes, places: Floats) -> Floats:
    """Return the expected number of distinct places that receive a token [rows] [places].

    A token draws its k experts from `groups_per_token` M of `expert_groups` G groups, all alike. Where places are parts
    of groups, it is as if there were n M / G of n places. Where a place holds s = G / n groups, j of them are among the
    M with the hypergeometric probability C(s, j) C(G - s, M - j) / C(G, M), and all draws miss those with that of
    (1 - j / M)^k. Without groups both are `distinct_destinations`.

    Args:
        model: shapes of the models, numbers or arrays [rows].
        places: places that all experts are spread over, such as ranks or hosts [rows].
    """
    groups, chosen, draws = model.expert_groups, model.groups_per_token, model.experts_per_token
    within = distinct_destinations(np.maximum(places * chosen / groups, 1.0), draws)
    limited = (groups > chosen) & (places < groups)
    if not np.any(limited):
        return within
    held = np.maximum(groups / places, 1.0)
    missed: Floats = np.zeros(())
    for number in range(int(np.max(chosen))):
        # C(s, j) C(G - s, M - j) / C(G, M): j of the place's s groups are among the M chosen of G.
        share = (
            _count_choices(held, number)
            * _count_choices(groups - held, chosen - number)
            / _count_choices(groups, chosen)
        )
        # (1 - j/M)^k: all k experts are in other groups.
        drawn = np.maximum(share, 0.0) * (1.0 - number / chosen) ** draws
        missed = missed + np.where(number < chosen, drawn, 0.0)
    several = np.minimum(places * (1.0 - np.minimum(missed, 1.0)), distinct_destinations(places, draws))
    return np.where(limited, several, within)


def _count_choices(of: Floats, number: Floats | float) -> Floats:
    """Return the binomial coefficient, 0 for a negative number [dimensionless]; a polynomial in `of`."""
    found = np.ones(np.broadcast_shapes(np.shape(of), np.shape(number)))
    for each in range(int(np.max(number))):
        found = found * np.where(each < number, (of - each) / (each + 1.0), 1.0)
    return np.where(np.asarray(number) < 0, 0.0, found)


@once_per_case
def _sent_bytes(case: Case) -> tuple[Floats, tuple[Floats, ...]]:
    """Return the bytes that a rank sends to others, mean of both directions, and the part of them that crosses each
    network but the innermost [bytes]."""
    model, layout = case.model, case.layout
    ranks = layout.expert_par
    # Mean of the way out, in the dispatch datatype, and the way back.
    token = (case.software.dispatch_bytes + COMBINED_BYTES) / 2.0 * model.hidden * case.split_tokens

    def leaving(places: Floats) -> Floats:
        """Bytes that leave one of `places` for others [bytes]."""
        # One of the destinations is the sender itself with probability 1/n: (n - 1)/n of them are elsewhere.
        return destinations(model, places) * (places - 1.0) / places * token

    # What goes over a network leaves one of those inside it, but not the network itself.
    placed = shared_by(ranks, layout.expert_tensor_par, case.accelerator.network_sizes, layout.groups)
    each = [leaving(ranks / shared) for shared in placed]
    return leaving(ranks), tuple(inner - here for inner, here in pairwise(each))


def exchange(case: Case, rates: SustainedRates, p: Parameters) -> Floats:
    """Returns the exposed seconds of one exchange of tokens between expert ranks, one way [rows] [s].

    It is the mean of sending tokens to their experts and back; a pass does both. Never longer in a larger network:
    fewer destinations are outside of it, over a network that is no faster.

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        rates: sustained rates of the accelerators [FLOP/s, bytes/s] [rows].
        p: parameters of a calibration.
    """
    whole, outside = _sent_bytes(case)
    # The switches of a rack are no worse than those of a host.
    rack = max(p.exchange_rack, p.exchange_host)
    efficiency = np.where(case.accelerator.domain > LARGEST_HOST, rack, p.exchange_host)
    sent = (whole, *outside)

    def shares(inner: Floats | float, outer: float) -> Iterator[Floats]:
        return chain([np.asarray(inner)], repeat(np.asarray(outer)))

    # A collective all-to-all uses one network after the other.
    time: Floats = np.zeros(())
    for moved, rate, share in zip(sent, rates.networks, shares(efficiency, p.exchange_network), strict=False):
        time = time + moved / (rate * share)
    forwards = case.software.token_dispatcher >= DISPATCHERS.index("deepep")
    if np.any(forwards):
        # Forwarding kernels use all networks at once; the slowest sets the pace.
        together: Floats = np.zeros(())
        for moved, rate, share in zip(sent, rates.networks, shares(FORWARDED_UP, FORWARDED_OUT), strict=False):
            together = np.maximum(together, moved / (rate * share))
        time = np.where(forwards, together, time)
    time = time + np.where(case.layout.expert_par > 1.0, p.latency, 0.0)
    # Overlap with the other microbatch hides all but a fixed share.
    return time * np.where(case.software.overlap_expert > 0, HIDDEN_EXCHANGE, 1.0)

"""The exchange of tokens between expert ranks.

Tokens go to `experts_per_token` experts. A collective (`all_to_all`) sends a copy of a token for each of them, network
by network. Another (`all_gather`) sends every token to all ranks of the group, and sums what comes back by a
reduce-scatter.

Kernels that forward tokens from the network to the links of a host as they come (`deepep`, `hybridep`) send a token
once to a rank that holds several of its experts, so that their volume counts distinct destinations: n (1 - (1 - 1/n)^k)
of n ranks are hit by k draws. All of it passes the innermost network; what leaves the domain of its rank is sent once
to every domain that it goes to, and so on outwards. Where routing is limited to some groups of experts, as in
DeepSeek-V3, whose groups are hosts, fewer are hit. All networks work at once, and the slowest sets the pace.

Tokens may be sent to their experts in 8 bits, forward and as gradients; what comes back is summed in 16 bits.

Source: the calibration study on 1,147 measured rows; copies, Megatron-LM's
token_dispatcher.py (core 0.12), which permutes tokens before it sends them; groups, forwarding and datatypes,
DeepSeek-V3 (arXiv:2412.19437, sections 2.1.2, 3.2.2 and 3.3.3).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, pairwise, repeat

import numpy as np

from engine.cost_models.calibrated.physics.case_cache import once_per_case
from engine.cost_models.calibrated.physics.communication.collectives import collective, tiers_of
from engine.cost_models.calibrated.physics.communication.networks import LARGEST_HOST, shared_by
from engine.cost_models.calibrated.physics.inputs import DISPATCHERS, Case, Floats, ModelShapes
from engine.cost_models.calibrated.physics.layers.rates import SustainedRates
from engine.cost_models.calibrated.physics.parameters import Parameters
from engine.executions.arrays import Flags

__all__ = ["HIDDEN_EXCHANGE", "destinations", "distinct_destinations", "exchange"]

HIDDEN_EXCHANGE = 0.3
"""Share of the exchange left where it overlaps with another microbatch's computation [dimensionless]. Source: the
calibration study on 1,147 measured rows; stated, not fitted."""
COPIED_HOST, COPIED_RACK, COPIED_OUT = 2.25, 1.125, 1.65
"""Rates of an all-to-all of training over a calibration's rates of exchange in a host, a rack and the network
[dimensionless], which count a token once per rank that it goes to. So it reaches 0.72 of the links inside a domain and
0.77 of those beyond it. Source: NCCL's all-to-all of large messages reaches 0.54 to 0.73; between hosts, xtuner's two
runs of Qwen3 235B on 32 expert ranks that differ in the dispatcher only."""
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


def _is_forwarding(case: Case) -> Flags:
    """Return whether kernels forward tokens from the network to the links of a host, instead of collectives [rows]."""
    return np.asarray(case.software.token_dispatcher >= DISPATCHERS.index("deepep"))


def _token_bytes(case: Case) -> Floats:
    """Return the bytes of the tokens of a rank, mean of the way out, in the dispatch datatype, and the way back [rows]
    [bytes]."""
    return (case.software.dispatch_bytes + COMBINED_BYTES) / 2.0 * case.model.hidden * case.split_tokens


@once_per_case
def _placed(case: Case) -> tuple[Floats, ...]:
    """Return how many ranks of an expert group share a network of each tier, as from `shared_by` [ranks]."""
    layout = case.layout
    return shared_by(layout.expert_par, layout.expert_tensor_par, case.accelerator.network_sizes, layout.groups)


@once_per_case
def _sent_bytes(case: Case) -> tuple[Floats, tuple[Floats, ...]]:
    """Return the bytes that a rank sends to others, mean of both directions, and the part of them that crosses each
    network but the innermost [bytes]."""
    model, ranks = case.model, case.layout.expert_par
    # The rank with most of the tokens sets the pace.
    token = _token_bytes(case) * case.busiest_load

    forwards = _is_forwarding(case)
    some, every = bool(np.any(forwards)), bool(np.all(forwards))

    def leaving(places: Floats) -> Floats:
        """Bytes that leave one of `places` for others [bytes]."""
        # A collective sends a copy of a token for each of its experts, forwarding kernels one to each place.
        copies = model.experts_per_token
        if some:
            once = destinations(model, places)
            copies = once if every else np.where(forwards, once, copies)
        # One of the destinations is the sender itself with probability 1/n: (n - 1)/n of them are elsewhere.
        return copies * (places - 1.0) / places * token

    # What goes over a network leaves one of those inside it, but not the network itself.
    each = [leaving(ranks / shared) for shared in _placed(case)]
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
    host = min(COPIED_HOST * p.exchange_host, 1.0)
    rack = max(min(COPIED_RACK * p.exchange_rack, 1.0), host)
    efficiency = np.where(case.accelerator.domain > LARGEST_HOST, rack, host)
    beyond = min(COPIED_OUT * p.exchange_network, 1.0)
    sent = (whole, *outside)

    def shares(inner: Floats | float, outer: float) -> Iterator[Floats]:
        return chain([np.asarray(inner)], repeat(np.asarray(outer)))

    # A collective all-to-all uses one network after the other.
    time: Floats = np.zeros(())
    for moved, rate, share in zip(sent, rates.networks, shares(efficiency, beyond), strict=False):
        time = time + moved / (rate * share)
    forwards = _is_forwarding(case)
    if np.any(forwards):
        # Forwarding kernels use all networks at once; the slowest sets the pace.
        together: Floats = np.zeros(())
        for moved, rate, share in zip(sent, rates.networks, shares(FORWARDED_UP, FORWARDED_OUT), strict=False):
            together = np.maximum(together, moved / (rate * share))
        time = np.where(forwards, together, time)
    time = time + np.where(case.layout.expert_par > 1.0, p.latency, 0.0)
    gathers = case.software.token_dispatcher == DISPATCHERS.index("all_gather")
    if np.any(gathers):
        # All tokens of the group reach every rank, whatever experts they visit.
        ranks = case.layout.expert_par
        gathered = collective(ranks * _token_bytes(case), tiers_of(_placed(case), rates), p, passes=1.0)
        time = np.where(gathers, gathered, time)
    # Overlap with the other microbatch hides all but a fixed share.
    return time * np.where(case.software.overlap_expert > 0, HIDDEN_EXCHANGE, 1.0)

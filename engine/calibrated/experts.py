"""A layer of experts: a product per expert, permutation of tokens, and the all-to-all exchange between expert ranks.

Transformer Engine's grouped linear layer launches one cuBLAS product per local expert. They are on several streams, but
each is large enough to fill the processor, so that each ends in a partly filled last wave of its own.

Tokens go to `experts_per_token` experts. An expert rank that holds several of a token's experts receives it once, so
the exchanged volume counts distinct destinations: n (1 - (1 - 1/n)^k) of n ranks are hit by k draws.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine.calibrated.elementwise import Traffic, activation
from engine.calibrated.gemm import Linear, MatrixUnit, linear
from engine.calibrated.inputs import Case, Floats
from engine.calibrated.parameters import Parameters
from engine.calibrated.rates import Rates

__all__ = ["Experts", "distinct_destinations", "exchange", "expert_layer"]

PERMUTE_BYTES = 16.0
"""Bytes per routed element for permuting tokens into groups of one expert and back."""
HIDDEN_EXCHANGE = 0.3
"""Share of the exchange left where it overlaps with another microbatch's computation."""


class Experts(NamedTuple):
    """Seconds of a layer of experts [s]: products and traffic, forward and backward; one of its four exchanges."""

    products: Linear
    traffic: Traffic
    exchange: Floats


def distinct_destinations(ranks: Floats, draws: Floats) -> Floats:
    """Expected number of distinct ranks among `draws` uniform draws out of `ranks` [dimensionless]."""
    return ranks * (1.0 - (1.0 - 1.0 / ranks) ** draws)


def exchange(case: Case, rates: Rates, p: Parameters) -> Floats:
    """Exposed seconds of one exchange of tokens between expert ranks, one way [s]."""
    model, layout = case.model, case.layout
    ranks, draws = layout.expert_par, model.experts_per_token
    element = 2.0 * model.hidden * case.split_tokens
    volume = distinct_destinations(ranks, draws) * (ranks - 1.0) / ranks * element
    inside = np.clip(case.accelerator.domain / layout.expert_tensor_par, 1.0, ranks)
    nodes = ranks / inside
    outside = distinct_destinations(nodes, draws) * (nodes - 1.0) / nodes * element
    efficiency = np.where(case.accelerator.domain > case.accelerator.host_size, p.exchange_rack, p.exchange_host)
    time = volume / (rates.scale_up * efficiency) + outside / (rates.scale_out * p.exchange_network)
    time = time + np.where(ranks > 1.0, p.latency, 0.0)
    return time * np.where(case.software.overlap_expert > 0, HIDDEN_EXCHANGE, 1.0)


def expert_layer(case: Case, rates: Rates, p: Parameters) -> Experts:
    """Seconds of the experts of one block and microbatch on one processor [s]."""
    model, layout = case.model, case.layout
    width, gates = model.expert_feedforward, 1.0 + model.gated
    local = model.experts / layout.expert_par
    unit = MatrixUnit(rates.linear(layout.linear_bits), rates.memory, case.accelerator.multiprocessors, p)
    in_bytes = layout.linear_bits / 8.0
    routed = case.tokens * model.experts_per_token
    # Tokens that one expert processes; its columns are split over the expert-tensor-parallel group.
    per_expert = routed * layout.expert_tensor_par / layout.tensor_par / local
    part = width / layout.expert_tensor_par
    up = linear(per_expert, gates * part, model.hidden, unit, count=local, together=False, in_bytes=in_bytes)
    down = linear(per_expert, model.hidden, part, unit, count=local, together=False, in_bytes=in_bytes)
    shared_width = model.shared_experts * width / layout.tensor_par
    some = np.maximum(shared_width, 1.0)
    shared = linear(case.tokens, gates * some, model.hidden, unit, in_bytes=in_bytes)
    shared = shared.and_then(linear(case.tokens, model.hidden, some, unit, in_bytes=in_bytes)).where(shared_width > 0)
    products = up.and_then(down).and_then(shared)
    active = (model.experts_per_token + model.shared_experts) * width / layout.tensor_par
    acted = activation(case, active, case.tokens, rates, p)
    permuted = PERMUTE_BYTES * routed * model.hidden / rates.memory
    return Experts(
        products,
        Traffic(acted.forward + permuted, acted.backward + permuted),
        exchange(case, rates, p),
    )

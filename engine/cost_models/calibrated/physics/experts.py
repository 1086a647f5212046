"""A layer of experts: a product per expert, permutation of tokens, and the all-to-all exchange between expert ranks.

Transformer Engine's grouped linear layer launches one cuBLAS product per local expert. They are on several streams, but
each is large enough to fill the processor, so that each ends in a partly filled last wave of its own.

Tokens go to `experts_per_token` experts. An expert rank that holds several of a token's experts receives it once, so
the exchanged volume counts distinct destinations: n (1 - (1 - 1/n)^k) of n ranks are hit by k draws. All of it passes
the innermost network; what leaves the domain of its rank is sent once to every domain that it goes to, and so on
outwards.

Source: the calibration study on 1,147 measured rows; sending once to every domain of several networks, stated by us.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine.cost_models.calibrated.physics.elementwise import Traffic, activation
from engine.cost_models.calibrated.physics.gemm import Layer, Linear, MatrixUnit
from engine.cost_models.calibrated.physics.inputs import Case, Floats
from engine.cost_models.calibrated.physics.networks import LARGEST_HOST, shared_by
from engine.cost_models.calibrated.physics.parameters import Parameters
from engine.cost_models.calibrated.physics.rates import Rates

__all__ = [
    "HIDDEN_EXCHANGE", "Experts", "active_width", "distinct_destinations", "exchange", "expert_layer", "expert_layers",
    "permuted",
]  # fmt: skip

PERMUTE_BYTES = 16.0
"""Bytes per routed element for permuting tokens into groups of one expert and back, each pass [bytes]. Source: stated
by us; the calibration study on 1,147 measured rows counts 8."""
HIDDEN_EXCHANGE = 0.3
"""Share of the exchange left where it overlaps with another microbatch's computation [dimensionless]. Source: the
calibration study on 1,147 measured rows; stated, not fitted."""


class Experts(NamedTuple):
    """Seconds of a layer of experts [s]: products and traffic, forward and backward; one of its four exchanges."""

    products: Linear
    traffic: Traffic
    exchange: Floats


def distinct_destinations(ranks: Floats, draws: Floats) -> Floats:
    """Returns the expected number of distinct ranks among uniform draws [ranks].

    Args:
        ranks: ranks to draw from [ranks].
        draws: independent draws, with repetition.
    """
    return ranks * (1.0 - (1.0 - 1.0 / ranks) ** draws)


def exchange(case: Case, rates: Rates, p: Parameters) -> Floats:
    """Returns the exposed seconds of one exchange of tokens between expert ranks, one way [rows] [s].

    Never longer in a larger network: fewer places are left outside of it to send to, over a network that is no faster.

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        rates: sustained rates of the accelerators [FLOP/s, bytes/s] [rows].
        p: parameters of a calibration.
    """
    model, layout = case.model, case.layout
    ranks, draws = layout.expert_par, model.experts_per_token
    element = 2.0 * model.hidden * case.split_tokens

    def sent(places: Floats) -> Floats:
        """Bytes that leave one of `places` for others [bytes]."""
        return distinct_destinations(places, draws) * (places - 1.0) / places * element

    # The switches of a rack are no worse than those of a host.
    rack = max(p.exchange_rack, p.exchange_host)
    efficiency = np.where(case.accelerator.domain > LARGEST_HOST, rack, p.exchange_host)
    time = sent(ranks) / (rates.networks[0] * efficiency)
    # What goes over a network leaves one of those inside it, but not the network itself.
    sizes = case.accelerator.network_sizes
    placed = shared_by(ranks, layout.expert_tensor_par, sizes, layout.groups)
    leaving = [sent(ranks / shared) for shared in placed]
    for inner, here, rate in zip(leaving, leaving[1:], rates.networks[1:], strict=False):
        time = time + (inner - here) / (rate * p.exchange_network)
    time = time + np.where(ranks > 1.0, p.latency, 0.0)
    return time * np.where(case.software.overlap_expert > 0, HIDDEN_EXCHANGE, 1.0)


def expert_layer(case: Case, rates: Rates, p: Parameters) -> Experts:
    """Returns the seconds of the experts of one block and microbatch on one processor [rows] [s].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        rates: sustained rates of the accelerators [FLOP/s, bytes/s] [rows].
        p: parameters of a calibration.
    """
    model, layout = case.model, case.layout
    unit = MatrixUnit(rates.linear(layout.linear_bits), rates.memory, case.accelerator.multiprocessors, p)
    found = {name: layer.time(unit) for name, layer in expert_layers(case).items()}
    products = found["experts_up"].and_then(found["experts_down"])
    if "shared_up" in found:
        shared = found["shared_up"].and_then(found["shared_down"])
        products = products.and_then(shared.where(model.shared_experts > 0))
    acted = activation(case, active_width(case) / layout.tensor_par, case.tokens, rates, p)
    moving = permuted(case) / rates.memory
    return Experts(
        products,
        Traffic(acted.forward + moving, acted.backward + moving),
        exchange(case, rates, p),
    )


def active_width(case: Case) -> Floats:
    """Returns the width of all experts that a token visits, shared ones among them [rows] [elements].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
    """
    model = case.model
    return (model.experts_per_token + model.shared_experts) * model.expert_feedforward


def permuted(case: Case) -> Floats:
    """Returns the bytes of permuting the tokens of one microbatch into groups of one expert and back, each pass [rows]
    [bytes].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
    """
    return PERMUTE_BYTES * (case.tokens * case.model.experts_per_token) * case.model.hidden


def expert_layers(case: Case) -> dict[str, Layer]:
    """Returns the linear layers of the experts on one processor, by name; the shared ones only where the model has any.

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
    """
    model, layout = case.model, case.layout
    width, gates, low = model.expert_feedforward, 1.0 + model.gated, layout.linear_bits / 8.0
    local = model.experts / layout.expert_par
    # Tokens that one expert processes; its columns are split over the expert-tensor-parallel group.
    each = case.tokens * model.experts_per_token * layout.expert_tensor_par / layout.tensor_par / local
    part = width / layout.expert_tensor_par
    routed = {
        "experts_up": Layer(each, gates * part, model.hidden, local, together=False, in_bytes=low),
        "experts_down": Layer(each, model.hidden, part, local, together=False, in_bytes=low),
    }
    if not np.any(model.shared_experts > 0):
        return routed
    some = np.maximum(model.shared_experts * width / layout.tensor_par, 1.0)
    return routed | {
        "shared_up": Layer(case.tokens, gates * some, model.hidden, in_bytes=low),
        "shared_down": Layer(case.tokens, model.hidden, some, in_bytes=low),
    }

"""A layer of experts: a product per expert, permutation of tokens, and one exchange of them between expert ranks.

Transformer Engine's grouped linear layer launches one cuBLAS product per local expert. They are on several streams, but
each is large enough to fill the processor, so that each ends in a partly filled last wave of its own.

Source: the calibration study on 1,147 measured rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from engine.cost_models.calibrated.physics.case_cache import once_per_case
from engine.cost_models.calibrated.physics.communication.expert_exchange import exchange
from engine.cost_models.calibrated.physics.inputs import DISPATCHERS, Case, Floats
from engine.cost_models.calibrated.physics.layers.elementwise import Traffic, activation
from engine.cost_models.calibrated.physics.layers.gemm import Linear, LinearLayer, MatrixUnit
from engine.cost_models.calibrated.physics.layers.rates import SustainedRates
from engine.cost_models.calibrated.physics.parameters import Parameters

__all__ = ["PERMUTE_BYTES", "ExpertTimes", "active_width", "busiest_width", "expert_layer", "expert_layers", "permuted"]

PERMUTE_BYTES = 16.0
"""Bytes per routed element for permuting tokens into groups of one expert and back, each pass [bytes]. Source: stated
by us; the calibration study on 1,147 measured rows counts 8."""


class ExpertTimes(NamedTuple):
    """Seconds of a layer of experts [s]: products and traffic, forward and backward; one of its four exchanges."""

    products: Linear
    traffic: Traffic
    exchange: Floats


def expert_layer(case: Case, rates: SustainedRates, p: Parameters) -> ExpertTimes:
    """Returns the seconds of the experts of one block and microbatch on one processor [rows] [s].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        rates: sustained rates of the accelerators [FLOP/s, bytes/s] [rows].
        p: parameters of a calibration.
    """
    model, layout = case.model, case.layout
    unit = MatrixUnit(rates.linear_of(layout), rates.memory, case.accelerator.multiprocessors, p)
    found = {name: layer.time(unit) for name, layer in expert_layers(case).items()}
    products = found["experts_up"].and_then(found["experts_down"])
    if "shared_up" in found:
        shared = found["shared_up"].and_then(found["shared_down"])
        products = products.and_then(shared.where(model.shared_experts > 0))
    acted = activation(case, busiest_width(case) / layout.tensor_par, case.tokens, rates, p)
    # Tokens are permuted into groups of one expert and back, once per pass.
    moving = permuted(case) / rates.memory
    return ExpertTimes(
        products,
        Traffic(acted.forward + moving, acted.backward + moving),
        exchange(case, rates, p),
    )


@once_per_case
def active_width(case: Case) -> Floats:
    """Returns the width of all experts that a token visits, shared ones among them [rows] [elements].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
    """
    model = case.model
    return (model.experts_per_token + model.shared_experts) * model.expert_feedforward


@once_per_case
def busiest_width(case: Case) -> Floats:
    """Returns the same width with the load of the busiest expert rank [rows] [elements].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
    """
    model = case.model
    busiest = model.experts_per_token * case.busiest_load + model.shared_experts
    return busiest * model.expert_feedforward


@once_per_case
def permuted(case: Case) -> Floats:
    """Returns the bytes of permuting the tokens of one microbatch into groups of one expert and back, each pass [rows]
    [bytes].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
    """
    layout = case.layout
    # Collectives need the copies of a token sorted by rank before they leave; forwarding kernels read the token itself,
    # and an all-gather sends it to all.
    sorting = case.software.token_dispatcher == DISPATCHERS.index("all_to_all")
    sender = np.where(sorting, case.split_tokens, 0.0)
    # Tokens of all ranks that share an expert meet there.
    receiver = case.tokens * layout.expert_tensor_par / layout.tensor_par * case.busiest_load
    return PERMUTE_BYTES / 2.0 * (sender + receiver) * case.model.experts_per_token * case.model.hidden


@once_per_case
def expert_layers(case: Case) -> Mapping[str, LinearLayer]:
    """Returns the linear layers of the experts on one processor, by name; the shared ones only where the model has any.

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
    """
    model, layout = case.model, case.layout
    width, gates, low = model.expert_feedforward, 1.0 + model.gated, layout.linear_bits / 8.0
    local = model.experts / layout.expert_par
    # Tokens that one expert processes; its columns are split over the expert-tensor-parallel group.
    each = case.tokens * model.experts_per_token * layout.expert_tensor_par / layout.tensor_par / local
    # The busiest rank takes as long as with more experts of the mean load.
    local = local * case.busiest_load
    part = width / layout.expert_tensor_par
    routed = {
        "experts_up": LinearLayer(each, gates * part, model.hidden, local, together=False, in_bytes=low),
        "experts_down": LinearLayer(each, model.hidden, part, local, together=False, in_bytes=low),
    }
    if not np.any(model.shared_experts > 0):
        return routed
    some = np.maximum(model.shared_experts * width / layout.tensor_par, 1.0)
    return routed | {
        "shared_up": LinearLayer(case.tokens, gates * some, model.hidden, in_bytes=low),
        "shared_down": LinearLayer(case.tokens, model.hidden, some, in_bytes=low),
    }

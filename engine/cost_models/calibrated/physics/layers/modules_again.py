"""Seconds that recomputation by module repeats in a block: Megatron-Core's `--recompute-modules`.

A module that is checkpointed (`moe`, `mlp`, `shared_experts`) is computed again whole, with its exchanges; of one whose
output is discarded (`layernorm`, `moe_act`, `mla_up_proj`) only this output is made again. `core_attn` is among the
shares of `recompute`, as it was before there were sets.

Source: Megatron-LM, megatron/core/transformer/transformer_layer.py, moe/moe_layer.py, moe/experts.py and
multi_latent_attention.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from engine.cost_models.calibrated.physics.inputs import Case, Floats
from engine.cost_models.calibrated.physics.layers.elementwise import Traffic, activation
from engine.cost_models.calibrated.physics.layers.gemm import Linear, LinearLayer, MatrixUnit
from engine.cost_models.calibrated.physics.layers.rates import SustainedRates
from engine.cost_models.calibrated.physics.layers.recompute import repeated_modules
from engine.cost_models.calibrated.physics.parameters import Parameters

__all__ = ["ModulesAgain", "dense_again", "experts_again", "mixers_again"]

NORM_SHARE = 0.5
"""Share of the element-wise traffic around norms that makes their outputs [dimensionless]; the rest are residual
additions and rotations. Source: stated by us, as for the kind `modules` of recomputation."""
HALF = 0.5
"""Share of a block's tensor-parallel exchanges, and of its plain kernels, in the feed-forward half [dimensionless].
Source: one exchange after each half (Shoeybi et al. 2019, section 3)."""


class ModulesAgain(NamedTuple):
    """Repeated by module in one block and microbatch: `seconds` of computation [s], `tensor` and `experts` the shares
    of the block's tensor-parallel exchange and exchange of tokens [dimensionless], `launches` kernels."""

    seconds: Floats
    tensor: Floats
    experts: Floats
    launches: Floats

    def and_then(self, other: ModulesAgain) -> ModulesAgain:
        """Return both together."""
        return ModulesAgain(*(one + two for one, two in zip(self, other, strict=True)))


_NOTHING = ModulesAgain(*[np.zeros(())] * 4)


def mixers_again(
    case: Case, unit: MatrixUnit, norms: Floats, layers: Mapping[str, LinearLayer] | None
) -> ModulesAgain | None:
    """Return what `layernorm` and `mla_up_proj` repeat; None if no row names modules.

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        unit: matrix unit that computes the products.
        norms: forward seconds of the traffic around norms [rows] [s].
        layers: linear layers of multi-head latent attention by name; None without it.
    """
    modules = repeated_modules(case)
    if not modules:
        return None
    seconds = modules["layernorm"] * NORM_SHARE * norms
    if layers is not None and np.any(modules["mla_up_proj"] > 0):
        up = layers["query_up"].time(unit).forward + layers["key_value_up"].time(unit).forward
        seconds = seconds + np.where(case.model.latent > 0, modules["mla_up_proj"], 0.0) * up
    return _NOTHING._replace(seconds=seconds)


def dense_again(case: Case, products: Linear, traffic: Traffic, launches: Floats) -> ModulesAgain | None:
    """Return what `mlp` repeats in a dense block; None if no row names modules.

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        products: of the feed-forward layer [rows] [s].
        traffic: element-wise, of the feed-forward layer [rows] [s].
        launches: kernels of a forward pass of the block [rows] [count].
    """
    modules = repeated_modules(case)
    if not modules:
        return None
    mlp = modules["mlp"]
    return ModulesAgain(mlp * (products.forward + traffic.forward), HALF * mlp, np.zeros(()), HALF * mlp * launches)


def experts_again(
    case: Case,
    products: Linear,
    traffic: Traffic,
    layers: Mapping[str, LinearLayer],
    unit: MatrixUnit,
    rates: SustainedRates,
    p: Parameters,
    launches: tuple[Floats, Floats],
) -> ModulesAgain | None:
    """Return what `moe`, `moe_act` and `shared_experts` repeat in a block of experts; None if no row names modules.

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        products: of all experts [rows] [s].
        traffic: activation functions and permutation [rows] [s].
        layers: linear layers of the experts by name.
        unit: matrix unit that computes the products.
        rates: sustained rates of the accelerators [FLOP/s, bytes/s] [rows].
        p: parameters of a calibration.
        launches: kernels of a forward pass, without experts and of experts [rows] [count].
    """
    modules = repeated_modules(case)
    if not modules:
        return None
    model, t = case.model, case.layout.tensor_par
    moe = modules["moe"]
    others = 1.0 - moe  # what the whole layer repeats is not repeated by its parts
    routed = activation(case, model.experts_per_token * model.expert_feedforward / t, case.tokens, rates, p).forward
    seconds = moe * (products.forward + traffic.forward) + others * modules["moe_act"] * routed
    if "shared_up" in layers:
        own = layers["shared_up"].time(unit).forward + layers["shared_down"].time(unit).forward
        width = model.shared_experts * model.expert_feedforward / t
        own = own + activation(case, width, case.tokens, rates, p).forward
        on = np.where(model.shared_experts > 0, modules["shared_experts"], 0.0)
        seconds = seconds + others * on * np.minimum(own, products.forward + traffic.forward)
    plain, of_experts = launches
    return ModulesAgain(seconds, HALF * moe, moe, moe * (HALF * plain + of_experts))

"""Exchange of keys and values under context parallelism.

A ring hides behind the attention core where it fits. An all-gather of keys and values and an all-to-all of heads come
before the core, which waits for them.

Sources: the ring, Liu, Zaharia and Abbeel 2023 (Ring Attention); its exposed part, the calibration study on 1,147
measured rows; the all-gather, Grattafiori et al. 2024 (Llama 3), section 3.3.2; the all-to-all, Jacobs et al. 2023
(DeepSpeed Ulysses); the ring between groups that exchange heads, Fang and Zhao 2024 (USP). No measured run states its
kind, so that none but the ring is tested on runs.
"""

from __future__ import annotations

import numpy as np

from engine.cost_models.calibrated.physics.communication.collectives import collective, network_tiers
from engine.cost_models.calibrated.physics.communication.networks import rate_over, shared_by
from engine.cost_models.calibrated.physics.inputs import CONTEXT_EXCHANGES, Case, Floats
from engine.cost_models.calibrated.physics.layers.rates import SustainedRates
from engine.cost_models.calibrated.physics.parameters import Parameters

__all__ = ["ring"]


def ring(
    case: Case, rates: SustainedRates, p: Parameters, core_forward: Floats, core_backward: Floats
) -> tuple[Floats, Floats]:
    """Returns the exposed seconds of the exchange of one block and microbatch, forward and backward [rows] [s].

    Each of c - 1 steps of a ring passes keys and values of T tokens [2 bytes per element]; gradients come back with
    twice the volume. All steps take as long as the one over the outermost network that tensor x context ranks need.

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        rates: sustained rates of the accelerators [FLOP/s, bytes/s] [rows].
        p: parameters of a calibration.
        core_forward, core_backward: seconds of the attention core, which hides the ring [rows] [s].
    """
    model, layout = case.model, case.layout
    context, tensor = layout.context_par, layout.tensor_par
    # Keys and values of T tokens on one rank: kv (d_k + d_v) T / t elements of 16 bits.
    passed = 2.0 * case.key_value_heads * (model.attn_size + model.value_size) / 2.0 * case.tokens / tensor * 2.0
    kind = case.software.context_par_comm
    others = bool(np.any(kind > 0))
    near = _near_ranks(case) if others else np.ones(())
    steps = context / near - 1.0
    rate = rate_over(tensor * context, case.accelerator, rates)
    time = steps * passed / rate
    # Two latencies per step, which no computation hides.
    start = np.where(steps > 0, 2.0 * steps * p.latency, 0.0)
    # Liu et al. 2023: a step of the ring hides behind the attention of the block that is there already.
    forward = np.maximum(time - core_forward, 0.0) + start
    backward = np.maximum(2.0 * time - core_backward, 0.0) + start
    if not others:
        return forward, backward
    tiers = network_tiers(context, tensor, case.accelerator, rates, layout.groups)
    gathered = collective(context * passed, tiers, p, passes=1.0)
    # Queries, keys, values and the attention's output change from tokens to heads and back.
    widths = model.attn_heads * (model.attn_size + model.value_size) * 2.0 * case.tokens / tensor + passed
    inner = tiers[0].bandwidth
    exchanged = np.where(near > 1.0, widths * (near - 1.0) / near / np.where(near < context, inner, rate), 0.0)
    exchanged = exchanged + np.where(near > 1.0, 2.0 * p.latency, 0.0)
    gathers = kind == CONTEXT_EXCHANGES.index("all_gather")
    # The backward pass gathers again, and reduce-scatters the gradients; an all-to-all takes as much as forward.
    return (
        np.where(gathers, gathered, forward + exchanged),
        np.where(gathers, 2.0 * gathered, backward + exchanged),
    )


def _near_ranks(case: Case) -> Floats:
    """Return how many context-parallel ranks exchange heads by an all-to-all [rows] [ranks]: all, the ones in a domain,
    or none."""
    layout, kind = case.layout, case.software.context_par_comm
    context = layout.context_par
    domain = shared_by(context, layout.tensor_par, case.accelerator.network_sizes, layout.groups)[0]
    # A ring over domains that hold unequal numbers of ranks goes over all of them.
    whole = np.where(np.mod(context, np.maximum(domain, 1.0)) == 0, domain, 1.0)
    inside = np.where(kind == CONTEXT_EXCHANGES.index("hierarchical"), whole, 1.0)
    return np.where(kind == CONTEXT_EXCHANGES.index("a2a"), context, inside)

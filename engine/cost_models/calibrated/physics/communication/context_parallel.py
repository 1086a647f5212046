"""Ring exchange of keys and values under context parallelism, hidden behind the attention core where it fits.

Sources: the ring, Liu, Zaharia and Abbeel 2023 (Ring Attention); its exposed part, the calibration study on 1,147
measured rows.
"""

from __future__ import annotations

import numpy as np

from engine.cost_models.calibrated.physics.communication.networks import rate_over
from engine.cost_models.calibrated.physics.inputs import Case, Floats
from engine.cost_models.calibrated.physics.layers.rates import SustainedRates
from engine.cost_models.calibrated.physics.parameters import Parameters

__all__ = ["ring"]


def ring(
    case: Case, rates: SustainedRates, p: Parameters, core_forward: Floats, core_backward: Floats
) -> tuple[Floats, Floats]:
    """Returns the exposed seconds of the ring of one block and microbatch, forward and backward [rows] [s].

    Each of c - 1 steps passes keys and values of T tokens [2 bytes per element]; gradients come back with twice the
    volume. All steps take as long as the one over the outermost network that tensor x context ranks need.

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        rates: sustained rates of the accelerators [FLOP/s, bytes/s] [rows].
        p: parameters of a calibration.
        core_forward, core_backward: seconds of the attention core, which hides the ring [rows] [s].
    """
    model, layout = case.model, case.layout
    steps = layout.context_par - 1.0
    # Keys and values of T tokens on one rank: kv (d_k + d_v) T / t elements.
    passed = 2.0 * case.key_value_heads * (model.attn_size + model.value_size) / 2.0 * case.tokens / layout.tensor_par
    rate = rate_over(layout.tensor_par * layout.context_par, case.accelerator, rates)
    time = steps * passed * 2.0 / rate
    # Two latencies per step, which no computation hides.
    start = np.where(steps > 0, 2.0 * steps * p.latency, 0.0)
    # Liu et al. 2023: a step of the ring hides behind the attention of the block that is there already.
    return np.maximum(time - core_forward, 0.0) + start, np.maximum(2.0 * time - core_backward, 0.0) + start

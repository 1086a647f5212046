"""Offloading weights, activations and optimizer state to the second memory tier: sizes and times of one block.

Source: Calculon 0.1.0 (commit caa4b11), `llm.py` `_get_fw_offload_size`, `_get_bw_offload_size`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.cost_models.calculon.physics.rates import SystemRates
from engine.executions.arrays import Floats

__all__ = ["Offload", "offload"]

Bools = npt.NDArray[np.bool_] | Floats


@dataclass(slots=True)
class Offload:
    """Traffic of one block to or from the second tier per pass: bytes and seconds, forward and backward."""

    fw_bytes: Floats
    bw_bytes: Floats
    fw_time: Floats
    bw_time: Floats


def offload(
    rates: SystemRates,
    *,
    weights: Floats,
    activations: Floats,
    optimizer: Floats,
    weight_offload: Bools,
    activations_offload: Bools,
    optimizer_offload: Bools,
    training: Bools,
) -> Offload:
    """Return the traffic of one block from its sizes [bytes]: the larger of weights and activations forward, the sum of
    all three backward.

    Args:
        rates: rates of the system.
        weights: weights of one block [bytes].
        activations: stored activations of a microbatch [bytes].
        optimizer: its optimizer state [bytes].
        weight_offload: whether weights are offloaded.
        activations_offload: whether kept activations are.
        optimizer_offload: whether optimizer state is.
        training: whether there is a backward pass.
    """
    # Forward, weights come in while activations go out, so that the larger counts; backward all three are added.
    fw_bytes = np.maximum(weight_offload * weights, activations_offload * activations)
    bw_bytes = training * (weight_offload * weights + activations_offload * activations + optimizer_offload * optimizer)
    seconds = rates.second_memory.seconds
    return Offload(fw_bytes, bw_bytes, seconds(np.asarray(fw_bytes)), seconds(np.asarray(bw_bytes)) * training)

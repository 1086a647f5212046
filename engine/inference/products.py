"""Time of matrix products from one row (one request decoded) to thousands (a prompt).

Rate, waves and depth are the calibrated product's (`engine.calibrated.gemm`). Three things differ, because serving runs
products that training does not: rows are not rounded up to tiles, for kernels with few rows have narrow tiles; the
inner dimension may be split over idle multiprocessors, as libraries do where the result has few tiles; and weights have
a width of their own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine.calibrated.gemm import ALIGNMENT, TILE, MatrixUnit, gemm
from engine.calibrated.inputs import Floats
from engine.calibrated.parameters import Parameters

__all__ = ["Unit", "product"]

SPLIT = 8.0
"""Parts of the inner dimension of a split product; partial results are written and read in 32 bits."""
PARTIAL_BYTES = 8.0
ACTIVATION_BYTES = 2.0


class Unit(NamedTuple):
    """Where products run: matrix rate [FLOP/s], memory bandwidth [bytes/s], multiprocessors; parameters."""

    rate: Floats
    memory: Floats
    multiprocessors: Floats
    p: Parameters


def product(
    m: Floats, n: Floats, k: Floats, unit: Unit, weight_bytes: Floats | float, *, count: Floats | float = 1.0
) -> Floats:
    """Seconds of `count` products of m rows with weights [k, n] in one launch [s]; broadcasts.

    The longer of computing and moving (weights once, activations in 16 bits); never falls with m.

    Args:
        m: rows, tokens. n: outputs; k: inputs [elements].
        unit: where it runs.
        weight_bytes: bytes per weight.
        count: products in the group; they fill the processor together.
    """
    p = unit.p
    misaligned = (np.mod(n, ALIGNMENT) != 0) | (np.mod(k, ALIGNMENT) != 0)
    rate = unit.rate / (1.0 + p.misaligned * misaligned)
    compute_only = MatrixUnit(rate, np.asarray(np.inf), unit.multiprocessors, p)
    tiles = count * m / TILE
    moved = count * (weight_bytes * k * n + ACTIVATION_BYTES * m * (k + n)) / unit.memory
    whole = np.maximum(gemm(np.asarray(TILE), n, k, compute_only, count=tiles), moved + p.kernel_start)
    partial = moved + SPLIT * PARTIAL_BYTES * count * m * n / unit.memory + p.kernel_start
    split = np.maximum(gemm(np.asarray(TILE), n, k / SPLIT, compute_only, count=tiles * SPLIT), partial)
    return np.minimum(whole, split)

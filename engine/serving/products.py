"""Time of matrix products from one row (one request decoded) to thousands (a prompt).

Shapes, rate, waves and depth come from the calibrated layers (`engine.cost_models.calibrated.physics.layers.gemm`).
Three things differ, because serving runs products that training does not: rows are not rounded up to tiles, for kernels
with few rows have narrow tiles; the inner dimension may be split over idle multiprocessors, as libraries do where the
result has few tiles; and weights have a width of their own.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

import numpy as np

from engine.cost_models.calibrated import TILE, LinearLayer, MatrixUnit, computing
from engine.executions.arrays import Floats

__all__ = ["product", "products"]

SPLIT = 8.0
"""Parts of the inner dimension of a split product; partial results are written and read in 32 bits. Source: stated by
us."""
PARTIAL_BYTES = 8.0
"""Bytes that an element of a partial result moves [bytes]: 4 written and 4 read. Source: count of reads and writes."""
ACTIVATION_BYTES = 2.0
"""Bytes per element of inputs and results [bytes]: 16 bits. Source: stated by us."""


def product(layer: LinearLayer, unit: MatrixUnit, weight_bytes: Floats | float) -> Floats:
    """Returns the seconds of the forward product of a layer, all of a group in one launch [s]; broadcasts.

    The longer of computing and moving (weights once, activations in 16 bits); never falls with the rows.

    Args:
        layer: rows, outputs and inputs on one processor, and products in the group, which fill it together.
        unit: where it runs.
        weight_bytes: bytes per weight.
    """
    m, n, k, count, p = layer.m, layer.n, layer.k, layer.count, unit.p
    slowed = unit._replace(rate=unit.rate / layer.slower(p))
    # Rows are not rounded up to tiles: m / 128 of a tile costs that share of one.
    tile, tiles = np.asarray(TILE), count * m / TILE
    moved = count * (weight_bytes * k * n + ACTIVATION_BYTES * m * (k + n)) / unit.memory
    whole = np.maximum(computing(tile, n, k, slowed, count=tiles), moved)
    # Split along k, more multiprocessors work, and partial sums pass through memory.
    partial = moved + SPLIT * PARTIAL_BYTES * count * m * n / unit.memory
    split = np.maximum(computing(tile, n, k / SPLIT, slowed, count=tiles * SPLIT), partial)
    return np.minimum(whole, split) + p.kernel_start


def products(layers: Iterable[LinearLayer], unit: MatrixUnit, weight_bytes: Floats | float, *others: Floats) -> Floats:
    """Returns the seconds of the forward products of layers that run one after the other, after `others` [s]; see
    `product`.

    Args:
        layers: that run one after the other.
        unit: matrix rate [FLOP/s], memory bandwidth [bytes/s] and multiprocessors that they run on.
        weight_bytes: of an element of the weights [bytes].
        others: seconds of what runs before them [s].
    """
    return reduce(np.add, (*others, *(product(layer, unit, weight_bytes) for layer in layers)))

"""Time of matrix products on one processor: rate, waves of tiles, depth, memory.

A product of [m, k] by [k, n] is cut into 128 x 128 tiles; `waves` is how often the tiles fill all multiprocessors. A
kernel with few waves leaves processors idle at its end, and one with a shallow inner dimension k spends its time on
prologue and epilogue: the smooth factors (1 + wave / waves) and (1 + depth / k) stand for both. Hard quantisation
of waves predicts no better and makes neighbouring sizes jump.

Source: the calibration study on 1,147 measured rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from engine.cost_models.calibrated.physics.inputs import Floats
from engine.cost_models.calibrated.physics.parameters import Parameters

__all__ = ["TILE", "KernelWork", "Linear", "LinearLayer", "MatrixUnit", "computing", "gemm", "linear", "product_work"]

TILE = 128.0
"""Edge of a tile of the result that one multiprocessor computes at a time [elements]. Source: the calibration study on
1,147 measured rows; stated, not fitted."""

ALIGNMENT = 64.0
"""Columns and depths that are multiples of this run without penalty [elements]. Source: the calibration study on 1,147
measured rows, rows with a hidden size of 14400."""
MAIN_GRADIENT_BYTES = 8.0
"""Bytes per weight that a weight gradient moves [bytes]: 4 read and 4 written of the accumulated 32-bit gradient.
Source: count of reads and writes."""


class MatrixUnit(NamedTuple):
    """Matrix unit of a processor: matrix rate [FLOP/s], memory bandwidth [bytes/s], number of multiprocessors,
    parameters."""

    rate: Floats
    memory: Floats
    multiprocessors: Floats
    p: Parameters


class KernelWork(NamedTuple):
    """Work of a kernel: arithmetic operations [FLOP], and memory traffic [bytes]."""

    operations: Floats
    moved: Floats


def product_work(
    m: Floats,
    n: Floats,
    k: Floats,
    *,
    count: Floats | float = 1.0,
    in_bytes: Floats | float = 2.0,
    out_bytes: Floats | float = 2.0,
) -> KernelWork:
    """Return the operations and traffic of products [m, k] x [k, n] [FLOP, bytes]; each factor is read once and the
    result written once.

    Args:
        m, n, k: rows, columns and inner dimension [elements].
        count: products in the batch or group.
        in_bytes, out_bytes: width of the factors and of the result [bytes per element].
    """
    return KernelWork(_product_operations(m, n, k, count), _moved_bytes(m, n, k, count, in_bytes, out_bytes))


def _product_operations(m: Floats, n: Floats, k: Floats, count: Floats | float) -> Floats:
    # A multiplication and an addition per element of the inner dimension.
    return 2.0 * m * n * k * count


def _moved_bytes(
    m: Floats, n: Floats, k: Floats, count: Floats | float, in_bytes: Floats | float, out_bytes: Floats | float
) -> Floats:
    # Both factors read once, the result written once.
    return count * (in_bytes * (m * k + k * n) + out_bytes * m * n)


def computing(
    m: Floats, n: Floats, k: Floats, unit: MatrixUnit, *, count: Floats | float = 1.0, together: bool = True
) -> Floats:
    """Return the compute time of products [m, k] x [k, n], without memory traffic and launch [s].

    Args:
        m, n, k: rows, columns and inner dimension [elements].
        unit: matrix unit that computes it, with its sustained rates [FLOP/s, bytes/s].
        count: products in the batch or group.
        together: whether the products are one launch and fill the processor together, as for `gemm`.
    """
    # w = ceil(m / 128) ceil(n / 128) count / SM;  t = 2 m n k / R (1 + q / w) (1 + k0 / k).
    waves = np.ceil(m / TILE) * np.ceil(n / TILE) * (count if together else 1.0) / unit.multiprocessors
    return _product_operations(m, n, k, count) / unit.rate * (1.0 + unit.p.wave / waves) * (1.0 + unit.p.depth / k)


def gemm(
    m: Floats,
    n: Floats,
    k: Floats,
    unit: MatrixUnit,
    *,
    count: Floats | float = 1.0,
    together: bool = True,
    in_bytes: Floats | float = 2.0,
    out_bytes: Floats | float = 2.0,
) -> Floats:
    """Returns the seconds of products [m, k] x [k, n] [s]; broadcasts.

    Args:
        m, n, k: rows, columns and inner dimension [elements].
        unit: where it runs.
        count: products in the batch or group.
        together: whether they are one launch, and fill the processor together; otherwise each is a kernel with a start
            and a last wave of its own.
        in_bytes, out_bytes: width of the factors and of the result [bytes per element].
    """
    moved = _moved_bytes(m, n, k, count, in_bytes, out_bytes)
    compute = computing(m, n, k, unit, count=count, together=together)
    # Roofline: the longer of arithmetic and memory, plus the start of a kernel.
    return np.maximum(compute, moved / unit.memory) + unit.p.kernel_start * (1.0 if together else count)


class Linear(NamedTuple):
    """Seconds of a linear layer [s]: forward, backward (gradients of input and weight), and the gradient of the weight
    among that."""

    forward: Floats
    backward: Floats
    weight: Floats

    def and_then(self, other: Linear) -> Linear:
        """Returns the seconds of both layers, one after the other [s].

        Args:
            other: the layer that comes after [s].
        """
        return Linear(self.forward + other.forward, self.backward + other.backward, self.weight + other.weight)

    def where(self, condition: npt.NDArray[np.bool_]) -> Linear:
        """Returns the layer in rows that have it, nothing elsewhere [rows] [s].

        Args:
            condition: which rows have it [rows].
        """
        return Linear(*(np.where(condition, seconds, 0.0) for seconds in self))


def linear(
    m: Floats,
    n: Floats,
    k: Floats,
    unit: MatrixUnit,
    *,
    count: Floats | float = 1.0,
    together: bool = True,
    in_bytes: Floats | float = 2.0,
) -> Linear:
    """Returns the seconds of a linear layer of m tokens, n outputs and k inputs, forward and backward [s]; broadcasts.

    All three products are slower where outputs or inputs are no multiple of 64: tensor-core kernels then fall back to
    narrow loads and padded tiles.

    Args:
        m, n, k: tokens, outputs and inputs [elements].
        unit: matrix unit that computes it, with its sustained rates [FLOP/s, bytes/s].
        count: layers in the batch or group.
        together: whether they are one launch, as for `gemm`.
        in_bytes: width of the factors [bytes per element].
    """
    layer = LinearLayer(m, n, k, count, together, in_bytes)
    slower = layer.slower(unit.p)
    forward, gradient, weight = layer.products(unit)
    return Linear(forward * slower, (gradient + weight) * slower, weight * slower)


@dataclass(frozen=True, slots=True)
class LinearLayer:
    """A linear layer of m tokens, n outputs, k inputs on one processor [elements]; the rest as for `gemm`."""

    m: Floats
    n: Floats
    k: Floats
    count: Floats | float = 1.0
    together: bool = True
    in_bytes: Floats | float = 2.0

    def time(self, unit: MatrixUnit) -> Linear:
        """See `linear`."""
        return linear(self.m, self.n, self.k, unit, count=self.count, together=self.together, in_bytes=self.in_bytes)

    def slower(self, p: Parameters) -> Floats:
        """Returns how much longer all three products take than aligned ones [dimensionless].

        Args:
            p: parameters of a calibration.
        """
        return np.asarray(1.0 + p.misaligned * ((np.mod(self.n, ALIGNMENT) != 0) | (np.mod(self.k, ALIGNMENT) != 0)))

    def products(self, unit: MatrixUnit) -> tuple[Floats, Floats, Floats]:
        """Returns the seconds of the three products as if aligned [s]: outputs; gradients of the inputs; of the
        weights.

        Args:
            unit: where they run.
        """
        forward, gradient, weight = (
            gemm(*shape, unit, count=self.count, together=self.together, in_bytes=self.in_bytes, out_bytes=written)
            for shape, written in self._shapes
        )
        return forward, gradient, weight

    def works(self) -> tuple[KernelWork, KernelWork, KernelWork]:
        """Return the work of the three products [FLOP, bytes]: outputs; gradients of inputs; gradients of weights."""
        forward, gradient, weight = (
            product_work(*shape, count=self.count, in_bytes=self.in_bytes, out_bytes=written)
            for shape, written in self._shapes
        )
        return forward, gradient, weight

    @property
    def _shapes(self) -> tuple[tuple[tuple[Floats, Floats, Floats], float], ...]:
        """(m, n, k) and the bytes per element of the result of each product."""
        m, n, k = self.m, self.n, self.k
        # Y = X W;  dX = dY W^T;  dW = X^T dY, accumulated in 32 bits.
        return ((m, n, k), 2.0), ((m, k, n), 2.0), ((n, k, m), MAIN_GRADIENT_BYTES)

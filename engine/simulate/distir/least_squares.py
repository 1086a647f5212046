"""Non-negative least squares: no constant of a machine is below zero.

Source: C. L. Lawson and R. J. Hanson, "Solving Least Squares Problems" (1974), chapter 23, algorithm NNLS.
"""

from __future__ import annotations

import numpy as np

from engine.executions.arrays import Floats

__all__ = ["non_negative_least_squares"]


def non_negative_least_squares(matrix: Floats, target: Floats) -> Floats:
    """Returns the x of no negative element for which |matrix x - target| is least [columns].

    Columns may differ by many orders of magnitude: they are scaled to one length first. Of columns that depend on one
    another the earlier are used.

    Args:
        matrix: [rows, columns].
        target: [rows].

    Raises ValueError where they do not fit together or are not finite.
    """
    if (
        matrix.ndim != 2
        or target.shape != matrix.shape[:1]
        or not (np.isfinite(matrix).all() and np.isfinite(target).all())
    ):
        raise ValueError("Least squares need a matrix and as many finite targets as it has rows.")
    length = np.linalg.norm(matrix, axis=0)
    scaled = matrix / np.where(length > 0, length, 1.0)
    size = float(np.linalg.norm(target)) or 1.0
    columns = matrix.shape[1]
    x, active = np.zeros(columns), np.zeros(columns, bool)
    for _ in range(10 * columns):
        gain = scaled.T @ (target - scaled @ x)
        gain[active | (length == 0)] = -np.inf
        best = int(np.argmax(gain))
        if gain[best] <= 1e-12 * size:
            break
        active[best] = True
        trial = _solved(scaled, target, active)
        while active.any() and trial[active].min() <= 0:
            # The way from x to the trial ends where the first element becomes zero.
            lowered = active & (trial <= 0)
            part = np.min(x[lowered] / np.maximum(x[lowered] - trial[lowered], np.finfo(float).tiny))
            x = x + part * (trial - x)
            active &= x > 1e-14 * size
            trial = _solved(scaled, target, active)
        x = np.where(active, trial, 0.0)
    return x / np.where(length > 0, length, 1.0)


def _solved(matrix: Floats, target: Floats, active: np.ndarray) -> Floats:
    """The least squares of the active columns, zero elsewhere."""
    result = np.zeros(matrix.shape[1])
    if active.any():
        result[active] = np.linalg.lstsq(matrix[:, active], target, rcond=None)[0]
    return result

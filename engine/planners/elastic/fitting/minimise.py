"""Least values of functions of few variables with bounds, without their derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from engine.executions.arrays import Floats

__all__ = ["minimised"]

Batch = Callable[[Floats], Floats]
"""Gives the values [points] of a function at points [points, variables], all at once."""

DIFFERENCE: Final = 1e-6
"""Step of numeric derivatives; variables are of the order of one."""

STEPS: Final = np.concatenate([2.0 ** -np.arange(0.0, 40.0), [2.0, 4.0]])
"""Steps along a direction, tried at once."""


def minimised(function: Batch, start: Floats, lower: Floats, upper: Floats, rounds: int = 400) -> tuple[Floats, float]:
    """Returns (point, value) of a local least value inside a box.

    A quasi-Newton search (BFGS) with central differences; variables at a bound that the gradient pushes against stay
    there, and every step is cut back to the box. Where it stalls, as at kinks of root mean squares, steps along each
    variable go on from there with ever smaller lengths.

    Args:
        function: of points [points, variables].
        start: where to begin [variables].
        lower, upper: bounds [variables].
        rounds: of the quasi-Newton search at most.
    """
    point = np.clip(start, lower, upper)
    value = float(function(point[None])[0])
    for _ in range(6):
        before = value
        point, value = _quasi_newton(function, point, value, lower, upper, rounds)
        point, value = _along_axes(function, point, value, lower, upper)
        if before - value <= 1e-10 * max(1.0, abs(before)):
            break
    return point, value


def _quasi_newton(
    function: Batch, point: Floats, value: float, lower: Floats, upper: Floats, rounds: int
) -> tuple[Floats, float]:
    size = len(point)
    curvature = np.eye(size)
    gradient = _gradient(function, point, lower, upper)
    for _ in range(rounds):
        free = ~(((point <= lower) & (gradient > 0)) | ((point >= upper) & (gradient < 0)))
        if not free.any():
            break
        direction = np.where(free, -(curvature * np.outer(free, free)) @ gradient, 0.0)
        if float(direction @ gradient) >= 0:
            curvature, direction = np.eye(size), np.where(free, -gradient, 0.0)
        length = float(np.abs(direction).max())
        if length > 2.0:
            direction *= 2.0 / length
        points = np.clip(point + STEPS[:, None] * direction, lower, upper)
        values = function(points)
        best = int(np.nanargmin(values))
        if not values[best] < value - 1e-15:
            break
        moved, point_before, gradient_before = points[best] - point, value, gradient
        point, value = points[best], float(values[best])
        gradient = _gradient(function, point, lower, upper)
        curvature = _updated(curvature, moved, gradient - gradient_before)
        if point_before - value < 1e-13:
            break
    return point, value


def _updated(curvature: Floats, moved: Floats, bent: Floats) -> Floats:
    """The inverse Hessian of BFGS after a step."""
    product = float(moved @ bent)
    if product <= 1e-14:
        return curvature
    left = np.eye(len(moved)) - np.outer(moved, bent) / product
    return np.asarray(left @ curvature @ left.T + np.outer(moved, moved) / product, np.float64)


def _gradient(function: Batch, point: Floats, lower: Floats, upper: Floats) -> Floats:
    steps = DIFFERENCE * np.eye(len(point))
    higher, less = np.minimum(point + steps, upper), np.maximum(point - steps, lower)
    values = function(np.concatenate([higher, less]))
    size = len(point)
    wide = np.diagonal(higher) - np.diagonal(less)
    return np.asarray((values[:size] - values[size:]) / np.where(wide > 0, wide, 1.0), np.float64)


def _along_axes(function: Batch, point: Floats, value: float, lower: Floats, upper: Floats) -> tuple[Floats, float]:
    """Steps along variables and pairs of them, halved whenever none of them helps."""
    size = len(point)
    axes = np.eye(size)
    pairs = [axes[a] + sign * axes[b] for a in range(size) for b in range(a) for sign in (1.0, -1.0)]
    directions = np.concatenate([axes, np.array(pairs)]) if pairs else axes
    directions = np.concatenate([directions, -directions])
    step = 0.1
    while step > 1e-9:
        points = np.clip(point + step * directions, lower, upper)
        values = function(points)
        best = int(np.nanargmin(values))
        if values[best] < value - 1e-14:
            point, value = points[best], float(values[best])
        else:
            step /= 2
    return point, value

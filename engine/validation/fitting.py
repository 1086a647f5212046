"""Fitting the few free parameters of the cost model to measured runs.

Levenberg-Marquardt on the logarithms of the parameters, with residuals log(predicted / measured), Huber weights (so
that a run that physics cannot explain does not bend the parameters) and a Gaussian prior around the starting values
(so that what the data do not determine stays where physics puts it). Derivatives are one-sided differences: a
prediction of a thousand rows takes milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from engine.calibrated.inputs import Case, Floats
from engine.calibrated.parameters import FITTED, Parameters
from engine.calibrated.step import step_times

__all__ = ["Fit", "fit_parameters"]

HUBER = 0.05
"""Residual [log] from which a row counts linearly, near the spread between repeated measurements (4 %)."""
PRIOR = 0.5
"""Standard deviation of the prior [log]."""
DIFFERENCE = 1e-4
STEPS = 40
TOLERANCE = 1e-7
UPPER = {"overlap_data": 1.0, "overlap_tensor": 1.0, "scale_up": 1.0, "scale_out": 1.0}


@dataclass(frozen=True, slots=True)
class Fit:
    """Parameters found, the loss before and after, and the steps taken."""

    parameters: Parameters
    loss_before: float
    loss_after: float
    steps: int


def fit_parameters(
    case: Case,
    measured: Floats,
    start: Parameters,
    *,
    weights: Floats | None = None,
    names: Sequence[str] = FITTED,
    predict: Callable[[Case, Parameters], Floats] | None = None,
) -> Fit:
    """Parameters `names` that bring predictions closest to `measured` step times.

    Args:
        case: the runs [rows]. measured: step times [s].
        start: starting values, which are the prior's centre and the values of all other parameters.
        weights: weight of each row, 1 where not given.
        names: which parameters move.
        predict: seconds per step of a case; the calibrated model where not given.

    Returns:
        The fit. Parameters are kept inside their bounds by clipping.
    """
    weights = np.ones(len(measured)) if weights is None else weights
    predict = predict or (lambda rows, p: step_times(rows, p).step)
    target = np.log(measured)
    centre = np.log([getattr(start, name) for name in names])
    ceiling = np.log([UPPER.get(name, np.inf) for name in names])

    def at(x: Floats) -> Parameters:
        return start.model_copy(update=dict(zip(names, np.exp(x).tolist(), strict=True)))

    def residuals(x: Floats) -> Floats:
        return np.log(predict(case, at(x))) - target

    def loss(r: Floats, x: Floats) -> float:
        size = np.abs(r)
        rows = np.where(size < HUBER, 0.5 * r**2, HUBER * (size - 0.5 * HUBER))
        return float(weights @ rows + 0.5 * HUBER**2 * np.sum(((x - centre) / PRIOR) ** 2))

    x = centre.copy()
    r = residuals(x)
    before = current = loss(r, x)
    damping, taken = 1e-3, 0
    for _ in range(STEPS):
        jacobian = np.column_stack([(residuals(x + DIFFERENCE * unit) - r) / DIFFERENCE for unit in np.eye(len(x))])
        row_weight = weights * np.minimum(1.0, HUBER / np.maximum(np.abs(r), 1e-12))
        normal = jacobian.T @ (row_weight[:, None] * jacobian) + np.eye(len(x)) * (HUBER / PRIOR) ** 2
        gradient = jacobian.T @ (row_weight * r) + (x - centre) * (HUBER / PRIOR) ** 2
        improved = False
        while damping < 1e6:
            candidate = np.minimum(x - np.linalg.solve(normal + damping * np.diag(np.diag(normal)), gradient), ceiling)
            candidate_r = residuals(candidate)
            found = loss(candidate_r, candidate)
            if found < current:
                improved = current - found > TOLERANCE * current
                x, r, current = candidate, candidate_r, found
                damping = max(damping / 10.0, 1e-9)
                taken += 1
                break
            damping *= 4.0
        if not improved:
            break
    return Fit(at(x), before, current, taken)

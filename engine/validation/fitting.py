"""Fitting the few free parameters of the cost model to measured runs.

Levenberg-Marquardt on the logarithms of the parameters, with residuals log(predicted / measured), Huber weights (so
that a run that physics cannot explain does not bend the parameters) and a Gaussian prior around the starting values
(so that what the data do not determine stays where physics puts it). Derivatives are one-sided differences: a
prediction of a thousand rows takes milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from engine.cost_models.calibrated import FITTED, Case, Parameters, largest, step_times
from engine.executions.arrays import Floats

__all__ = ["Fit", "fit_parameters"]

HUBER = 0.05
"""Residual [log] from which a row counts linearly, near the spread between repeated measurements (4 %)."""
PRIOR = 0.5
"""Standard deviation of the prior [log], where a fit is given none."""
DIFFERENCE = 1e-4
STEPS = 40
TOLERANCE = 1e-7


@dataclass(frozen=True, slots=True)
class Fit:
    """Parameters found, the loss before and after, and the steps taken.

    `deviations`: standard deviation [log] of every fitted parameter around its value, by the curvature of the loss
    there (Laplace's approximation), for rows whose errors are independent.
    """

    parameters: Parameters
    loss_before: float
    loss_after: float
    steps: int
    deviations: Mapping[str, float]


def fit_parameters(
    case: Case,
    measured: Floats,
    start: Parameters,
    *,
    weights: Floats | None = None,
    names: Sequence[str] = FITTED,
    spread: Mapping[str, float] | None = None,
    predict: Callable[[Case, Parameters], Floats] | None = None,
) -> Fit:
    """Returns the parameters `names` that bring predictions closest to `measured` step times.

    Args:
        case: the runs [rows].
        measured: step times [s].
        start: starting values, which are the prior's centre and the values of all other parameters.
        weights: weight of each row, 1 where not given.
        names: which parameters move.
        spread: standard deviation of the prior by parameter [log], `PRIOR` where not given.
        predict: seconds per step of a case; the calibrated model where not given.

    Returns:
        The fit. Parameters are kept inside their bounds by clipping.
    """
    weights = np.ones(len(measured)) if weights is None else weights
    case = case.remembering()  # thousands of evaluations differ in their parameters only
    predict = predict or (lambda rows, p: step_times(rows, p).step)
    target = np.log(measured)
    centre = np.log([getattr(start, name) for name in names])
    ceiling = np.log([largest(name) for name in names])
    tightness = (HUBER / np.array([(spread or {}).get(name, PRIOR) for name in names])) ** 2

    def at(x: Floats) -> Parameters:
        return start.model_copy(update=dict(zip(names, np.exp(x).tolist(), strict=True)))

    def residuals(x: Floats) -> Floats:
        return np.log(predict(case, at(x))) - target

    def loss(r: Floats, x: Floats) -> float:
        size = np.abs(r)
        rows = np.where(size < HUBER, 0.5 * r**2, HUBER * (size - 0.5 * HUBER))
        return float(weights @ rows + 0.5 * np.sum(tightness * (x - centre) ** 2))

    def slopes(r: Floats, x: Floats) -> tuple[Floats, Floats]:
        """Derivatives of the residuals, weighted and not [rows, parameters]."""
        found = np.column_stack([(residuals(x + DIFFERENCE * unit) - r) / DIFFERENCE for unit in np.eye(len(x))])
        return found, (weights * np.minimum(1.0, HUBER / np.maximum(np.abs(r), 1e-12)))[:, None] * found

    x = centre.copy()
    r = residuals(x)
    before = current = loss(r, x)
    damping, taken = 1e-3, 0
    jacobian, weighted = slopes(r, x)
    for _ in range(STEPS):
        normal = jacobian.T @ weighted + np.diag(tightness)
        gradient = weighted.T @ r + (x - centre) * tightness
        improved = False
        while damping < 1e6:
            candidate = np.minimum(x - np.linalg.solve(normal + damping * np.diag(np.diag(normal)), gradient), ceiling)
            candidate_r = residuals(candidate)
            found = loss(candidate_r, candidate)
            if found < current:
                improved = current - found > TOLERANCE * current
                x, r, current = candidate, candidate_r, found
                jacobian, weighted = slopes(r, x)
                damping = max(damping / 10.0, 1e-9)
                taken += 1
                break
            damping *= 4.0
        if not improved:
            break
    spreads = HUBER * np.sqrt(np.diag(np.linalg.inv(jacobian.T @ weighted + np.diag(tightness))))
    return Fit(at(x), before, current, taken, dict(zip(names, spreads.tolist(), strict=True)))

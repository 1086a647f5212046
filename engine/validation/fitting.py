"""Fitting the few free parameters of the cost model to measured runs.

Least squares of the logarithms of the parameters by SciPy's trust-region method, with residuals log(predicted /
measured), Huber's loss (so that a run that physics cannot explain does not bend the parameters) and a Gaussian prior
around the starting values (so that parameters that the data do not determine stay there). Derivatives are one-sided
differences: a prediction of a thousand rows takes milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from engine.cost_models.calibrated import FITTED, Case, Parameters, largest, step_times
from engine.executions.arrays import Floats

__all__ = ["ParameterFit", "fit_parameters"]

HUBER = 0.05
"""Residual [log] from which a row counts linearly, near the spread between repeated measurements (4 %)."""
PRIOR = 0.5
"""Standard deviation of the prior [log], where a fit is given none. Source: stated by us."""
DIFFERENCE = 1e-4
"""Step of the logarithm of a parameter for one-sided differences. Source: stated by us."""
EVALUATIONS = 200
"""Most evaluations of a fit. Source: stated by us."""
TOLERANCE = 1e-7
"""Relative change of loss or parameters at which a fit ends. Source: stated by us."""


@dataclass(frozen=True, slots=True)
class ParameterFit:
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
) -> ParameterFit:
    """Returns the parameters `names` that bring predictions closest to `measured` step times.

    Args:
        case: the runs [rows].
        measured: step times [s].
        start: starting values, which are the prior's centre and the values of all other parameters.
        weights: weight of each row, 1 where not given.
        names: which parameters move.
        spread: standard deviation of the prior by parameter [log], `PRIOR` where not given.
        predict: seconds per step of a case; the calibrated model where not given.

    Raises ValueError where the predictions at the start are not finite.
    """
    from scipy.optimize import least_squares  # slow to import, and only fits need it

    weights = np.ones(len(measured)) if weights is None else weights
    case = case.remembering()  # thousands of evaluations differ in their parameters only
    predict = predict or (lambda rows, p: step_times(rows, p).step)
    target, count = np.log(measured), len(measured)
    centre = np.log([getattr(start, name) for name in names])
    ceiling = np.log([largest(name) for name in names])
    # The prior in units of the loss: (x - c)^2 / sigma^2 = tightness (x - c)^2 / HUBER^2.
    tightness = (HUBER / np.array([(spread or {}).get(name, PRIOR) for name in names])) ** 2

    def at(x: Floats) -> Parameters:
        return start.model_copy(update=dict(zip(names, np.exp(x).tolist(), strict=True)))

    def residuals(x: Floats) -> Floats:
        """Return the residuals of the rows, and of the prior [rows + parameters]."""
        return np.concatenate([np.log(predict(case, at(x))) - target, (x - centre) * np.sqrt(tightness)])

    def slopes(x: Floats) -> Floats:
        """Derivatives of the residuals [rows + parameters, parameters]."""
        here = residuals(x)
        return np.column_stack([(residuals(x + DIFFERENCE * unit) - here) / DIFFERENCE for unit in np.eye(len(x))])

    def loss(z: Floats) -> Floats:
        """Return Huber's function of the rows' squared residuals, by weight, and the prior's squares, with their first
        derivatives [3, rows + parameters]; z in units of HUBER**2. Second derivatives are left at 0, so that SciPy
        steps by the rows' weights alone and the matrix stays positive."""
        size = np.sqrt(np.maximum(z[:count], 1.0))
        rows = weights * np.stack([np.where(size > 1, 2 * size - 1, z[:count]), 1 / size])
        prior = np.stack([z[count:], np.ones(len(z) - count)])
        return np.concatenate([np.concatenate([rows, prior], axis=1), np.zeros((1, len(z)))])

    x0 = np.minimum(centre, ceiling)
    before = 0.5 * HUBER**2 * float(loss((residuals(x0) / HUBER) ** 2)[0].sum())
    found = least_squares(
        residuals,
        x0,
        slopes,
        bounds=(-np.inf, ceiling),
        loss=loss,  # type: ignore[arg-type] # SciPy's stubs describe its own inner function
        f_scale=HUBER,
        ftol=TOLERANCE,
        max_nfev=EVALUATIONS,
    )
    # Rows of SciPy's Jacobian have their weights: its square is the Hessian of the loss.
    jacobian = np.asarray(found.jac, np.float64)
    spreads = HUBER * np.sqrt(np.diag(np.linalg.inv(jacobian.T @ jacobian)))
    deviations = dict(zip(names, spreads.tolist(), strict=True))
    return ParameterFit(at(found.x), before, float(found.cost), int(found.njev or 1) - 1, deviations)

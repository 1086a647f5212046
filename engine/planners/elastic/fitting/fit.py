"""The seven parameters from profiled runs: bounded, from many starts, with a warning where one is at a bound."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pandas as pd

from engine.executions.arrays import Floats
from engine.planners.elastic.cards import PARAMETERS, Environment, PerformanceParameters
from engine.planners.elastic.limits import checked_whole
from engine.planners.elastic.measured.profiles import Profile
from engine.planners.elastic.performance.fitted import IterationTerms, data_parallel

__all__ = ["BOUNDS", "START", "CardFit", "fit_parameters", "held_out", "objective", "predicted_profile"]

START: Final = (1.5, 0.1, 0.001, 1.0, 1.0, 1.0, 1.0)
"""Starting point of the artifact; its k_sync is below its own bound and is moved onto it."""

BOUNDS: Final = ((1.0, 10.0), (1.0, np.inf), *(((1e-8, np.inf),) * 3), *(((0.0, np.inf),) * 2))
"""Least and most of each parameter, as in the artifact."""

FLOOR: Final = 1e-8
"""Searches go over logarithms; a bound of 0 is this far away, and taken where it is no worse."""

CEILING: Final = 1e6
"""Upper end of the search where the artifact has no bound. Source: stated by us."""
DRAWN: Final = 2_048
"""Random points of which the best are starts. Source: stated by us."""

DIFFERENCE: Final = 1e-6
"""Step of central differences; the logarithms searched are of the order of one."""


class _Columns(NamedTuple):
    """Parameters of many sets, [sets, 1] each."""

    k_bwd: Floats
    k_sync: Floats
    k_opt: Floats
    k_os_offload: Floats
    k_const: Floats
    k_off: Floats
    k_swap: Floats


@dataclass(frozen=True)
class CardFit:
    """Result of a fit.

    `objective` is the sum of three root mean squared logarithmic errors; `starts` are the objectives that each start
    reached, the artifact's own first; `at_bound` names parameters at a bound, `unused` parameters without effect on the
    objective. `table` has measured and predicted times of each run [ms] and errors [%]; `warnings` are sentences.
    """

    parameters: PerformanceParameters
    objective: float
    starts: tuple[float, ...]
    at_bound: tuple[str, ...]
    unused: tuple[str, ...]
    table: pd.DataFrame
    warnings: tuple[str, ...]


def predicted_profile(profile: Profile, environment: Environment, parameters: Floats) -> dict[str, Floats]:
    """Returns the three times that a fit compares, [sets, runs] each [ms].

    Args:
        profile: runs on one node.
        environment: its bandwidths.
        parameters: sets of the seven [sets, 7].
    """
    columns = _Columns(*(parameters[:, at, None] for at in range(len(PARAMETERS))))
    forward, factor = profile.floats("forward_ms"), profile.floats("forward_factor")
    terms: IterationTerms = data_parallel(
        columns,
        environment,
        parameters_mi=profile.floats("parameters_mi"),
        forward_ms=forward,
        gpus=profile.ints("gpus"),
        cpu_threads=profile.ints("cpu_threads"),
        zero=profile.ints("zero"),
        slow_network=np.zeros(len(profile), np.bool_),
        forward_factor=factor,
        backward_factor=profile.floats("backward_factor"),
    )
    backward = columns.k_bwd * forward
    return {
        # The artifact uses the forward factor where it means the backward's; we follow it.
        "overlap_sync": backward * (factor - 1.0) + backward + terms.synchronisation + terms.to_host,
        "optimize": terms.optimizer + terms.to_gpu,
        "iteration": terms.iteration,
    }


def objective(profile: Profile, environment: Environment, parameters: Floats) -> Floats:
    """Returns the sum of three root mean squared logarithmic errors [sets].

    Args:
        profile: runs on one node.
        environment: its bandwidths.
        parameters: sets of the seven [sets, 7].

    Source: artifact of Morphling/Rubick, fit of the performance parameters.
    """
    total = np.zeros(len(parameters))
    for name, found in predicted_profile(profile, environment, parameters).items():
        errors = np.log(np.maximum(found, 1e-300)) - np.log(profile.floats(f"{name}_ms"))
        total += np.sqrt((errors**2).mean(axis=1))
    return total


def fit_parameters(profile: Profile, environment: Environment, *, starts: int = 12, seed: int = 0) -> CardFit:
    """Returns the seven parameters that fit the runs best.

    Args:
        profile: runs on one node.
        environment: its bandwidths, which are not fitted.
        starts: from which to search: the artifact's, and the best of random ones.
        seed: of the random ones.

    Raises `engine.planners.contract.PlanError` for a number of starts that makes no sense.
    """
    count = checked_whole(starts, "Starts are", 1, 1_000)
    lower = np.log([max(low, FLOOR) for low, _ in BOUNDS])
    upper = np.log([min(high, CEILING) for _, high in BOUNDS])

    def function(points: Floats) -> Floats:
        return objective(profile, environment, np.exp(points))

    begins = [np.clip(np.log(START), lower, upper)]
    if count > 1:
        drawn = np.random.default_rng(seed).uniform(
            np.maximum(lower, np.log(1e-4)), np.minimum(upper, np.log(1e4)), (DRAWN, len(PARAMETERS))
        )
        begins += list(drawn[np.argsort(function(drawn))[: count - 1]])
    found = [_minimise_in_box(function, begin, lower, upper) for begin in begins]
    best, value = _polish_minimum(function, *min(found, key=lambda each: each[1]), lower, upper)
    vector, value = _snap_to_bounds(profile, environment, np.exp(best), value)
    return _build_fit(profile, environment, vector, value, tuple(each[1] for each in found))


def _minimise_in_box(
    function: Callable[[Floats], Floats], start: Floats, lower: Floats, upper: Floats
) -> tuple[Floats, float]:
    """Return (point, value) of a local minimum inside a box, by sequential quadratic programming.

    Args:
        function: values [points] at points [points, variables], all at once.
        start: where to begin [variables].
        lower, upper: bounds [variables].
    """
    from scipy.optimize import Bounds, minimize  # slow to import, and only fits need it

    def gradient(point: Floats) -> Floats:
        steps = DIFFERENCE * np.eye(len(point))
        above, below = np.minimum(point + steps, upper), np.maximum(point - steps, lower)
        values = function(np.concatenate([above, below]))
        return np.asarray((values[: len(point)] - values[len(point) :]) / (above - below).sum(axis=1), np.float64)

    def value_at(point: Floats) -> float:
        return float(function(point[None])[0])

    box = Bounds(lower, upper)
    found = minimize(value_at, start, jac=gradient, method="SLSQP", bounds=box, tol=1e-14, options={"maxiter": 1_000})
    point = np.clip(found.x, lower, upper)
    return point, value_at(point)


def _polish_minimum(
    function: Callable[[Floats], Floats], point: Floats, value: float, lower: Floats, upper: Floats
) -> tuple[Floats, float]:
    """Return a minimum no worse than `point`, by a simplex search, which does not stall at kinks as gradients do."""
    from scipy.optimize import Bounds, minimize

    def value_at(point: Floats) -> float:
        return float(function(point[None])[0])

    box, most = Bounds(lower, upper), 4_000
    found = minimize(
        value_at, point, method="Nelder-Mead", bounds=box, tol=1e-9, options={"maxiter": most, "adaptive": True}
    )
    again = _minimise_in_box(function, np.clip(found.x, lower, upper), lower, upper)
    return min((point, value), again, key=lambda each: each[1])


def _snap_to_bounds(profile: Profile, environment: Environment, vector: Floats, value: float) -> tuple[Floats, float]:
    """Move parameters near a bound onto it where the objective gets no worse."""
    for at, (low, high) in enumerate(BOUNDS):
        for bound in (low, high):
            if np.isfinite(bound):
                moved = vector.copy()
                moved[at] = bound
                there = float(objective(profile, environment, moved[None])[0])
                if there <= value + 1e-9:
                    vector, value = moved, there
    return vector, value


def _build_fit(
    profile: Profile, environment: Environment, vector: Floats, value: float, starts: tuple[float, ...]
) -> CardFit:
    parameters = PerformanceParameters(**dict(zip(PARAMETERS, map(float, vector), strict=True)))
    # A parameter that may double without a change of the objective is not determined by the runs.
    doubled = vector + np.diag(np.maximum(vector, 1e-3))
    unused = tuple(
        name
        for name, other in zip(PARAMETERS, objective(profile, environment, doubled), strict=True)
        if abs(other - value) < 1e-12
    )
    at_bound = tuple(
        name
        for name, found, (low, high) in zip(PARAMETERS, vector, BOUNDS, strict=True)
        if name not in unused and (found <= low * (1 + 1e-6) + 1e-12 or found >= min(high, CEILING) * (1 - 1e-6))
    )
    warnings = []
    if at_bound:
        warnings.append(f"At a bound: {', '.join(at_bound)}; the runs do not hold what would tell these parameters.")
    if unused:
        warnings.append(f"The runs say nothing of {', '.join(unused)}.")
    if len(profile) < len(PARAMETERS):
        warnings.append(f"{len(profile)} runs for {len(PARAMETERS)} parameters: many sets fit as well.")
    if starts[0] > value + 1e-3:
        warnings.append(f"The artifact's start ends at {starts[0]:.4f}, others at {value:.4f}.")
    if value > 1:
        warnings.append(f"The objective is {value:.2f}: the formulas do not describe these runs.")
    return CardFit(
        parameters, value, starts, at_bound, unused, _build_error_table(profile, environment, vector), tuple(warnings)
    )


def _build_error_table(profile: Profile, environment: Environment, vector: Floats) -> pd.DataFrame:
    table = profile.table[["gpus", "cpu_threads", "zero"]].copy()
    for name, found in predicted_profile(profile, environment, vector[None]).items():
        table[f"{name}_ms"] = profile.floats(f"{name}_ms")
        table[f"predicted_{name}_ms"] = found[0]
        table[f"{name}_error_pct"] = 100 * (found[0] / profile.floats(f"{name}_ms") - 1)
    return table


def held_out(profile: Profile, environment: Environment, *, starts: int = 4, seed: int = 0) -> pd.DataFrame:
    """Returns one row per run: the error of its iteration with the run in the fit and with it left out [%].

    Args:
        profile: runs on one node, 2 to 60.
        environment: its bandwidths.
        starts: of each fit.
        seed: of their random starts.

    Raises `engine.planners.contract.PlanError` for a profile of one run, or of more than 60.
    """
    checked_whole(len(profile), "Runs of the profile are", 2, 60)
    inside = fit_parameters(profile, environment, starts=starts, seed=seed)
    rows = []
    for at in range(len(profile)):
        fit = fit_parameters(profile.without({at}), environment, starts=starts, seed=seed)
        vector = np.array(fit.parameters.vector())
        error = float(_build_error_table(profile, environment, vector)["iteration_error_pct"].iloc[at])
        rows.append(
            {
                **profile.table[["gpus", "cpu_threads", "zero", "iteration_ms"]].iloc[at].to_dict(),
                "in_sample_pct": float(inside.table["iteration_error_pct"].iloc[at]),
                "held_out_pct": error,
            }
        )
    return pd.DataFrame(rows)

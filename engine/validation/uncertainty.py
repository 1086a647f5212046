"""How far a prediction may be off, from the errors of comparable runs that had no part in the fit.

Comparable means: same accelerator generation, dense or with experts, weights gathered layer by layer or not. Where
fewer than `LEAST_ROWS` runs are comparable, the last of these conditions are dropped one by one.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from engine.calibrated import calibrated, model_shapes
from engine.calibrated.fields import FULLY_SHARDED
from engine.calibrated.systems import generation_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.scenario import Scenario

__all__ = ["LEAST_ROWS", "Interval", "interval", "interval_of", "is_modelled", "residuals"]

LEAST_ROWS = 15
CONDITIONS = ("generation", "experts", "fully_sharded")
LOWEST_SHARE, HIGHEST_SHARE = 0.5, 0.99


class Interval(NamedTuple):
    """Factors on a predicted time: true times lie between low and high times it in `share` of comparable runs.

    `rows` is how many runs it rests on, `described` which.
    """

    low: float
    high: float
    rows: int
    described: str


@cache
def residuals() -> pd.DataFrame:
    """Errors of unseen runs: `id`, `generation`, `experts`, `fully_sharded`, `ratio` (measured over predicted)."""
    with files("engine.validation").joinpath("data", "residuals.csv").open(encoding="utf-8") as file:
        return pd.read_csv(file)


def interval(*, generation: str, experts: bool, fully_sharded: bool, share: float = 0.8) -> Interval:
    """Interval for predictions of a kind of run.

    Args:
        generation: one of `engine.calibrated.inputs.GENERATIONS`; "other" has no runs and gets those of all.
        experts: whether the model has experts. fully_sharded: whether weights are gathered layer by layer.
        share: of comparable runs inside the interval, 0.5 to 0.99.

    Raises:
        ValueError: `share` is outside its range.
    """
    if not LOWEST_SHARE <= share <= HIGHEST_SHARE:
        raise ValueError(f"share is {share:g}; it must be between {LOWEST_SHARE} and {HIGHEST_SHARE}")
    wanted = {"generation": generation, "experts": experts, "fully_sharded": fully_sharded}
    found = table = residuals()
    used: tuple[str, ...] = ()
    for count in range(len(CONDITIONS), -1, -1):
        used = CONDITIONS[:count]
        mask = np.ones(len(table), bool)
        for name in used:
            mask &= (table[name] == wanted[name]).to_numpy(bool)
        found = table[mask]
        if len(found) >= LEAST_ROWS:
            break
    ratio = found["ratio"].to_numpy(np.float64)
    low, high = np.quantile(ratio, [(1.0 - share) / 2.0, (1.0 + share) / 2.0])
    described = ", ".join(f"{name} {wanted[name]}" for name in used) or "all runs"
    return Interval(float(low), float(high), len(found), described)


def is_modelled(scenario: Scenario) -> bool:
    """Whether figures are predicted for a generation of processors on which nothing was measured."""
    return scenario.cost_model != "calculon" and not calibrated(scenario.system)


def interval_of(scenario: Scenario, execution: Mapping[Any, Any], share: float = 0.8) -> Interval | None:
    """Interval for the step time of one execution; None where no measured run is comparable.

    That is under the exact cost model, which predicts no measurement, and on processors of a generation on which
    nothing was measured. Raises ValueError for a share that `interval` does not take.
    """
    if scenario.cost_model == "calculon" or is_modelled(scenario):
        return None
    return interval(
        generation=generation_of(scenario.system),
        experts=bool(model_shapes(scenario.model).experts > 0),
        fully_sharded=int(execution.get("zero_stage", 0)) == FULLY_SHARDED,
        share=share,
    )

"""Fit of executions into memory, with the error of predicted memory above the capacity and below."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from engine.columns import FIT, FITS, Fit, statistics_of
from engine.cost_models.registry import named
from engine.executions.limits import capacity_factor
from engine.scenarios.dispatch import evaluate
from engine.scenarios.scenario import Scenario
from engine.store.conditions import StoreCondition
from engine.validation.uncertainty import Interval, fit_bounds, fit_within, memory_interval, memory_interval_of
from hardware import GIB, Calibration, System
from models import Model

__all__ = [
    "FIT_NEEDS",
    "OUT_OF_MEMORY",
    "FitBounds",
    "add_fits",
    "describe_fit",
    "find_fit",
    "fit_bounds_of",
    "table_with_fit",
    "with_fit",
    "without_capacity",
]

OUT_OF_MEMORY: Final = ("memory_tier1", "memory_tier2")
"""Reasons of executions that need more than a capacity."""
FIT_NEEDS: Final = ("proc_mem_tier1_cap_req", "proc_mem_tier2_cap_req")
"""Statistics that the fit of an execution follows from: required memory of both tiers [bytes]."""
_ENDLESS: Final = 1e12
"""Capacity that no execution exceeds [GiB]."""


@dataclass(frozen=True, slots=True)
class FitBounds:
    """Required memory up to which executions of a scenario fit, may not fit and may fit, of both tiers [bytes]."""

    tiers: tuple[tuple[float, float, float], tuple[float, float, float]]

    def find_fits(self, first: npt.ArrayLike, second: npt.ArrayLike) -> npt.NDArray[np.object_]:
        """Return the fit of executions, the worse of both tiers [rows].

        Args:
            first, second: required memory of each tier [bytes] [rows].
        """
        ranks = [
            np.searchsorted(np.array(bounds), np.asarray(need, np.float64), side="left")
            for bounds, need in zip(self.tiers, (first, second), strict=True)
        ]
        words: npt.NDArray[np.object_] = np.array(FITS, object)[np.maximum(*ranks)]
        return words

    def conditions(self, words: Iterable[str]) -> list[StoreCondition]:
        """Return the conditions of rows whose fit is one of some words.

        Args:
            words: of `FITS`.
        """
        groups = [group for word in dict.fromkeys(words) for group in self._word_groups(FITS.index(word))]
        return [StoreCondition(FIT_NEEDS[0], "any of", tuple(groups))]

    def _word_groups(self, rank: int) -> list[tuple[StoreCondition, ...]]:
        """Return groups of conditions: both tiers have at most a rank, and one of them has it."""
        most = tuple(
            StoreCondition(name, "<=", bounds[rank])
            for name, bounds in zip(FIT_NEEDS, self.tiers, strict=True)
            if rank < len(bounds)
        )
        if rank == 0:
            return [most]
        over = [StoreCondition(name, ">", bounds[rank - 1]) for name, bounds in zip(FIT_NEEDS, self.tiers, strict=True)]
        return [(*most, one) for one in over]


def fit_bounds_of(scenario: Scenario) -> FitBounds | None:
    """Return the bounds of a scenario's fits; None under a cost model that predicts no measurement, and where the error
    of predicted memory is not known.

    Memory up to the scenario's limit `memory_excess` may fit, also beyond the error.

    Args:
        scenario: of any cost model.
    """
    error, factor = memory_interval_of(scenario), capacity_factor(scenario.limits)
    if error is None and factor == 1.0:
        return None
    tiers = []
    for tier in (scenario.system.mem1, scenario.system.mem2):
        sure, capacity, most = fit_bounds(tier.capacity_gib * GIB, error)
        tiers.append((sure, capacity, max(most, capacity * factor)))
    return FitBounds((tiers[0], tiers[1]))


def with_fit(scenario: Scenario, executions: pd.DataFrame) -> pd.DataFrame:
    """Return feasible executions of a scenario with a column `fit` behind their outcome, or as they are without bounds.

    Args:
        scenario: of the executions.
        executions: with the statistics `FIT_NEEDS` [rows].
    """
    bounds = fit_bounds_of(scenario)
    if bounds is None:
        return executions
    fits = bounds.find_fits(*(executions[name] for name in FIT_NEEDS))
    names = [name for name in executions if name != FIT.name]
    place = names.index("reason_text") + 1 if "reason_text" in names else len(names)
    return executions.assign(**{FIT.name: fits})[[*names[:place], FIT.name, *names[place:]]]


def table_with_fit(scenario: Scenario, table: pa.Table) -> pa.Table:
    """Return feasible executions of a scenario with a column `fit` at the end, or as they are without bounds.

    Args:
        scenario: of the executions.
        table: with the statistics `FIT_NEEDS` [rows].
    """
    bounds = fit_bounds_of(scenario)
    if bounds is None:
        return table
    return table.append_column(FIT.name, pa.array(bounds.find_fits(*(table[name] for name in FIT_NEEDS)), pa.string()))


def without_capacity(system: System) -> System:
    """Return the system with memory that no execution exceeds, to see what one would need.

    Args:
        system: any system; a tier that it does not have stays absent.
    """
    tiers = {
        name: memory.model_copy(update={"capacity_gib": _ENDLESS}) if memory.capacity_gib > 0 else memory
        for name, memory in (("mem1", system.mem1), ("mem2", system.mem2))
    }
    return system.model_copy(update=tiers)


def add_fits(
    model: Model,
    system: System,
    executions: pd.DataFrame,
    found: pd.DataFrame,
    *,
    cost_model: str,
    calibration: Calibration | None,
) -> pd.DataFrame:
    """Return evaluated executions with a column `fit`, and with statistics also where it is "may fit".

    An execution above a capacity by less than the error of predicted memory keeps its status, infeasible, and its
    reason. Without a prediction of memory, and for executions that cannot run for another reason, `fit` stays empty
    (None).

    Args:
        model: the model that is trained.
        system: the system that it runs on.
        executions: fields [rows].
        found: what `engine.evaluate` returned for them [rows].
        cost_model: name of the cost model.
        calibration: values for the calibrated cost model; None uses the library's.
    """
    error = memory_interval(model, system) if named(cost_model).takes_calibration else None
    fits = np.full(len(found), None, object)
    if error is None:
        return _with_columns(found, {"fit": fits})
    for row in np.flatnonzero((found["status"] == "ok").to_numpy()).tolist():
        fits[row] = find_fit(found.iloc[row], system, error)
    over = np.flatnonzero(found["reason"].isin(OUT_OF_MEMORY).to_numpy())
    columns: dict[str, Any] = {"fit": fits}
    if len(over):
        free = evaluate(
            model, without_capacity(system), executions.iloc[over], cost_model=cost_model, calibration=calibration
        )
        fits[over] = [find_fit(row, system, error) for _, row in free.iterrows()]
        may = fits[over] == "may fit"
        for column in statistics_of(cost_model):
            columns[column.name] = found[column.name].to_numpy(copy=True)
            columns[column.name][over[may]] = free[column.name].to_numpy()[may]
    return _with_columns(found, columns)


def _with_columns(found: pd.DataFrame, columns: Mapping[str, Any]) -> pd.DataFrame:
    """Return the table with these columns instead of its own, in its order, new ones last."""
    order = [*found, *(name for name in columns if name not in found)]
    kept = found[[name for name in found if name not in columns]]
    return pd.concat([kept, pd.DataFrame(dict(columns), index=found.index)], axis=1)[order]


def describe_fit(model: Model, system: System, fit: str | None) -> str:
    """Return the sentence about an execution that may fit, with the error that says so; "" for all others.

    Args:
        model, system: of the execution, under the calibrated cost model.
        fit: whether it fits.
    """
    error = memory_interval(model, system) if fit == "may fit" else None
    if error is None:
        return ""
    return (
        f"It may fit: {error.share:.0%} of measured runs took {error.low:.2f} to {error.high:.2f} times the predicted "
        "memory."
    )


def find_fit(row: Mapping[Any, Any] | pd.Series, system: System, error: Interval) -> Fit:
    """Return whether an execution fits into both tiers of memory: the worse of the two.

    Args:
        row: its required memory of both tiers, by the name of the statistic [bytes].
        system: the system that it runs on.
        error: factors on predicted memory.
    """
    tiers = zip((row[name] for name in FIT_NEEDS), (system.mem1, system.mem2), strict=True)
    return max((fit_within(float(need), tier.capacity_gib * GIB, error) for need, tier in tiers), key=FITS.index)

"""Fit of single executions into memory, with the error of predicted memory above the capacity and below."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pandas as pd

from engine.columns import statistics_of
from engine.cost_models.registry import named
from engine.scenarios.dispatch import evaluate
from engine.validation.uncertainty import Fit, Interval, fit_within, memory_interval
from hardware import GIB, Calibration, System
from models import Model

__all__ = ["OUT_OF_MEMORY", "add_fits", "describe_fit", "find_fit", "without_capacity"]

OUT_OF_MEMORY: Final = ("memory_tier1", "memory_tier2")
"""Reasons of executions that need more than a capacity."""
_ENDLESS: Final = 1e12
"""Capacity that no execution exceeds [GiB]."""


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
    order: tuple[Fit, ...] = ("fits", "may not fit", "may fit", "does not fit")
    tiers = ((row["proc_mem_tier1_cap_req"], system.mem1), (row["proc_mem_tier2_cap_req"], system.mem2))
    return max((fit_within(float(need), tier.capacity_gib * GIB, error) for need, tier in tiers), key=order.index)

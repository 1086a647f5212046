"""Fitting the shipped calibration, and testing it on halves it has not seen. Anyone can rerun both."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

import hardware
from engine.cost_models.calibrated import FITTED, Parameters, library_calibration, parameters, step_times
from engine.validation.fitting import ParameterFit, fit_parameters
from engine.validation.mapping import Mapped, map_runs
from engine.validation.predict import measured_seconds
from engine.validation.reading import Runs, library_runs
from engine.validation.selection import (
    accelerator_sets,
    defective,
    fit_weights,
    fold_groups,
    headline,
    sets_of,
    sources_of,
    two_folds,
)

__all__ = [
    "SEEDS",
    "TwoFold",
    "fit_all",
    "leave_one_source_out",
    "ratios_without_source",
    "start_parameters",
    "two_fold",
    "updated_calibration",
]

SEEDS = (0, 1, 2, 3, 4)
"""Seeds of the random halves that two-fold errors are averaged over."""
ROUND_START: dict[str, float] = {
    "sustained_ampere": 0.75,
    "sustained_hopper": 0.65,
    "sustained_blackwell": 0.5,
    "sustained_cdna": 0.5,
    "sustained_tpu": 0.75,
    "sustained_tpu_wide": 0.6,
    "attention": 0.6,
    "launch": 30e-6,
    "immaturity": 0.15,
}
"""Start of every fit and centre of its prior: round values from microbenchmarks and papers, not the last fit."""


@dataclass(frozen=True, slots=True)
class TwoFold:
    """Errors on rows that had no part in the fit, for several random halves.

    `errors`: one row per seed and set with `seed`, `set`, `accelerator` (the maker's name where the set is its runs,
    else ""), `rows`, `mean`, `median`, `bias` [%]. `predicted`: seconds per step of every row when it was not fitted,
    from the first seed [rows]; NaN where unsupported. `values`: the fitted parameters, one row per fit.
    """

    errors: pd.DataFrame
    predicted: npt.NDArray[np.float64]
    values: pd.DataFrame

    def means(self) -> dict[str, float]:
        """Returns the mean error of every set, averaged over seeds [%]."""
        return {
            str(name): float(value) for name, value in self.errors.groupby("set", sort=False)["mean"].mean().items()
        }


def start_parameters(p: Parameters | None = None) -> Parameters:
    """Returns the parameters with the fitted ones at the round values that fits start from.

    Args:
        p: whose other values are kept; the shipped calibration's where None.
    """
    return (p or parameters()).model_copy(update=ROUND_START)


def _prepare_rows(runs: Runs | None) -> tuple[Mapped, npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    mapped = map_runs(runs or library_runs())
    measured = measured_seconds(mapped)
    usable = mapped.supported & np.isfinite(measured)
    return mapped, measured, np.where(usable, fit_weights(mapped.table), 0.0)


def _fit_rows(
    mapped: Mapped,
    measured: npt.NDArray[np.float64],
    weights: npt.NDArray[np.float64],
    rows: npt.NDArray[np.bool_],
    names: Sequence[str],
) -> ParameterFit:
    index = np.flatnonzero(rows & (weights > 0))
    return fit_parameters(
        mapped.case.take(index), measured[index], start_parameters(), weights=weights[index], names=names
    )


def fit_all(runs: Runs | None = None, names: Sequence[str] = FITTED) -> ParameterFit:
    """Returns the fit to all rows that `selection.fit_weights` lets count; what the shipped calibration holds.

    Args:
        runs: measured ones; the package's where None.
        names: of the parameters that are fitted.
    """
    mapped, measured, weights = _prepare_rows(runs)
    return _fit_rows(mapped, measured, weights, np.ones(len(measured), bool), names)


def two_fold(runs: Runs | None = None, seeds: Sequence[int] = SEEDS, names: Sequence[str] = FITTED) -> TwoFold:
    """Fits on one half of the groups, predicts the other, for several random halves.

    Args:
        runs: measured ones; the package's where None.
        seeds: of the random halves, one pass for each.
        names: of the parameters that are fitted.
    """
    mapped, measured, weights = _prepare_rows(runs)
    groups = fold_groups(mapped.table)

    def folds(seed: int) -> npt.NDArray[np.int64]:
        # Only headline rows decide how large a fold is.
        chosen = headline(mapped.table)
        found = np.zeros(len(groups), np.int64)
        found[chosen] = two_folds([groups[row] for row in np.flatnonzero(chosen)], seed)
        return found

    return _test_folds(mapped, measured, weights, folds, seeds, names)


def leave_one_source_out(runs: Runs | None = None, names: Sequence[str] = FITTED) -> TwoFold:
    """Fits on all sources but one, predicts that one; one pass over all sources.

    Args:
        runs: measured ones; the package's where None.
        names: of the parameters that are fitted.
    """
    mapped, measured, weights = _prepare_rows(runs)
    member = np.unique(sources_of(mapped.table).astype(str), return_inverse=True)[1]
    return _test_folds(mapped, measured, weights, lambda _: member.astype(np.int64), (0,), names)


def ratios_without_source(
    runs: Runs | None = None, names: Sequence[str] = FITTED, *, progress: Callable[[int, int], None] | None = None
) -> npt.NDArray[np.float64]:
    """Returns the measured over predicted time of every run [rows], by a fit that did not see the run's source; not a
    number for runs of sources that no fit counts.

    Args:
        runs: measured ones; the package's where None.
        names: of the parameters that are fitted.
        progress: called with (done, all) fits, at first with none done.
    """
    mapped, measured, weights = _prepare_rows(runs)
    source = sources_of(mapped.table)
    found = np.full(len(measured), np.nan)
    every = sorted(set(source[weights > 0]))
    for number, name in enumerate(every):
        if progress is not None:
            progress(number, len(every))
        fit = _fit_rows(mapped, measured, weights, source != name, names)
        rows = np.flatnonzero((source == name) & mapped.supported)
        found[rows] = measured[rows] / step_times(mapped.case.take(rows), fit.parameters).step
    return found


def _test_folds(
    mapped: Mapped,
    measured: npt.NDArray[np.float64],
    weights: npt.NDArray[np.float64],
    folds: Callable[[int], npt.NDArray[np.int64]],
    seeds: Sequence[int],
    names: Sequence[str],
) -> TwoFold:
    chosen = headline(mapped.table)
    sets = {("", name): rows for name, rows in sets_of(mapped.table, ~defective(mapped.table)).items()}
    sets |= {(name, f"published runs on {name}"): rows for name, rows in accelerator_sets(mapped.table).items()}
    kept: npt.NDArray[np.float64] | None = None
    rows: list[dict[str, object]] = []
    values: list[dict[str, float]] = []
    for seed in seeds:
        fold = folds(seed)
        predicted = np.full(len(measured), np.nan)
        for part in np.unique(fold):
            fit = _fit_rows(mapped, measured, weights, fold != part, names)
            values.append({name: getattr(fit.parameters, name) for name in names})
            test = fold == part
            predicted[test] = step_times(mapped.case.take(test), fit.parameters).step
        predicted = np.where(mapped.supported, predicted, np.nan)
        kept = predicted if kept is None else kept
        error = predicted / measured - 1.0
        for (accelerator, name), members in sets.items():
            found = error[members & chosen & np.isfinite(error)]
            if len(found) == 0:
                continue
            size = 100.0 * np.abs(found)
            rows.append(
                {
                    "seed": seed,
                    "set": name,
                    "accelerator": accelerator,
                    "rows": len(found),
                    "mean": size.mean(),
                    "median": np.median(size),
                    "bias": 100.0 * np.median(found),
                }
            )
    assert kept is not None
    return TwoFold(pd.DataFrame(rows), kept, pd.DataFrame(values))


def updated_calibration(fit: ParameterFit, tested: TwoFold, day: datetime.date | None = None) -> hardware.Calibration:
    """Returns the shipped calibration with the values of a fit, their range over the halves, and the two-fold
    errors.

    Args:
        fit: to all rows that count.
        tested: the fits to halves.
        day: of the fit; today's where None.
    """
    old = library_calibration()
    document = hardware.calibration_document(old)
    for name in FITTED:
        value = float(f"{getattr(fit.parameters, name):.4g}")
        halves = [float(f"{each:.4g}") for each in tested.values[name]]
        document["parameters"][name] |= {"value": value, "low": min(value, *halves), "high": max(value, *halves)}
    document["date"] = (day or datetime.date.fromisoformat(old.date)).isoformat()
    sizes = tested.errors.groupby("set", sort=False)
    document["errors"] = [
        {
            "rows": int(part["rows"].iloc[0]),
            "described": f"{name}: two halves by group, mean over {len(part)} random halves",
            "held_out": True,
            "mean_absolute_percent": round(float(part["mean"].mean()), 2),
            "median_absolute_percent": round(float(part["median"].mean()), 2),
            "bias_percent": round(float(part["bias"].mean()), 2),
            "accelerator": str(part["accelerator"].iloc[0]),
        }
        for name, part in sizes
    ]
    return hardware.load_calibration_document(document, "the fitted calibration")

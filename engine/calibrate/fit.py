"""Fitting a few parameters to measured runs of one system, and testing the fit on runs that it has not seen.

The most probable values given the runs and the priors (maximum a posteriori): see `engine.validation.fitting` for the
loss and `engine.calibrate.choice` for the priors. Rows of one configuration count as one run together, because what
the model gets wrong about a configuration it gets wrong each time (`engine.calibrate.folds`); a single run that no
physics explains pulls at a parameter no harder than a bounded force (Huber).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

import hardware
from engine.calibrate.choice import Adjustable, CalibrateError, adjustable, checked_names, influence, suggest_names
from engine.calibrate.folds import HeldOut, held_out, kin_of, row_weights
from engine.calibrate.rows import CheckedRuns
from engine.cost_models.calibrated import Parameters, largest, library_calibration, parameters_of, step_times
from engine.executions.arrays import Floats
from engine.exploration.run import ExplorationCancelled
from engine.validation.error_tables import error_statistics
from engine.validation.fitting import fit_parameters
from engine.validation.ranking import layout_groups
from engine.validation.reading import library_runs

__all__ = ["CalibrationOutcome", "ParameterEstimate", "calibrate", "seen_before"]

INTERVAL: Final = 1.645
"""Standard deviations around a value that hold 90 % of a normal distribution. Source: quantile of 0.95."""

MOST_RANKED: Final = 1_000
"""Rows up to which layouts are ranked."""


@dataclass(frozen=True, slots=True)
class ParameterEstimate:
    """A parameter before and after a fit, with ranges that hold it with 90 % probability."""

    about: Adjustable
    prior: float
    value: float
    prior_range: tuple[float, float]
    value_range: tuple[float, float]
    learned: float
    """Share of the prior's variance that the runs removed: 0 if they carry no information, near 1 if they decide."""


@dataclass(frozen=True, slots=True)
class CalibrationOutcome:
    """A calibration of a system by measured runs; arrays are [rows of `checked`], NaN where a row is not accepted.

    `before`, `after`: parameters. `predicted_before`, `predicted_after`: step times [s]; `predicted_unseen` the step
    times of fits that left the row out, NaN if no row could be left out. `errors_*`:
    `engine.validation.error_tables.ERROR_COLUMNS` [%], over the accepted rows; `errors_unseen` None where nothing was
    held out. `known`: accepted rows that the library's calibration was fitted on itself.
    """

    checked: CheckedRuns
    base: hardware.Calibration
    before: Parameters
    after: Parameters
    estimates: tuple[ParameterEstimate, ...]
    influence: Mapping[str, float]
    configurations: int
    predicted_before: Floats
    predicted_after: Floats
    predicted_unseen: Floats
    errors_before: Mapping[str, float]
    errors_after: Mapping[str, float]
    errors_unseen: Mapping[str, float] | None
    held_out: HeldOut
    known: int

    @property
    def rows(self) -> int:
        """Runs that were fitted."""
        return int(self.checked.accepted.sum())

    @property
    def helps(self) -> bool | None:
        """True if runs that were not fitted are predicted better; None if no runs were held out."""
        if self.errors_unseen is None:
            return None
        return self.errors_unseen["mean"] < self.errors_before["mean"]

    @property
    def verdict(self) -> str:
        """Assessment of the fit in two or three sentences."""
        if not self.known:
            return self._worth
        many = "all" if self.known == self.rows else f"{self.known:,}"
        return (
            f"{self._worth} The library's own calibration was fitted to {many} of these runs, so its error on them is "
            "not an unseen one."
        )

    @property
    def _worth(self) -> str:
        before, after = self.errors_before["mean"], self.errors_after["mean"]
        if self.errors_unseen is None:
            return (
                f"{self.held_out.described}. On the fitted runs themselves the mean error goes from {before:.1f} % to "
                f"{after:.1f} %, which promises nothing for others; the values stay near those it started from."
            )
        unseen = self.errors_unseen["mean"]
        text = f"On runs left out of the fit ({self.held_out.described}) the mean error goes from {before:.1f} % to "
        if unseen < before:
            return f"{text}{unseen:.1f} %."
        start = "the library's values" if self.base == library_calibration() else f"those of {self.base.name!r}"
        return f"{text}{unseen:.1f} %: it does not fall, so these runs are no reason to leave {start}."


def calibrate(
    checked: CheckedRuns,
    names: Sequence[str] | None = None,
    base: hardware.Calibration | None = None,
    *,
    progress: Callable[[int, int], None] | None = None,
    cancel: Callable[[], bool] | None = None,
) -> CalibrationOutcome:
    """Fit parameters to the accepted rows.

    Args:
        checked: the runs.
        names: which parameters to fit; the ones that the runs determine best if None.
        base: the calibration whose values are the start, the centre of the priors, and the values of all other
            parameters; the library's if None.
        progress: called with (done, all) fits: one to all rows, and one without each part that is held out.
        cancel: returns True to stop.

    Raises:
        CalibrateError: no row is accepted, or the parameters cannot be fitted.
        engine.ExplorationCancelled: `cancel` returned True.
        hardware.CalibrationFileError: `base` is no calibration of this cost model.
    """
    base = base or library_calibration()
    before = parameters_of(base)
    accepted = checked.accepted
    if not accepted.any():
        raise CalibrateError(
            f"None of the {len(accepted):,} runs can be used, so nothing is fitted.{_describe_first_refusal(checked)}"
        )
    case, measured = checked.case(), checked.measured[accepted]
    kin = kin_of(checked)
    offered = adjustable(checked.system, before)
    influences = influence(case, before, offered)
    chosen = suggest_names(influences, kin.configurations) if names is None else checked_names(names, offered)
    weights = row_weights(kin)
    spread = {name: offered[name].spread for name in chosen}

    parts, done = held_out(kin), 0

    def fitted(rows: npt.NDArray[np.bool_]) -> tuple[Parameters, Mapping[str, float]]:
        nonlocal done
        if cancel is not None and cancel():
            raise ExplorationCancelled("The fit was cancelled.")
        found = fit_parameters(
            case.take(np.flatnonzero(rows)), measured[rows], before, weights=weights[rows], names=chosen, spread=spread
        )
        done += 1
        if progress is not None:
            progress(done, 1 + parts.folds)
        return found.parameters, found.deviations

    after, deviations = fitted(np.ones(len(measured), bool))
    unseen = np.full(len(measured), np.nan)
    # The error that counts: each fold predicted with parameters fitted without it.
    for part in range(parts.folds):
        left_out = parts.fold == part
        unseen[left_out] = step_times(case.take(np.flatnonzero(left_out)), fitted(~left_out)[0]).step
    old, new = step_times(case, before).step, step_times(case, after).step
    errors_of = _build_error_function(checked)
    return CalibrationOutcome(
        checked=checked,
        base=base,
        before=before,
        after=after,
        estimates=tuple(_build_estimate(offered[name], before, after, deviations[name]) for name in chosen),
        influence=influences,
        configurations=kin.configurations,
        predicted_before=_expand_rows(accepted, old),
        predicted_after=_expand_rows(accepted, new),
        predicted_unseen=_expand_rows(accepted, unseen),
        errors_before=errors_of(old),
        errors_after=errors_of(new),
        errors_unseen=errors_of(unseen) if parts.folds else None,
        held_out=parts,
        known=seen_before(checked),
    )


def _describe_first_refusal(checked: CheckedRuns) -> str:
    """The first refused row and its sentence."""
    refused = np.flatnonzero(~checked.accepted)
    return f" {checked.labels[refused[0]].capitalize()}: {checked.reason_text[refused[0]]}" if len(refused) else ""


def _expand_rows(accepted: npt.NDArray[np.bool_], values: Floats) -> Floats:
    found = np.full(len(accepted), np.nan)
    found[accepted] = values
    return found


def _build_error_function(checked: CheckedRuns) -> Callable[[Floats], dict[str, float]]:
    """Return a function that computes the errors of predictions of the accepted rows."""
    accepted = checked.accepted
    table = checked.table[accepted].reset_index(drop=True)
    # Ranking compares all pairs of a group.
    groups = layout_groups(table) if len(table) <= MOST_RANKED else np.arange(len(table))
    measured, batch = checked.measured[accepted], table["gbs"].to_numpy(np.float64)
    return lambda predicted: error_statistics(predicted, measured, groups, batch)


def _build_estimate(about: Adjustable, before: Parameters, after: Parameters, deviation: float) -> ParameterEstimate:
    prior, value = float(getattr(before, about.name)), float(getattr(after, about.name))
    limit = largest(about.name)

    def around(centre: float, width: float) -> tuple[float, float]:
        # Parameters are log-normal: a factor up and down.
        reach = float(np.exp(INTERVAL * width))
        return centre / reach, min(centre * reach, limit)

    # Share of the prior's variance that the runs took away.
    learned = 1.0 - min((deviation / about.spread) ** 2, 1.0)
    return ParameterEstimate(about, prior, value, around(prior, about.spread), around(value, deviation), learned)


def seen_before(checked: CheckedRuns) -> int:
    """Return the number of accepted rows that are in the package, whose calibration was fitted on them.

    Args:
        checked: runs, checked for use in a fit.
    """
    mine = checked.table[checked.accepted]
    return sum(row in _library_keys() for row in _row_keys(mine))


@cache
def _library_keys() -> frozenset[tuple[object, ...]]:
    """Return the keys of the package's runs."""
    return frozenset(_row_keys(library_runs().table))


def _row_keys(table: pd.DataFrame) -> Iterator[tuple[object, ...]]:
    return zip(table["id"], table["hidden"], table["gbs"], table["num_gpus"], strict=True)

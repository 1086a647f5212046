"""A fit as a calibration document: what moved and why, everything else as it was, and how well it predicts."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Mapping
from typing import Any, Final

import hardware
from engine.calibrate.choice import CalibrateError
from engine.calibrate.fit import CalibrationOutcome
from engine.validation.fitting import HUBER
from hardware import CalibratedValue, Calibration, CalibrationFileError, FitError

__all__ = ["checked_name", "document"]

LONGEST: Final = 1_900
"""Characters of a list of runs in a document."""
DIGITS: Final = 5
"""Significant digits of a fitted value. Source: stated by us."""


def checked_name(name: str, base: Calibration) -> str:
    """Return the name of a calibration, checked before the fit; empty if the fit is to choose it.

    Args:
        name: as given by the user.
        base: any calibration.

    Raises CalibrateError for an invalid name.
    """
    found = " ".join(name.split())
    if found:
        _load_document(hardware.calibration_document(base) | {"name": found})
    return found


def document(outcome: CalibrationOutcome, name: str = "", day: datetime.date | None = None) -> Calibration:
    """Returns the calibration that a fit found, of the system that it is for.

    Args:
        outcome: the fit.
        name: what to call it; made from system and runs where empty.
        day: of the fit; today's where None.

    Raises CalibrateError where the name cannot be one.
    """
    today = (day or datetime.date.today()).isoformat()
    system = outcome.checked.system
    content = hardware.calibration_document(outcome.base)
    content |= {
        "name": checked_name(name, outcome.base) or _build_name(outcome),
        "title": f"{system.title or system.name}, fitted to {_count_runs(outcome.rows)}",
        "system": system.name,
        "fitted_on": _fitted_on(outcome),
        "date": today,
        "derived_from": outcome.base.name,
        "notes": _list_notes(outcome),
        "errors": [
            error.model_dump(mode="json", exclude_defaults=True) | {"held_out": error.held_out}
            for error in _list_errors(outcome)
        ],
    }
    values = dict(content["parameters"])
    for item in outcome.estimates:
        values[item.about.name] = _build_value(item.value, item.value_range, outcome, item.about.unit)
    content["parameters"] = values
    return _load_document(content)


def _load_document(content: dict[str, Any]) -> Calibration:
    try:
        return hardware.load_calibration_document(content, "the calibration")
    except CalibrationFileError as problem:
        raise CalibrateError(str(problem)) from None


def _count_runs(many: int) -> str:
    return "1 run" if many == 1 else f"{many:,} runs"


def _build_name(outcome: CalibrationOutcome) -> str:
    """Names differ where the fitted values do."""
    values = ",".join(f"{item.about.name}={item.value:.6g}" for item in outcome.estimates)
    return f"{outcome.checked.system.name}-{hashlib.sha256(values.encode()).hexdigest()[:6]}"


def _fitted_on(outcome: CalibrationOutcome) -> str:
    checked = outcome.checked
    refused = len(checked.labels) - outcome.rows
    left_out = f"; {_count_runs(refused)} refused" if refused else ""
    table = checked.table[checked.accepted]
    opening = f"{_count_runs(outcome.rows)} of {outcome.configurations} configurations{left_out}: "
    idents = [str(ident) for ident in table["id"]]
    while idents and len(opening) + len(", ".join(idents)) > LONGEST:
        idents = idents[: len(idents) * 3 // 4]
    more = outcome.rows - len(idents)
    return opening + ", ".join(idents) + (f" and {more:,} more" if more else "")


def _list_notes(outcome: CalibrationOutcome) -> list[str]:
    widths = ", ".join(f"{item.about.name} {100 * item.about.spread:.0f} %" for item in outcome.estimates)
    return [
        f"Most probable values under normal priors of the logarithms around {outcome.base.name!r}, standard "
        f"deviations: {widths}; rows with an error of {100 * HUBER:.0f} %, Huber loss beyond.",
        outcome.verdict,
    ]


def _build_value(value: float, around: tuple[float, float], outcome: CalibrationOutcome, unit: str) -> dict[str, Any]:
    rounded = float(f"{value:.{DIGITS}g}")
    found = CalibratedValue(
        value=rounded,
        unit=unit,
        kind="fitted",
        source=f"Fit to {_count_runs(outcome.rows)} on {outcome.checked.system.name}; the range holds it at 90 %",
        low=min(float(f"{around[0]:.{DIGITS}g}"), rounded),
        high=max(float(f"{around[1]:.{DIGITS}g}"), rounded),
    )
    return found.model_dump(mode="json", exclude_defaults=True)


def _list_errors(outcome: CalibrationOutcome) -> list[FitError]:
    base = f"{outcome.base.name!r}, before the fit"
    found = [_build_error(outcome.errors_before, f"the runs, by {base}", not outcome.known)]
    if outcome.errors_unseen is not None:
        described = f"the runs, each predicted by a fit that left it out: {outcome.held_out.described}"
        found.append(_build_error(outcome.errors_unseen, described, True))
    found.append(_build_error(outcome.errors_after, "the fitted runs themselves", False))
    return found


def _build_error(errors: Mapping[str, float], described: str, held_out: bool) -> FitError:
    return FitError(
        rows=int(errors["rows"]),
        described=described,
        held_out=held_out,
        mean_absolute_percent=round(errors["mean"], 2),
        median_absolute_percent=round(errors["median"], 2),
        bias_percent=round(errors["bias"], 2),
    )

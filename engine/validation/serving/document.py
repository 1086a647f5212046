"""The calibration of serving as a document of the hardware library."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import hardware
from engine.serving.constants import UNITS, EngineTerms
from engine.validation.serving.operations import OperationFit
from hardware import CalibratedValue, Calibration, FitError, calibration_document

__all__ = ["LIBRARY_FILE", "described_value", "serving_calibration", "write_calibration"]

LIBRARY_FILE = Path(hardware.__file__).parent / "calibrations" / "serving.json"
SOURCE = (
    "ai-dynamo/aiconfigurator@095f58a51c, Apache-2.0: kernels measured on A100, H100 and B200, and servers of its copy "
    "of InferenceX"
)


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def described_value(
    name: str, value: float, kind: str, source: str, ends: tuple[float, float] | None = None
) -> CalibratedValue:
    """Return a constant with its unit and source.

    Args:
        name: its name, whose last word says the unit.
        value: in that unit.
        kind: "fitted", "measured" or "stated".
        source: of the value.
        ends: of the range that fits as well; None for a single value.
    """
    found = _rounded(value)
    low, high = (None, None) if ends is None else (min(_rounded(ends[0]), found), max(_rounded(ends[1]), found))
    unit = UNITS.get(name.rsplit(".", 1)[-1], "")
    return CalibratedValue.model_validate(
        {"value": found, "unit": unit, "kind": kind, "source": source, "low": low, "high": high}
    )


def serving_calibration(
    operations: Iterable[OperationFit],
    engines: Mapping[str, Mapping[str, CalibratedValue]],
    errors: Iterable[FitError] = (),
    date: str | None = None,
) -> Calibration:
    """Return the calibration of serving.

    Args:
        operations: fitted rates of kernels.
        engines: terms by engine.
        errors: of servers.
        date: of the fit; today's where None.
    """
    parameters: dict[str, CalibratedValue] = {}
    for fit in operations:
        for rate, value in fit.values.items():
            name = f"{fit.kind}.{fit.generation}.{fit.name}.{rate}"
            source = f"{len(fit.errors):,} shapes, the fastest kernel of each; {SOURCE}"
            parameters[name] = described_value(name, value, "fitted", source, fit.ranges[rate])
    for engine, terms in engines.items():
        for term in EngineTerms._fields:
            parameters[f"engine.{engine}.{term}"] = terms[term]
    return Calibration.model_validate(
        {
            "name": "serving",
            "title": "Kernels and engines of serving",
            "subject": "serving",
            "fitted_on": "Kernels of A100, H100 and B200 and 1,214 servers of InferenceX on H100, H200, B200 and B300, "
            "as ai-dynamo/aiconfigurator stores them (commit 095f58a51c, Apache-2.0); every model left out in turn in "
            "`errors`",
            "date": date or datetime.date.today().isoformat(),
            "errors": tuple(error.model_dump() for error in errors),
            "parameters": {name: each.model_dump() for name, each in parameters.items()},
        }
    )


def write_calibration(calibration: Calibration, path: Path = LIBRARY_FILE) -> None:
    """Write a calibration.

    Args:
        calibration: of serving.
        path: of the document; the library's by default.
    """
    document: dict[str, Any] = calibration_document(calibration)
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")

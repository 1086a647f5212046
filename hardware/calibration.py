"""Calibration: fitted or measured rates of a machine instead of its datasheet's, stored apart from the system.

The library of calibrations is the folder `calibrations`: one document each, with the rows of its fit and its errors.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from hardware.schema import FrozenDict, Line, Lines
from models.documents import Accepts, DocumentError, Library, Number, Text, Whole, load_versioned

FORMAT = "shardscape-calibration/1"

Name = Annotated[str, Text(255, shortest=1)]
Percent = Annotated[float, Number(-1e6, 1e6)]


class CalibrationFileError(DocumentError):
    """A calibration that cannot be used: an unreadable file, or a document that is not a calibration."""


class _CalibrationEntity(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


class CalibratedValue(_CalibrationEntity):
    """Parameter of a cost model with the source of its value."""

    value: Annotated[float, Number(-1e30, 1e30)]
    unit: Annotated[str, Text(100)] = ""
    """Unit of the value, such as "TFLOP/s" or "s"; empty for a share or a count."""
    kind: Literal["fitted", "measured", "stated"]
    """Origin of a value: found by a fit, measured by a benchmark, or set by hand."""
    source: Annotated[str, Text(2_000, shortest=1)]
    """Rows, benchmark or publication that determined the value."""
    low: Annotated[float, Number(-1e30, 1e30)] | None = None
    """Lower end of the range that fits as well; `None` where none was determined."""
    high: Annotated[float, Number(-1e30, 1e30)] | None = None
    """Upper end, likewise."""

    @model_validator(mode="after")
    def _inside(self) -> Self:
        low = self.value if self.low is None else self.low
        high = self.value if self.high is None else self.high
        if not low <= self.value <= high:
            raise PydanticCustomError(
                "refused",
                "has value {value} outside its range from {low} to {high}",
                {"value": f"{self.value:g}", "low": f"{low:g}", "high": f"{high:g}"},
            )
        return self


class FitError(_CalibrationEntity):
    """Deviation of predictions with the calibration from measurements of one set of rows."""

    rows: Annotated[int, Whole(1, 2**40)]
    """Number of measurements."""
    described: Annotated[str, Text(2_000, shortest=1)]
    """Description of the rows, and of the predicted quantity."""
    accelerator: Annotated[str, Text(100)] = ""
    """The maker's name of the accelerator that all of the rows ran on; empty for rows of several."""
    held_out: bool
    """True if the rows had no part in the fit."""
    mean_absolute_percent: Annotated[float, Number(0, 1e6)]
    """Mean of |predicted / measured - 1| [%]."""
    median_absolute_percent: Annotated[float, Number(0, 1e6)] | None = None
    """Median of the same [%]."""
    bias_percent: Percent | None = None
    """Median of predicted / measured - 1 [%]."""


def _check_values(values: Mapping[str, CalibratedValue]) -> Mapping[str, CalibratedValue]:
    if not values:
        raise PydanticCustomError("refused", "has no parameter; it must have at least one")
    return FrozenDict(values)


class Calibration(_CalibrationEntity):
    """Values of a cost model's parameters for one system or for all, with the rows and errors of the fit.

    Immutable and hashable. The names of the parameters are the cost model's; nothing here depends on them.
    """

    name: Name
    title: Line = ""
    subject: Literal["training", "serving", "post_training"] = "training"
    """The physics whose values it has: a calibration of one is of no use to the other."""
    system: Annotated[str, Text(255)] = ""
    """Name of the system it is for; empty for all systems."""
    fitted_on: Annotated[str, Text(2_000, shortest=1)]
    """The measurements, and how they were used."""
    date: Annotated[str, Field(pattern=r"^[0-9]{4}-[01][0-9]-[0-3][0-9]$"), Accepts("a day such as 2026-11-20")]
    """Day of the fit."""
    errors: Annotated[tuple[FitError, ...], Field(strict=False, max_length=200)] = ()
    parameters: Annotated[Mapping[Name, CalibratedValue], Field(max_length=1_000), AfterValidator(_check_values)]
    notes: Lines = ()
    derived_from: Annotated[str, Text(255)] = ""
    """Name of the calibration that supplies values that were not fitted, or empty."""


def load_calibration_document(document: object, where: str = "the document") -> Calibration:
    """Returns the calibration that a parsed JSON document describes.

    Args:
        document: a parsed JSON value of any kind.
        where: name of the document in messages.

    Raises `CalibrationFileError` naming the field at fault.
    """
    return load_versioned(document, where, FORMAT, "calibration", Calibration, CalibrationFileError)


def _from_library(document: object, where: str, name: str) -> Calibration:
    return load_calibration_document(document, where)


_LIBRARY: Library[Calibration] = Library(
    "hardware", "calibration", CalibrationFileError, _from_library, folder="calibrations"
)


def calibration_names(subject: str = "training") -> list[str]:
    """Returns the names of the calibrations in the library, in alphabetical order.

    Args:
        subject: "training", "serving" or "post_training".
    """
    return [name for name in _LIBRARY.names() if _LIBRARY.load(name).subject == subject]


def load_calibration(name_or_path: str | os.PathLike[str]) -> Calibration:
    """Returns the calibration of a library name such as "global", or in a JSON file.

    A text with a path separator or ending in ".json" is a path, anything else a name.

    Args:
        name_or_path: of the library, or of a file.

    Raises `CalibrationFileError` for an unknown name, and for a file that is no calibration.
    """
    return _LIBRARY.load(name_or_path)


def calibration_document(calibration: Calibration) -> dict[str, Any]:
    """Returns the calibration as a JSON document, which `load_calibration_document` turns into an equal calibration.

    Args:
        calibration: one that was read or fitted.
    """
    return {"format": FORMAT, **calibration.model_dump(mode="json", exclude_defaults=True)}

"""The shipped calibration: complete, sourced, at most ten fitted values."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

import hardware
from engine.cost_models.calibrated import FITTED, Parameters, library_calibration, parameters, parameters_of


def test_every_value_is_fitted_or_stated_with_a_source() -> None:
    found = library_calibration()
    assert set(found.parameters) == set(Parameters.model_fields)
    assert all(len(item.source) > 20 for item in found.parameters.values())
    assert {name for name, item in found.parameters.items() if item.kind == "fitted"} == set(FITTED)
    assert len(FITTED) <= 10


def test_the_calibration_carries_held_out_errors() -> None:
    errors = library_calibration().errors
    assert errors
    assert all(item.held_out for item in errors)


def test_parameters_do_not_change() -> None:
    with pytest.raises(ValidationError):
        parameters().launch = 1.0  # type: ignore[misc]


def test_a_calibration_that_lacks_a_value_is_refused_in_one_sentence() -> None:
    document = hardware.calibration_document(library_calibration())
    del document["parameters"]["launch"]
    with pytest.raises(hardware.CalibrationFileError, match="launch"):
        parameters_of(hardware.load_calibration_document(document))

"""Measurements: iterations of plans on placements, and profiles from which parameters are fitted.

In every file a zero or an absent time means that a plan does not run or was not measured, never a time of 0.
"""

from engine.planners.elastic.measured.library import measurement_names, measurements, measurements_of
from engine.planners.elastic.measured.table import (
    MeasurementError,
    Measurements,
    measurements_text,
    read_measurements,
)

__all__ = [
    "MeasurementError",
    "Measurements",
    "measurement_names",
    "measurements",
    "measurements_of",
    "measurements_text",
    "read_measurements",
]

"""Measuring a machine: microbenchmarks with PyTorch, and what follows from them for the cost models.

`measure` runs the benchmarks and gives `Samples`; `measured_system` and `measured_calibration` turn samples into a
system and a calibration of it, without PyTorch and without the machine.
"""

from engine.measure.calibration import measured_calibration
from engine.measure.collect import MeasurementProgress, measure
from engine.measure.samples import MeasureError, Samples, load_samples, samples_document, samples_of
from engine.measure.system_document import measured_system

__all__ = [
    "MeasureError",
    "MeasurementProgress",
    "Samples",
    "load_samples",
    "measure",
    "measured_calibration",
    "measured_system",
    "samples_document",
    "samples_of",
]

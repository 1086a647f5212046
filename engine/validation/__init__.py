"""Predictions for measured training runs, and how far they are off.

>>> from engine import validation
>>> table = validation.validate()  # the package's runs; or a path, or a table

`python -m engine.validation` has the commands report, fit, accept, refresh and gate.
"""

from engine.cost_models.calibrated import generation_of, library_calibration, system_named
from engine.validation.accepted import stored_coverage
from engine.validation.error_tables import error_table, memory_table
from engine.validation.mapping import REASONS, map_runs
from engine.validation.predict import OUT_COLUMNS, breakdown, validate
from engine.validation.reading import Runs, RunsFileError, library_runs, read_runs, runs_of
from engine.validation.releases import stored_releases
from engine.validation.uncertainty import coverage_of

__all__ = [
    "OUT_COLUMNS",
    "REASONS",
    "Runs",
    "RunsFileError",
    "breakdown",
    "coverage_of",
    "error_table",
    "generation_of",
    "library_calibration",
    "library_runs",
    "map_runs",
    "memory_table",
    "read_runs",
    "runs_of",
    "stored_coverage",
    "stored_releases",
    "system_named",
    "validate",
]

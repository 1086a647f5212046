"""Calibrating the cost model by measured runs of one's own cluster.

>>> from engine import calibrate
>>> measured = calibrate.read_paths(["runs.csv"])  # or logs of Megatron-LM, NeMo, torchtitan
>>> checked = calibrate.check(measured, system, start)  # rows that can be used, and why the others cannot
>>> outcome = calibrate.calibrate(checked)  # 3 to 6 parameters, errors before and after on runs left out
>>> found = calibrate.document(outcome)  # a hardware.Calibration
"""

from engine.calibrate.choice import MOST as MOST_PARAMETERS
from engine.calibrate.choice import Adjustable, CalibrateError, adjustable
from engine.calibrate.document import checked_name, document
from engine.calibrate.fit import CalibrationOutcome, ParameterEstimate, calibrate
from engine.calibrate.ranking import Reranked, recalibrated, rerank
from engine.calibrate.reading import (
    MOST_BYTES,
    MOST_RUNS,
    MeasuredRuns,
    checked_fields,
    parse_given,
    read_contents,
    read_paths,
)
from engine.calibrate.rows import CheckedRuns, check
from engine.calibrate.template import FIELDS, template
from engine.cost_models.calibrated import Parameters, calibrated, parameters_of, system_named

__all__ = [
    "FIELDS",
    "MOST_BYTES",
    "MOST_PARAMETERS",
    "MOST_RUNS",
    "Adjustable",
    "CalibrateError",
    "CalibrationOutcome",
    "CheckedRuns",
    "MeasuredRuns",
    "ParameterEstimate",
    "Parameters",
    "Reranked",
    "adjustable",
    "calibrate",
    "calibrated",
    "check",
    "checked_fields",
    "checked_name",
    "document",
    "parameters_of",
    "parse_given",
    "read_contents",
    "read_paths",
    "recalibrated",
    "rerank",
    "system_named",
    "template",
]

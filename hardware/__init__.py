"""Machines as data: schema, loaders, and a library of systems with the source of every number.

>>> import hardware
>>> hardware.load("h100_80g_nvl8").mem1.capacity_gib
80.0
>>> hardware.load("a100_80g_sxm@50g").network_spanning(16).bandwidth_gb_per_s
6.25
>>> hardware.load_calibration("global").parameters["sustained_hopper"].kind
'fitted'
"""

from hardware.calibration import (
    CalibratedValue,
    Calibration,
    CalibrationFileError,
    FitError,
    calibration_document,
    calibration_names,
    load_calibration,
    load_calibration_document,
)
from hardware.editing import SystemFileError, edited
from hardware.loader import SystemLike, load, load_document, names, system_of, to_calculon, to_document, variant_names
from hardware.network_names import network_names, network_words
from hardware.nodes import limit_nodes
from hardware.schema import (
    GIB,
    USUAL_EXPONENTIALS,
    Accelerator,
    Assumption,
    Memory,
    Network,
    Operation,
    Processor,
    System,
)
from models.documents import Change

__all__ = [
    "GIB",
    "USUAL_EXPONENTIALS",
    "Accelerator",
    "Assumption",
    "CalibratedValue",
    "Calibration",
    "CalibrationFileError",
    "Change",
    "FitError",
    "Memory",
    "Network",
    "Operation",
    "Processor",
    "System",
    "SystemFileError",
    "SystemLike",
    "calibration_document",
    "calibration_names",
    "edited",
    "limit_nodes",
    "load",
    "load_calibration",
    "load_calibration_document",
    "load_document",
    "names",
    "network_names",
    "network_words",
    "system_of",
    "to_calculon",
    "to_document",
    "variant_names",
]

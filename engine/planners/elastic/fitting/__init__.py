"""Fitting the seven parameters to profiled runs, and the errors of table 2."""

from engine.planners.elastic.fitting.fit import BOUNDS, START, CardFit, fit_parameters, held_out, objective
from engine.planners.elastic.fitting.table_2 import table_2, table_2_cases, table_2_models

__all__ = [
    "BOUNDS",
    "START",
    "CardFit",
    "fit_parameters",
    "held_out",
    "objective",
    "table_2",
    "table_2_cases",
    "table_2_models",
]

"""Fitting the seven parameters to profiled runs."""

from engine.planners.elastic.fitting.fit import BOUNDS, START, CardFit, fit_parameters, held_out, objective

__all__ = [
    "BOUNDS",
    "START",
    "CardFit",
    "fit_parameters",
    "held_out",
    "objective",
]

"""Recommends an execution: the simplest that is as fast as the best within the error, with memory to spare."""

from engine.recommendation.contenders import Contender
from engine.recommendation.fits import (
    FIT_NEEDS,
    OUT_OF_MEMORY,
    FitBounds,
    add_fits,
    describe_fit,
    find_fit,
    fit_bounds_of,
    table_with_fit,
    with_fit,
    without_capacity,
)
from engine.recommendation.mechanisms import mechanisms, mechanisms_of, more_than
from engine.recommendation.recommended import Recommendation, recommend
from engine.recommendation.room import UNTOLD_ERROR, UNTOLD_HEADROOM, Terms, fit_of, terms_of

__all__ = [
    "FIT_NEEDS",
    "OUT_OF_MEMORY",
    "UNTOLD_ERROR",
    "UNTOLD_HEADROOM",
    "Contender",
    "FitBounds",
    "Recommendation",
    "Terms",
    "add_fits",
    "describe_fit",
    "find_fit",
    "fit_bounds_of",
    "fit_of",
    "mechanisms",
    "mechanisms_of",
    "more_than",
    "recommend",
    "table_with_fit",
    "terms_of",
    "with_fit",
    "without_capacity",
]

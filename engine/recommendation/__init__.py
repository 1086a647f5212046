"""Recommends an execution: the simplest that is as fast as the best within the error, with memory to spare."""

from engine.recommendation.contenders import Contender
from engine.recommendation.fits import OUT_OF_MEMORY, add_fits, describe_fit, find_fit, without_capacity
from engine.recommendation.mechanisms import mechanisms, mechanisms_of, more_than
from engine.recommendation.recommended import Recommendation, recommend
from engine.recommendation.room import UNTOLD_ERROR, UNTOLD_HEADROOM, Terms, fit_of, terms_of

__all__ = [
    "OUT_OF_MEMORY",
    "UNTOLD_ERROR",
    "UNTOLD_HEADROOM",
    "Contender",
    "Recommendation",
    "Terms",
    "add_fits",
    "describe_fit",
    "find_fit",
    "fit_of",
    "mechanisms",
    "mechanisms_of",
    "more_than",
    "recommend",
    "terms_of",
    "without_capacity",
]

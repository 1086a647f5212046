"""Recommends an execution: the simplest that is as fast as the best within the error, with memory to spare."""

from engine.recommendation.change_tables import TabulatedChange, change_table
from engine.recommendation.changes import RecommendationLimits, ShownChange, reoptimise_shown
from engine.recommendation.contenders import Contender, ProvenBest, Searched, TooManyFoundError
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
from engine.recommendation.recommended import Recommendation, explain_against, recommend
from engine.recommendation.room import UNTOLD_ERROR, UNTOLD_HEADROOM, Terms, fit_of, terms_of
from engine.recommendation.shown import FIGURES_OF, NOTHING_RECOMMENDED, FiguresOf, ShownExecution, choose_shown
from engine.recommendation.sizes import shown_sizes

__all__ = [
    "FIGURES_OF",
    "FIT_NEEDS",
    "NOTHING_RECOMMENDED",
    "OUT_OF_MEMORY",
    "UNTOLD_ERROR",
    "UNTOLD_HEADROOM",
    "Contender",
    "FiguresOf",
    "FitBounds",
    "ProvenBest",
    "Recommendation",
    "RecommendationLimits",
    "Searched",
    "ShownChange",
    "ShownExecution",
    "TabulatedChange",
    "Terms",
    "TooManyFoundError",
    "add_fits",
    "change_table",
    "choose_shown",
    "describe_fit",
    "explain_against",
    "find_fit",
    "fit_bounds_of",
    "fit_of",
    "mechanisms",
    "mechanisms_of",
    "more_than",
    "recommend",
    "reoptimise_shown",
    "shown_sizes",
    "table_with_fit",
    "terms_of",
    "with_fit",
    "without_capacity",
]

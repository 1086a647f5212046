"""Recommended execution of an exploration, in the form that pages show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dashboard.compat.caches import remembered
from engine import Exploration, Scenario
from engine.questions.documents.explorations import RecommendationTermsQuestion
from engine.questions.recommendations import find_recommendation
from engine.recommendation import Contender, Terms, mechanisms_of
from engine.validation.uncertainty import Interval, memory_interval_of

__all__ = ["Advice", "advice", "memory_error"]


@dataclass(frozen=True, slots=True)
class Advice:
    """Recommended execution: see `engine.recommendation.Recommendation`."""

    execution: Mapping[str, Any] | None
    fastest: Mapping[str, Any] | None
    difference: float | None
    mechanisms: tuple[str, ...]
    takes: tuple[str, ...]
    why: str
    close: int
    terms: Terms
    waived: tuple[str, ...]
    contenders: tuple[Contender, ...]


@remembered(64, hash_funcs={RecommendationTermsQuestion: RecommendationTermsQuestion.model_dump_json})
def advice(_exploration: Exploration, key: str, terms: RecommendationTermsQuestion) -> Advice:
    """Return the recommendation for an exploration.

    key: of the exploration.
    """
    found = find_recommendation(_exploration, terms)
    mechanisms = () if found.execution is None else tuple(mechanisms_of(found.execution).values())
    return Advice(
        found.execution,
        found.fastest,
        found.difference,
        mechanisms,
        found.takes,
        found.why,
        found.close,
        found.terms,
        found.waived,
        found.contenders,
    )


def memory_error(scenario: Scenario) -> Interval | None:
    """Returns the error of predicted memory, as factors on it; None without measured runs."""
    return memory_interval_of(scenario)

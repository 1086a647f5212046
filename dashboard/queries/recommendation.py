"""Recommended execution of an exploration, in the form that pages show, worked out in the background.

Working it out takes from a tenth of a second to several: a page draws its map meanwhile, and answers clicks.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from dashboard.queries.explorations import Where
from engine import Exploration, Scenario
from engine.questions.documents.explorations import RecommendationTermsQuestion
from engine.questions.recommendations import find_recommendation
from engine.recommendation import Contender, Terms, mechanisms_of
from engine.validation.uncertainty import Interval, memory_interval_of

__all__ = ["CONTENDERS", "Advice", "begin_advice", "known_advice", "memory_error", "workers"]

CONTENDERS: Final = 10
"""The best executions of different layouts of which pages say why they are not recommended."""
KEPT: Final = 1_024
"""Recommendations that are kept, the latest asked for; some kilobytes each."""


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


_Key = tuple[str, str, Where, int]
"""Key of the exploration, terms, conditions, number of contenders."""
_kept: OrderedDict[_Key, Future[Advice]] = OrderedDict()
_lock = threading.Lock()
workers: Final = ThreadPoolExecutor(2, "recommend")
"""Threads that work out recommendations."""


def begin_advice(
    exploration: Exploration, terms: RecommendationTermsQuestion, where: Where = (), contenders: int = CONTENDERS
) -> Future[Advice]:
    """Begin to work out a recommendation in the background, unless it is known or begun; all sessions share it.

    terms: of the recommendation. where: conditions that executions must meet. contenders: number of the best with
    their reasons.
    """
    key = _key_of(exploration, terms, where, contenders)
    with _lock:
        known = _kept.get(key)
        if known is None or (known.done() and known.exception() is not None):
            _kept[key] = known = workers.submit(_find_advice, exploration, terms, where, contenders)
        _kept.move_to_end(key)
        while len(_kept) > KEPT:
            _kept.popitem(last=False)
        return known


def known_advice(
    exploration: Exploration, terms: RecommendationTermsQuestion, where: Where = (), contenders: int = CONTENDERS
) -> Advice | None:
    """Returns a recommendation that is known; None while it is worked out, and before. See `begin_advice`.

    Raises what working it out raised, once.
    """
    key = _key_of(exploration, terms, where, contenders)
    with _lock:
        found = _kept.get(key)
        if found is None or not found.done():
            return None
        if found.exception() is not None:
            del _kept[key]
    return found.result()


def _key_of(exploration: Exploration, terms: RecommendationTermsQuestion, where: Where, contenders: int) -> _Key:
    only = {name: getattr(terms, name) for name in RecommendationTermsQuestion.model_fields}
    return exploration.key, repr(only), where, contenders


def _find_advice(exploration: Exploration, terms: RecommendationTermsQuestion, where: Where, contenders: int) -> Advice:
    found = find_recommendation(exploration, terms, where=where, contenders=contenders)
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

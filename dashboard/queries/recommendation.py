"""Recommended execution of an exploration, in the form that pages show, worked out in the background.

Working it out takes from a tenth of a second to several: a page draws its map meanwhile, and answers clicks. Without
conditions it does not need the exploration: `expect_advice` lets a job in another process search the space for it while
that is explored.
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
from engine.recommendation import Contender, Recommendation, Terms, mechanisms_of
from engine.validation.uncertainty import Interval, memory_interval_of

__all__ = [
    "CONTENDERS",
    "Advice",
    "UnfinishedSearchError",
    "advice_of",
    "begin_advice",
    "expect_advice",
    "expected_advice",
    "known_advice",
    "memory_error",
    "workers",
]

CONTENDERS: Final = 10
"""The best executions of different layouts of which pages say why they are not recommended."""
KEPT: Final = 1_024
"""Recommendations that are kept, the latest asked for; some kilobytes each."""


class UnfinishedSearchError(Exception):
    """The search for a recommendation was given up; the exploration's rows answer once they are there."""


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
    advice: str
    """Sentence that advises to measure two executions; empty without a reason to."""
    plainest: int | None = None
    """Id of the fastest execution as pages show it, of equal ones the simplest; None where the rows have to tell."""


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


def expect_advice(scenario: Scenario, terms: RecommendationTermsQuestion) -> Future[Advice] | None:
    """Announce that a job is about to search a space for the recommendation; all sessions share it.

    terms: of the recommendation. Returns the future that the job has to end: with the recommendation, or with an
    `UnfinishedSearchError`; None if the recommendation is known or already on its way.
    """
    key = _key_of(scenario, terms, (), CONTENDERS)
    with _lock:
        known = _kept.get(key)
        if known is not None and not (known.done() and known.exception() is not None):
            return None
        _kept[key] = future = Future[Advice]()
        future.set_running_or_notify_cancel()
        return future


def expected_advice(scenario: Scenario, terms: RecommendationTermsQuestion) -> Advice | None:
    """Returns the recommendation of a scenario whose space may not be explored yet; None if it is not known."""
    with _lock:
        found = _kept.get(_key_of(scenario, terms, (), CONTENDERS))
    return found.result() if found is not None and found.done() and found.exception() is None else None


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
    if isinstance(found.exception(), UnfinishedSearchError):  # whoever looks on waits for the rows' answer
        begin_advice(exploration, terms, where, contenders)
        return None
    return found.result()


def _key_of(subject: Exploration | Scenario, terms: RecommendationTermsQuestion, where: Where, contenders: int) -> _Key:
    only = {name: getattr(terms, name) for name in RecommendationTermsQuestion.model_fields}
    return subject.key, repr(only), where, contenders


def _find_advice(exploration: Exploration, terms: RecommendationTermsQuestion, where: Where, contenders: int) -> Advice:
    return advice_of(find_recommendation(exploration, terms, where=where, contenders=contenders))


def advice_of(found: Recommendation, plainest: int | None = None) -> Advice:
    """Returns a recommendation of the engine as pages show it. plainest: see `Advice`."""
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
        found.advice,
        plainest,
    )


def memory_error(scenario: Scenario) -> Interval | None:
    """Returns the error of predicted memory, as factors on it; None without measured runs."""
    return memory_interval_of(scenario)

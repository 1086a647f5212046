"""Texts about waiting for a search on the What-if page."""

from __future__ import annotations

from typing import Final

from dashboard.words.numbers import counted
from dashboard.words.waiting import span
from engine import Scenario
from engine.whatif import Answer

__all__ = ["is_slow", "searching", "searching_again"]

EXECUTIONS_PER_SECOND: Final = 2.5e7
"""Executions that the first search of a space settles per second on a small server, roughly."""
WORTH_SAYING: Final = 2.0
"""Shortest search that is announced with its time [s]."""
SLOW: Final = 0.7
"""Time of an answer above which the page says that it is searching [s]."""
SLOW_FIRST: Final = 3.0
"""Time of the first search of a space above which later ones are expected to be slow [s]."""


def searching(scenario: Scenario) -> str:
    """Returns a sentence on the first search, with its time if that is long."""
    total = scenario.space.total
    long = total / EXECUTIONS_PER_SECOND
    tail = f"; that many may take {span(long)}" if long >= WORTH_SAYING else ""
    return f"Searching {counted(total, 'execution')} for the best{tail}"


def is_slow(answer: Answer) -> bool:
    """Returns whether answers for this space take long enough to say so."""
    return answer.seconds > (SLOW if answer.changes else SLOW_FIRST)


def searching_again(answer: Answer) -> str:
    """Returns a sentence on the time of every search of a large space."""
    return f"Every change searches {counted(answer.total, 'execution')} again; the last took {span(answer.seconds)}."

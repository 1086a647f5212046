"""What the What-if page says of a search that one waits for, and how long that may take."""

from __future__ import annotations

from typing import Final

from dashboard.words.numbers import counted
from dashboard.words.waiting import span
from engine import Scenario
from engine.whatif import Answer

__all__ = ["is_slow", "searching", "searching_again"]

EXECUTIONS_PER_SECOND: Final = 2.5e7
"""Executions of a space that the first search settles in a second on a small server, roughly."""
WORTH_SAYING: Final = 2.0
"""Shortest search that is announced with its time [s]."""
SLOW: Final = 0.7
"""Time of an answer from which the page says that it is being looked for [s]."""
SLOW_FIRST: Final = 3.0
"""Time of the first search of a space, which makes it ready, from which later ones are expected to be slow [s]."""


def searching(scenario: Scenario) -> str:
    """Returns what is being done before anything can be shown, and for how long where that is long."""
    total = scenario.space.total
    long = total / EXECUTIONS_PER_SECOND
    tail = f"; that many may take {span(long)}" if long >= WORTH_SAYING else ""
    return f"Searching {counted(total, 'execution')} for the best{tail}"


def is_slow(answer: Answer) -> bool:
    """Returns whether one waits for answers of this space so long that the page should say what is going on."""
    return answer.seconds > (SLOW if answer.changes else SLOW_FIRST)


def searching_again(answer: Answer) -> str:
    """Returns what every change of a space takes that is so large that one waits for it."""
    return f"Every change searches {counted(answer.total, 'execution')} again; the last took {span(answer.seconds)}."

"""Searches of What-if in a worker process, which keeps spaces ready for all sessions.

Of a study it keeps only the subject: each point is requested by its number.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, Literal

from dashboard.jobs.worker import Task, Worker
from engine import Scenario, recommendation, whatif
from engine.executions.tie_order import plainest_of
from engine.questions.changes import find_change
from engine.questions.documents.changes import WhatIfQuestion
from engine.recommendation import ShownChange
from engine.whatif import PointSequence

__all__ = ["StudyName", "answer", "light", "study_in"]

StudyName = Literal["sensitivity", "sweep", "sweep_two", "shown_sizes", "change_table"]
"""A function of `engine.whatif` or `engine.recommendation` that gives a study."""
STUDIES_READ: Final = 16
"""Studies whose description the process need not read again for the next point."""


def answer(_: Task, asked: WhatIfQuestion) -> ShownChange:
    """Return the effect of a change, with the simplest of executions that tie. See
    `engine.recommendation.reoptimise_shown`."""
    found = find_change(asked, plainest_of)
    scenario, fastest = light(found.scenario), found.fastest
    return replace(found, scenario=scenario, fastest=fastest and replace(fastest, scenario=scenario))


def study_in(worker: Worker, name: StudyName, *arguments: Any, largest: float) -> PointSequence[Any]:
    """Returns a study whose points a worker finds. arguments, largest: of the function of that name."""
    total = len(_make_study(name, arguments, largest))
    about = pickle.dumps((name, tuple(map(light, arguments)), largest), pickle.HIGHEST_PROTOCOL)

    def after(done: int) -> Iterator[Any]:
        for number in range(done, total):
            yield worker.run(_compute_point, about, number, doing="searching")

    return PointSequence(total, after)


def light(value: Any) -> Any:
    """Returns a scenario without the space that it may remember: making one is quicker than sending it."""
    return replace(value) if isinstance(value, Scenario) else value


def _make_study(name: StudyName, arguments: tuple[Any, ...], largest: float) -> PointSequence[Any]:
    """Return a study of the engine, with the plainest of tied executions."""
    make: Callable[..., PointSequence[Any]] = getattr(whatif, name, None) or getattr(recommendation, name)
    choice = {} if name == "shown_sizes" else {"choose": plainest_of}
    return make(*arguments, **choice, largest=largest)


@lru_cache(maxsize=STUDIES_READ)
def _unpickle_study(about: bytes) -> PointSequence[Any]:
    return _make_study(*pickle.loads(about))


def _compute_point(_: Task, about: bytes, number: int) -> Any:
    """Returns a point of a study."""
    return next(_unpickle_study(about).after(number))

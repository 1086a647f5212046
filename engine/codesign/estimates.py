"""How long a study will take, before anything of it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from engine.codesign.study import Study
from engine.space.space import SpaceError

__all__ = ["Estimate", "counted", "estimate"]

LOOKED_AT: Final = 6
"""Points whose spaces are counted."""

EXECUTIONS_PER_SECOND: Final = 250e6
"""Executions that a search by bounds settles in a space that is laid out already, on one core [1/s]: 6.6 million of
`calculon` in 25 ms, 0.8 million of `calibrated` in 60 ms."""

SECONDS_AT_LEAST: Final = 0.010
"""What any point takes."""

EXPLORED_PER_SECOND: Final = 10e6
"""Executions that a whole exploration settles on one core [1/s]."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What is ahead: counts, executions of an average space, and seconds on so many processes.

    The seconds are a guess within a factor of some three; from the first tasks on, progress tells measured ones.
    """

    points: int
    designs: int
    models: int
    executions: float
    workers: int
    seconds: float

    @property
    def sentence(self) -> str:
        """The estimate in words."""
        each = f"{self.executions:,.0f}"
        return (
            f"{counted(self.points, 'point')}: {counted(self.designs, 'design')} with {counted(self.models, 'model')} "
            f"each, about {each} executions behind a point; about {duration(self.seconds)} on "
            f"{self.workers:,} process{'es' if self.workers != 1 else ''}."
        )


def counted(number: int, thing: str) -> str:
    """Returns a count with its thing, in the plural where it is not one.

    Args:
        number: how many.
        thing: in the singular, such as point.
    """
    return f"{number:,} {thing}{'s' if number != 1 else ''}"


def duration(seconds: float) -> str:
    """Returns a time in words, in one unit.

    Args:
        seconds: the time [s].
    """
    for size, unit in ((86_400.0, "days"), (3_600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{max(1.0, seconds):.0f} s"


def estimate(study: Study, workers: int = 1) -> Estimate:
    """Returns what a study will take, from the spaces of some points spread over it. Nothing is searched.

    Args:
        study: the study.
        workers: processes that will run it.
    """
    totals, seconds = [], []
    for number in study.designs_at(0, min(study.places, 16 * LOOKED_AT))[:: max(1, 16)][:LOOKED_AT].tolist():
        design = study.design(number)
        for model in range(min(len(study.models), 2)):
            try:
                total = study.scenario_at(design, model).space.total
            except (SpaceError, ValueError):
                total = 0
            totals.append(total)
            rate = EXPLORED_PER_SECOND if study.document.evaluate == "exploration" else EXECUTIONS_PER_SECOND
            seconds.append(max(SECONDS_AT_LEAST, total / rate))
    mean = float(np.mean(seconds))
    return Estimate(
        study.points, study.designs, len(study.models), float(np.mean(totals)), workers,
        study.points * mean / max(1, workers),
    )  # fmt: skip

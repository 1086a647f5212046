"""Estimated duration of a study: from the times of a few of its points, and the sizes of its spaces."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from engine.codesign.points import rows_of
from engine.codesign.study import Study
from engine.executions.arrays import Floats, Ints
from engine.whatif.prepared_spaces import SPACES_KEPT

__all__ = ["Estimate", "PointTime", "counted", "duration", "estimate", "time_points"]

GROUPS_COUNTED: Final = 12
"""Most layouts whose spaces are counted; above it an even sample of this size."""

MODELS_COUNTED: Final = 32
"""Models whose spaces are counted and timed; of more, the others count as an average one."""

TIMED_PER_MODEL: Final = 3
"""Layouts that are timed with every model: the one of median size, the largest and the smallest."""

TIMED_PER_LAYOUT: Final = 4
"""Points that are timed of a layout: the first lays its space out, and the next are slower than all later ones, which
begin with what was best before."""

TIMING_SECONDS: Final = 5.0
"""Time after which no further point is timed [s]."""

LONGER_FOR_FIRST: Final = 4
"""Factor of the time limit for the first points of all models."""

MEASURED_FACTOR: Final = 2.0
"""Half-width of the range of an estimate from timed points: other points, other load, and processes that share caches
(two processes on two cores did 1.41 times the points of one)."""

GUESSED_FACTOR: Final = 6.0
"""Half-width of the range of an estimate without timed points. Measured on one core with `GUESSED_PER_SECOND`: 40
million executions a second with GPT-3 175B by `calculon`, 6 with Llama 3 70B and 9 with DeepSeek-V3 by `calibrated`."""

GUESSED_PER_SECOND: Final = 15e6
"""Executions that a search settles on one core [1/s], where nothing was timed."""

EXPLORED_PER_SECOND: Final = 3e6
"""Executions that a whole exploration settles on one core [1/s], where nothing was timed."""

SECONDS_AT_LEAST: Final = 0.010
"""Time of the smallest point, where nothing was timed [s]."""

LEAST_SEARCHED: Final = 0.1
"""Share of the designs that is searched where bounds skip most: 1,075 of 10,240 in the study of `tests.benchmarks`."""


@dataclass(frozen=True, slots=True)
class PointTime:
    """Times of points of one layout with one model."""

    model: int
    """Place of the model in the study."""
    executions: float
    """Size of the space [executions]."""
    first_s: float
    """Time of the first point, its space laid out for it [s]."""
    later_s: float
    """Time of the last of the points that were timed in this layout [s]; that of the first where there is only one."""
    points: int
    """Points that were timed."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Size of a study: counts, executions of an average space, and the range of the time on a number of processes."""

    points: int
    designs: int
    models: int
    executions: float
    workers: int
    seconds: float
    """Most likely time [s]."""
    seconds_low: float
    seconds_high: float
    timed: int = 0
    """Points that were timed for it; 0 for a guess from the sizes of spaces alone."""

    @property
    def point_seconds(self) -> float:
        """Most likely time of an average point on one process [s]."""
        return self.seconds * self.workers / self.points

    @property
    def counts(self) -> str:
        """Return the size of the study in words, without its time and without a full stop."""
        return (
            f"{counted(self.points, 'point')}: {counted(self.designs, 'design')} with {counted(self.models, 'model')} "
            f"each, about {self.executions:,.0f} executions per point"
        )

    @property
    def sentence(self) -> str:
        """The estimate in words."""
        low, high = duration(self.seconds_low), duration(self.seconds_high)
        basis = f"{counted(self.timed, 'point')} timed" if self.timed else "a guess until a few points are timed"
        return (
            f"{self.counts}; {low if low == high else f'{low} to {high}'} on "
            f"{self.workers:,} process{'es' if self.workers != 1 else ''} ({basis})."
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
            return f"{seconds / size:.2g} {unit}" if seconds < 100 * size else f"{seconds / size:,.0f} {unit}"
    return f"{max(1.0, seconds):.0f} s"


def time_points(
    study: Study, *, clock: Callable[[], float] = time.perf_counter, cancel: Callable[[], bool] | None = None
) -> tuple[PointTime, ...]:
    """Returns times of a few points of every model, which are searched and thrown away.

    Of each model the layout of median size comes first, then the largest and the smallest, as long as
    `TIMING_SECONDS` have not passed.

    Args:
        study: the study.
        clock: seconds from any start [s].
        cancel: says, between two points, whether to stop, which raises `StudyCancelled`.
    """
    numbers, sizes = _list_layouts(study)
    found: list[PointTime] = []
    start = clock()
    chosen = [_choose_layouts(sizes[model]) for model in range(len(sizes))]
    for turn in range(TIMED_PER_MODEL):
        for model, layouts in enumerate(chosen):
            if turn >= len(layouts):
                continue
            place = layouts[turn]
            # The next designs of the layout have other rates or capacities, and the same space.
            designs = numbers[place][:TIMED_PER_LAYOUT]
            times: list[float] = []
            for design in designs.tolist():
                before = clock()
                # One point of every model, even where that takes somewhat longer.
                if before - start > (TIMING_SECONDS if turn or times else TIMING_SECONDS * LONGER_FOR_FIRST):
                    break
                rows_of(study, np.array([design]), cancel=cancel, models=[model])
                times.append(clock() - before)
            if times:
                found.append(PointTime(model, float(sizes[model][place]), times[0], times[-1], len(times)))
    return tuple(found)


def estimate(study: Study, workers: int = 1, times: Sequence[PointTime] = ()) -> Estimate:
    """Returns what a study will take. Nothing is searched.

    Args:
        study: the study.
        workers: processes that will run it.
        times: of some of its points, as `time_points` returns them; without any, the time is guessed from the sizes of
            spaces, and its range is wide.
    """
    _, sizes = _list_layouts(study)
    workers = max(1, workers)
    rounds = -(-study.designs_per_group // study.block)
    # While all spaces stay ready, a layout is laid out once in every process that gets to it; else for every block.
    once = study.groups * len(study.models) <= SPACES_KEPT
    laid_out = study.groups * (min(rounds, workers) if once else rounds)
    seconds = low = high = 0.0
    for model, spaces in enumerate(sizes):
        mine = [each for each in times if each.model == model]
        first, later, factor = _mean_times(
            study, spaces, mine or times, GUESSED_FACTOR if not mine else MEASURED_FACTOR
        )
        each = laid_out * first + (study.designs - laid_out) * later
        seconds, low, high = seconds + each, low + each / factor, high + each * factor
    # Models that were not counted are taken as an average counted one.
    share = len(study.models) / len(sizes) / workers
    least = LEAST_SEARCHED if study.document.prune else 1.0
    return Estimate(
        study.points,
        study.designs,
        len(study.models),
        float(np.mean(sizes)),
        workers,
        seconds * share,
        low * share * least,
        high * share,
        sum(each.points for each in times),
    )


def _list_layouts(study: Study) -> tuple[list[Ints], list[Floats]]:
    """Numbers of the first designs of some layouts spread over the study [layouts][designs], and the sizes of their
    spaces with each model [models][layouts]."""
    places = np.unique(np.linspace(0, study.groups - 1, min(study.groups, GROUPS_COUNTED)).astype(int))
    numbers = [study.designs_at(place * study.block, study.block) for place in places.tolist()]
    models = range(min(len(study.models), MODELS_COUNTED))
    return numbers, [np.array([_space_size(study, int(each[0]), model) for each in numbers]) for model in models]


def _space_size(study: Study, design: int, model: int) -> float:
    try:
        return float(study.scenario_at(study.design(design), model).space.total)
    except ValueError:  # every refusal of models, hardware and engine is one
        return 0.0


def _choose_layouts(spaces: Floats) -> list[int]:
    """Positions of the layouts to be timed."""
    order = np.argsort(spaces, kind="stable").tolist()
    return list(dict.fromkeys([order[len(order) // 2], order[-1], order[0]]))


def _mean_times(study: Study, spaces: Floats, times: Sequence[PointTime], factor: float) -> tuple[float, float, float]:
    """Mean time of a first and of a later point over spaces [s], and the factor that either may be off."""
    if not times:
        rate = EXPLORED_PER_SECOND if study.document.evaluate == "exploration" else GUESSED_PER_SECOND
        guess = float(np.maximum(SECONDS_AT_LEAST, spaces / rate).mean())
        return guess, guess, factor
    known = sorted(times, key=lambda each: each.executions)
    at = np.array([max(1.0, each.executions) for each in known])
    where = np.log(np.maximum(1.0, spaces))

    def mean(seconds: list[float]) -> float:
        # Between timed sizes as a power of the size; beyond the largest in proportion; below the smallest as there.
        found = np.exp(np.interp(where, np.log(at), np.log(np.maximum(1e-9, seconds))))
        return float((found * np.maximum(1.0, np.exp(where) / at[-1])).mean())

    return mean([each.first_s for each in known]), mean([each.later_s for each in known]), factor

"""The order in which a search looks at schedule points: by bounds, the most promising first."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from engine.executions.arrays import Floats, Ints

__all__ = ["most_promising_first"]


GROWTH = 4
"""Times as many schedule points in every part than in the one before it, while nothing is found."""


def most_promising_first(
    hopes: Floats,
    least: Callable[[], float],
    *,
    first: int,
    most: int,
    finer_of: Callable[[Ints], Floats] | None = None,
    looked: int = 0,
) -> Iterator[Ints]:
    """Yields schedule points in parts, the most promising first, until none is left that can reach `least()`.

    Args:
        hopes: upper bound of every schedule point, minus infinity for points to skip [points].
        least: returns the value to reach, minus infinity until an execution is found; called before every part.
        first: schedule points of the first part [count].
        most: schedule points of any part [count].
        finer_of: returns tighter but more expensive bounds of schedule points [points]; None without such bounds.
        looked: number of points among which tighter bounds choose the first part [count].
    """
    order = np.argsort(-hopes, kind="stable")[: np.count_nonzero(hopes > -np.inf)]
    start, step, looked = 0, first, max(first, looked)
    waiting, finer = order[:0], hopes[:0]
    while start < len(order) or len(waiting):
        # Parts are small until something is found; that rules out most of the others, so that the rest are one part.
        found = least() > -np.inf
        if start < len(order) and (found or not len(waiting)):
            more = order[start:] if found else order[start : start + looked]
            start, looked = start + len(more), GROWTH * looked
            more = more[hopes[more] >= least()]
            bounds = hopes[more] if finer_of is None or not len(more) else finer_of(more)
            waiting, finer = np.concatenate((waiting, more)), np.concatenate((finer, bounds))
        left = np.flatnonzero(finer >= least())
        left = left[np.argsort(-finer[left], kind="stable")]
        waiting, finer = waiting[left], finer[left]
        step = most if found else min(step, most)
        if len(waiting):
            yield waiting[:step]
        waiting, finer, step = waiting[step:], finer[step:], GROWTH * step

"""Sets of half-open intervals of whole nanoseconds: unions, intersections, and shares of a moment.

A set is an array [intervals, 2] of starts and ends.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["intersect", "measure", "share_exposed", "subtract", "unite"]

Intervals = npt.NDArray[np.int64]


def unite(start: npt.NDArray[np.int64], end: npt.NDArray[np.int64]) -> Intervals:
    """Return the union of intervals, in order and apart from each other [intervals, 2] [ns].

    Args:
        start, end: of each interval, `start` below `end` [ns].
    """
    if not len(start):
        return np.empty((0, 2), np.int64)
    order = np.argsort(start, kind="stable")
    begin, reach = start[order], np.maximum.accumulate(end[order])
    # A new part begins where nothing before reaches.
    first = np.concatenate(([True], begin[1:] > reach[:-1]))
    last = np.concatenate((first[1:], [True]))
    return np.stack((begin[first], reach[last]), axis=1)


def measure(intervals: Intervals) -> int:
    """Return the length of a set of intervals that are apart from each other [ns].

    Args:
        intervals: [intervals, 2] [ns].
    """
    return int((intervals[:, 1] - intervals[:, 0]).sum())


def _sweep(sets: Sequence[Intervals]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return the moments at which any set changes, and which sets hold from each to the next [sets, moments - 1]."""
    moments = np.unique(np.concatenate([each.ravel() for each in sets]))
    if len(moments) < 2:
        return moments, np.zeros((len(sets), 0), bool)
    holds = np.zeros((len(sets), len(moments) - 1), bool)
    for row, each in zip(holds, sets, strict=True):
        change = np.zeros(len(moments), np.int64)
        np.add.at(change, np.searchsorted(moments, each[:, 0]), 1)
        np.add.at(change, np.searchsorted(moments, each[:, 1]), -1)
        row[:] = np.cumsum(change)[:-1] > 0
    return moments, holds


def intersect(one: Intervals, other: Intervals) -> int:
    """Return the time that is in both sets [ns].

    Args:
        one, other: sets of intervals [intervals, 2] [ns].
    """
    moments, holds = _sweep((one, other))
    return int(np.diff(moments)[holds[0] & holds[1]].sum()) if holds.size else 0


def subtract(one: Intervals, other: Intervals) -> int:
    """Return the time that is in the first set and not in the other [ns].

    Args:
        one, other: sets of intervals [intervals, 2] [ns].
    """
    return measure(one) - intersect(one, other)


def share_exposed(groups: Sequence[Intervals], hiding: Intervals) -> tuple[list[float], float]:
    """Return the time of each group that nothing hides, and the time of it that several groups share [ns].

    A moment with several groups belongs to each of them in equal parts, so that the times add up to their union.

    Args:
        groups: a set of intervals per group [ns].
        hiding: what hides them [ns].
    """
    if not groups:
        return [], 0.0
    moments, holds = _sweep((*groups, hiding))
    if not holds.size:
        return [0.0] * len(groups), 0.0
    length, seen, bare = np.diff(moments).astype(np.float64), holds[:-1], ~holds[-1]
    number = seen.sum(axis=0)
    each = np.where(bare, length / np.maximum(number, 1), 0.0)
    return [float(each[row].sum()) for row in seen], float(length[bare & (number > 1)].sum())

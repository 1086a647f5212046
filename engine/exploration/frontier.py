"""Exact Pareto frontiers of large sets of points."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from engine.executions.arrays import Floats, Positions

__all__ = ["frontier"]


BINS = 4096
"""Bins of the first axis in the prefilter. Points that lie above the best of strictly lower bins are dropped."""


def frontier(axes: Sequence[Floats], better: Sequence[str], rank: npt.NDArray[np.int64] | None = None) -> Positions:
    """Returns the positions of the points that no other point dominates, sorted along the first axis from best to
    worst.

    Args:
        axes: two or three arrays [points].
        better: "higher" or "lower" per axis.
        rank: a number per point [points]; None stands for its position.

    A point dominates another if it is at least as good on every axis and better on one. Of points that agree on every
    axis the one of the lowest rank is kept. A point with a NaN never belongs to a frontier.

    Raises ValueError for another number of axes.
    """
    if len(axes) not in (2, 3) or len(better) != len(axes):
        raise ValueError(f"A frontier has two or three axes, not {len(axes)}.")
    signed = [
        np.asarray(axis, np.float64) * (-1.0 if way == "higher" else 1.0)
        for axis, way in zip(axes, better, strict=True)
    ]
    kept: Positions = np.flatnonzero(~np.any([np.isnan(axis) for axis in signed], axis=0))
    if not len(kept):
        return kept
    kept = kept[_is_promising([axis[kept] for axis in signed])]
    # Later keys sort first: by the axes in order, then by rank.
    order = np.lexsort((kept if rank is None else rank[kept], *(axis[kept] for axis in reversed(signed))))
    kept = kept[order]
    points = [axis[kept] for axis in signed]
    best: Positions = kept[_staircase_of_two(points) if len(points) == 2 else _staircase_of_three(points)]
    return best


def _assign_bins(axis: Floats, count: int) -> npt.NDArray[np.int64]:
    """Return the bin of each value over the range of the finite ones; infinities fall into the outer bins."""
    finite = axis[np.isfinite(axis)]
    if not len(finite):
        return np.zeros(len(axis), np.int64)
    low, high = float(finite.min()), float(finite.max())
    if high <= low:
        return np.where(axis > high, count - 1, 0).astype(np.int64)
    if high - low == np.inf:  # both are finite, their difference is not
        axis, low, high = axis / 4, low / 4, high / 4
    scaled = np.clip((axis - low) / (high - low), 0.0, 1.0)
    return np.minimum((scaled * count).astype(np.int64), count - 1)


def _is_promising(axes: list[Floats]) -> npt.NDArray[np.bool_]:
    """Return a mask of points that the best of strictly lower bins does not beat on the last axis: a superset of the
    frontier.
    """
    last = axes[-1]
    if len(axes) == 2:
        bin_of = _assign_bins(axes[0], BINS)
        best = np.full(BINS, np.inf)
        np.minimum.at(best, bin_of, last)
        before = np.concatenate(([np.inf], np.minimum.accumulate(best)[:-1]))
        return last <= before[bin_of]
    side = 64
    first, second = _assign_bins(axes[0], side), _assign_bins(axes[1], side)
    best = np.full((side, side), np.inf)
    np.minimum.at(best, (first, second), last)
    best = np.minimum.accumulate(np.minimum.accumulate(best, axis=0), axis=1)
    before = np.full((side, side), np.inf)
    before[1:, 1:] = best[:-1, :-1]
    return last <= before[first, second]


def _staircase_of_two(points: list[Floats]) -> Positions:
    """Return the positions of points, sorted by (x, y), whose y is below the y of every earlier point."""
    y = points[1]
    before = np.concatenate(([np.inf], np.minimum.accumulate(y)[:-1]))
    keep = y < before
    keep[0] = True  # also when its y is infinite
    return np.flatnonzero(keep)


def _staircase_of_three(points: list[Floats]) -> Positions:
    """Return the positions of points, sorted by (x, y, z), that no earlier point dominates in (y, z)."""
    stairs_y: list[float] = []  # ascending, with z descending
    stairs_z: list[float] = []
    kept = []
    for position, (y, z) in enumerate(zip(points[1].tolist(), points[2].tolist(), strict=True)):
        place = bisect_left(stairs_y, y)
        same = place < len(stairs_y) and stairs_y[place] == y
        lower = stairs_z[place] if same else (stairs_z[place - 1] if place else None)
        if lower is not None and lower <= z:
            continue
        kept.append(position)
        end = place
        while end < len(stairs_y) and stairs_z[end] >= z:
            end += 1
        stairs_y[place:end], stairs_z[place:end] = [y], [z]
    return np.array(kept, np.intp)

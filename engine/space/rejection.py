"""Rejected executions of a space, with proof: counts per cell and reason, and the memory that the nearest one lacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.executions import reasons
from engine.executions.arrays import Flags, Floats, Ints
from engine.space.schedule_points import CellColumns, SchedulePoints, executions_of

__all__ = ["MemoryRequirements", "Rejected", "executions_at"]


@dataclass(slots=True)
class Rejected:
    """Rejected executions with proof: counts per cell and reason number [cells, reasons + 1]. For cells where memory
    leaves nothing: what the nearest execution lacks of each memory tier, and the smallest addition to either tier alone
    that suffices [cells] ([bytes], inf elsewhere)."""

    counts: Ints
    lacking: tuple[Floats, Floats]
    alone: tuple[Floats, Floats]

    @classmethod
    def nothing(cls, cells: int) -> Rejected:
        """Returns the counts before anything was rejected."""
        counts = np.zeros((cells, len(reasons.REASONS) + 1), np.int64)
        return cls(counts, *((np.full(cells, np.inf), np.full(cells, np.inf)) for _ in range(2)))

    def nearest_miss(self, cell: Ints, listed: Flags, fits: Flags, tiers: Sequence[tuple[Floats, float]]) -> None:
        """Record the shortage of the execution nearest to fitting, by the sum over both tiers and, for each tier, by
        that tier alone.

        cell: of each schedule point [points]. listed, fits [memory modes, points]: existing executions, and those
            among them that fit in memory. tiers: requirement of each tier [memory modes, points] and its capacity
            [bytes]. Adding the recorded shortage to a system lets one more execution of the cell run.
        """
        left = np.zeros(len(self.counts), bool)
        left[cell[fits.any(axis=0)]] = True
        points = np.flatnonzero(~left[cell] & listed.any(axis=0))
        if not len(points):
            return
        first, second = (np.maximum(need[:, points] - capacity, 0.0) for need, capacity in tiers)
        both = np.where(listed[:, points], first + second, np.inf)
        mode, place = both.argmin(axis=0), np.arange(len(points))
        lacking = first[mode, place], second[mode, place]
        order = np.lexsort((lacking[0], both[mode, place], cell[points]))
        cells, nearest = np.unique(cell[points[order]], return_index=True)
        for kept, found in zip(self.lacking, lacking, strict=True):
            kept[cells] = found[order[nearest]]
        for kept, own, other in zip(self.alone, (first, second), (second, first), strict=True):
            least = np.where(listed[:, points] & (other == 0.0), own, np.inf).min(axis=0)
            np.minimum.at(kept, cell[points], least)


def executions_at(chosen: Flags, count: Ints, cells: CellColumns, points: SchedulePoints) -> Ints:
    """Count the executions of the chosen (memory mode, schedule point) pairs, per point [points].

    Args:
        chosen: which pairs of memory modes and schedule points [memory modes, points].
        count: executions of each memory mode by kind of cell [kinds of cells, memory modes].
        cells: columns of the cells, each [cells].
        points: schedule points of the cells.
    """
    result = np.zeros(len(points.cell), np.int64)
    for kind in np.unique(points.kind).tolist():
        here = np.flatnonzero(points.kind == kind)
        result[here] = executions_of(count[kind], chosen[:, here])
    return result * cells.possible[points.cell]


@dataclass(frozen=True, slots=True)
class MemoryRequirements:
    """Memory requirements of prepared cells, above capacity too.

    `needs` are bytes of either tier [schedule points, memory modes], `capacities` [bytes] the size of each tier (minus
    infinity if no memory would help), and `allowed` the pairs that no other rule forbids [schedule points, memory
    modes].
    """

    needs: tuple[Floats, Floats]
    capacities: tuple[float, float]
    allowed: Flags

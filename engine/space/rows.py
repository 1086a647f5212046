"""Rows of a space: what executions with the same networks, schedule point and mode share, listed, cut and evaluated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from engine.executions.arrays import Flags, Floats, Ints, Positions
from engine.executions.work_sizes import work_sizes
from engine.space.schedule_points import SchedulePoints, StepModes

__all__ = ["ExchangeVariant", "RowChunk", "RowGroup", "chunks_of", "fitting", "pairs_by_point"]


@dataclass(slots=True)
class RowGroup:
    """Rows with the same networks for tensor parallelism, pipeline and data-parallel exchange.

    `point` [places] are the schedule points here, `block` [places] where a schedule point's block figures start (add a
    mode's `time`), `assignment[data network]` [places] the position of the assignment in its cell's list. `place` and
    `mode` [rows] are the rows that fit in memory.
    """

    tensor_net: int
    pipeline_net: int
    data_nets: tuple[int, ...]
    exchanges: bool
    point: Ints
    block: Ints
    assignment: Mapping[int, Ints]
    place: Positions
    mode: Positions


@dataclass(slots=True)
class ExchangeVariant:
    """One way of exchanging gradients: `rows` it exists for (None: all), their ids [executions], and
    headline figures that depend on the exchange [executions]."""

    data_net: int
    overlapped: bool
    rows: Positions | None
    ids: Ints
    metrics: dict[str, Floats]


@dataclass(slots=True)
class RowChunk:
    """Evaluated rows of one group: `point` and `mode` [rows], the headline figures that all variants of a row share
    [rows], and the variants."""

    group: RowGroup
    point: Ints
    mode: Ints
    cell: Ints
    metrics: dict[str, Floats]
    variants: list[ExchangeVariant]

    def executions(self) -> int:
        """Count the executions of the rows."""
        return sum(len(variant.ids) for variant in self.variants)


def chunks_of(groups: Sequence[RowGroup]) -> Iterator[tuple[RowGroup, slice]]:
    """Yields the rows of these groups in chunks; schedule points, and so cells, ascend within a group.

    Args:
        groups: of prepared cells.
    """
    together = work_sizes().rows_evaluated
    for group in groups:
        for start in range(0, len(group.place), together):
            yield group, slice(start, min(start + together, len(group.place)))


def fitting(points: SchedulePoints, modes: StepModes, fits: Flags, point: Ints) -> Flags:
    """Return which modes exist at the chosen schedule points and fit in memory [modes, chosen points].

    Args:
        points: schedule points of the cells.
        modes: modes of the space.
        fits: executions that fit in memory [memory modes, points].
        point: positions of the chosen schedule points.
    """
    exists = np.maximum(modes.position[0], modes.position[1]).T >= 0
    result: Flags = fits[:, point][modes.memory] & exists[:, points.kind[point]]
    return result


def pairs_by_point(found: Flags) -> tuple[Positions, Positions]:
    """Returns the positions of schedule points and modes that go together [pairs], ascending by point, then by mode.

    Args:
        found: which do [modes, schedule points].
    """
    modes = len(found)
    # Counted through the whole table, and divided in parts that stay in cache: quicker than looking for both positions.
    mode = np.flatnonzero(found.T)
    point = np.empty_like(mode)
    together = work_sizes().rows_evaluated
    for start in range(0, len(mode), together):
        here = slice(start, start + together)
        point[here] = mode[here] // modes
        mode[here] -= point[here] * modes
    return point, mode

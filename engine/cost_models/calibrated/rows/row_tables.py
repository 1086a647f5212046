"""Row tables of calibrated cells: the part of their preparation that depends neither on rates nor on capacities."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.cost_models.calibrated.physics.inputs import Floats
from engine.cost_models.calibrated.rows.memory_requirements import memory_requirements, stages_of
from engine.cost_models.calibrated.rows.schedule_points import PointTable, point_table_of
from engine.cost_models.calibrated.space import CalibratedSpace
from engine.executions.arrays import Ints
from engine.space.schedule_points import CellColumns, SchedulePoints, StepModes

__all__ = ["CalibratedRowTable", "calibrated_row_table", "row_table_of"]


@dataclass(slots=True)
class CalibratedRowTable:
    """Row table of cells: the part of their preparation that depends neither on rates nor on capacities.

    It does depend on the generation of the processors (which attention kernel), and on whether there is a second memory
    tier. `point` are the fields that a schedule point decides [points]. `state` is the optimizer state and gradients of
    the stage with most, by stage kind `stage_of` [memory modes]: bytes [points x stage kinds]. `needs` are the memory
    needed of either tier [memory modes, points] [bytes], and `first_tier`, `second_tier` the same with schedule points
    first.
    """

    cells: CellColumns
    points: SchedulePoints
    modes: StepModes
    point: dict[str, Ints]
    stage_of: Ints
    stage_kinds: int
    state: Floats
    needs: tuple[Floats, Floats]
    first_tier: Floats
    second_tier: Floats
    batch: Floats


def calibrated_row_table(space: CalibratedSpace, numbers: range) -> CalibratedRowTable:
    """Lays out these cells of a space, with the memory that everything in them needs.

    Args:
        space: the space of executions.
        numbers: numbers of the cells in the space.
    """
    return row_table_of(space, point_table_of(space, numbers))


def row_table_of(space: CalibratedSpace, point_table: PointTable) -> CalibratedRowTable:
    """Lays out a table of schedule points; see `calibrated_row_table`.

    Args:
        space: the space of executions.
        point_table: schedule points of some cells of the space.
    """
    points, modes, point = point_table.points, point_table.modes, point_table.point
    stages = stages_of(space, point, modes)
    needs = memory_requirements(stages, modes)
    batch = point["batch_size"].astype(np.float64)
    state = np.maximum.reduce([stages.by_kind(stage.state()) for stage in stages.stages])
    return CalibratedRowTable(
        cells=point_table.cells,
        points=points,
        modes=modes,
        point=point,
        stage_of=stages.kind_of,
        stage_kinds=stages.shape[0] * stages.shape[1],
        state=state.T.ravel(),
        needs=needs,
        first_tier=np.ascontiguousarray(needs[0].T),
        second_tier=np.ascontiguousarray(needs[1].T),
        batch=batch,
    )

"""The schedule points and modes of calibrated cells, which neither rates nor capacities nor memory matter to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.cost_models.calibrated.case_building import NEUTRAL as NEUTRAL_EXTENSIONS
from engine.cost_models.calibrated.fields import DATATYPES, FULLY_SHARDED, case_of_fields
from engine.cost_models.calibrated.modes import FIELDS_OF_A_MODE
from engine.cost_models.calibrated.physics.inputs import ATTENTION_KERNELS, Case
from engine.cost_models.calibrated.space import CalibratedSpace
from engine.executions.arrays import Ints, take
from engine.executions.codes import ALL_REDUCE, NO_OVERLAP, NONE, OFFLOADS
from engine.space.schedule_points import (
    CellColumns,
    Grains,
    SchedulePoints,
    StepModes,
    cell_columns,
    points_of,
    step_modes,
)
from engine.space.space import MODE_FIELDS

__all__ = [
    "BLOCK_FIELDS",
    "GRAINS",
    "KEPT_FIELDS",
    "OFFLOADS",
    "STATE_FIELDS",
    "PointTable",
    "case_at",
    "point_table_of",
]


_PLACED = {
    "zero_stage",
    "selective_recompute",
    "attention_kernel",
    "launch",
    "gradient_datatype",
    "optimizer_datatype",
    "fp8_param_gather",
    "expert_overlap",
    "pipeline_overlap",
    "token_dispatcher",
    "dispatch_datatype",
    "expert_imbalance",
    "context_par_comm",
}
_EVERYWHERE = tuple(name for name in FIELDS_OF_A_MODE if name not in (*MODE_FIELDS, *_PLACED))
"""Fields without an entry below: assumed to affect every table, which costs time only."""
BLOCK_FIELDS = (
    "activation_recompute",
    "selective_recompute",
    "tensor_par_comm_type",
    "tensor_par_overlap",
    "attention_kernel",
    "launch",
    "expert_overlap",
    "token_dispatcher",
    "dispatch_datatype",
    "expert_imbalance",
    "context_par_comm",
    *_EVERYWHERE,
)
TIME_FIELDS = (
    *BLOCK_FIELDS,
    "pipeline_overlap",
    "fully_sharded",
    "gradient_datatype",
    "fp8_param_gather",
    "training",
)
UPDATE_FIELDS = (
    "zero_stage",
    "gradient_datatype",
    "optimizer_datatype",
    "fp8_param_gather",
    "launch",
    *_EVERYWHERE,
)
KEPT_FIELDS = (
    "activation_recompute",
    "selective_recompute",
    "tensor_par_comm_type",
    "attention_kernel",
    "expert_imbalance",
    *_EVERYWHERE,
)
"""Fields that determine the stored activations of a stage."""
STATE_FIELDS = ("zero_stage", "gradient_datatype", "optimizer_datatype", "fp8_param_gather")
"""Fields that determine the weights, gradients and optimizer state of a stage."""
GRAINS = Grains(
    (*FIELDS_OF_A_MODE, "fully_sharded"),
    TIME_FIELDS,
    UPDATE_FIELDS,
    (*KEPT_FIELDS, *STATE_FIELDS, *OFFLOADS, "training"),
)


@dataclass(slots=True)
class PointTable:
    """Cells, their schedule points and the space's modes; `point` are the fields that a schedule point decides
    [points]."""

    cells: CellColumns
    points: SchedulePoints
    modes: StepModes
    point: dict[str, Ints]

    def at(self, chosen: Ints) -> PointTable:
        """Returns these schedule points alone, with the cells that they belong to.

        Args:
            chosen: positions of the schedule points [points].
        """
        points = self.points
        kept, cell = np.unique(points.cell[chosen], return_inverse=True)
        part = SchedulePoints(
            cell=cell,
            kind=points.kind[chosen],
            interleaving=points.interleaving[chosen],
            schedule=points.schedule[chosen],
            layout=points.layout[chosen],
            microbatch_size=points.microbatch_size[chosen],
            first=points.first[chosen],
            stride=points.stride[chosen],
            pair=points.pair[chosen],
            microbatches=points.microbatches[chosen],
        )
        return PointTable(
            take(self.cells, kept), part, self.modes, {name: array[chosen] for name, array in self.point.items()}
        )


def point_table_of(space: CalibratedSpace, numbers: range) -> PointTable:
    """Returns the table of schedule points of these cells of a space.

    Args:
        space: the space of executions.
        numbers: numbers of the cells in the space.
    """
    cells = cell_columns(space, numbers)
    cells.possible[:] = 1
    points, _ = points_of(space, cells, np.ones(len(cells.number), bool))
    names = ("tensor_par", "pipeline_par", "data_par", "batch_size", "context_par", "expert_par", "expert_tensor_par")
    point: dict[str, Ints] = {name: getattr(cells, name)[points.cell] for name in names}
    point["microbatch_size"], point["pipeline_interleaving"] = points.microbatch_size, points.interleaving
    point["schedule"], point["stage_layout"] = points.schedule, points.layout
    return PointTable(cells, points, step_modes(space.modes, GRAINS), point)


NEUTRAL = NEUTRAL_EXTENSIONS | {
    "activation_recompute": NONE,
    "tensor_par_comm_type": ALL_REDUCE,
    "tensor_par_overlap": NO_OVERLAP,
    "attention_kernel": ATTENTION_KERNELS.index("native"),
    "data_par_overlap": 0,
}
"""Values in a case of fields that a table does not depend on."""


def case_at(space: CalibratedSpace, point: Mapping[str, Any], modes: Mapping[str, npt.NDArray[Any]]) -> Case:
    """Returns the case of all (mode, schedule point) pairs [modes, points], or of the schedule points alone.

    Args:
        space: the space of executions.
        point: fields of the schedule points by name, each [points] or of a shape that broadcasts with it.
        modes: fields of the modes by name, each [modes]; empty for the schedule points alone.
    """
    values: dict[str, Any] = {**NEUTRAL, "datatype": DATATYPES.index(space.datatype), "training": space.trains}
    values.update(point)
    for name, values_of in modes.items():
        if name == "fully_sharded":
            # Gathers of sharded weights are always overlapped here.
            values["zero_stage"] = np.where(values_of, FULLY_SHARDED, 0)[:, None]
            values["data_par_overlap"] = values_of[:, None]
        else:
            values[name] = values_of[:, None]
    return case_of_fields(space.model, space.system, values)

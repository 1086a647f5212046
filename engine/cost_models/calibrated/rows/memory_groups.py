"""Groups of schedule points whose executions need the same memory, which is computed once for all."""

from __future__ import annotations

import numpy as np
import pandas as pd

from engine.cost_models.calibrated.case_building import model_shapes
from engine.cost_models.calibrated.physics.memory import in_flight
from engine.cost_models.calibrated.physics.pipeline.layouts import sizes_of
from engine.cost_models.calibrated.physics.pipeline.residence import kept_blocks
from engine.cost_models.calibrated.physics.pipeline.schedules import INTERLEAVED, refusals
from engine.cost_models.calibrated.physics.pipeline.stages import fewest_held, fullest_stages
from engine.cost_models.calibrated.rows.schedule_points import PointTable, case_at
from engine.cost_models.calibrated.space import CalibratedSpace
from engine.executions.arrays import Flags, Ints, distinct

__all__ = ["alike_in_memory"]


def alike_in_memory(space: CalibratedSpace, point_table: PointTable) -> tuple[Ints, Ints]:
    """Returns one of each schedule points whose executions need the same memory, mode by mode, and which of them each
    schedule point is like.

    Args:
        space: the space of executions.
        point_table: its schedule points.
    """
    case = case_at(space, point_table.point, {})
    sizes = sizes_of(case.model)
    held = [
        np.broadcast_to(values, len(point_table.points.kind))
        for stage in fullest_stages(case)
        for values in (*stage.by_size(sizes), in_flight(case, stage.position), *kept_blocks(case, stage))
    ]
    # So does whether stages have enough blocks to offload some.
    names = ("pipeline_par", "pipeline_interleaving", "schedule", "stage_layout")
    fewest = fewest_held(model_shapes(space.model), *(point_table.point[name] for name in names))
    held.append(fewest.astype(np.float64))
    # Whether a schedule runs depends on how many microbatches there are.
    held += [np.broadcast_to(flags, len(point_table.points.kind)) for flags in _schedule_refusals(point_table)]
    # By hashes: sorting takes ten times as long.
    numbered = [pd.factorize(values)[0] for values in held]
    # A number of recomputed blocks is one of each chunk.
    cut = () if np.any(point_table.modes.memory_modes["recompute_blocks"]) else ("pipeline_interleaving",)
    told = ("batch_size", "stage_layout", *cut)
    others = (values for name, values in point_table.point.items() if name not in told)
    return distinct(point_table.points.kind, *others, *numbered)


def _schedule_refusals(point_table: PointTable) -> list[Flags]:
    """Return where the schedule of a schedule point cannot run, rule by rule; empty if all run."""
    point = point_table.point
    if not np.any(point["schedule"] > INTERLEAVED):
        return []
    microbatches = point_table.points.microbatches
    rules = refusals(point["schedule"], point["pipeline_par"], microbatches, point["pipeline_interleaving"])
    return list(rules.values())

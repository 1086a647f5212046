"""Prepared cells: what does not fit in memory is rejected, the rest is one group of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.columns import HEADLINE
from engine.executions import reasons
from engine.executions.arrays import Flags, Floats, Ints
from engine.space.rejection import MemoryRequirements, Rejected, executions_at
from engine.space.rows import ExchangeVariant, RowChunk, RowGroup, fitting
from engine.space.schedule_points import (
    CellColumns,
    Grains,
    SchedulePoints,
    StepModes,
    cell_columns,
    mode_counts,
    points_of,
    step_modes,
)
from engine.space.space import MODE_FIELDS, Space
from hardware import GIB
from tests.toy.physics import memory_of, statistics_of

__all__ = ["ToyCandidates", "ToyRows", "bounds", "candidates", "evaluate_rows", "prepare"]

_GRAINS = Grains(MODE_FIELDS, ("activation_recompute", "training"), ("training",), ("activation_recompute", "training"))


@dataclass(slots=True)
class ToyRows:
    """See `engine.cost_models.contract.Prepared`; `need` [memory modes, schedule points] is memory [bytes]."""

    space: Space
    cells: CellColumns
    points: SchedulePoints
    modes: StepModes
    need: Floats
    fits: Flags
    groups: list[RowGroup]
    rejected: Rejected
    feasible: int

    def memory_requirements(self) -> MemoryRequirements:
        """See `Prepared.memory_requirements`."""
        capacities = self.space.system.mem1.capacity_gib * GIB, self.space.system.mem2.capacity_gib * GIB
        needs = np.ascontiguousarray(self.need.T)
        return MemoryRequirements((needs, np.zeros_like(needs)), capacities, np.ones(needs.shape, bool))


@dataclass(slots=True)
class ToyCandidates:
    """See `engine.cost_models.contract.Candidates`."""

    group: Ints
    place: Ints
    time: Ints
    cell: Ints


def _fields(prepared: ToyRows | Any, point: Ints, recompute: Ints) -> dict[str, Any]:
    cells, cell = prepared.cells, prepared.points.cell[point]
    degrees = {name: getattr(cells, name)[cell] for name in ("tensor_par", "pipeline_par", "data_par", "batch_size")}
    return degrees | {
        "microbatch_size": prepared.points.microbatch_size[point],
        "activation_recompute": recompute,
    }


def prepare(space: Space, numbers: range, rows: bool) -> ToyRows:
    """See `CostModel.prepare`."""
    modes, cells = step_modes(space.modes, _GRAINS), cell_columns(space, numbers)
    cells.possible[:] = [space.cells[number].assignments for number in numbers]
    rejected = Rejected.nothing(len(cells.number))
    points, _ = points_of(space, cells, np.ones(len(cells.number), bool))
    none = np.zeros(0, np.int64)
    found = ToyRows(space, cells, points, modes, np.zeros(0), np.zeros(0, bool), [], rejected, 0)
    each, kinds = np.arange(len(points.cell)), modes.memory_modes["activation_recompute"]
    found.need = np.stack(
        [
            memory_of(space.model, _fields(found, each, np.full(len(each), kind)))["proc_mem_tier1_cap_req"]
            for kind in kinds
        ]
    )
    capacity, count = space.system.mem1.capacity_gib * GIB, mode_counts(modes)
    listed = (count > 0).T[:, points.kind]
    found.fits = listed & (found.need <= capacity)
    failing = executions_at(listed & ~found.fits, count, cells, points)
    np.add.at(rejected.counts[:, reasons.number_of("memory_tier1")], points.cell, failing)
    rejected.nearest_miss(
        points.cell, listed, found.fits, [(found.need, capacity), (np.zeros_like(found.need), np.inf)]
    )
    found.feasible = int(executions_at(found.fits, count, cells, points).sum())
    outermost = space.tiers - 1
    group = RowGroup(
        outermost, outermost, (outermost,), False, each, none, {outermost: np.zeros_like(each)}, none, none
    )
    if rows:
        group.place, group.mode = np.nonzero(np.ascontiguousarray(fitting(points, modes, found.fits, each).T))
    found.groups = [group] if len(each) else []
    return found


def evaluate_rows(prepared: ToyRows, group: RowGroup, part: slice) -> RowChunk:
    """See `CostModel.evaluate_rows`."""
    space, mode, place = prepared.space, group.mode[part], group.place[part]
    point = group.point[place]
    told = statistics_of(
        space.model,
        space.system,
        space.datatype,
        _fields(prepared, point, prepared.modes.fields["activation_recompute"][mode]),
    )
    headline = {each.name: told.get(each.name, np.zeros(len(point))) for each in HEADLINE}
    of_variant = ("sample_rate", "total_time", "total_efficiency", "system_efficiency", "dp_comm_exposed_time")
    position = prepared.modes.position[0][prepared.points.kind[point], mode]
    ids = prepared.points.first[point] + position * prepared.points.stride[point]
    variant = ExchangeVariant(group.data_nets[0], False, None, ids, {name: headline.pop(name) for name in of_variant})
    return RowChunk(group, point, mode, prepared.points.cell[point], headline, [variant])


def candidates(prepared: ToyRows) -> ToyCandidates:
    """See `CostModel.candidates`: there is one block time per memory mode."""
    modes, time = prepared.modes, np.zeros(len(prepared.fits), np.int64)
    time[modes.memory] = modes.time
    point, memory = np.nonzero(prepared.fits.T)
    return ToyCandidates(np.zeros_like(point), point, time[memory], prepared.points.cell[point])


def bounds(prepared: ToyRows, rows: ToyCandidates) -> Floats:
    """See `CostModel.bounds`: the rates themselves."""
    space, recompute = prepared.space, prepared.modes.time_modes["activation_recompute"][rows.time]
    fields = _fields(prepared, rows.place, recompute)
    return statistics_of(space.model, space.system, space.datatype, fields)["sample_rate"]

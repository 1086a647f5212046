"""Memory requirements of calibrated executions, on (memory mode, schedule point): the stages once, then each way to
offload them.

The activations of a stage depend on one part of a memory mode, its weights and state on another; only their sums are
computed for every pair.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.cost_models.calibrated.case_building import model_shapes
from engine.cost_models.calibrated.fields import schedule_rules
from engine.cost_models.calibrated.physics.inputs import Floats
from engine.cost_models.calibrated.physics.memory import StageMemory, stage_memories
from engine.cost_models.calibrated.physics.offload import Offloadable, fitting, offloadable, tiers_of
from engine.cost_models.calibrated.physics.pipeline.schedules import INTERLEAVED
from engine.cost_models.calibrated.physics.pipeline.stages import fewest_held
from engine.cost_models.calibrated.rows.schedule_points import KEPT_FIELDS, OFFLOADS, STATE_FIELDS, case_at
from engine.cost_models.calibrated.space import CalibratedSpace
from engine.executions.arrays import Flags, Ints, distinct
from engine.executions.rules import offloads, too_few_to_offload
from engine.space.schedule_points import StepModes
from hardware import GIB

__all__ = [
    "GIB",
    "FullestStages",
    "MemoryCheck",
    "memory_requirements",
    "refused",
    "requirements_by_way",
    "stages_of",
]


@dataclass(slots=True)
class FullestStages:
    """Memory of every stage that may be the fullest, without offloading, arrays that broadcast to `shape`: kinds of
    kept activations, kinds of state, schedule points. `kind_of` [memory modes] counts through both kinds."""

    stages: tuple[StageMemory, ...]
    shape: tuple[int, int, int]
    kind_of: Ints

    def by_kind(self, values: Floats) -> Floats:
        """Returns a figure of stages as an array [kinds of both, points].

        Args:
            values: figure of the stages, of a shape that broadcasts with theirs.
        """
        kept, state, points = self.shape
        return np.broadcast_to(values, self.shape).reshape(kept * state, points)


def stages_of(space: CalibratedSpace, point: Mapping[str, Any], modes: StepModes) -> FullestStages:
    """Returns the memory of the stages of these schedule points [bytes].

    Args:
        space: the space of executions.
        point: fields of the schedule points by name, each [points].
        modes: modes of memory, time and optimizer that executions of the space combine.
    """
    mm = modes.memory_modes
    kept_first, kept_of = distinct(*(mm[name] for name in KEPT_FIELDS))
    state_first, state_of = distinct(*(mm[name] for name in STATE_FIELDS))
    kinds = {name: mm[name][kept_first][:, None, None] for name in KEPT_FIELDS}
    kinds |= {name: mm[name][state_first][None, :, None] for name in STATE_FIELDS}
    case = case_at(space, {**point, **kinds}, {})
    return FullestStages(
        stage_memories(case),
        (len(kept_first), len(state_first), len(point["tensor_par"])),
        (kept_of * len(state_first) + state_of).astype(np.int64),
    )


def requirements_by_way(stages: FullestStages, modes: StepModes) -> Iterator[tuple[Ints, Ints, Floats, Floats]]:
    """Yields what the kinds of stages need, one entry per way to offload.

    Args:
        stages: memory of the stages [bytes].
        modes: modes of memory, time and optimizer that executions of the space combine.

    Yields:
        The memory modes that have the way, their kinds of stages, and the memory of the first and of the second tier
        that all kinds of stages need then [kinds, points] [bytes].
    """
    every = [offloadable(stage) for stage in stages.stages]
    for here, way in _offload_ways(modes):
        first, second = tiers_of(every, *way)
        yield here, stages.kind_of[here], stages.by_kind(first), stages.by_kind(second)


@dataclass(slots=True)
class MemoryCheck:
    """Stages of some schedule points for offloading: all inputs of the check of memory, for any capacities.

    `shape` and `kind_of` as of `FullestStages`.
    """

    stages: list[Offloadable]
    shape: tuple[int, int, int]
    kind_of: Ints

    @classmethod
    def of(cls, stages: FullestStages) -> MemoryCheck:
        """Returns the room that stages ask for."""
        return cls([offloadable(stage) for stage in stages.stages], stages.shape, stages.kind_of)

    @property
    def nbytes(self) -> int:
        """Memory that it takes, about [bytes]."""
        return sum(stage.peak.nbytes + stage.activations.nbytes + stage.left_kept.nbytes for stage in self.stages)

    def fitting(self, modes: StepModes, capacities: tuple[float, float]) -> Iterator[tuple[Ints, Flags]]:
        """Yields memory modes, and whether each fits with each schedule point, one entry per way to offload: as by the
        needs that `requirements_by_way` yields [memory modes, points].

        Args:
            modes: modes of memory, time and optimizer that executions of the space combine.
            capacities: of the first and the second tier [bytes].
        """
        kept, state, points = self.shape
        for here, way in _offload_ways(modes):
            fits = fitting(self.stages, *way, capacities=capacities, shape=self.shape)
            yield here, fits.reshape(kept * state, points)[self.kind_of[here]]


def _offload_ways(modes: StepModes) -> Iterator[tuple[Ints, tuple[float, float, float]]]:
    """Yield the memory modes of every way to offload, and the way: 1 for each of weights, activations and state if
    offloaded, else 0."""
    chosen = np.array([modes.memory_modes[name] for name in OFFLOADS], float)
    ways, way_of = np.unique(chosen, axis=1, return_inverse=True)
    for way in range(ways.shape[1]):
        weights, activations, state = ways[:, way].tolist()
        yield np.flatnonzero(way_of == way), (weights, activations, state)


def memory_requirements(stages: FullestStages, modes: StepModes) -> tuple[Floats, Floats]:
    """Returns the memory of both tiers that every (memory mode, schedule point) needs [memory modes, points] [bytes].

    Args:
        stages: memory of the stages [bytes].
        modes: modes of memory, time and optimizer that executions of the space combine.
    """
    shape = (len(stages.kind_of), stages.shape[2])
    first, second = np.empty(shape), np.empty(shape)
    for here, kinds, one, two in requirements_by_way(stages, modes):
        first[here], second[here] = one[kinds], two[kinds]
    return first, second


def refused(space: CalibratedSpace, modes: StepModes, point: Mapping[str, Any]) -> dict[str, Flags]:
    """Return which (memory mode, schedule point) pairs cannot run with any memory, by reason code [memory modes,
    points].

    Args:
        space: the space of executions.
        modes: modes of memory, time and optimizer that executions of the space combine.
        point: fields of the schedule points by name, each [points].
    """
    found = {"offload_needs_three_blocks": without_room_to_offload(space, modes, point)}
    if np.any(point["schedule"] > INTERLEAVED):
        recompute = modes.memory_modes["activation_recompute"][:, None]
        shape = np.broadcast_shapes(recompute.shape, point["schedule"].shape)
        rules = schedule_rules({**point, "activation_recompute": recompute})
        found |= {code: np.broadcast_to(flags, shape) for code, flags in rules.items()}
    return found


def without_room_to_offload(space: CalibratedSpace, modes: StepModes, point: Mapping[str, Any]) -> Flags:
    """Return which (memory mode, schedule point) pairs offload from stages of too few blocks [memory modes, points].

    Args:
        space: the space of executions.
        modes: modes of memory, time and optimizer that executions of the space combine.
        point: fields of the schedule points by name, each [points].
    """
    names = ("pipeline_par", "pipeline_interleaving", "schedule", "stage_layout")
    few = too_few_to_offload(fewest_held(model_shapes(space.model), *(point[name] for name in names)))
    found: Flags = offloads(modes.memory_modes)[:, None] & few
    return found

"""Value of a plan by HPGO's closed form: the time of a step, from the plan's largest block."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.executions.arrays import Floats, Ints
from engine.planners.layerwise.cluster import MachineCluster
from engine.planners.layerwise.profiles.states import States

__all__ = ["StageGroup", "StepTime", "largest_block", "microbatches", "step_time", "two_stage_times"]


@dataclass(frozen=True, slots=True)
class StageGroup:
    """States that some devices compute. `end` is the first state of the next group; the last group's is the last state
    itself, as HPGO prints it. `units` are devices of one copy of the pipeline."""

    start: int
    end: int
    units: int
    devices: tuple[int, ...]

    def stop(self, states: int) -> int:
        """Return the half-open end of its states, given the number of states."""
        return states if self.end >= states - 1 else self.end


@dataclass(frozen=True, slots=True)
class StepTime:
    """A step and its parts [s]: blocks after the first, the fill, transfers between stages, and the exposed all-reduce.
    `microbatches` is the number per copy of the pipeline."""

    blocks: float
    fill: float
    transfers: float
    exposed_reduce: float
    microbatches: int

    @property
    def total(self) -> float:
        """Returns the step [s]."""
        return self.blocks + self.fill + self.transfers + self.exposed_reduce


def microbatches(batch: int, copies: int, microbatch: int) -> int:
    """Returns microbatches of one of `copies` pipelines; 0 where the batch is too small for them.

    Args:
        batch: samples of a step, of all pipelines.
        copies: pipelines that run side by side.
        microbatch: samples of a microbatch.
    """
    return batch // copies // microbatch


def step_time(
    states: States, cluster: MachineCluster, groups: Sequence[StageGroup], copies: int, block: float, count: int
) -> StepTime:
    """Returns the step of a plan: beta (M - 1) + T / (copies M) + transfers + max(0, all-reduce of stage i - i beta).

    A stage's parameters belong to the states from its start to its `end`, the next stage's first state included, as in
    HPGO 0.9.2; `end` of the last stage is the last state. The fill is not divided by the units of the stages there.

    Args:
        states: at the batch of the step.
        cluster: machines with their devices and networks.
        groups: states and devices of each stage, from the first on.
        copies: pipelines that run side by side.
        block: largest block of any stage for the whole batch [s].
        count: microbatches of one copy, at least 1.
    """
    share = 1 / (copies * count)
    # A cut carries out(e - 1) / (copies M) bytes of one microbatch.
    transfers = sum(
        cluster.move_rate(first.devices, second.devices) * float(states.out[first.end - 1]) * share
        for first, second in itertools.pairwise(groups)
    )
    reduces = [
        cluster.reduce_time(group.devices, states.span(states.parameters, group.start, group.end)) for group in groups
    ]
    return _step_parts(block, count, states.total * share, transfers, reduces)


def two_stage_times(
    states: States,
    cluster: MachineCluster,
    front: tuple[int, ...],
    back: tuple[int, ...],
    cuts: Ints,
    block: Floats,
    count: int,
) -> Floats:
    """Returns `step_time` of two stages with one copy, for many cuts at once: each after the state in `cuts` [s]
    [cuts].

    Args:
        states: of the profile, at the batch of a step.
        cluster: machines with their devices and networks.
        front: devices of the first stage.
        back: devices of the second stage.
        cuts: state after which each cut is [cuts].
        block: largest block, of both stages and the transfer between them, for the whole batch [s] [cuts].
        count: microbatches of a step.
    """
    moved = cluster.move_rate(front, back) * states.out[cuts] / count
    held = states.parameters[cuts + 1]
    rest = states.parameters[-1] - states.parameters[cuts]
    reduces = [cluster.reduce_time(front, 1.0) * held, cluster.reduce_time(back, 1.0) * rest]
    made = _step_parts(block, count, states.total / count, moved, reduces)
    return np.asarray(made.total)


def _step_parts(block: Any, count: int, fill: float, transfers: Any, reduces: Sequence[Any]) -> StepTime:
    """The parts of a step; blocks, transfers and all-reduces [s] may be arrays."""
    # beta = H / M of the largest block H; later stages finish i blocks earlier, so that delta = max_i (AR_i - i beta).
    beta = block / count
    exposed = 0.0
    for number, reduce in enumerate(reduces):
        exposed = np.maximum(exposed, reduce - number * beta)
    return StepTime(beta * (count - 1), fill, transfers, exposed, count)


def largest_block(states: States, cluster: MachineCluster, groups: Sequence[StageGroup]) -> float:
    """Returns the longest that any stage computes, or any cut transfers in one direction, for the whole batch [s].

    Args:
        states: of the profile, at the batch of a step.
        cluster: machines with their devices and networks.
        groups: states and devices of each stage, from the first on.
    """
    count = len(states)
    block = 0.0
    for number, group in enumerate(groups):
        stop = group.stop(count)
        block = max(block, states.span(states.time, group.start, stop - 1) / len(group.devices) if stop else 0.0)
        if number + 1 < len(groups):
            rate = cluster.move_rate(group.devices, groups[number + 1].devices)
            block = max(block, rate * float(states.out[group.end - 1]))
    return block

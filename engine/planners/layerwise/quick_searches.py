"""Quick searches: balanced, straight and two stages, found in milliseconds.

A sweep over many batches or numbers of devices uses them, and the exact search starts from their plans. Source: HPGO
0.9.2, which DAPPLE's authors released; hence their name `released`.

Of plans with equal values the one with fewer stages comes first, then the one that cuts earlier and takes lower
devices; HPGO leaves that to the order of its hash tables. Within the search for straight pipelines the earliest cut
stays among equal largest blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from engine.executions.arrays import Floats, Ints
from engine.planners.contract import Cancel, PlanCancelledError
from engine.planners.layerwise.cluster import MachineCluster
from engine.planners.layerwise.placement import Taken, added, copies_of, devices, empty, placements, sizes_of
from engine.planners.layerwise.profiles.states import States
from engine.planners.layerwise.value import StageGroup, microbatches, two_stage_times

__all__ = ["TIE", "ReleasedPlan", "balanced_plans", "in_two", "list_searches", "straight_plans"]

TIE = 1e-12
"""Relative difference below which two values count as equal: rounding of sums in another order."""


@dataclass(frozen=True, slots=True)
class ReleasedPlan:
    """A plan that a search found: the stages, copies of the pipeline, and its largest block for the whole batch [s]."""

    search: str
    groups: tuple[StageGroup, ...]
    copies: int
    block: float


def list_searches(
    states: States, cluster: MachineCluster, batch: int, microbatch: int, cancel: Cancel
) -> Iterator[tuple[str, Callable[[], list[ReleasedPlan]]]]:
    """Returns the searches that HPGO runs, by name, to be called one after the other.

    Args:
        states: of the profile, at the batch of a step.
        cluster: machines with their devices and networks.
        batch: samples of a step.
        microbatch: samples of a microbatch.
        cancel: called often; True stops the search.
    """
    if cluster.size == 1:
        alone = StageGroup(0, len(states) - 1, 1, (0,))
        yield "one device", lambda: [ReleasedPlan("one device", (alone,), 1, states.total)]
        return
    for units in range(2, cluster.size + 1):
        yield f"balanced-{units}", lambda units=units: balanced_plans(states, cluster, units)  # type: ignore[misc]
    for units in sorted({2, cluster.size} if cluster.size % 2 == 0 else {cluster.size}):
        if 2 <= units <= len(states):
            yield f"straight-{units}", lambda units=units: straight_plans(states, cluster, units, cancel)  # type: ignore[misc]
    yield "bipartition", lambda: in_two(states, cluster, microbatches(batch, 1, microbatch))


def balanced_plans(states: States, cluster: MachineCluster, units: int) -> list[ReleasedPlan]:
    """Returns stages with any numbers of units that make the largest block as small as it can be.

    The search starts from one stage with all units, whose block T / (units copies) no division can undercut: the
    largest of several shares is no smaller than their mean. As only a smaller block replaces it, that stage is the
    answer, which is returned without the search.

    Args:
        states: of the profile, at the batch of a step.
        cluster: machines with their devices and networks.
        units: devices of one copy of the pipeline.
    """
    copies = cluster.size // units
    taken = empty(cluster)
    (group, *_) = placements(sizes_of(cluster), taken, units * copies)
    stage = StageGroup(0, len(states) - 1, units, devices(cluster, taken, group))
    return [ReleasedPlan(f"balanced-{units}", (stage,), copies, states.total / (units * copies))]


def in_two(states: States, cluster: MachineCluster, count: int) -> list[ReleasedPlan]:
    """Looks at every cut in two stages, every division of the devices and every placement, with one copy of the
    pipeline: the best cut for each division and placement, the earliest of equal ones.

    Args:
        states: of the profile, at the batch of a step.
        cluster: machines with their devices and networks.
        count: microbatches of a step.
    """
    last, taken, sizes = len(states) - 1, empty(cluster), sizes_of(cluster)
    cuts = np.flatnonzero(states.before[:last, last])
    if not len(cuts) or not count:
        return []
    done, out = states.time[cuts], states.out[cuts]
    found: list[ReleasedPlan] = []
    for number in range(1, cluster.size):
        for first in placements(sizes, taken, number):
            front = devices(cluster, taken, first)
            for second in placements(sizes, first, cluster.size - number):
                back = devices(cluster, first, second)
                # H = max(T_front / g, T_back / (N - g), transfer): HPGO counts the transfer once here.
                computed = np.maximum(done / len(front), (states.total - done) / len(back))
                block = np.maximum(computed, cluster.move_rate(front, back) * out)
                times = two_stage_times(states, cluster, front, back, cuts, block, count)
                best = int(np.flatnonzero(times <= times.min() * (1 + TIE))[0])
                cut = int(cuts[best])
                groups = (StageGroup(0, cut + 1, len(front), front), StageGroup(cut + 1, last, len(back), back))
                found.append(ReleasedPlan("bipartition", groups, 1, float(block[best])))
    return found


@dataclass(frozen=True, slots=True)
class _Cell:
    """The best pipelines that end at each state and take certain devices, arrays [states]: the largest block [s], the
    last stage's devices as a number of a set, where the stage before ended, and which cell that is."""

    block: Floats
    last: Ints
    cut: Ints
    origin: Ints


def straight_plans(states: States, cluster: MachineCluster, stages: int, cancel: Cancel) -> list[ReleasedPlan]:
    """Return pipelines of exactly `stages` stages with one unit each that minimise the largest block.

    Cells are kept by the devices that are taken; every one that reaches the last state is an answer. A transfer counts
    twice, forward and backward, here.

    Args:
        states: of the profile, at the batch of a step.
        cluster: machines with their devices and networks.
        stages: how many the pipeline has.
        cancel: called often; True stops the search.

    Raises `engine.planners.contract.PlanCancelledError` where `cancel` says so.
    """
    copies, count = cluster.size // stages, len(states)
    every = np.arange(count)
    # T(j) - T(k) on `copies` devices, for every cut k before state j.
    compute = np.where(states.before, states.time[None, :] - states.time[:, None], np.inf) / copies
    start = empty(cluster)
    (first, *_) = placements(sizes_of(cluster), start, copies)
    sets = [devices(cluster, start, first)]
    none = np.zeros(count, np.int64)
    levels = [{added(start, first): _Cell(states.time / copies, none, none, none)}]
    for _ in range(1, stages):
        cells: dict[Taken, _Cell] = {}
        for origin, (taken, cell) in enumerate(levels[-1].items()):
            if cancel():
                raise PlanCancelledError
            for more in copies_of(cluster, taken, 1, copies):
                group = devices(cluster, taken, more)
                if group not in sets:
                    sets.append(group)
                rates = np.array([cluster.move_rate(each, group) for each in sets])
                # The largest block so far, or the transfer into this stage, forward and backward.
                before = np.maximum(cell.block, rates[cell.last] * (2 * states.out))
                blocks = np.maximum(compute, before[:, None])
                cut = blocks.argmin(axis=0)
                made = _Cell(blocks[cut, every], np.full(count, sets.index(group)), cut, np.full(count, origin))
                after = added(taken, more)
                cells[after] = _better_cells(cells[after], made) if after in cells else made
        levels.append(dict(sorted(cells.items())))
    return [
        ReleasedPlan(f"straight-{stages}", _trace_groups(levels, number, sets, count), copies, float(cell.block[-1]))
        for number, cell in enumerate(levels[-1].values())
        if np.isfinite(cell.block[-1])
    ]


def _better_cells(one: _Cell, other: _Cell) -> _Cell:
    """Both cells, the first where they are equal."""
    take = other.block < one.block
    return _Cell(
        np.where(take, other.block, one.block),
        np.where(take, other.last, one.last),
        np.where(take, other.cut, one.cut),
        np.where(take, other.origin, one.origin),
    )


def _trace_groups(
    levels: list[dict[Taken, _Cell]], number: int, sets: list[tuple[int, ...]], count: int
) -> tuple[StageGroup, ...]:
    state, end, groups = count - 1, count - 1, []
    for level in reversed(levels[1:]):
        cell = list(level.values())[number]
        cut = int(cell.cut[state])
        groups.append(StageGroup(cut + 1, end, 1, sets[int(cell.last[state])]))
        number, state, end = int(cell.origin[state]), cut, cut + 1
    groups.append(StageGroup(0, end, 1, sets[0]))
    return tuple(reversed(groups))

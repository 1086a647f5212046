"""The best sequences of vectors under every memory limit at once, layer by layer.

The cost of a layer depends on the layers before it through one of few states only. So the best sequences that end in a
state are its Pareto-optimal ones in memory and time: a frontier per state, extended layer by layer, is exact, without
buckets of memory. Memory needed only while a layer is at work counts once, as the maximum over layers: the search runs
under a limit of it, one limit after the other.

Where a frontier of one state has more points than `MOST_POINTS`, the points that gain least over one of no more memory
are left out. Costs of further layers are the same for both, so that the losses add up over layers to a bound that holds
for every limit.

Source: CFP, search over segments (published README); the frontier instead of buckets is ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from engine.executions.arrays import Floats, Ints
from engine.planners.intra_operator.layer_costs import (
    FIRST,
    LayerCosts,
    Vector,
    undominated,
    undominated_at_work,
    working_caps,
)
from engine.planners.intra_operator.mesh import Mesh

__all__ = ["MOST_POINTS", "Frontier", "Thinned", "frontier_of"]

MOST_POINTS: Final = 50_000
"""Points of a frontier of one state up to which all are kept. Source: stated by us."""
MOST_CAPS: Final = 64
"""Number of limits on working memory under which plans are searched. Source: stated by us."""
MOST_AT_ONCE: Final = 4_000_000
"""Sums of points and vectors that are made at a time."""


@dataclass(frozen=True, slots=True)
class Thinned:
    """Points left out of a frontier: from which layer on, at most how many, and by how much a plan may be slower for it
    than the best under the same limit [s]."""

    layer: int
    points: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Frontier:
    """The least time for every memory: `table` with memory [bytes], seconds [s], vectors; `thinned` None where it is
    exact; `steps` the number of limits on working memory that were searched where these are not all, else 0."""

    table: pd.DataFrame
    thinned: Thinned | None
    steps: int


def frontier_of(order: Sequence[LayerCosts], mesh: Mesh, compute: float) -> Frontier:
    """Returns the least time of a whole model for every memory.

    Args:
        order: costs of the layers, from the first.
        mesh: that shares them.
        compute: seconds that all plans share [s].
    """
    every = _useful_limits(order, mesh)
    caps = working_caps(every, MOST_CAPS)
    seconds_of = {each.name: each.seconds(mesh) for each in {one.name: one for one in order}.values()}
    searches = [_Layers(order, seconds_of, cap) for cap in caps]
    parts = [each.ends() for each in searches]
    memory = np.concatenate([each[0] for each in parts])
    seconds = np.concatenate([each[1] for each in parts])
    source = np.concatenate([np.full(len(each[0]), at) for at, each in enumerate(parts)])
    place = np.concatenate([np.arange(len(each[0])) for each in parts])
    rows = undominated(memory, seconds)
    found = [
        (
            float(memory[row]),
            float(compute + seconds[row]),
            searches[source[row]].vectors(parts[source[row]], int(place[row])),
        )
        for row in rows
    ]
    lost = [each.thinned for each in searches if each.thinned is not None]
    thinned = None
    if lost:
        most = (min(each.layer for each in lost), max(each.points for each in lost), max(each.seconds for each in lost))
        thinned = Thinned(*most)
    table = pd.DataFrame(found, columns=["memory", "seconds", "vectors"])
    return Frontier(table, thinned, len(caps) if len(caps) < len(every) else 0)


def _useful_limits(order: Sequence[LayerCosts], mesh: Mesh) -> Floats:
    """Returns the working memory of vectors that are best under some limit, but at least the least that some layer
    needs."""
    least, found = 0.0, [np.zeros(0)]
    for each in {one.name: one for one in order}.values():
        seconds = each.seconds(mesh)
        least = max(least, float(each.working[:, each.possible].min()))
        for state in range(len(each.memory)):
            for gives in np.unique(each.gives):
                among = each.possible & (each.gives == gives)
                kept = undominated_at_work(each.memory[state], seconds[state], each.working[state], among)
                found.append(each.working[state][kept])
    every = np.unique(np.concatenate(found))
    return every[every >= least]


@dataclass(frozen=True, slots=True)
class _FrontierPoints:
    """Sequences that end in one state: memory, the largest working memory of a layer, seconds, the state and the point
    before, the vector of the last layer."""

    memory: Floats
    working: Floats
    seconds: Floats
    state: Ints
    point: Ints
    vector: Ints

    def taken(self, which: Ints) -> _FrontierPoints:
        return _FrontierPoints(*(getattr(self, name)[which] for name in POINT))


POINT: Final = ("memory", "working", "seconds", "state", "point", "vector")
Ends = tuple[Floats, Floats, Ints, Ints]


class _Layers:
    """The frontier behind every layer, by the state in which it ends, under a limit of working memory."""

    def __init__(self, order: Sequence[LayerCosts], seconds: Mapping[str, Floats], cap: float) -> None:
        self.order, self.cap = order, cap
        self.thinned: Thinned | None = None
        self.best: dict[tuple[str, int, int], Ints] = {}
        nothing, none = np.zeros(1), np.zeros(1, np.int64)
        before: dict[int, _FrontierPoints] = {FIRST: _FrontierPoints(nothing, nothing, nothing, none, none, none)}
        self.layers: list[dict[int, _FrontierPoints]] = []
        for number, each in enumerate(order, 1):
            behind: dict[int, _FrontierPoints] = {}
            lost = 0.0
            for state in np.unique(each.gives).tolist():
                points = self._extended(before, each, seconds[each.name], state)
                if points is not None:
                    behind[state] = points
            if number < len(order):
                after = order[number]
                behind = self._without_hopeless(behind, after, seconds[after.name])
            for state, points in behind.items():
                behind[state], here = self._thin(points, number)
                lost = max(lost, here)
            if self.thinned is not None:
                known = self.thinned
                self.thinned = Thinned(known.layer, known.points, known.seconds + lost)
            before = behind
            self.layers.append(before)

    def _extended(
        self, before: Mapping[int, _FrontierPoints], costs: LayerCosts, seconds: Floats, state: int
    ) -> _FrontierPoints | None:
        best: _FrontierPoints | None = None
        for source, points in before.items():
            memory, working = costs.memory[source], costs.working[source]
            key = (costs.name, source, state)
            if key not in self.best:
                among = np.flatnonzero(costs.possible & (costs.gives == state) & (working <= self.cap))
                self.best[key] = among[undominated(memory[among], seconds[source][among])]
            which = self.best[key]
            step = max(MOST_AT_ONCE // max(len(points.memory), 1), 1)
            for start in range(0, len(which), step):
                part = which[start : start + step]
                # Vector by vector, so that memory comes in rising runs.
                summed = (memory[part][:, None] + points.memory, seconds[source][part][:, None] + points.seconds)
                keep = undominated(*(each.ravel() for each in summed))
                at, vector = keep % len(points.memory), part[keep // len(points.memory)]
                # Working memory is the largest of any layer, the rest adds up.
                new = _FrontierPoints(
                    summed[0].ravel()[keep],
                    np.maximum(points.working[at], working[vector]),
                    summed[1].ravel()[keep],
                    np.full(len(keep), source, np.int64),
                    at,
                    vector,
                )
                best = new if best is None else _join_points(best, new)
        return best

    def _without_hopeless(
        self, points: Mapping[int, _FrontierPoints], after: LayerCosts, seconds: Floats
    ) -> dict[int, _FrontierPoints]:
        """Returns the points without hopeless ones: some point of another state has no more memory and time even with
        the most that the next layer may add from there."""
        found = dict(points)
        usable = [after.possible & (each <= self.cap) for each in after.working]
        for state in points:
            for other in points:
                here, there = usable[state], found[other]
                if other == state or not len(there.memory) or not here.any() or (here & ~usable[other]).any():
                    continue
                # The most that the next layer can cost more from the other state.
                memory = max(float((after.memory[other][here] - after.memory[state][here]).max()), 0.0)
                time = max(float((seconds[other][here] - seconds[state][here]).max()), 0.0)
                own = found[state]
                at = np.searchsorted(there.memory, own.memory - memory, side="right") - 1
                best = np.where(at >= 0, there.seconds[at], np.inf)
                found[state] = own.taken(np.flatnonzero(best > own.seconds - time))
        return {state: each for state, each in found.items() if len(each.memory)}

    def _thin(self, points: _FrontierPoints, number: int) -> tuple[_FrontierPoints, float]:
        """Returns the points, reduced to the ones that gain most if there are too many, and the loss without the others
        [s]."""
        count = len(points.memory)
        if count <= MOST_POINTS:
            return points, 0.0
        known = self.thinned
        first, most, lost = (number, 0, 0.0) if known is None else (known.layer, known.points, known.seconds)
        self.thinned = Thinned(first, max(most, count), lost)
        high, low = float(points.seconds[0]), float(points.seconds[-1])
        # By rising memory seconds fall: of the points in one step of seconds the one of least memory is kept.
        steps = np.floor((high - points.seconds) / max(high - low, 1e-300) * (MOST_POINTS - 1)).astype(np.int64)
        keep = np.unique(steps, return_index=True)[1]
        ends = np.append(keep[1:], count) - 1
        return points.taken(keep), float((points.seconds[keep] - points.seconds[ends]).max())

    def ends(self) -> Ends:
        """Memory, seconds, states and points of whole models."""
        last = self.layers[-1].items()
        return (
            np.concatenate([each.memory + each.working for _, each in last]),
            np.concatenate([each.seconds for _, each in last]),
            np.concatenate([np.full(len(each.memory), state) for state, each in last]),
            np.concatenate([np.arange(len(each.memory)) for _, each in last]),
        )

    def vectors(self, ends: Ends, place: int) -> tuple[Vector, ...]:
        """The vectors of all layers of one of `ends`."""
        state, at = int(ends[2][place]), int(ends[3][place])
        found = []
        for costs, points in zip(reversed(self.order), reversed(self.layers), strict=True):
            here = points[state]
            found.append(costs.vectors[here.vector[at]])
            state, at = int(here.state[at]), int(here.point[at])
        return tuple(reversed(found))


def _join_points(one: _FrontierPoints, other: _FrontierPoints) -> _FrontierPoints:
    both = _FrontierPoints(*(np.concatenate([getattr(one, name), getattr(other, name)]) for name in POINT))
    return both.taken(undominated(both.memory, both.seconds))

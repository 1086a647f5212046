"""A space kept ready for many systems: its best execution at other rates and capacities, in a few milliseconds.

What a system change leaves as it is, is done once: enumeration, rejection by network and shape, the work of every
block, the memory that everything needs. A change of capacity costs new masks, a change of rates new block times;
bounds then leave a few hundred executions to evaluate.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from engine.cost_models.contract import BoundSearch, Candidates, PreparedCells
from engine.cost_models.registry import cost_model_of
from engine.executions.arrays import Ints
from engine.executions.work_sizes import work_sizes
from engine.exploration.proven_optimum import AboveSearch, Search
from engine.exploration.run import slabs
from engine.scenarios.scenario import Scenario
from engine.space.space import Space
from engine.whatif.kept import Kept
from hardware import System

__all__ = [
    "SPACES_KEPT",
    "AnyReadySpace",
    "PreparedOptimum",
    "ReadySpace",
    "SearchedSpace",
    "layout_key",
    "made_ready",
    "ready",
]


LARGEST_KEPT = 24_000_000
"""(memory mode, schedule point) pairs of a space that is kept ready: some 600 MiB of needs and masks."""

LARGEST_SEARCHED = 600_000
"""Largest number of schedule points of a space searched by bounds that stays prepared: about 100 MiB in any mode."""

WINNERS_KEPT = 4
"""Executions that were best of a space on other systems, tried before others."""

SPACES_KEPT = 4
"""Spaces kept ready, the latest used."""


@dataclass(frozen=True, slots=True)
class PreparedOptimum:
    """The best execution of a space on a system: its id and sample rate [samples/s], None and NaN when nothing runs.

    `feasible` counts executions that run, `evaluated` those whose times were computed, the others being proven no
    better. `kept` is the sample rate of the execution that was to be compared, NaN when it does not run. `tied` are
    the ids of all that are exactly as good as the best, itself among them, ascending.
    """

    id: int | None
    rate: float
    feasible: int
    evaluated: int
    kept: float = float("nan")
    tied: Ints = field(default_factory=lambda: np.zeros(0, np.int64), compare=False)
    reach: float = float("nan")
    """Sample rate that no execution exceeds on this system or any worse one [samples/s], if requested."""


class ReadySpace:
    """A space enumerated once, to be searched on any system with the same tiers; see `ready`.

    Ids come from the space. Threads take turns.
    """

    def __init__(self, space: Space, key: str) -> None:
        self.space, self.key = space, key
        cost_model = cost_model_of(space)
        self._parts = [cost_model.laid_out(space, numbers) for numbers in slabs(space)]
        self._lock = threading.Lock()

    def best(
        self, system: System, kept: int | None = None, *, watched: bool = False, counted: bool = True
    ) -> PreparedOptimum:
        """Returns the proven optimum on a system, and how the execution `kept` does there.

        The system must have the tiers that the space was laid out for: equal `layout_key`. watched: whether to tell
        `Found.reach` too. counted: feasible executions are always counted, at no cost.
        """
        search = Search(self.space, 1, False)
        search.watched = watched
        kept_rate = float("nan")
        with self._lock:
            for part in self._parts:
                prepared, rows = part.prepared(system)
                search.feasible += prepared.feasible
                hints = None
                if kept is not None and (found := _locate_candidate(prepared, rows, kept)) is not None:
                    hints, kept_rate = found
                search.look(prepared, rows, hints)
        return _found_best(search, kept_rate)

    def above(self, system: System, least: float) -> Ints:
        """Return the ids of all executions of at least a throughput on a system, fastest first.

        Args:
            system: as of `best`.
            least: throughput [samples/s].
        """
        search = AboveSearch(self.space, least)
        with self._lock:
            for part in self._parts:
                search.look(*part.prepared(system))
        return search.ids


class SearchedSpace:
    """A prepared space whose cost model searches by bounds: feasible executions are cached by capacities, all else is
    recomputed if bounds do not exclude it (see `engine.cost_models.contract.BoundSearch`)."""

    def __init__(self, space: Space, key: str, searches: Sequence[BoundSearch]) -> None:
        self.space, self.key = space, key
        self._searches = searches
        self._won: tuple[int, ...] = ()
        self._lock = threading.Lock()

    def best(
        self, system: System, kept: int | None = None, *, watched: bool = False, counted: bool = True
    ) -> PreparedOptimum:
        """Returns the proven optimum on a system, and how the execution `kept` does there; see `ReadySpace.best`.

        counted: whether to count the feasible executions, which takes masks of all of them.
        """
        space = self.space.on(system)
        search = Search(space, 1, False)
        search.watched = watched
        kept_rate = float("nan")
        with self._lock:
            # What was best elsewhere is seldom far from the best here: it rules out nearly all others of many.
            won = () if all(by_bounds.few for by_bounds in self._searches) else self._won
            tried = dict.fromkeys((*(() if kept is None else (kept,)), *won))
            known = [
                np.unique([point for each in tried for point in by_bounds.point_of(each)])
                for by_bounds in self._searches
            ]
            known = [points.astype(np.int64) for points in known]
            left = []
            for by_bounds, points in zip(self._searches, known, strict=True):
                whole = by_bounds.few and len(points) > 0  # one look at all of few takes less than two at some
                if not whole:
                    left.append((by_bounds, points))
                if len(points):
                    prepared, rows = by_bounds.prepare(space, by_bounds.promising(space) if whole else points)
                    hints = None
                    if kept is not None and (found := _locate_candidate(prepared, rows, kept)) is not None:
                        hints, kept_rate = found
                    search.look(prepared, rows, hints)
                    search.feasible += prepared.feasible if whole else 0
            for by_bounds, points in left:
                search.look_over(by_bounds, space, points, counted=counted)
            result = _found_best(search, kept_rate)
            if result.id is not None:
                self._won = (result.id, *(each for each in self._won if each != result.id))[:WINNERS_KEPT]
        return result

    def above(self, system: System, least: float) -> Ints:
        """Return the ids of all executions of at least a throughput on a system; see `ReadySpace.above`."""
        space = self.space.on(system)
        search = AboveSearch(space, least)
        with self._lock:
            for by_bounds in self._searches:
                search.look_over(by_bounds, space, counted=False)
        return search.ids


def _found_best(search: Search, kept_rate: float) -> PreparedOptimum:
    top, _ = search.result()
    if not len(top):
        return PreparedOptimum(None, float("nan"), 0, 0, kept_rate)
    first = top.iloc[0]
    return PreparedOptimum(
        int(first["id"]),
        float(first["sample_rate"]),
        search.feasible,
        search.evaluated,
        kept_rate,
        search.tied(),
        search.reach,
    )


def _locate_candidate(prepared: PreparedCells, rows: Candidates, execution: int) -> tuple[Ints, float] | None:
    """(position of the candidate of an execution, its sample rate); None where the prepared rows do not have
    it, or it does not fit."""
    points, modes = prepared.points, prepared.modes
    rest = execution - points.first
    position, assignment = np.divmod(rest, points.stride)
    cell = points.cell
    modes_of = np.array([len(table) for table in prepared.space.modes])[points.kind]
    choices = np.array([prepared.space.cells[number].assignments for number in prepared.cells.number.tolist()])[cell]
    mine = np.flatnonzero((rest >= 0) & (position < modes_of) & (assignment < choices))
    if not len(mine):
        return None
    point = int(mine[0])
    overlapped, mode = next(
        (flag, int(found[0]))
        for flag in (0, 1)
        if len(found := np.flatnonzero(modes.position[flag][points.kind[point]] == position[point]))
    )
    if not prepared.fits[modes.memory[mode], point]:
        return None
    for number, group in enumerate(prepared.groups):
        place = np.flatnonzero(group.point == point)
        if not len(place):
            continue
        nets = [net for net in group.data_nets if group.assignment[net][place[0]] == assignment[point]]
        if not nets:
            continue
        chunk = cost_model_of(prepared.space).evaluate_rows(
            prepared, replace(group, place=place, mode=np.array([mode])), slice(None)
        )
        rate = next(
            float(variant.metrics["sample_rate"][0])
            for variant in chunk.variants
            if variant.data_net == nets[0] and variant.overlapped == bool(overlapped)
        )
        where = np.flatnonzero((rows.group == number) & (rows.place == place[0]) & (rows.time == modes.time[mode]))
        return where, rate
    return None


AnyReadySpace = ReadySpace | SearchedSpace

_kept: Kept[AnyReadySpace | None] = Kept(SPACES_KEPT)


def ready(scenario: Scenario) -> AnyReadySpace | None:
    """Return the prepared space of a scenario, shared by all scenarios that differ in rates and capacities only.

    None for spaces too large to stay prepared. Raises the errors of `Scenario.space`.

    Args:
        scenario: any of the scenarios that share a space.
    """
    key = layout_key(scenario)

    def make() -> AnyReadySpace | None:
        return made_ready(scenario.space, key)

    return _kept.get(key, make)


def made_ready(space: Space, key: str) -> AnyReadySpace | None:
    """Returns the space laid out, None where it is too large to be kept.

    Args:
        space: the space.
        key: what its row table depends on.
    """
    cost_model = cost_model_of(space)
    if not cost_model.searches_by_bounds:
        return ReadySpace(space, key) if _count_pairs(space) <= LARGEST_KEPT else None
    if _count_points(space) > LARGEST_SEARCHED:
        return None
    searches = [cost_model.bound_search(space, numbers) for numbers in slabs(space, work_sizes().points_kept)]
    return SearchedSpace(space, key, searches)


def layout_key(scenario: Scenario) -> str:
    """Return all inputs of the row table of a scenario's space as text: equal texts may share one table.

    Args:
        scenario: any of the scenarios that share a space.
    """
    content = {
        "cost_model": scenario.cost_model,
        "num_procs": scenario.num_procs,
        "max_batch_size": scenario.max_batch_size,
        "datatype": scenario.datatype,
        "limits": dict(scenario.limits),
        "second tier": scenario.system.mem2.capacity_gib > 0,
        **cost_model_of(scenario).layout_depends_on(
            scenario.model, scenario.system, scenario.calibration, scenario.limits
        ),
    }
    return json.dumps(content, sort_keys=True)


def _count_pairs(space: Space) -> int:
    """Most (memory mode, schedule point) pairs that the space has."""
    return max(len(table) for table in space.modes) * _count_points(space)


def _count_points(space: Space) -> int:
    return sum(len(cell.interleavings) * len(cell.microbatches) for cell in space.cells)

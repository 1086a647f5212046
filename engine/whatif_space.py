"""A space kept ready for many systems: its best execution at other rates and capacities, in a few milliseconds.

What a system change leaves as it is, is done once: enumeration, rejection by network and shape, the work of every
block, the memory that everything needs. A change of capacity costs new masks, a change of rates new block times;
bounds then leave a few hundred executions to evaluate.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

import models
from engine.block import block_times
from engine.bounds import Candidates, candidates
from engine.calibrated.ground import Ground
from engine.calibrated.space import CalibratedSpace
from engine.calibrated.systems import generation_of
from engine.cost_models import AnyCandidates, AnyPlan, evaluate_rows
from engine.explore import slabs
from engine.kept import Kept
from engine.optimizer import optimizer_times
from engine.plan import Layout, Plan, lay_out, plan_of
from engine.rates import Rates, rates
from engine.rejection import listed, memory_needs
from engine.scenario import Scenario
from engine.search import SITES_OF_A_GROUND, Search
from engine.space import Space
from hardware import System, calibration_document

__all__ = ["SPACES_KEPT", "AnyReadySpace", "Found", "ReadyCalibratedSpace", "ReadySpace", "layout_key", "ready"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

LARGEST_KEPT = 24_000_000
"""(memory mode, site) pairs of a space that is kept ready: some 600 MiB of needs and masks."""

LARGEST_CALIBRATED = 600_000
"""Sites of a calibrated space that is kept ready: some 100 MiB, whatever modes there are."""

WINNERS_KEPT = 4
"""Executions that were best of a calibrated space, tried before others."""

ROWS_KEPT = 800_000
"""Candidates kept with the masks that gave them, per run of cells; some 120 MiB."""

SPACES_KEPT = 4
"""Spaces kept ready, the latest used."""


@dataclass(frozen=True, slots=True)
class Found:
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


@dataclass(slots=True)
class _Masked:
    """What fits between two capacities."""

    fits: Flags
    feasible: int
    rows: Candidates


class _Part:
    """A run of cells, laid out, with the memory that everything in it needs."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        cells, sites, modes = layout.cells, layout.sites, layout.modes
        rate = rates(layout.space.system, layout.space.datatype)
        blocks, optimizers = block_times(layout.work, rate), optimizer_times(layout.optimizer, rate)
        self.needs = memory_needs(cells, sites, modes, layout.keyed, blocks, optimizers, layout.optimizer_of)
        self.listed = listed(layout.space, cells, sites, modes)
        self._masks: OrderedDict[tuple[float, float], _Masked] = OrderedDict()

    def plan(self, rate: Rates) -> tuple[Plan, Candidates]:
        """The plan and the candidates at the rates and capacities of a system."""
        layout = self.layout
        blocks, optimizers = block_times(layout.work, rate), optimizer_times(layout.optimizer, rate)
        masked = self._masks.get((rate.capacity, rate.second_capacity))
        if masked is not None:
            plan = plan_of(layout, rate, blocks, optimizers, self.needs, masked.fits, masked.feasible)
            return plan, masked.rows
        fits = self.listed & (self.needs[0] <= rate.capacity) & (self.needs[1] <= rate.second_capacity)
        plan = plan_of(layout, rate, blocks, optimizers, self.needs, fits)
        masked = _Masked(fits, plan.feasible, candidates(plan, fits))
        self._masks[rate.capacity, rate.second_capacity] = masked
        while len(self._masks) > 1 and sum(len(each.rows.group) for each in self._masks.values()) > ROWS_KEPT:
            self._masks.popitem(last=False)
        return plan, masked.rows


class ReadySpace:
    """A space laid out once, to be searched on any system with the same tiers; see `ready`.

    Ids are those of the space. Threads take turns.
    """

    def __init__(self, space: Space, key: str) -> None:
        self.space, self.key = space, key
        self._parts = [_Part(lay_out(space, numbers)) for numbers in slabs(space)]
        self._lock = threading.Lock()

    def best(self, system: System, kept: int | None = None) -> Found:
        """The proven optimum on a system, and how the execution `kept` does there.

        The system must have the tiers that the space was laid out for: equal `layout_key`.
        """
        rate = rates(system, self.space.datatype)
        search = Search(self.space, 1, False)
        kept_rate = float("nan")
        with self._lock:
            for part in self._parts:
                plan, rows = part.plan(rate)
                search.feasible += plan.feasible
                hints = None
                if kept is not None and (found := _locate(plan, rows, kept)) is not None:
                    hints, kept_rate = found
                search.look(plan, rows, hints)
        return _found(search, kept_rate)


class ReadyCalibratedSpace:
    """The same for the calibrated cost model: what fits is remembered by capacities, everything else computed anew
    where bounds leave it (see `engine.calibrated.ground`)."""

    def __init__(self, space: CalibratedSpace, key: str) -> None:
        self.space, self.key = space, key
        self._grounds = [Ground(space, numbers) for numbers in slabs(space, SITES_OF_A_GROUND)]
        self._won: tuple[int, ...] = ()
        self._lock = threading.Lock()

    def best(self, system: System, kept: int | None = None) -> Found:
        """The proven optimum on a system, and how the execution `kept` does there; see `ReadySpace.best`."""
        space = self.space.on(system)
        search = Search(space, 1, False)
        kept_rate = float("nan")
        with self._lock:
            # What was best elsewhere is seldom far from the best here, and rules out nearly all others.
            tried = dict.fromkeys((*(() if kept is None else (kept,)), *self._won))
            known = [np.unique([site for each in tried for site in ground.site_of(each)]) for ground in self._grounds]
            known = [sites.astype(np.int64) for sites in known]
            for ground, sites in zip(self._grounds, known, strict=True):
                if not len(sites):
                    continue
                plan, rows = ground.plan(space, sites)
                if kept is not None and (found := _locate(plan, rows, kept)) is not None:
                    kept_rate = found[1]
                search.look(plan, rows)
            for ground, sites in zip(self._grounds, known, strict=True):
                search.look_over(ground, space, sites)
            result = _found(search, kept_rate)
            if result.id is not None:
                self._won = (result.id, *(each for each in self._won if each != result.id))[:WINNERS_KEPT]
        return result


def _found(search: Search, kept_rate: float) -> Found:
    top, _ = search.result()
    if not len(top):
        return Found(None, float("nan"), 0, 0, kept_rate)
    first = top.iloc[0]
    return Found(int(first["id"]), float(first["sample_rate"]), search.feasible, search.evaluated, kept_rate,
                 search.tied())  # fmt: skip


def _locate(plan: AnyPlan, rows: AnyCandidates, execution: int) -> tuple[Ints, float] | None:
    """(position of the candidate of an execution, its sample rate); None where the plan has it not, or not fitting."""
    sites, modes = plan.sites, plan.modes
    rest = execution - sites.first
    position, assignment = np.divmod(rest, sites.stride)
    cell = sites.cell
    modes_of = np.array([len(table) for table in plan.space.modes])[sites.kind]
    choices = np.array([plan.space.cells[number].assignments for number in plan.cells.number.tolist()])[cell]
    mine = np.flatnonzero((rest >= 0) & (position < modes_of) & (assignment < choices))
    if not len(mine):
        return None
    site = int(mine[0])
    overlapped, mode = next(
        (flag, int(found[0]))
        for flag in (0, 1)
        if len(found := np.flatnonzero(modes.position[flag][sites.kind[site]] == position[site]))
    )
    if not plan.fits[modes.memory[mode], site]:
        return None
    for number, group in enumerate(plan.groups):
        place = np.flatnonzero(group.site == site)
        if not len(place):
            continue
        nets = [net for net in group.data_nets if group.assignment[net][place[0]] == assignment[site]]
        if not nets:
            continue
        chunk = evaluate_rows(plan, replace(group, place=place, mode=np.array([mode])), slice(None))
        rate = next(
            float(variant.metrics["sample_rate"][0])
            for variant in chunk.variants
            if variant.data_net == nets[0] and variant.overlapped == bool(overlapped)
        )
        where = np.flatnonzero((rows.group == number) & (rows.place == place[0]) & (rows.time == modes.time[mode]))
        return where, rate
    return None


AnyReadySpace = ReadySpace | ReadyCalibratedSpace

_kept: Kept[AnyReadySpace | None] = Kept(SPACES_KEPT)


def ready(scenario: Scenario) -> AnyReadySpace | None:
    """The space of a scenario laid out, shared by all scenarios that differ in rates and capacities only.

    None for spaces too large to be kept. Raises what `Scenario.space` raises.
    """
    key = layout_key(scenario)

    def make() -> AnyReadySpace | None:
        space = scenario.space
        if isinstance(space, CalibratedSpace):
            return ReadyCalibratedSpace(space, key) if _sites(space) <= LARGEST_CALIBRATED else None
        return ReadySpace(space, key) if _pairs(space) <= LARGEST_KEPT else None

    return _kept.get(key, make)


def layout_key(scenario: Scenario) -> str:
    """What the layout of a scenario's space depends on, as text."""
    system = scenario.system
    exact = scenario.cost_model == "calculon"
    content: dict[str, Any] = {
        "model": models.to_calculon(scenario.model) if exact else models.to_document(scenario.model),
        "num_procs": scenario.num_procs,
        "max_batch_size": scenario.max_batch_size,
        "datatype": scenario.datatype,
        "limits": dict(scenario.limits),
        "second tier": system.mem2.capacity_gib > 0,
    }
    # Which executions there are depends on the networks: in `calibrated` where a limit names the networks of a group.
    content["networks"] = [[network.size, network.must_be_filled] for network in system.networks]
    if not exact:
        if not any(name.endswith("_net") for name in scenario.limits):
            del content["networks"]
        content |= {
            "generation": generation_of(system),
            "datatypes": list(system.matrix),
            "calibration": calibration_document(scenario.used_calibration),
        }
    return json.dumps(content, sort_keys=True)


def _pairs(space: Space) -> int:
    """Most (memory mode, site) pairs that the space has."""
    return max(len(table) for table in space.modes) * _sites(space)


def _sites(space: Space) -> int:
    return sum(len(cell.interleavings) * len(cell.microbatches) for cell in space.cells)

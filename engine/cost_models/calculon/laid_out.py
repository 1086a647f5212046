"""Cells laid out once for many systems that differ in rates and capacities only.

A change of capacity costs new masks, a change of rates new block times.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from engine.cost_models.calculon.block import block_times
from engine.cost_models.calculon.bounds import Candidates, candidates
from engine.cost_models.calculon.optimizer import optimizer_times
from engine.cost_models.calculon.prepared_rows import Layout, Plan, plan_of
from engine.cost_models.calculon.rates import rates
from engine.cost_models.calculon.rejection import listed, memory_needs
from engine.executions.arrays import Flags
from hardware import System

__all__ = ["LaidOutCells"]

ROWS_KEPT = 800_000
"""Candidates kept with the masks that gave them, per run of cells; some 120 MiB."""


@dataclass(slots=True)
class _Masked:
    """What fits between two capacities."""

    fits: Flags
    feasible: int
    rows: Candidates


class LaidOutCells:
    """A run of cells, laid out, with the memory that everything in it needs."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        cells, sites, modes = layout.cells, layout.sites, layout.modes
        rate = rates(layout.space.system, layout.space.datatype)
        blocks, optimizers = block_times(layout.work, rate), optimizer_times(layout.optimizer, rate)
        self.needs = memory_needs(layout.stages, sites, modes, layout.keyed, blocks, optimizers, layout.optimizer_of)
        self.listed = listed(layout.space, cells, sites, modes)
        self._masks: OrderedDict[tuple[float, float], _Masked] = OrderedDict()

    def prepared(self, system: System) -> tuple[Plan, Candidates]:
        """The plan and the candidates at the rates and capacities of a system."""
        layout, rate = self.layout, rates(system, self.layout.space.datatype)
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

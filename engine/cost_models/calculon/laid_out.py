"""Cells laid out once for many systems that differ in rates and capacities only.

A change of capacity costs new masks, a change of rates new block times.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from engine.cost_models.calculon.bounds import Candidates, candidates
from engine.cost_models.calculon.physics.block import block_times
from engine.cost_models.calculon.physics.optimizer import optimizer_times
from engine.cost_models.calculon.physics.rates import rates
from engine.cost_models.calculon.rows.prepared_rows import PreparedRows, RowTable, prepared_rows_of
from engine.cost_models.calculon.rows.rejection import listed, memory_requirements
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

    def __init__(self, row_table: RowTable) -> None:
        self.row_table = row_table
        cells, points, modes = row_table.cells, row_table.points, row_table.modes
        rate = rates(row_table.space.system, row_table.space.datatype)
        blocks, optimizers = block_times(row_table.work, rate), optimizer_times(row_table.optimizer, rate)
        self.needs = memory_requirements(
            row_table.stages, points, modes, row_table.keyed, blocks, optimizers, row_table.optimizer_of
        )
        self.listed = listed(row_table.space, cells, points, modes)
        self._masks: OrderedDict[tuple[float, float], _Masked] = OrderedDict()

    def prepared(self, system: System) -> tuple[PreparedRows, Candidates]:
        """Returns the prepared rows and the candidates at the rates and capacities of a system."""
        row_table, rate = self.row_table, rates(system, self.row_table.space.datatype)
        blocks, optimizers = block_times(row_table.work, rate), optimizer_times(row_table.optimizer, rate)
        masked = self._masks.get((rate.capacity, rate.second_capacity))
        if masked is not None:
            prepared = prepared_rows_of(row_table, rate, blocks, optimizers, self.needs, masked.fits, masked.feasible)
            return prepared, masked.rows
        fits = self.listed & (self.needs[0] <= rate.capacity) & (self.needs[1] <= rate.second_capacity)
        prepared = prepared_rows_of(row_table, rate, blocks, optimizers, self.needs, fits)
        masked = _Masked(fits, prepared.feasible, candidates(prepared, fits))
        self._masks[rate.capacity, rate.second_capacity] = masked
        while len(self._masks) > 1 and sum(len(each.rows.group) for each in self._masks.values()) > ROWS_KEPT:
            self._masks.popitem(last=False)
        return prepared, masked.rows

"""The toy as a cost model: what the contract asks for, and nothing that it has a default for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

import hardware
import models
from engine.columns import FIELDS, HEADLINE, STATISTICS, ColumnSet
from engine.cost_models.contract import CostModel
from engine.cost_models.words import CostModelWords
from engine.executions import reasons
from engine.executions.arrays import Floats
from engine.executions.outcome import outcome_table
from engine.executions.sentences import excesses
from engine.executions.table import DATATYPES, FIELD_NAMES, check_fields, parse
from engine.space.rows import RowChunk, RowGroup
from hardware import GIB, Calibration, System
from models import Model
from tests.toy import rows as toy_rows
from tests.toy.physics import COMPUTED, statistics_of
from tests.toy.space import ToySpace

__all__ = ["TOY"]

_TOLD = {*COMPUTED, *(column.name for column in HEADLINE)}


class Toy(CostModel):
    """Operations over the peak, and a pipeline bubble."""

    name = "toy"
    words = CostModelWords(title="toy", summary="operations over the peak")
    version = "toy/1"
    columns = ColumnSet(FIELDS, STATISTICS, frozenset(each.name for each in STATISTICS if each.name not in _TOLD))
    datatypes = tuple(DATATYPES)

    def space(
        self,
        model: Model,
        system: System,
        *,
        num_procs: int,
        max_batch_size: int,
        datatype: str,
        limits: Mapping[str, Any] | None = None,
        calibration: Calibration | None = None,
    ) -> ToySpace:
        """See `CostModel.space`."""
        return ToySpace(
            model, system, num_procs=num_procs, max_batch_size=max_batch_size, datatype=datatype, limits=limits
        )

    def prepare(self, space: Any, numbers: range, *, rows: bool = True) -> toy_rows.ToyRows:
        """See `CostModel.prepare`."""
        return toy_rows.prepare(space, numbers, rows)

    def evaluate_rows(self, prepared: Any, group: RowGroup, part: slice) -> RowChunk:
        """See `CostModel.evaluate_rows`."""
        return toy_rows.evaluate_rows(prepared, group, part)

    def evaluate(
        self, model: Model, system: System, executions: pd.DataFrame, calibration: Calibration | None
    ) -> pd.DataFrame:
        """See `CostModel.evaluate`."""
        parsed, reason, malformed = parse(executions)
        check_fields(parsed, reason)
        values = np.full((len(STATISTICS), len(parsed)), np.nan)
        need = np.zeros(len(parsed))
        for position, name in enumerate(DATATYPES):
            here = np.flatnonzero((reason == reasons.FITS) & (parsed.datatype == position))
            if not len(here):
                continue
            fields = {field: getattr(parsed, field)[here] for field in FIELD_NAMES}
            told = statistics_of(model, system, name, fields)
            for row, column in enumerate(STATISTICS):
                if column.name in _TOLD:
                    values[row, here] = told.get(column.name, 0.0)
            need[here] = told["proc_mem_tier1_cap_req"]
        short = (reason == reasons.FITS) & (need > system.mem1.capacity_gib * GIB)
        reason[short] = reasons.number_of("memory_tier1")

        def quantities(here: Any, code: str) -> dict[str, Any]:
            return excesses(need[here] / GIB, system.mem1.capacity_gib) if code == "memory_tier1" else {}

        return outcome_table(executions[list(FIELD_NAMES)], STATISTICS, reason, malformed, values, quantities)

    def candidates(self, prepared: Any) -> toy_rows.ToyCandidates:
        """See `CostModel.candidates`."""
        return toy_rows.candidates(prepared)

    def bounds(self, prepared: Any, rows: Any) -> Floats:
        """See `CostModel.bounds`."""
        return toy_rows.bounds(prepared, rows)

    def depends_on(self, model: Model, system: System, calibration: Calibration | None) -> dict[str, Any]:
        """See `CostModel.depends_on`."""
        return {"model": models.to_document(model), "system": hardware.to_document(system)}


TOY = Toy()

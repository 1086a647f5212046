"""Calculon 0.1.0 as one of the cost models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pandas as pd

import hardware
import models
from engine.columns import FIELDS, STATISTICS, ColumnSet
from engine.cost_models.calculon.account import CalculonAccount
from engine.cost_models.calculon.bound_search import CalculonBoundSearch
from engine.cost_models.calculon.bounds import bounds, candidates
from engine.cost_models.calculon.layer_table import layer_table_of
from engine.cost_models.calculon.rows.prepared_rows import PreparedRows, prepare_calculon
from engine.cost_models.calculon.rows.row_evaluation import calculon_reach, evaluate_calculon_rows
from engine.cost_models.calculon.space import CalculonSpace
from engine.cost_models.calculon.table_evaluation import calculon_row, evaluate_calculon
from engine.cost_models.calculon.words import WORDS
from engine.cost_models.contract import Candidates, CostModel
from engine.executions.arrays import Floats
from engine.executions.table import DATATYPES
from engine.space.rows import RowChunk, RowGroup
from hardware import Calibration, System
from models import Model
from models.represent import obstacles

__all__ = ["CALCULON"]


class Calculon(CostModel):
    """Exact against Calculon 0.1.0, also where that departs from what hardware does."""

    name = "calculon"
    words = WORDS
    version = "calculon-0.1.0/1"
    columns = ColumnSet(FIELDS, STATISTICS, unnamed=True)
    datatypes = tuple(DATATYPES)
    reference = "Calculon 0.1.0"
    even_pipelines = True
    reads_efficiencies = True
    searches_by_bounds = True
    unread = frozenset({"power"})
    without_effect = (
        "accelerator.generation",
        "accelerator.tdp_w",
        "accelerator.tfloat32_tflops",
        "accelerator.multiprocessors",
        "accelerator.clock_ghz",
        "accelerator.exponentials_per_clock",
        "accelerator.fused_attention",
    )
    flop_recipe = "block"
    rows_per_second = 400_000.0

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
    ) -> CalculonSpace:
        """See `CostModel.space`; it takes no calibration."""
        return CalculonSpace(
            model, system, num_procs=num_procs, max_batch_size=max_batch_size, datatype=datatype, limits=limits
        )

    def prepare(self, space: CalculonSpace, numbers: range, *, rows: bool = True) -> PreparedRows:
        """See `CostModel.prepare`."""
        return prepare_calculon(space, numbers, rows=rows)

    def evaluate_rows(self, prepared: PreparedRows, group: RowGroup, part: slice) -> RowChunk:
        """See `CostModel.evaluate_rows`."""
        return evaluate_calculon_rows(prepared, group, part)

    def evaluate(
        self, model: Model, system: System, executions: pd.DataFrame, calibration: Calibration | None
    ) -> pd.DataFrame:
        """See `CostModel.evaluate`."""
        return evaluate_calculon(model, system, executions)

    def row(self, space: CalculonSpace, number: int, calibration: Calibration | None) -> dict[str, Any]:
        """See `CostModel.row`."""
        return calculon_row(space, number) or super().row(space, number, calibration)

    def candidates(self, prepared: PreparedRows) -> Candidates:
        """See `CostModel.candidates`."""
        return candidates(prepared, prepared.fits)

    def bounds(self, prepared: PreparedRows, rows: Any) -> Floats:
        """See `CostModel.bounds`."""
        return bounds(prepared, rows)

    def depends_on(self, model: Model, system: System, calibration: Calibration | None) -> dict[str, Any]:
        """See `CostModel.depends_on`: Calculon's own documents."""
        return {"model": models.to_calculon(model), "system": hardware.to_calculon(system)}

    def bound_search(self, space: CalculonSpace, numbers: range) -> CalculonBoundSearch:
        """See `CostModel.bound_search`."""
        return CalculonBoundSearch(space, numbers)

    def layout_depends_on(
        self, model: Model, system: System, calibration: Calibration | None, limits: Mapping[str, Any]
    ) -> dict[str, Any]:
        """See `CostModel.layout_depends_on`: the sizes of the networks, not their rates."""
        return {
            "model": models.to_calculon(model),
            "networks": [[network.size, network.must_be_filled] for network in system.networks],
        }

    def rises_with(self, system: System, path: str) -> int:
        """See `CostModel.rises_with`: what `reach` takes for a step is a sum of times, none of which rises with a rate.

        Computation that hides communication is no exception: its longer time and the shorter exposure add up to no
        less. That needs computing and moving data to add up within an operation; where they overlap it may not hold.
        """
        if system.processing_mode != "no_overlap":
            return 0
        first, last = path.split(".")[0], path.rsplit(".", 1)[-1]
        if first in ("matrix", "vector", "mem1", "mem2", "networks"):
            return {"tflops": 1, "bandwidth_gb_per_s": 1, "capacity_gib": 1, "latency_s": -1}.get(last, 0)
        return 0

    def reach(self, prepared: PreparedRows, group: RowGroup, part: slice) -> Floats:
        """See `CostModel.reach`."""
        return calculon_reach(prepared, group, part)

    def operations(
        self, model: Model, system: System, execution: Mapping[str, Any], calibration: Calibration | None
    ) -> pd.DataFrame:
        """See `CostModel.operations`: the layers of Calculon's block."""
        return layer_table_of(model, system, execution)

    def account(
        self, model: Model, system: System, execution: Mapping[str, Any], calibration: Calibration | None
    ) -> CalculonAccount:
        """See `CostModel.account`."""
        return CalculonAccount(model, system, execution)

    def unsupported(self, model: Model) -> Sequence[str]:
        """See `CostModel.unsupported`: models that Calculon's six numbers cannot describe."""
        if model.block is not None:
            return ()
        if model.tuning is not None:
            has = model.tuning.describe()
        elif model.layers is not None:
            has = f"layers in a pattern, {model.layers.describe()}"
        else:
            has = " and ".join(obstacles(model.architecture)) if model.architecture else "no recorded shape"
        return (f"{model.title or model.name} has {has}, which the cost model {self.name} cannot represent.",)


CALCULON: Final = Calculon()

"""The calibrated cost model as one of the cost models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pandas as pd

import models
from engine.columns import ALL_FIELDS, EXTENSION_STATISTICS, OF_LAYERS, STATISTICS, ColumnSet, by_name
from engine.columns.stage_layouts import canonical
from engine.cost_models.calibrated.account import CalibratedAccount
from engine.cost_models.calibrated.bound_search import CalibratedBoundSearch
from engine.cost_models.calibrated.bounds import calibrated_bounds, calibrated_candidates
from engine.cost_models.calibrated.case_building import model_shapes
from engine.cost_models.calibrated.effective import effective_rates
from engine.cost_models.calibrated.fields import IMPLIED, NOT_READ
from engine.cost_models.calibrated.kernel_times import CalibratedKernelTimes
from engine.cost_models.calibrated.measured import not_measured
from engine.cost_models.calibrated.operation_table import operation_table_of
from engine.cost_models.calibrated.physics.formats import DATATYPES, SCALED_NAMES
from engine.cost_models.calibrated.physics.inputs import SIZES
from engine.cost_models.calibrated.physics.parameters import POWER_REFERENCES, library_calibration, parameters_of
from engine.cost_models.calibrated.physics.pipeline.layouts import cut_of
from engine.cost_models.calibrated.placement import networks_of
from engine.cost_models.calibrated.rows.prepared_rows import CalibratedRows, prepare_calibrated
from engine.cost_models.calibrated.rows.row_evaluation import evaluate_calibrated_rows
from engine.cost_models.calibrated.space import CalibratedSpace
from engine.cost_models.calibrated.systems import accelerator_of, generation_of
from engine.cost_models.calibrated.table_evaluation import calibrated_row, evaluate_calibrated
from engine.cost_models.calibrated.words import WORDS
from engine.cost_models.contract import Candidates, CostModel, SustainedRate
from engine.executions.arrays import Floats
from engine.executions.layer_splits import StageCut
from engine.space.rows import RowChunk, RowGroup
from engine.space.space import Space
from hardware import Calibration, System, calibration_document
from models import Model, datatypes
from models.token_flops import token_flops

__all__ = ["CALIBRATED"]


class Calibrated(CostModel):
    """Predicts measured runs: its few parameters were fitted to them, see `engine.validation`."""

    name = "calibrated"
    words = WORDS
    version = "calibrated/8"
    columns = ColumnSet(ALL_FIELDS, (*STATISTICS, *EXTENSION_STATISTICS), OF_LAYERS, IMPLIED, NOT_READ)
    datatypes = DATATYPES
    takes_calibration = True
    flop_convention = "causal"
    searches_by_bounds = True
    unread = frozenset({"vector", "latency", "host"})
    without_effect = (
        "matrix.*.gflops_efficiency",
        "vector.*.tflops",
        "vector.*.gflops_efficiency",
        "mem1.mb_efficiency",
        "mem2.mb_efficiency",
        "processing_mode",
        "networks.*.efficiency",
        "networks.*.latency_s",
        "networks.*.operations",
        "networks.*.must_be_filled",
        "networks.*.processor_usage",
        "accelerator.tfloat32_tflops",
    )
    one_unit = frozenset({"float16", "bfloat16"})

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
    ) -> CalibratedSpace:
        """See `CostModel.space`."""
        return CalibratedSpace(
            model,
            system,
            num_procs=num_procs,
            max_batch_size=max_batch_size,
            datatype=datatype,
            limits=limits,
            calibration=calibration,
        )

    def prepare(self, space: CalibratedSpace, numbers: range, *, rows: bool = True) -> CalibratedRows:
        """See `CostModel.prepare`."""
        return prepare_calibrated(space, numbers, rows=rows)

    def evaluate_rows(self, prepared: CalibratedRows, group: RowGroup, part: slice) -> RowChunk:
        """See `CostModel.evaluate_rows`."""
        return evaluate_calibrated_rows(prepared, group, part)

    def evaluate(
        self, model: Model, system: System, executions: pd.DataFrame, calibration: Calibration | None
    ) -> pd.DataFrame:
        """See `CostModel.evaluate`."""
        return evaluate_calibrated(model, system, executions, parameters_of(self.calibration(calibration)))

    def row(self, space: CalibratedSpace, number: int, calibration: Calibration | None) -> dict[str, Any]:
        """See `CostModel.row`."""
        p = parameters_of(self.calibration(calibration))
        return calibrated_row(space, number, p) or super().row(space, number, calibration)

    def candidates(self, prepared: CalibratedRows) -> Candidates:
        """See `CostModel.candidates`."""
        return calibrated_candidates(prepared)

    def bounds(self, prepared: CalibratedRows, rows: Any) -> Floats:
        """See `CostModel.bounds`."""
        return calibrated_bounds(prepared, rows)

    def depends_on(self, model: Model, system: System, calibration: Calibration | None) -> dict[str, Any]:
        """See `CostModel.depends_on`."""
        shapes, memory = model_shapes(model), (system.mem1, system.mem2)
        return {
            # Without prediction layers, results are what they were before there was such a field.
            "model": {
                name: float(getattr(shapes, name))
                for name in SIZES
                if name != "prediction_layers" or shapes.prediction_layers > 0
            },
            **({} if shapes.pattern is None else {"layers": shapes.pattern.model_dump(mode="json")}),
            **({} if model.tuning is None else {"tuning": model.tuning.model_dump(mode="json")}),
            "flops": token_flops(model).model(),
            # As text, because some are infinite or not known.
            "system": {name: repr(value) for name, value in accelerator_of(system).items() if name != "scaled_peaks"},
            "matrix": {name: engine.tflops for name, engine in system.matrix.items() if name not in SCALED_NAMES},
            "memory": [[tier.capacity_gib, tier.bandwidth_gb_per_s] for tier in memory],
            # Rows kept before a field was added cannot answer for it.
            "columns": [column.name for column in self.columns.stored],
            "calibration": parameters_of(self.calibration(calibration)).model_dump(),
        }

    def datatype_depends_on(self, system: System, datatype: str) -> dict[str, Any]:
        """See `CostModel.datatype_depends_on`: peak, width and bound of a format with scales; else nothing."""
        if datatype not in SCALED_NAMES:
            return {}
        entry = datatypes.named(datatype)
        ratio = None if entry.sustained is None else [entry.sustained.datatype, entry.sustained.ratio]
        return {"linear": [system.peak_tflops(datatype), entry.bits, entry.stored_bits, ratio]}

    def bound_search(self, space: CalibratedSpace, numbers: range) -> CalibratedBoundSearch:
        """See `CostModel.bound_search`."""
        return CalibratedBoundSearch(space, numbers)

    def layout_depends_on(
        self, model: Model, system: System, calibration: Calibration | None, limits: Mapping[str, Any]
    ) -> dict[str, Any]:
        """See `CostModel.layout_depends_on`."""
        found: dict[str, Any] = {
            "model": models.to_document(model),
            "generation": generation_of(system),
            "datatypes": list(system.offered_datatypes),
            "calibration": calibration_document(self.calibration(calibration)),
        }
        # Which executions there are depends on the networks only where a limit names the network of a group.
        if any(name.endswith("_net") for name in limits):
            found["networks"] = [[network.size, network.must_be_filled] for network in system.networks]
        return found

    def placed(self, system: System, fields: Mapping[str, Any]) -> dict[str, Any]:
        """See `CostModel.placed`: the networks, as the order of ranks decides them."""
        return {name: int(net) for name, net in networks_of(system, fields).items()}

    def calibration(self, calibration: Calibration | None) -> Calibration:
        """See `CostModel.calibration`: the library's where none is given."""
        found = calibration or library_calibration()
        parameters_of(found)
        return found

    def sustained_rates(self, system: System, calibration: Calibration | None) -> Sequence[SustainedRate]:
        """See `CostModel.sustained_rates`."""
        return effective_rates(system, calibration)

    def not_measured(self, model: Model, system: System, executions: pd.DataFrame) -> list[tuple[str, ...]]:
        """See `CostModel.not_measured`."""
        return not_measured(model, system, executions)

    def power_bounds(self, system: System) -> bool:
        """See `CostModel.power_bounds`: where accelerators of unlike power were measured."""
        return generation_of(system) in POWER_REFERENCES

    def rises_with(self, system: System, path: str) -> int:
        """See `CostModel.rises_with`: capacities affect only feasibility and no time, and no step gets longer when a
        rate grows.

        The formulas are built to have this property: overlap hides less than the time that hides it
            (`physics.sharding.exposed_exchange`), and ranks that share a network also share the outer networks
            (`physics.rates`). The property is tested to rounding, for all formulas together and for whole scenarios.
        """
        first, last = path.split(".")[0], path.rsplit(".", 1)[-1]
        rates = {
            "matrix": "tflops",
            "mem1": "bandwidth_gb_per_s",
            "mem2": "bandwidth_gb_per_s",
            "networks": "bandwidth_gb_per_s",
            "accelerator": "tdp_w",
        }
        return int(path in ("mem1.capacity_gib", "mem2.capacity_gib") or rates.get(first) == last)

    def slower_on_worse(self, space: Space) -> bool:
        """See `CostModel.slower_on_worse`: always, as for `rises_with`."""
        return True

    def operations(
        self, model: Model, system: System, execution: Mapping[str, Any], calibration: Calibration | None
    ) -> pd.DataFrame:
        """See `CostModel.operations`: every product, kernel and collective of each kind of block."""
        return operation_table_of(model, system, execution, self.calibration(calibration))

    def account(
        self, model: Model, system: System, execution: Mapping[str, Any], calibration: Calibration | None
    ) -> CalibratedAccount:
        """See `CostModel.account`."""
        used = self.calibration(calibration)
        physics = f"{self.version}, {used.name}"
        return CalibratedAccount(model, system, execution, parameters_of(used), physics)

    def stage_cut(self, model: Model, ranks: int, chunks: int, layout: str) -> StageCut:
        """See `CostModel.stage_cut`."""
        return cut_of(model_shapes(model), ranks, chunks, by_name("stage_layout").position(canonical(layout)))

    def kernel_times(
        self, system: System, datatype: str, calibration: Calibration | None = None
    ) -> CalibratedKernelTimes:
        return CalibratedKernelTimes(system, datatype, parameters_of(self.calibration(calibration)))


CALIBRATED: Final = Calibrated()

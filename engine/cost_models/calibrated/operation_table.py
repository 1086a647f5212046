"""Per-operation figures of one execution by the calibrated cost model, where `engine.layer_table` has Calculon's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from engine.cost_models.calculon.evaluation import evaluate
from engine.cost_models.calculon.layer_table import LayerError
from engine.cost_models.calibrated import library_calibration, parameters_of
from engine.cost_models.calibrated.fields import case_of_fields, read
from engine.cost_models.calibrated.physics.inputs import Case
from engine.cost_models.calibrated.physics.operations import block_operations, blocks_of, limits, summarised
from engine.executions import reasons
from engine.scenarios.inputs import ModelLike, SystemLike, model_of, system_of
from hardware import Calibration, System
from models import Model

__all__ = ["case_of_execution", "operation_table"]


def case_of_execution(model: Model, system: System, execution: Mapping[str, Any]) -> Case:
    """What the calibrated cost model reads of one execution, which is well formed."""
    found, _, _ = read(model, system, pd.DataFrame([dict(execution)], dtype=object))
    return case_of_fields(model, system, found)


def operation_table(
    model: ModelLike, system: SystemLike, execution: Mapping[str, Any], calibration: Calibration | None = None
) -> pd.DataFrame:
    """The operations of one block in order, one row each: one microbatch on one processor, by the calibrated model.

    Args:
        model, system: by name, path or object.
        execution: the 23 fields, and any of the further ones of the calibrated cost model.
        calibration: the library's where left out.

    Returns:
        `block`, the kind of block, for every kind of `engine.cost_models.calibrated.physics.operations.BLOCKS` that the
        model has; the columns of `engine.cost_models.calibrated.physics.operations.block_operations`, which add up to
        the block, without what the backward pass computes again and without waiting for the host; and those of
        `engine.cost_models.calibrated.operation_columns`.

    Raises:
        LayerError: the execution is invalid or infeasible for another reason than memory; the message is its reason.
        engine.ExecutionTableError, models.ModelFileError, hardware.SystemFileError: input.
    """
    model, system = model_of(model), system_of(system)
    table = pd.DataFrame([dict(execution)], dtype=object)
    outcome = evaluate(model, system, table, cost_model="calibrated", calibration=calibration).iloc[0]
    if outcome["status"] != "ok" and outcome["reason"] not in ("memory_tier1", "memory_tier2"):
        raise LayerError(str(outcome["reason_text"]) or reasons.BY_CODE[outcome["reason"]].label)
    case, p = case_of_execution(model, system, execution), parameters_of(calibration or library_calibration())
    most = limits(case, p)
    found = []
    for kind in blocks_of(case.model):
        operations = summarised(block_operations(case, p, kind), most)
        operations.insert(0, "block", kind)
        found.append(operations)
    return pd.concat(found, ignore_index=True)

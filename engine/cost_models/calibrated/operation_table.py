"""Per-operation figures of one execution by the calibrated cost model, one execution at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from engine.cost_models.calibrated.fields import case_of_fields, read
from engine.cost_models.calibrated.physics.inputs import Case
from engine.cost_models.calibrated.physics.layers.operations import (
    block_operations,
    blocks_of,
    limits,
    summarised,
)
from engine.cost_models.calibrated.physics.parameters import parameters_of
from engine.cost_models.calibrated.table_evaluation import evaluate_calibrated
from engine.cost_models.contract import LayerError
from engine.executions import reasons
from hardware import Calibration, System
from models import Model

__all__ = ["case_of_execution", "operation_table_of"]


def case_of_execution(model: Model, system: System, execution: Mapping[str, Any]) -> Case:
    """Returns what the calibrated cost model reads of one execution.

    Args:
        model: the model that is trained.
        system: the system that it runs on.
        execution: its fields by name, well formed.
    """
    found = read(model, system, pd.DataFrame([dict(execution)], dtype=object)).arrays
    return case_of_fields(model, system, found)


def operation_table_of(
    model: Model, system: System, execution: Mapping[str, Any], calibration: Calibration
) -> pd.DataFrame:
    """Return the operations of one block in order, one row each: one microbatch on one processor, by the calibrated
    model.

    Args:
        model, system: model and system of the execution.
        execution: the 23 fields, and any extensions of the calibrated cost model.
        calibration: the values of its parameters.

    Returns:
        `block`, the kind of block, for every kind of `engine.cost_models.calibrated.physics.layers.operations.BLOCKS`
        that the model has; the columns of `engine.cost_models.calibrated.physics.layers.operations.block_operations`,
        which add up to the block, without recomputation and without waiting for the host; and the columns of
        `engine.cost_models.calibrated.operation_columns`.

    Raises:
        engine.LayerError: the execution is invalid or infeasible for another reason than memory; the message is its
            reason.
        engine.ExecutionTableError, models.ModelFileError: input.
    """
    table, p = pd.DataFrame([dict(execution)], dtype=object), parameters_of(calibration)
    outcome = evaluate_calibrated(model, system, table, p).iloc[0]
    if outcome["status"] != "ok" and outcome["reason"] not in ("memory_tier1", "memory_tier2"):
        raise LayerError(str(outcome["reason_text"]) or reasons.BY_CODE[outcome["reason"]].label)
    case = case_of_execution(model, system, execution)
    most = limits(case, p)
    found = []
    for kind in blocks_of(case.model):
        operations = summarised(block_operations(case, p, kind), most)
        operations.insert(0, "block", kind)
        found.append(operations)
    return pd.concat(found, ignore_index=True)

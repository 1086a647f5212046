"""Dispatch of questions on single executions to their cost model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from engine.cost_models.registry import chosen_cost_model
from engine.executions.forward_passes import forward_executions
from hardware import Calibration, SystemLike, system_of
from models import ModelLike, model_of

__all__ = ["evaluate", "evaluate_forward", "operations"]


def evaluate(
    model: ModelLike,
    system: SystemLike,
    executions: pd.DataFrame,
    *,
    cost_model: str | None = None,
    calibration: Calibration | None = None,
) -> pd.DataFrame:
    """Returns every statistic of every execution.

    Args:
        model: a model, or the name or path of one.
        system: a system, or the name or path of one.
        executions: one row per execution with the 23 fields of `engine.columns.FIELDS`; for the calibrated cost model
            also with any of `engine.columns.EXTENSIONS`. Other columns are ignored. Columns may be of any type: a
            value means the same in all of them. 8, 8.0 and Decimal("8") are the number 8; 2.5, "8" and True are no
            whole numbers, and make their row invalid. A flag may also be 0 or 1.
        cost_model: `calibrated`, which predicts measured runs, or `calculon`, which is exact against Calculon. None
            selects the cost model that the system's figures are meant for: calibrated, except for Calculon's own
            descriptions.
        calibration: values for the calibrated cost model; None uses the library's.

    Returns:
        The same rows in the same order and with the same index: the 23 fields as given; `status` (`ok`, `infeasible` or
        `invalid`), `reason` (a code of `engine.executions.reasons`, "" when ok), `reason_text` (a sentence with the
        numbers); and the 96 statistics of `engine.columns.STATISTICS`, NaN where the status is not `ok`. Bandwidth
        requirements that nothing can meet (no time to hide behind) are infinite. The calibrated cost model adds the
        extensions and its further statistics, and sets statistics of Calculon's layers to not a number. `attrs` of the
        table name the cost model and the calibration.

    Raises:
        engine.ExecutionTableError: `executions` is not a table or lacks a column.
        engine.CostModelError: there is no such cost model, or it takes no calibration.
        models.ModelFileError, hardware.SystemFileError: the name or file cannot be read.

    The computation is pure: nothing is kept between calls.
    """
    model, system = model_of(model), system_of(system)
    chosen = chosen_cost_model(cost_model, system, calibration)
    table = chosen.evaluate(model, system, executions, calibration)
    table.attrs = {"cost_model": chosen.name}
    used = chosen.calibration(calibration)
    if used is not None:
        table.attrs["calibration"] = used.name
    return table


def evaluate_forward(
    model: ModelLike,
    system: SystemLike,
    executions: pd.DataFrame,
    *,
    cost_model: str | None = None,
    calibration: Calibration | None = None,
) -> pd.DataFrame:
    """Returns every statistic of the forward pass alone of training steps: of log-probabilities, values, judges.

    `total_time` is the time of a whole batch [s], `proc_mem_tier1_cap_req` the memory of a processor with weights, the
    activations of one block and logits, without gradients and optimizer state [bytes].

    Args:
        model: a model, or the name or path of one.
        system: a system, or the name or path of one.
        executions: training steps as for `evaluate`; settings of backward pass and update are off (see
            `engine.executions.forward_passes`).
        cost_model, calibration: as for `evaluate`.

    Raises as `evaluate`.
    """
    return evaluate(model, system, forward_executions(executions), cost_model=cost_model, calibration=calibration)


def operations(
    model: ModelLike,
    system: SystemLike,
    execution: Mapping[str, Any],
    *,
    cost_model: str | None = None,
    calibration: Calibration | None = None,
) -> pd.DataFrame:
    """Return the layers or operations of one block of an execution, one row each, in order.

    Args:
        model, system: by name, path or object.
        execution: the fields of the cost model, by name.
        cost_model, calibration: as for `evaluate`.

    Returns:
        What the cost model documents of its `operations`: layers of Calculon's block, or products, kernels and
        collectives of each kind of block.

    Raises:
        engine.LayerError: the execution is invalid or infeasible for another reason than memory, and the message is the
            reason; or the cost model has nothing of the kind.
        engine.ExecutionTableError, engine.CostModelError, models.ModelFileError, hardware.SystemFileError: input.
    """
    model, system = model_of(model), system_of(system)
    chosen = chosen_cost_model(cost_model, system, calibration)
    return chosen.operations(model, system, execution, calibration)

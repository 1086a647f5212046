"""Per-layer figures of one execution: what each layer of a block computes, moves, communicates and holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from engine.cost_models.calculon.physics.block import recompute_flags
from engine.cost_models.calculon.physics.block_keys import BlockKeys
from engine.cost_models.calculon.physics.rates import SystemRates, rates
from engine.cost_models.calculon.physics.tensor_parallel import (
    CommunicatingLayer,
    LayerCollective,
    Shapes,
    TensorCollectives,
    on_matrix,
    shape_layers,
)
from engine.cost_models.calculon.table_evaluation import evaluate_calculon
from engine.cost_models.contract import LayerError
from engine.executions import reasons
from engine.executions.arrays import Floats
from engine.executions.codes import NO_OVERLAP
from engine.executions.table import DATATYPES, parse
from hardware import System
from models import Model
from models.documents import shown

__all__ = ["layer_table_of"]


def layer_table_of(model: Model, system: System, execution: Mapping[str, Any]) -> pd.DataFrame:
    """Returns the layers of one block in order, one row each, as Calculon computes them.

    Args:
        model, system: model and system of the execution.
        execution: the 23 fields.

    Returns:
        `name`, `engine` (matrix or vector), then per stage (fw, agrad, wgrad, optim) operations [FLOP], bytes, their
        ratio [FLOP/byte] and processing time [s]; collectives of base and edge block: the size of a tile and of the
        whole [bytes], link time and exposed time [s]; and the memory of the layer [bytes]. Columns have Calculon's
        names. Exposed times of a repeated collective come from the weight-gradient stage, but the block's own figure
        takes them from the forward stage: the column does not add up to the block's.

    Raises:
        engine.LayerError: the execution is invalid or infeasible, and the message is its reason; or Calculon's block
            has nothing of the kind.
        engine.ExecutionTableError, models.ModelFileError: input.
    """
    table = pd.DataFrame([dict(execution)], dtype=object)
    e, _, _ = parse(table)
    if e.datatype[0] < 0:
        asked = shown(execution["datatype"]).strip("'")
        known = ", ".join(DATATYPES)
        raise LayerError(f"Layers are those of Calculon's block, which is computed in {known}, not {asked}.")
    context = execution.get("context_par", 1)
    if isinstance(context, int | np.integer) and context > 1:
        raise LayerError(
            f"Layers are those of Calculon's block, which has no context parallelism; this one has {context}."
        )
    outcome = evaluate_calculon(model, system, table).iloc[0]
    memory = ("memory_tier1", "memory_tier2")
    if outcome["status"] != "ok" and outcome["reason"] not in memory:
        raise LayerError(str(outcome["reason_text"]) or reasons.BY_CODE[outcome["reason"]].label)
    datatype = list(DATATYPES)[int(e.datatype[0])]
    rate, width = rates(system, datatype), DATATYPES[datatype]
    keys = BlockKeys(*(getattr(e, name) for name in BlockKeys.__dataclass_fields__))
    overlapped = bool(e.tensor_par_overlap[0] != NO_OVERLAP)
    shapes = shape_layers(model, rate, keys, width, overlapped)
    communication = TensorCollectives(shapes, rate, keys, np.zeros(1, np.intp))
    flags = {name: bool(value[0]) for name, value in recompute_flags(e.activation_recompute, e.seq_par_ag_redo).items()}
    members = float(e.tensor_par[0])
    sharding = float(e.data_par[0]) if e.optimizer_sharding[0] else 1.0
    rows = []
    for row, spec in enumerate(shapes.specs):
        layer = communication.layer(row) if spec.kind in ("comm", "overlapped") else None
        again = flags[spec.recommunicated]
        rows.append(_layer_row(shapes, rate, row, layer, again=again, members=members, sharding=sharding))
    return pd.DataFrame(rows)


def _layer_row(
    shapes: Shapes,
    rate: SystemRates,
    row: int,
    layer: CommunicatingLayer | None,
    *,
    again: bool,
    members: float,
    sharding: float,
) -> dict[str, Any]:
    """One row of the table, its columns in Calculon's order."""
    q, spec = shapes.quantities, shapes.specs[row]
    matrix = bool(on_matrix(shapes.specs)[row])

    def at(values: Floats) -> float:
        return float(values[row][0])

    found: dict[str, Any] = {
        "name": spec.name,
        "engine": "matrix" if matrix else "vector",
        "inputs_size": at(q.inputs),
        "outputs_size": at(q.outputs),
    }
    seconds = {stage: at(getattr(shapes, f"{stage}_time")) for stage in ("fw", "agrad", "wgrad")}
    if layer is not None:
        wgrad = layer.wgrad_again if again else layer.wgrad
        seconds = {
            name: float(value[0]) for name, value in (("fw", layer.fw), ("agrad", layer.agrad), ("wgrad", wgrad))
        }
    # An overlapped layer is computed in as many tiles as its group has members.
    tiles = members if spec.kind == "overlapped" else 1.0
    for stage, prefix in (("fw", "fw_tp_comm"), ("agrad", "bw_tp_comm"), ("wgrad", "recomm")):
        flops, moved = at(getattr(q, f"{stage}_flops")), at(getattr(q, f"{stage}_bytes"))
        found |= _stage_columns(stage, flops, moved, seconds[stage])
        exchange = None
        if layer is not None and (stage != "wgrad" or again):
            exchange = {"fw": layer.fw_exchange, "agrad": layer.agrad_exchange, "wgrad": layer.again_exchange}[stage]
        exposed = (
            None if layer is None or stage != "wgrad" or spec.kind == "comm" else float(layer.again_exposed_by_layer[0])
        )
        found |= _exchange_columns(prefix, exchange, tiles, exposed)
    weights = at(q.weights)
    # Adam's 11 FLOP per weight, split by optimizer sharding: Calculon, layers.py, get_optim_step_flops.
    flops, moved = weights / sharding * 11.0, at(q.optim_bytes) / sharding
    compute, memory = rate.vector.seconds(np.array(flops)), rate.memory.seconds(np.array(moved))
    found |= _stage_columns("optim", flops, moved, float(rate.processing(compute, memory)))
    return found | {
        "weight": at(q.weight_bytes),
        "activation": at(q.act_bytes),
        "weight_grad": at(q.weight_bytes) / sharding,
        "activation_grad": at(q.act_grad_bytes),
        "optimizer": moved,
    }


def _stage_columns(stage: str, flops: float, moved: float, seconds: float) -> dict[str, float]:
    return {
        f"{stage}_flops": flops,
        f"{stage}_mem_accessed": moved,
        f"{stage}_arithmetic_intensity": flops / moved if moved else 0.0,
        f"{stage}_processing_time": seconds if flops or moved else 0.0,
    }


def _exchange_columns(
    prefix: str, exchange: LayerCollective | None, tiles: float, exposed: float | None
) -> dict[str, float]:
    """Columns of a collective, measure by measure, base block before edge block."""
    found: dict[str, float] = {}
    for name, attribute in (("tile", "size"), ("size", "size"), ("time", "time"), ("time_exposed", "exposed")):
        for end in ("base", "edge"):
            value = 0.0 if exchange is None else float(getattr(exchange, f"{end}_{attribute}")[0])
            if name == "tile":
                value /= tiles
            if name == "time_exposed" and exchange is not None and exposed is not None:
                value = exposed
            found[f"{end}block_{prefix}_{name}"] = value
    return found

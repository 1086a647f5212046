"""Evaluation of prepared rows of the calibrated cost model: headline figures of all executions that share a row."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.cost_models.calibrated.physics.offload import with_state
from engine.cost_models.calibrated.physics.step import Update
from engine.cost_models.calibrated.rows.prepared_rows import CalibratedRows
from engine.cost_models.calibrated.step_figures import step_part, with_exchange
from engine.executions.arrays import take
from engine.space.rows import ExchangeVariant, RowChunk, RowGroup

__all__ = ["evaluate_calibrated_rows"]

VARIANT_NAMES = (
    "sample_rate",
    "total_time",
    "total_efficiency",
    "system_efficiency",
    "dp_comm_exposed_time",
    "overhead_time",
)


def evaluate_calibrated_rows(prepared: CalibratedRows, group: RowGroup, part: slice) -> RowChunk:
    """Returns the headline figures of all executions of a chunk of rows.

    Args:
        prepared: rows of the cells.
        group: a group of them.
        part: which rows of the group.
    """
    row_table, modes, points = prepared.row_table, prepared.modes, prepared.points
    mode, point = group.mode[part], group.point[group.place[part]]
    memory = modes.memory[mode]
    flow_row = prepared.flow_row.ravel().take(point * prepared.flow_row.shape[1] + modes.time[mode])
    # Weights and activations offloaded, as bits: which of four pipelines a row has.
    offloaded = modes.offloaded["weight_offload"] + 2.0 * modes.offloaded["activations_offload"]
    flow, added = prepared.pipelines(flow_row, offloaded.astype(np.int64)[mode])
    once: Update = take(prepared.once, point * len(modes.optimizer_modes["launch"]) + modes.optimizer[mode])
    moved = None
    if added is not None:
        # Optimizer state moves once per step, during the update, so it joins the pipeline's transfers only here.
        held = row_table.state.take(point * row_table.stage_kinds + row_table.stage_of[memory])
        moved = with_state(
            added.forward,
            added.backward,
            added.slowest,
            added.bandwidth,
            state=held * modes.offloaded["optimizer_offload"][mode],
            rate=prepared.rate,
            optimizer=once.optimizer,
        )
    perfect = prepared.perfect[point]
    step = step_part(flow, once, moved, prepared.passes[point], perfect)
    # Memory is per (schedule point, memory mode), flattened: one index finds a row's figure.
    need = point * row_table.first_tier.shape[1] + memory
    metrics = step.metrics | {
        "proc_mem_tier1_cap_req": row_table.first_tier.ravel().take(need),
        "proc_mem_tier2_cap_req": row_table.second_tier.ravel().take(need),
    }
    rows = RowChunk(group=group, point=point, mode=mode, cell=points.cell[point], metrics=metrics, variants=[])
    first, stride, kind = points.first[point], points.stride[point], points.kind[point]
    waiting, batch = prepared.straggling[point], row_table.batch[point]
    for overlapped, table in enumerate(modes.position):
        position = table.ravel().take(kind * table.shape[1] + mode)
        chosen = None if (position >= 0).all() else np.flatnonzero(position >= 0)
        if chosen is not None and not len(chosen):
            continue
        pick: Any = slice(None) if chosen is None else chosen
        figures = with_exchange(
            step,
            once.exchange,
            np.asarray(float(overlapped)),
            straggling=waiting,
            batch=batch,
            perfect=perfect,
            p=prepared.parameters,
        )
        rows.variants.append(
            ExchangeVariant(
                group.data_nets[0],
                bool(overlapped),
                chosen,
                first[pick] + position[pick] * stride[pick],
                {name: figures[name][pick] for name in VARIANT_NAMES},
            )
        )
    return rows

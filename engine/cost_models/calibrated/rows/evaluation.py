"""Evaluating the rows of a calibrated plan: headline figures of all executions that a row stands for."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.cost_models.calibrated.figures import step_part, with_exchange
from engine.cost_models.calibrated.physics.offload import with_state
from engine.cost_models.calibrated.physics.step import Update
from engine.cost_models.calibrated.rows.prepared_rows import CalibratedPlan
from engine.executions.arrays import take
from engine.space.rows import Group, RowChunk, Variant

__all__ = ["evaluate_calibrated_rows"]

VARIANT_NAMES = (
    "sample_rate", "total_time", "total_efficiency", "system_efficiency", "dp_comm_exposed_time", "overhead_time",
)  # fmt: skip


def evaluate_calibrated_rows(plan: CalibratedPlan, group: Group, part: slice) -> RowChunk:
    """Headline figures of all executions of a chunk of rows."""
    layout, modes, sites = plan.layout, plan.modes, plan.sites
    mode, site = group.mode[part], group.site[group.place[part]]
    memory = modes.memory[mode]
    flow_row = plan.flow_row.ravel().take(site * plan.flow_row.shape[1] + modes.time[mode])
    offloaded = modes.offloaded["weight_offload"] + 2.0 * modes.offloaded["activations_offload"]
    flow, added = plan.pipelines(flow_row, offloaded.astype(np.int64)[mode])
    once: Update = take(plan.once, site * len(modes.optimizer_modes["launch"]) + modes.optimizer[mode])
    moved = None
    if added is not None:
        held = layout.state.take(site * layout.stage_kinds + layout.stage_of[memory])
        moved = with_state(
            added.forward, added.backward, added.slowest, added.bandwidth,
            state=held * modes.offloaded["optimizer_offload"][mode], rate=plan.rate, optimizer=once.optimizer,
        )  # fmt: skip
    perfect = plan.perfect[site]
    step = step_part(flow, once, moved, sites.interleaving[site].astype(np.float64), perfect)
    need = site * layout.first_tier.shape[1] + memory
    metrics = step.metrics | {
        "proc_mem_tier1_cap_req": layout.first_tier.ravel().take(need),
        "proc_mem_tier2_cap_req": layout.second_tier.ravel().take(need),
    }
    rows = RowChunk(group=group, site=site, mode=mode, cell=sites.cell[site], metrics=metrics, variants=[])
    first, stride, kind = sites.first[site], sites.stride[site], sites.kind[site]
    waiting, batch = plan.straggling[site], layout.batch[site]
    for overlapped, table in enumerate(modes.position):
        position = table.ravel().take(kind * table.shape[1] + mode)
        chosen = None if (position >= 0).all() else np.flatnonzero(position >= 0)
        if chosen is not None and not len(chosen):
            continue
        pick: Any = slice(None) if chosen is None else chosen
        figures = with_exchange(
            step, once.exchange, np.asarray(float(overlapped)), straggling=waiting, batch=batch, perfect=perfect,
            p=plan.parameters,
        )  # fmt: skip
        rows.variants.append(
            Variant(
                group.data_nets[0],
                bool(overlapped),
                chosen,
                first[pick] + position[pick] * stride[pick],
                {name: figures[name][pick] for name in VARIANT_NAMES},
            )
        )
    return rows

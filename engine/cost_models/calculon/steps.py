"""Evaluating the rows of a plan: the headline figures of all executions that a row stands for."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from engine.cost_models.calculon.batch import (
    PipelinePart,
    StepBlock,
    StepOptimizer,
    offload_bandwidth,
    overlapped_part,
    pipeline_part,
)
from engine.cost_models.calculon.data_parallel import block_exchange
from engine.cost_models.calculon.offload import offload
from engine.cost_models.calculon.pipeline import Stages
from engine.cost_models.calculon.prepared_rows import Plan
from engine.executions.arrays import Floats, Ints, take
from engine.space.rows import Group, RowChunk, Variant

__all__ = ["evaluate_exact_rows"]


def evaluate_exact_rows(plan: Plan, group: Group, part: slice) -> RowChunk:
    """Headline figures of all executions of a chunk of rows."""
    rate, modes = plan.rate, plan.modes.fields
    place, mode = group.place[part], group.mode[part]
    site = group.site[place]
    key = group.block[place] + plan.modes.time[mode]
    b = take(plan.block, key)
    sharded = modes["optimizer_sharding"][mode]
    unsharded_at, sharded_at = plan.optimizer_of
    optimizer_key = np.where(sharded, sharded_at[site], unsharded_at[site]) + plan.modes.optimizer[mode]
    o = take(plan.optimizer, optimizer_key)
    s = take(plan.stages, site)
    # What holds for every row is carried along once.
    training = modes["training"][mode]
    if training.all():
        training = np.asarray(True)
    kept = plan.kept[key]
    moved = offload(
        rate,
        weights=b.weights,
        activations=kept,
        optimizer=plan.optimizer_state[optimizer_key],
        weight_offload=plan.modes.offloaded["weight_offload"][mode],
        activations_offload=plan.modes.offloaded["activations_offload"][mode],
        optimizer_offload=plan.modes.offloaded["optimizer_offload"][mode],
        training=training,
    )
    pipe = pipeline_part(
        rate, s, b, o.time, pipeline_net=np.asarray(group.pipeline_net), training=training, moved=moved
    )
    computing = pipe.fw_time + pipe.bw_time + pipe.optim_step_time
    perfect = s.block_microbatches * (plan.useful[key] + plan.optimizer_flops[optimizer_key]) / rate.matrix.peak
    memory = plan.modes.memory[mode] * plan.first_tier.shape[1] + site
    cell = plan.sites.cell[site]
    rows = RowChunk(
        group=group,
        site=site,
        mode=mode,
        cell=cell,
        metrics={
            "compute_efficiency": perfect / computing,
            "fw_time": pipe.fw_time,
            "bw_time": pipe.bw_time,
            "optim_step_time": pipe.optim_step_time,
            "recompute_time": pipe.recompute_time,
            "recomm_exposed_time": pipe.recomm_exposed_time,
            "bubble_time": pipe.bubble_time,
            "tp_comm_exposed_time": pipe.tp_comm_exposed_time,
            "pp_comm_exposed_time": pipe.pp_comm_exposed_time,
            "fw_offload_exposed_time": pipe.fw_offload_exposed_time,
            "bw_offload_exposed_time": pipe.bw_offload_exposed_time,
            "offload_mem_bw_req": offload_bandwidth(b, moved, pipe, training),
            "proc_mem_tier1_cap_req": plan.first_tier.ravel().take(memory),
            "proc_mem_tier2_cap_req": plan.second_tier.ravel().take(memory),
        },
        variants=[],
    )
    batch = plan.cells.batch_size[cell].astype(np.float64)
    first = plan.sites.first[site]
    kind, stride = plan.sites.kind[site], plan.sites.stride[site]
    listed = kind * plan.modes.position[0].shape[1] + mode
    positions = [table.ravel().take(listed) for table in plan.modes.position]
    for data_net in group.data_nets:
        exposed = _exposed(plan, group, data_net, s, b, o, pipe, sharded, training, cell)
        assignment = group.assignment[data_net][place]
        for overlapped, position in enumerate(positions):
            times = exposed[overlapped]
            if times is None:
                continue
            chosen = None if (position >= 0).all() else np.flatnonzero(position >= 0)
            pick: Any = slice(None) if chosen is None else chosen
            if chosen is not None and not len(chosen):
                continue
            total = pipe.total[pick] + times[pick]
            rows.variants.append(
                Variant(
                    data_net,
                    bool(overlapped),
                    chosen,
                    first[pick] + position[pick] * stride[pick] + assignment[pick],
                    {
                        "sample_rate": batch[pick] / total,
                        "total_time": total,
                        "total_efficiency": perfect[pick] / total,
                        "system_efficiency": computing[pick] / total,
                        "dp_comm_exposed_time": times[pick],
                    },
                )
            )
    return rows


def _exposed(
    plan: Plan,
    group: Group,
    data_net: int,
    s: Stages,
    b: StepBlock,
    o: StepOptimizer,
    pipe: PipelinePart,
    sharded: npt.NDArray[np.bool_],
    training: npt.NDArray[np.bool_],
    cell: Ints,
) -> tuple[Floats, Floats | None]:
    """Exposed time of the gradient exchange over a network [rows]: not overlapped, and overlapped."""
    if not group.exchanges:
        return np.zeros(len(cell)), None
    net = np.asarray(data_net)
    members = plan.cells.data_par[cell].astype(np.float64)
    exchange = block_exchange(plan.rate.networks, net, b.weights, members, sharded)
    if not training.all():
        exchange = np.where(training, exchange, 0.0)
    overlap = overlapped_part(
        plan.rate, s, pipe, b, o, exchange,
        tensor_net=np.asarray(group.tensor_net),
        pipeline_net=np.asarray(group.pipeline_net),
        data_net=net,
        sharded=sharded,
        requirements=False,
    )  # fmt: skip
    return s.blocks * exchange, overlap.exposed

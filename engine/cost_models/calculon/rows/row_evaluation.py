"""Evaluation of prepared rows: headline figures of all executions that share a row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.cost_models.calculon.physics.batch import arithmetic, offload_bandwidth
from engine.cost_models.calculon.physics.data_parallel import Backward, block_exchange, least_exposed
from engine.cost_models.calculon.physics.offload import Offload, offload
from engine.cost_models.calculon.physics.pipeline import PipelineShape
from engine.cost_models.calculon.physics.step_parts import (
    PipelinePart,
    StepBlock,
    StepOptimizer,
    exchange_part,
    pipeline_part,
)
from engine.cost_models.calculon.rows.prepared_rows import PreparedRows
from engine.executions.arrays import Flags, Floats, Ints, take
from engine.space.rows import ExchangeVariant, RowChunk, RowGroup

__all__ = ["calculon_reach", "evaluate_calculon_rows"]


def evaluate_calculon_rows(prepared: PreparedRows, group: RowGroup, part: slice) -> RowChunk:
    """Returns the headline figures of all executions of a chunk of rows.

    Args:
        prepared: rows of cells.
        group: one of their groups.
        part: which rows of the group.
    """
    r = _rows_of(prepared, group, part)
    rate, place, mode, point, key, b, s = prepared.rate, r.place, r.mode, r.point, r.key, r.block, r.stages
    sharded, training, pipe, moved, optimizer_key = r.sharded, r.training, r.pipe, r.moved, r.optimizer_key
    o = r.optimizer
    computing, perfect = arithmetic(rate, s, pipe, prepared.useful[key] + prepared.optimizer_flops[optimizer_key])
    # Memory is per (memory mode, schedule point), flattened: one index finds a row's figure.
    memory = prepared.modes.memory[mode] * prepared.first_tier.shape[1] + point
    cell = prepared.points.cell[point]
    rows = RowChunk(
        group=group,
        point=point,
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
            "proc_mem_tier1_cap_req": prepared.first_tier.ravel().take(memory),
            "proc_mem_tier2_cap_req": prepared.second_tier.ravel().take(memory),
        },
        variants=[],
    )
    batch = prepared.cells.batch_size[cell].astype(np.float64)
    first = prepared.points.first[point]
    kind, stride = prepared.points.kind[point], prepared.points.stride[point]
    # The mode's place in the list of its kind of cell, without and with gradient overlap; -1 where the list lacks it.
    listed = kind * prepared.modes.position[0].shape[1] + mode
    positions = [table.ravel().take(listed) for table in prepared.modes.position]
    for data_net in group.data_nets:
        exposed = _exposed_exchange(prepared, group, data_net, s, b, o, pipe, sharded, training, cell)
        assignment = group.assignment[data_net][place]
        for overlapped, position in enumerate(positions):
            times = exposed[overlapped]
            if times is None:
                continue
            chosen = None if (position >= 0).all() else np.flatnonzero(position >= 0)
            pick: Any = slice(None) if chosen is None else chosen
            if chosen is not None and not len(chosen):
                continue
            # Only the exchange differs between the variants of a row, so its exposed seconds complete the step.
            total = pipe.total[pick] + times[pick]
            rows.variants.append(
                ExchangeVariant(
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


def calculon_reach(prepared: PreparedRows, group: RowGroup, part: slice) -> Floats:
    """Returns the sample rate that no execution of a chunk of rows exceeds [samples/s] [rows], on this system or on any
    whose rates are no better.

    Args:
        prepared: rows of cells.
        group: one of their groups.
        part: which rows of the group.
    """
    r = _rows_of(prepared, group, part)
    cell = prepared.points.cell[r.point]
    least = np.zeros(len(cell))
    if group.exchanges:
        least = np.full(len(cell), np.inf)
        backward = Backward(
            r.block.backward_mem,
            r.block.backward_flops,
            r.block.base_tp_link,
            r.block.edge_tp_link,
            r.optimizer.time,
            r.optimizer.mem_time,
            r.optimizer.flops_time,
        )
        members = prepared.cells.data_par[cell].astype(np.float64)
        networks = prepared.rate.networks
        for data_net in group.data_nets:
            net = np.asarray(data_net)
            exchange = np.where(r.training, block_exchange(networks, net, r.block.weights, members, r.sharded), 0.0)
            exposed = least_exposed(
                r.stages,
                r.pipe.chunks,
                backward,
                exchange,
                r.pipe.bw_p2p,
                sharded=r.sharded,
                same_as_tensor=net == np.asarray(group.tensor_net),
                busy=networks.busy[net],
            )
            # Without overlap all of the exchange shows, so the cheaper of both ways bounds the row.
            least = np.minimum(least, np.minimum(exposed, r.stages.blocks * exchange))
    return prepared.cells.batch_size[cell].astype(np.float64) / (r.pipe.total + least)


@dataclass(slots=True)
class _RowChunk:
    """A chunk of rows before any gradient exchange, everything by row."""

    place: Ints
    mode: Ints
    point: Ints
    key: Ints
    block: StepBlock
    optimizer: StepOptimizer
    optimizer_key: Ints
    stages: PipelineShape
    sharded: Flags
    training: Flags
    moved: Offload
    pipe: PipelinePart


def _rows_of(prepared: PreparedRows, group: RowGroup, part: slice) -> _RowChunk:
    rate, modes = prepared.rate, prepared.modes.fields
    place, mode = group.place[part], group.mode[part]
    point = group.point[place]
    key = group.block[place] + prepared.modes.time[mode]
    b = take(prepared.block, key)
    sharded = modes["optimizer_sharding"][mode]
    unsharded_at, sharded_at = prepared.optimizer_of
    optimizer_key = np.where(sharded, sharded_at[point], unsharded_at[point]) + prepared.modes.optimizer[mode]
    o = take(prepared.optimizer, optimizer_key)
    s = take(prepared.stages, point)
    # What holds for every row is carried along once.
    training = modes["training"][mode]
    if training.all():
        training = np.asarray(True)
    kept = prepared.kept[key]
    moved = offload(
        rate,
        weights=b.weights,
        activations=kept,
        optimizer=prepared.optimizer_state[optimizer_key],
        weight_offload=prepared.modes.offloaded["weight_offload"][mode],
        activations_offload=prepared.modes.offloaded["activations_offload"][mode],
        optimizer_offload=prepared.modes.offloaded["optimizer_offload"][mode],
        training=training,
    )
    pipe = pipeline_part(
        rate, s, b, o.time, pipeline_net=np.asarray(group.pipeline_net), training=training, moved=moved
    )
    return _RowChunk(place, mode, point, key, b, o, optimizer_key, s, sharded, training, moved, pipe)


def _exposed_exchange(
    prepared: PreparedRows,
    group: RowGroup,
    data_net: int,
    s: PipelineShape,
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
    exchange = exchange_part(
        prepared.rate,
        s,
        pipe,
        b,
        o,
        members=prepared.cells.data_par[cell].astype(np.float64),
        exchanging=training,
        tensor_net=np.asarray(group.tensor_net),
        pipeline_net=np.asarray(group.pipeline_net),
        data_net=np.asarray(data_net),
        sharded=sharded,
        requirements=False,
    )
    return exchange.link, exchange.overlap.exposed

"""One batch: what a step takes, from block figures and the schedule.

The step has two parts, so that an exploration computes each once for all executions that share it:
`pipeline_part` does not know how gradients are exchanged, `exchange_part` does. Every function works on arrays of any
broadcastable shapes.

Source: Calculon 0.1.0 (commit caa4b11), `llm.py` `_compute_batch_stats`, `get_stats_values`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from engine.cost_models.calculon.physics.block import BlockTable
from engine.cost_models.calculon.physics.offload import Offload, offload
from engine.cost_models.calculon.physics.optimizer import OptimizerTable
from engine.cost_models.calculon.physics.pipeline import PipelineShape
from engine.cost_models.calculon.physics.rates import SystemRates
from engine.cost_models.calculon.physics.step_parts import (
    PipelinePart,
    StepBlock,
    exchange_part,
    pipeline_part,
    step_block,
    step_optimizer,
)
from engine.executions.arrays import Flags, Floats, Ints
from engine.executions.codes import FULL
from engine.executions.table import Executions

__all__ = ["BatchTimes", "arithmetic", "batch_times", "block_flops", "kept_activations", "offload_bandwidth"]


@dataclass(slots=True)
class BatchTimes:
    """All times and rates of a step, each an array [rows]; names and units are the statistics'."""

    fw_time: Floats
    bw_time: Floats
    optim_step_time: Floats
    recompute_time: Floats
    recomm_link_time: Floats
    recomm_exposed_time: Floats
    bubble_time: Floats
    tp_comm_link_time: Floats
    pp_comm_link_time: Floats
    dp_comm_link_time: Floats
    tp_comm_exposed_time: Floats
    pp_comm_exposed_time: Floats
    dp_comm_exposed_time: Floats
    fw_offload_exposed_time: Floats
    bw_offload_exposed_time: Floats
    total_time: Floats
    fw_p2p_bytes: Floats
    bw_p2p_bytes: Floats
    dp_bw_overlap_req_chunk: Floats
    dp_bw_overlap_req_tail: Floats
    act_offload_bw_req: Floats
    weight_offload_bw_req: Floats
    optim_offload_bw_req: Floats
    offload_mem_bw_req: Floats
    useful_flops: Floats
    compute_efficiency: Floats
    system_efficiency: Floats
    total_efficiency: Floats
    sample_rate: Floats


def batch_times(
    rate: SystemRates, e: Executions, s: PipelineShape, block: BlockTable, optimizer: OptimizerTable
) -> BatchTimes:
    """Returns all times and rates of the executions `e` [rows], from the figures of their blocks.

    Args:
        rate: rates of the system.
        e: the executions [rows].
        s: how their blocks and microbatches fall on pipelines [rows].
        block: figures of their blocks, each [rows].
        optimizer: the optimizer's step on one block, each [rows].
    """
    b, o = step_block(block), step_optimizer(optimizer)
    training = e.training
    kept = kept_activations(block, e.activation_recompute)
    moved = offload(
        rate,
        weights=block.weights,
        activations=kept,
        optimizer=optimizer.state,
        weight_offload=e.weight_offload,
        activations_offload=e.activations_offload,
        optimizer_offload=e.optimizer_offload,
        training=training,
    )
    part = pipeline_part(rate, s, b, o.time, pipeline_net=e.pipeline_par_net, training=training, moved=moved)

    exchanges = (e.data_par > 1) & training
    exchange = exchange_part(
        rate,
        s,
        part,
        b,
        o,
        members=e.data_par.astype(np.float64),
        exchanging=exchanges,
        tensor_net=e.tensor_par_net,
        pipeline_net=e.pipeline_par_net,
        data_net=e.data_par_net,
        sharded=e.optimizer_sharding,
    )
    overlapped = e.data_par_overlap & exchanges
    # Without overlap the whole exchange follows the backward pass.
    exposed = np.where(overlapped, exchange.overlap.exposed, exchange.link)
    total = part.total + exposed

    # llm.py get_useful_flops: the optimizer's FLOP are among those of each microbatch.
    useful = block_flops(block) + optimizer.flops
    work = arithmetic(rate, s, part, useful)
    piped = s.pipeline_par > 1
    p2p_bytes = np.where(piped, block.pipeline_payload, 0.0)
    requirements = offload_requirements(b, kept, moved, part, optimizer, training)
    edges, base = s.edges, s.base_blocks
    return BatchTimes(
        fw_time=part.fw_time,
        bw_time=part.bw_time,
        optim_step_time=part.optim_step_time,
        recompute_time=part.recompute_time,
        recomm_link_time=edges * (base * block.base_recomm_time + block.edge_recomm_time),
        recomm_exposed_time=part.recomm_exposed_time,
        bubble_time=part.bubble_time,
        tp_comm_link_time=edges * (base * block.base_fw_tp_time + block.edge_fw_tp_time)
        + edges * (base * block.base_bw_tp_time + block.edge_bw_tp_time),
        pp_comm_link_time=part.pp_comm_exposed_time,
        dp_comm_link_time=exchange.link,
        tp_comm_exposed_time=part.tp_comm_exposed_time,
        pp_comm_exposed_time=part.pp_comm_exposed_time,
        dp_comm_exposed_time=exposed,
        fw_offload_exposed_time=part.fw_offload_exposed_time,
        bw_offload_exposed_time=part.bw_offload_exposed_time,
        total_time=total,
        fw_p2p_bytes=p2p_bytes,
        bw_p2p_bytes=p2p_bytes * training,
        dp_bw_overlap_req_chunk=np.where(overlapped, exchange.overlap.required_chunk, 0.0),
        dp_bw_overlap_req_tail=np.where(overlapped, exchange.overlap.required_tail, 0.0),
        act_offload_bw_req=requirements[0],
        weight_offload_bw_req=requirements[1],
        optim_offload_bw_req=requirements[2],
        offload_mem_bw_req=requirements[3],
        useful_flops=useful,
        compute_efficiency=work.perfect / work.computing,
        system_efficiency=work.computing / total,
        total_efficiency=work.perfect / total,
        sample_rate=e.batch_size / total,
    )


class EfficiencyTimes(NamedTuple):
    """Seconds of a step's arithmetic, each [rows]: computing as it does, and at the peak of the matrix unit [s]."""

    computing: Floats
    perfect: Floats


def arithmetic(rate: SystemRates, s: PipelineShape, part: PipelinePart, useful: Floats) -> EfficiencyTimes:
    """Return the compute time and ideal time that efficiencies compare [s]. The optimizer's FLOP are counted once per
    microbatch, not once per step.

    The compute efficiency is `perfect` over `computing`, the system efficiency `computing` over the step, and the total
    efficiency `perfect` over the step.

    Args:
        rate: rates of the system.
        s: how blocks and microbatches fall on the pipeline.
        part: times of the step.
        useful: operations of one block for a microbatch, `block_flops` and the optimizer's [FLOP].
    """
    computing = part.fw_time + part.bw_time + part.optim_step_time
    # llm.py get_total_efficiency: useful FLOP of all blocks and microbatches at the peak of the matrix unit.
    return EfficiencyTimes(computing, s.block_microbatches * useful / rate.matrix.peak)


def block_flops(block: BlockTable) -> Floats:
    """Returns what one microbatch needs of a block, forward and backward, without recomputation [FLOP].

    Args:
        block: figures of blocks, each [keys].
    """
    return block.fw_flops + block.agrad_flops + block.wgrad_flops


def kept_activations(block: BlockTable, recompute: Ints) -> Floats:
    """Returns what one block keeps of a microbatch for its backward pass, which is what would be offloaded [bytes].

    Args:
        block: figures of blocks, each [keys].
        recompute: kind of recomputation, a position in its choices [keys].
    """
    return np.where(recompute == FULL, block.act_checkpoint, block.act_storage)


def offload_requirements(
    b: StepBlock, kept: Floats, moved: Offload, part: PipelinePart, optimizer: OptimizerTable, training: Flags
) -> tuple[Floats, Floats, Floats, Floats]:
    """Returns the second-tier bandwidths that would hide offloading [bytes/s]: of activations, weights, optimizer, and
    together.

    They are required whether or not anything is offloaded. Without time to hide behind they are infinite, where the
    reference divides by zero after its run.

    Args:
        b: figures of a block and microbatch.
        kept: what a block keeps of a microbatch [bytes].
        moved: what a block offloads per pass.
        part: the step, behind whose passes it hides.
        optimizer: the optimizer's step on one block.
        training: whether there is a backward pass.
    """
    fw_window = _fw_window(b, part)
    bw_window = _bw_window(b, part)
    activations, weights = _per_second(kept, fw_window), _per_second(b.weights, fw_window)
    # llm.py get_optim_offload_bw_req: gradients and state move together, behind the backward pass.
    both = optimizer.weight_grads + optimizer.state
    state = np.where(training, _per_second(both, bw_window), 0.0)
    return activations, weights, state, offload_bandwidth(b, moved, part, training)


def offload_bandwidth(b: StepBlock, moved: Offload, part: PipelinePart, training: Flags) -> Floats:
    """Return the second-tier bandwidth that would hide all offloading, forward and backward [bytes/s].

    Args:
        b: figures of a block and microbatch.
        moved: offload traffic of a block per pass.
        part: times of the step, whose passes hide the traffic.
        training: whether there is a backward pass.
    """
    forward = _per_second(moved.fw_bytes, _fw_window(b, part))
    backward = _per_second(moved.bw_bytes, _bw_window(b, part))
    both = np.maximum(forward, backward)
    return both if np.all(training) else np.where(training, both, forward)


def _fw_window(b: StepBlock, part: PipelinePart) -> Floats:
    """Time of a block's forward pass that offloading can hide behind [s]."""
    return np.minimum(b.fw_base, part.chunks.fw_edge_plain) - b.fw_mem


def _bw_window(b: StepBlock, part: PipelinePart) -> Floats:
    """Time of a block's backward pass that offloading can hide behind [s]."""
    return np.minimum(b.bw_base, part.chunks.bw_edge_plain) - (b.agrad_mem + b.wgrad_mem)


def _per_second(size: Floats, window: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        result = size / window
    nothing = window == 0.0
    return np.where(nothing, np.inf, result) if nothing.any() else result

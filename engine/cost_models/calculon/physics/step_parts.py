"""Parts of a step of Calculon's: blocks, optimizer, pipeline, and the exchange of gradients.

Source: Calculon 0.1.0 (commit caa4b11), `llm.py` `_compute_batch_stats`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.cost_models.calculon.physics.block import BlockTable
from engine.cost_models.calculon.physics.data_parallel import Backward, Overlap, block_exchange, overlapped_exchange
from engine.cost_models.calculon.physics.offload import Offload
from engine.cost_models.calculon.physics.optimizer import OptimizerTable
from engine.cost_models.calculon.physics.pipeline import Chunks, PassTimes, PipelineShape, chunks
from engine.cost_models.calculon.physics.rates import SystemRates
from engine.executions.arrays import Flags, Floats, Ints

__all__ = [
    "ExchangePart",
    "PipelinePart",
    "StepBlock",
    "StepOptimizer",
    "exchange_part",
    "exchange_scalar",
    "pipeline_part",
    "step_block",
    "step_optimizer",
]


@dataclass(slots=True)
class StepBlock:
    """The figures of a block that a step is made of, each an array [keys]: sums of block figures, taken once per key.

    Times in seconds. `tp_*` and `recomm_*` are exposed communication of base and edge block; `backward_*` is what the
    backward pass, with recomputation, spends on memory and on compute; `*_tp_link` occupies the tensor network.
    """

    fw_time: Floats
    agrad_time: Floats
    wgrad_time: Floats
    re_time: Floats
    fw_base: Floats
    fw_edge: Floats
    bw_base: Floats
    bw_edge: Floats
    fw_mem: Floats
    agrad_mem: Floats
    wgrad_mem: Floats
    base_fw_tp: Floats
    edge_fw_tp: Floats
    base_bw_tp: Floats
    edge_bw_tp: Floats
    base_recomm: Floats
    edge_recomm: Floats
    backward_mem: Floats
    backward_flops: Floats
    base_tp_link: Floats
    edge_tp_link: Floats
    pipeline_payload: Floats
    weights: Floats


def step_block(b: BlockTable) -> StepBlock:
    """Returns what a step needs of a block.

    Args:
        b: figures of blocks, each [keys].
    """
    return StepBlock(
        fw_time=b.fw_time,
        agrad_time=b.agrad_time,
        wgrad_time=b.wgrad_time,
        re_time=b.re_time,
        # Base blocks begin and end inside a chunk; the edge block is the one next to a pipeline transfer.
        fw_base=b.fw_time + b.base_fw_tp_exposed,
        fw_edge=b.fw_time + b.edge_fw_tp_exposed,
        bw_base=b.re_time + b.base_recomm_exposed + b.agrad_time + b.wgrad_time + b.base_bw_tp_exposed,
        bw_edge=b.re_time + b.edge_recomm_exposed + b.agrad_time + b.wgrad_time + b.edge_bw_tp_exposed,
        fw_mem=b.fw_mem_time,
        agrad_mem=b.agrad_mem_time,
        wgrad_mem=b.wgrad_mem_time,
        base_fw_tp=b.base_fw_tp_exposed,
        edge_fw_tp=b.edge_fw_tp_exposed,
        base_bw_tp=b.base_bw_tp_exposed,
        edge_bw_tp=b.edge_bw_tp_exposed,
        base_recomm=b.base_recomm_exposed,
        edge_recomm=b.edge_recomm_exposed,
        # Memory time hides no exchange: llm.py, "Can't overlap DP comm with mem accesses".
        backward_mem=b.agrad_mem_time + b.wgrad_mem_time + b.re_mem_time,
        backward_flops=b.agrad_flops_time + b.wgrad_flops_time + b.re_flops_time,
        # Tensor-parallel traffic of the backward pass, which an exchange on the same network waits for.
        base_tp_link=b.base_recomm_time + b.base_bw_tp_time,
        edge_tp_link=b.edge_recomm_time + b.edge_bw_tp_time,
        pipeline_payload=b.pipeline_payload,
        weights=b.weights,
    )


@dataclass(slots=True)
class StepOptimizer:
    """The figures of the optimizer's step on one block that a batch is made of [s], each an array [keys]."""

    time: Floats
    mem_time: Floats
    flops_time: Floats


def step_optimizer(o: OptimizerTable) -> StepOptimizer:
    """Returns what a step needs of the optimizer.

    Args:
        o: figures of the optimizer's step on one block, each [keys].
    """
    return StepOptimizer(o.time, o.mem_time, o.flops_time)


@dataclass(slots=True)
class PipelinePart:
    """Times of a step without the gradient exchange [s], and the chunks that the exchange can hide behind.

    `total` is the sum of the ten times, in the order in which the reference adds.
    """

    fw_time: Floats
    bw_time: Floats
    optim_step_time: Floats
    recompute_time: Floats
    recomm_exposed_time: Floats
    bubble_time: Floats
    tp_comm_exposed_time: Floats
    pp_comm_exposed_time: Floats
    fw_offload_exposed_time: Floats
    bw_offload_exposed_time: Floats
    total: Floats
    chunks: Chunks
    bw_p2p: Floats


def pipeline_part(
    rate: SystemRates,
    s: PipelineShape,
    b: StepBlock,
    optimizer_time: Floats,
    *,
    pipeline_net: Ints,
    training: Flags,
    moved: Offload | None,
) -> PipelinePart:
    """Returns everything of a step but the gradient exchange. Arrays of any broadcastable shapes.

    Args:
        rate: rates of the system.
        s: how blocks and microbatches fall on the pipeline.
        b: figures of a block and microbatch.
        optimizer_time: the optimizer's step on one block [s].
        pipeline_net: tiers that carry transfers between stages.
        training: whether there is a backward pass.
        moved: what a block offloads per pass; None where nothing is.
    """
    piped = s.pipeline_par > 1
    fw_bytes = b.pipeline_payload * piped
    # A transfer of nothing still takes the network's latency: without a pipeline, and backward in inference.
    fw_p2p = rate.networks.seconds(pipeline_net, "p2p", fw_bytes, 2.0)
    bw_p2p = fw_p2p
    if not np.all(training):
        bw_p2p = rate.networks.seconds(pipeline_net, "p2p", fw_bytes * training, 2.0)
    times = PassTimes(b.fw_base, b.fw_edge, b.bw_base, b.bw_edge, b.fw_mem, b.agrad_mem, b.wgrad_mem)
    c = chunks(s, times, fw_p2p, bw_p2p, moved)
    # Busy times: L blocks of a stage times n microbatches, except the optimizer, which runs once per step.
    m = s.block_microbatches
    fw_time = m * b.fw_time
    bw_time = m * b.agrad_time + m * b.wgrad_time
    optim_step_time = s.blocks * optimizer_time
    recompute_time = m * b.re_time
    # n v chunks, each of C - 1 base blocks and one edge block.
    recomm_exposed = s.edges * (s.base_blocks * b.base_recomm + b.edge_recomm)
    tp_exposed = s.edges * (s.base_blocks * b.base_fw_tp + b.edge_fw_tp) + s.edges * (
        s.base_blocks * b.base_bw_tp + b.edge_bw_tp
    )
    # One transfer per chunk and direction, never hidden (llm.py counts them as exposed and as link time).
    transfers = s.microbatches * (s.interleaving * piped)
    pp_exposed = transfers * fw_p2p + transfers * training * bw_p2p
    fw_offload, bw_offload = c.fw_offload_exposed, c.bw_offload_exposed
    # llm.py get_total_time: added in this order, so that rounding agrees.
    total = (
        fw_time
        + bw_time
        + optim_step_time
        + fw_offload
        + bw_offload
        + recompute_time
        + recomm_exposed
        + c.bubble
        + tp_exposed
        + pp_exposed
    )
    return PipelinePart(
        fw_time,
        bw_time,
        optim_step_time,
        recompute_time,
        recomm_exposed,
        c.bubble,
        tp_exposed,
        pp_exposed,
        fw_offload,
        bw_offload,
        total,
        c,
        bw_p2p,
    )


@dataclass(slots=True)
class ExchangePart:
    """Gradient exchange of a step: alone, one block after the other [s], and overlapped with the backward pass."""

    link: Floats
    overlap: Overlap


def exchange_part(
    rate: SystemRates,
    s: PipelineShape,
    part: PipelinePart,
    b: StepBlock,
    o: StepOptimizer,
    *,
    members: Floats,
    exchanging: Flags,
    tensor_net: Ints,
    pipeline_net: Ints,
    data_net: Ints,
    sharded: Flags,
    requirements: bool = True,
) -> ExchangePart:
    """Return the gradient exchange of a step, overlapped with the backward pass and alone. Arrays of any broadcastable
    shapes.

    Args:
        rate: rates of the system.
        s: how blocks and microbatches fall on the pipeline.
        part: the rest of the step, behind which it can hide.
        b: figures of a block and microbatch.
        o: the optimizer's step on one block.
        members: processors of a data-parallel group [count].
        exchanging: where there is anything to exchange.
        tensor_net: tiers that carry tensor parallelism.
        pipeline_net: tiers that carry transfers between stages.
        data_net: tiers that carry the exchange.
        sharded: whether the optimizer is sharded over the group.
        requirements: whether to tell the bandwidths that would hide it.
    """
    # The exchange of one block; blocks follow each other without overlap.
    exchange = block_exchange(rate.networks, data_net, b.weights, members, sharded)
    if not np.all(exchanging):
        exchange = np.where(exchanging, exchange, 0.0)
    backward = Backward(
        b.backward_mem, b.backward_flops, b.base_tp_link, b.edge_tp_link, o.time, o.mem_time, o.flops_time
    )
    overlap = overlapped_exchange(
        s,
        part.chunks,
        backward,
        exchange,
        part.bw_p2p,
        weights=b.weights,
        sharded=sharded,
        same_as_tensor=data_net == tensor_net,
        same_as_pipeline=data_net == pipeline_net,
        busy=rate.networks.busy[data_net],
        scalar=exchange_scalar(rate, data_net, sharded) if requirements else None,
    )
    return ExchangePart(s.blocks * exchange, overlap)


def exchange_scalar(rate: SystemRates, data_net: Ints, sharded: Flags) -> Floats:
    """Returns the traffic factor of the exchange's operations on a network, offsets left out.

    Args:
        rate: rates of the system.
        data_net: tiers that carry the exchange.
        sharded: whether the optimizer is sharded over the group.
    """
    scalar = rate.networks.scalar
    # llm.py scales the requirement by the operations' scalars only, not by their offsets.
    both = scalar["reduce_scatter"][data_net] + scalar["all_gather"][data_net]
    return np.where(sharded, both, scalar["all_reduce"][data_net])

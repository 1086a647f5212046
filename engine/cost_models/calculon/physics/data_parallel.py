"""The gradient exchange of data parallelism, exposed or overlapped with the backward pass.

Source: Calculon 0.1.0 (commit caa4b11), `llm.py` `_compute_batch_stats`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.cost_models.calculon.physics.pipeline import Chunks, PipelineShape
from engine.cost_models.calculon.physics.rates import NetworkRates
from engine.executions.arrays import Flags, Floats, Ints

__all__ = ["Backward", "Overlap", "block_exchange", "block_exchanges", "least_exposed", "overlapped_exchange"]


def block_exchange(net: NetworkRates, tier: Ints, weights: Floats, members: Floats, sharded: Flags) -> Floats:
    """Returns the time to exchange one block's gradients: reduce-scatter and all-gather if the optimizer is sharded,
    else an all-reduce [s]. The payload is the weights at the training datatype's width.

    Args:
        net: the tiers of the system.
        tier: the tiers that carry the exchange.
        weights: weights of one block on a processor [bytes].
        members: processors of a data-parallel group [count].
        sharded: whether the optimizer is sharded over the group.
    """
    return np.where(sharded, *block_exchanges(net, tier, weights, members))


def block_exchanges(net: NetworkRates, tier: Ints, weights: Floats, members: Floats) -> tuple[Floats, Floats]:
    """Returns the time to exchange one block's gradients with a sharded optimizer, and with a whole one [s].

    Args:
        net: the tiers of the system.
        tier: the tiers that carry the exchange.
        weights: weights of one block on a processor [bytes].
        members: processors of a data-parallel group [count].
    """
    scattered = net.seconds(tier, "reduce_scatter", weights, members)
    gathered = net.seconds(tier, "all_gather", weights, members)
    return scattered + gathered, net.seconds(tier, "all_reduce", weights, members)


@dataclass(slots=True)
class Backward:
    """Times of one block's backward pass that determine how much of an exchange it hides [s].

    `mem`: memory time of backward and recomputation, which hides nothing; `flops`: their compute time;
    `*_tp_link`: link time of tensor-parallel communication that occupies a shared network.
    """

    mem: Floats
    flops: Floats
    base_tp_link: Floats
    edge_tp_link: Floats
    optimizer_time: Floats
    optimizer_mem: Floats
    optimizer_flops: Floats


@dataclass(slots=True)
class Overlap:
    """An overlapped exchange: exposed time [s], and the bandwidths that would hide it [bytes/s]."""

    exposed: Floats
    required_chunk: Floats
    required_tail: Floats


def overlapped_exchange(
    s: PipelineShape,
    chunk: Chunks,
    backward: Backward,
    exchange: Floats,
    bw_p2p: Floats,
    *,
    weights: Floats,
    sharded: Flags,
    same_as_tensor: Flags,
    same_as_pipeline: Flags,
    busy: Floats,
    scalar: Floats | None,
) -> Overlap:
    """Return the exposed time of the exchange [s] when it overlaps the backward pass.

    As in the reference, the window may be negative, since recomputation counts running totals; an unsharded optimizer
    widens the window of every block and of the last chunk once more; the window spans as many microbatches as stages,
    for any number of microbatches; the exchange of one block is always exposed.

    Args:
        s: how blocks and microbatches fall on the pipeline.
        chunk: times of a chunk.
        backward: times for which the backward pass occupies memory, compute and the tensor network.
        exchange: time of one block's exchange [s].
        bw_p2p: one backward transfer between stages [s].
        weights: weights of one block on a processor [bytes].
        sharded: whether the optimizer is sharded over the group.
        same_as_tensor: whether tensor parallelism uses the same network.
        same_as_pipeline: whether transfers between stages use the same network.
        busy: share of compute that the network takes.
        scalar: traffic factor of the operations; None to leave the required bandwidths out.
    """
    blocks = s.base_blocks + 1.0
    unsharded = ~sharded
    # Without sharding the optimizer of a block may run while the next one is exchanged, its memory time excepted.
    optimizer_window = (backward.optimizer_time - backward.optimizer_mem) * unsharded
    base = chunk.bw_base - backward.mem + optimizer_window
    edge = chunk.bw_edge - backward.mem + optimizer_window
    # The exchange waits for tensor-parallel traffic on the same network.
    if np.any(same_as_tensor):
        base = base - np.where(same_as_tensor, backward.base_tp_link, 0.0)
        edge = edge - np.where(same_as_tensor, backward.edge_tp_link, 0.0)
    compute = backward.flops + backward.optimizer_flops * unsharded

    # A chunk of C blocks hides behind p microbatches of the next chunk: window = p ((C - 1) base + edge).
    chunk_window = s.base_blocks * base + edge
    chunk_exchange = blocks * exchange
    window = s.pipeline_par * chunk_window
    slowed = s.pipeline_par * (blocks * compute)
    several = s.interleaving > 1
    # Transfers between stages take their time out of the window where they share the network.
    met = window
    if np.any(same_as_pipeline):
        met = (
            window
            - _count_collisions(s, chunk_exchange, chunk.bw_chunk, same_as_pipeline & several & (exchange > 0)) * bw_p2p
        )
    # Positive: the excess shows, v - 1 times. Otherwise only the compute that the network takes shows.
    uncovered = chunk_exchange - met + slowed * busy
    further = s.interleaving - 1.0
    exposed_chunks = np.where(uncovered > 0, further * uncovered, further * chunk_exchange * busy)
    # The last chunk hides all blocks but its first, less one block (mean of base and edge) and one transfer.
    last = (chunk_window - bw_p2p - (chunk.bw_base + chunk.bw_edge) / 2.0 + optimizer_window) * (s.base_blocks > 0)
    tail = s.base_blocks * exchange
    tail_uncovered = tail + (compute * busy - last)
    exposed_tail = np.where(tail_uncovered > 0, tail_uncovered, tail * busy)
    # The last block exchanged has nothing to hide behind.
    exposed = exchange + (exposed_chunks + exposed_tail)
    if scalar is None:
        return Overlap(exposed, np.zeros(()), np.zeros(()))
    # As in llm.py: the slowdown is added to the window here, though it shortens it above.
    available = (window + slowed * busy - np.where(same_as_pipeline, bw_p2p, 0.0)) * further
    tail_available = last + tail * busy
    payload = blocks * weights
    return Overlap(
        exposed=exposed,
        required_chunk=_required_bandwidth(payload, available, scalar),
        required_tail=_required_bandwidth(payload, tail_available, scalar),
    )


def least_exposed(
    s: PipelineShape,
    chunk: Chunks,
    backward: Backward,
    exchange: Floats,
    bw_p2p: Floats,
    *,
    sharded: Flags,
    same_as_tensor: Flags,
    busy: Floats,
) -> Floats:
    """Return a lower bound of the exposed time of an overlapped exchange [s]; a step with it never gets faster when a
    rate of the system falls.

    The exposed time itself is not monotonic: it jumps where the exchange just fits its window and where it collides
        with transfers between stages, and the window of an unsharded optimizer, or of fewer microbatches than stages,
        shrinks by more than the step does. So the bound omits the jumps, and is one block's exchange if the window is
        too wide. A
    window of V chunks takes P (V - 1) + 1 backward chunks at most off the exchange, and a step of at least P
    microbatches has P V of them, so the step falls with every time in a chunk.

    Args:
        s: how blocks and microbatches fall on the pipeline.
        chunk: times of a chunk.
        backward: times for which the backward pass occupies memory, compute and the tensor network.
        exchange: time of one block's exchange [s].
        bw_p2p: one backward transfer between stages [s].
        sharded: whether the optimizer is sharded over the group.
        same_as_tensor: whether tensor parallelism uses the same network.
        busy: share of compute that the network takes.
    """
    base, edge = chunk.bw_base - backward.mem, chunk.bw_edge - backward.mem
    if np.any(same_as_tensor):
        base = base - np.where(same_as_tensor, backward.base_tp_link, 0.0)
        edge = edge - np.where(same_as_tensor, backward.edge_tp_link, 0.0)
    blocks = s.base_blocks + 1.0
    chunk_window = s.base_blocks * base + edge
    uncovered = blocks * exchange - s.pipeline_par * chunk_window + s.pipeline_par * (blocks * backward.flops) * busy
    last = (chunk_window - bw_p2p - (chunk.bw_base + chunk.bw_edge) / 2.0) * (s.base_blocks > 0)
    tail = s.base_blocks * exchange + (backward.flops * busy - last)
    more = (s.interleaving - 1.0) * np.maximum(0.0, uncovered) + np.maximum(0.0, tail)
    return exchange + np.where(sharded & (s.microbatches >= s.pipeline_par), more, 0.0)


def _count_collisions(s: PipelineShape, exchange: Floats, bw_chunk: Floats, possible: Flags) -> Floats:
    """Return the pipeline transfers that collide with an exchange on a shared network: a float floor division, as in
    the reference."""
    shape = np.broadcast_shapes(exchange.shape, bw_chunk.shape, possible.shape)
    result = np.zeros(shape)
    # Floor division is slow, and zero wherever the exchange is clearly shorter than a chunk.
    possible = possible & (exchange >= bw_chunk * (1.0 - 1e-9))
    if possible.any():
        where = np.broadcast_to(possible, shape)
        # No more transfers collide than microbatches are in the last round of the pipeline.
        over = np.broadcast_to(s.microbatches % s.pipeline_par, shape)[where]
        most = np.where(over != 0, over, np.broadcast_to(s.pipeline_par, shape)[where])
        met = np.floor_divide(np.broadcast_to(exchange, shape)[where], np.broadcast_to(bw_chunk, shape)[where])
        result[where] = np.minimum(met, most)
    return result


def _required_bandwidth(payload: Floats, available: Floats, scalar: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(available > 0, payload / available * scalar, 0.0)

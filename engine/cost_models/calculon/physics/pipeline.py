"""The pipeline schedule: how blocks and microbatches fall on stages, what a chunk takes, how long stages idle.

Every function works on arrays of any broadcastable shapes.

Source: Calculon 0.1.0 (commit caa4b11), `llm.py` `compile` and `_compute_batch_stats`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.cost_models.calculon.physics.offload import Offload
from engine.executions.arrays import Floats

__all__ = ["Chunks", "PassTimes", "PipelineShape", "chunks", "stages"]


@dataclass(slots=True)
class PipelineShape:
    """Blocks and microbatches on one processor.

    `blocks` per processor, `base_blocks` of a chunk besides its edge block, `missing_blocks` by which the last stages
    fall short when the pipeline does not divide the blocks, `edges` = chunks x microbatches, `extra_chunks` of
    waiting that a microbatch count off the pipeline's multiple costs an interleaved schedule.
    """

    pipeline_par: Floats
    interleaving: Floats
    microbatches: Floats
    blocks: Floats
    base_blocks: Floats
    missing_blocks: Floats
    edges: Floats
    block_microbatches: Floats
    extra_chunks: Floats


def stages(num_blocks: int, pipeline_par: Floats, interleaving: Floats, microbatches: Floats) -> PipelineShape:
    """Return the distribution of `num_blocks` and `microbatches` over a pipeline; all counts as float64.

    Args:
        num_blocks: blocks of the model [count].
        pipeline_par: stages [count].
        interleaving: chunks of a stage [count].
        microbatches: microbatches of a replica in one step [count].
    """
    p, v, n = pipeline_par, interleaving, microbatches
    # L = ceil(N / p) blocks per stage, C = L / v per chunk.
    blocks = np.ceil(num_blocks / p)
    chunk = np.floor(blocks / v)
    over = n % p
    return PipelineShape(
        pipeline_par=p,
        interleaving=v,
        microbatches=n,
        blocks=blocks,
        base_blocks=chunk - 1.0,
        # Stages that hold fewer than L blocks shorten the bubble; see `chunks`.
        missing_blocks=np.where(num_blocks % p != 0, p - num_blocks % p, 0.0),
        edges=n * v,
        block_microbatches=blocks * n,
        # Interleaving runs microbatches in rounds of p; a last round of n mod p waits as if it were full, in all chunks
        # but the last.
        extra_chunks=np.where(over != 0, (v - 1.0) * (p - over), 0.0),
    )


@dataclass(slots=True)
class PassTimes:
    """Times of one block and microbatch that the schedule is made of [s]: forward and backward with the exposed
    tensor-parallel communication of a base and of an edge block, without the pipeline's own communication."""

    fw_base: Floats
    fw_edge: Floats
    bw_base: Floats
    bw_edge: Floats
    fw_mem: Floats
    agrad_mem: Floats
    wgrad_mem: Floats


@dataclass(slots=True)
class Chunks:
    """One chunk's blocks and what the schedule makes of them [s].

    `bw_*` are block times including the exposed part of offloading, `*_edge_plain` without it; `bubble` is the idle
    time of a stage.
    """

    bw_base: Floats
    bw_edge: Floats
    bw_chunk: Floats
    fw_edge_plain: Floats
    bw_edge_plain: Floats
    fw_offload_exposed: Floats
    bw_offload_exposed: Floats
    bubble: Floats


def chunks(s: PipelineShape, times: PassTimes, fw_p2p: Floats, bw_p2p: Floats, offload: Offload | None) -> Chunks:
    """Return the times of a chunk, the exposed offloading, and the bubble.

    Args:
        s: how blocks and microbatches fall on the pipeline.
        times: times of one block and microbatch.
        fw_p2p: one forward transfer between stages, charged to the edge block even without a pipeline [s].
        bw_p2p: one backward transfer, likewise [s].
        offload: offload traffic of a block per pass; None without offloading.
    """
    fw_base, fw_edge = times.fw_base, times.fw_edge + fw_p2p
    bw_base, bw_edge = times.bw_base, times.bw_edge + bw_p2p
    zero = np.zeros(())
    fw_offload = bw_offload = zero
    fw_edge_plain, bw_edge_plain = fw_edge, bw_edge
    if offload is not None:
        # Offloading hides behind compute and exposed communication, not behind memory time.
        fw_base_over = np.maximum(0.0, offload.fw_time + times.fw_mem - fw_base)
        fw_edge_over = np.maximum(0.0, offload.fw_time + times.fw_mem - fw_edge)
        bw_base_over = np.maximum(0.0, offload.bw_time + times.agrad_mem + times.wgrad_mem - bw_base)
        bw_edge_over = np.maximum(0.0, offload.bw_time + times.agrad_mem + times.wgrad_mem - bw_edge)
        fw_base, fw_edge = fw_base + fw_base_over, fw_edge + fw_edge_over
        bw_base, bw_edge = bw_base + bw_base_over, bw_edge + bw_edge_over
        fw_offload = s.edges * (s.base_blocks * fw_base_over + fw_edge_over)
        bw_offload = s.edges * (s.base_blocks * bw_base_over + bw_edge_over)
    fw_chunk = s.base_blocks * fw_base + fw_edge
    bw_chunk = s.base_blocks * bw_base + bw_edge
    chunk = fw_chunk + bw_chunk
    extra = s.extra_chunks * chunk
    if s.missing_blocks.any():
        # Blocks that the last stages lack: each the mean of base and edge block, or the edge block if it is alone.
        extra = extra - np.where(
            s.base_blocks > 0,
            s.missing_blocks * (fw_base + fw_edge + bw_base + bw_edge) / 2.0,
            s.missing_blocks * (fw_edge + bw_edge),
        )
    # (p - 1) (t_f + t_b) / v: Narayanan et al. 2021, section 2.2; a chunk takes (t_f + t_b) / v.
    bubble = (s.pipeline_par - 1.0) * chunk + extra
    return Chunks(bw_base, bw_edge, bw_chunk, fw_edge_plain, bw_edge_plain, fw_offload, bw_offload, bubble)

"""One training step: block level once per distinct shape, batch level on gathered figures.

`block_level` is all that depends on what one microbatch does in one block and at the ends of the model; `batch_level`
spreads blocks over stages, runs microbatches through the pipeline and adds what comes once per step. A space evaluates
the first on its few thousand distinct keys (`BLOCK_FIELDS` of the layout) and gathers; `step_times` does both.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from engine.calibrated.block import BlockTimes, dense_block, expert_block
from engine.calibrated.collectives import collective
from engine.calibrated.head import Ends, ends
from engine.calibrated.inputs import Case, Floats
from engine.calibrated.launch import launch_time
from engine.calibrated.optimizer import optimizer_time, shares
from engine.calibrated.parameters import Parameters
from engine.calibrated.pipeline import (
    Blocks,
    blocks_per_stage,
    bubble,
    dense_blocks_per_stage,
    message_time,
    pipeline_time,
)
from engine.calibrated.rates import Rates, sustained_rates
from engine.calibrated.sharding import (
    EMBEDDING_GATHERS,
    Gathers,
    data_tiers,
    exposed_exchange,
    gradient_exchange,
    layer_gathers,
    tied_exchange,
)  # fmt: skip
from engine.calibrated.weights import local_weights

__all__ = [
    "BLOCK_FIELDS", "BlockLevel", "PipelineLevel", "StepTimes", "Update", "batch_level", "block_level",
    "pipeline_level", "running_seconds", "step_seconds", "step_times", "straggling", "update_level",
]  # fmt: skip

BLOCK_FIELDS = (
    "tensor_par", "context_par", "expert_par", "expert_tensor_par", "microbatch_size", "sequence_par", "linear_bits",
    "recompute", "recompute_share",
)  # fmt: skip
"""Fields of a layout that `BlockLevel.dense` and `.sparse` depend on; `.ends` also on whether there is a pipeline."""


@dataclass(frozen=True, slots=True)
class BlockLevel:
    """Seconds per microbatch [s]: a dense block, a block of experts, the ends of the model."""

    dense: BlockTimes
    sparse: BlockTimes
    ends: Ends

    def take(self, index: npt.NDArray[np.intp]) -> BlockLevel:
        """The figures of the keys at `index`, for executions that share them."""
        return BlockLevel(self.dense.take(index), self.sparse.take(index), Ends(*(end[index] for end in self.ends)))

    def together(self) -> BlockLevel:
        """Forward and backward as one: all that `running_seconds` reads where weights are not gathered."""
        return BlockLevel(self.dense.together(), self.sparse.together(), self.ends)


@dataclass(frozen=True, slots=True)
class PipelineParts:
    """Seconds of one step in the pipeline [s], arrays [rows]: those of the slowest stage.

    `ends` is embedding and head, `bubble` pipeline fill and drain.
    """

    linear: Floats
    attention: Floats
    elementwise: Floats
    recompute: Floats
    launch: Floats
    ends: Floats
    tensor_exposed: Floats
    context_exposed: Floats
    expert_exposed: Floats
    gather_exposed: Floats
    pipeline_exposed: Floats
    bubble: Floats


@dataclass(frozen=True, slots=True)
class StepTimes(PipelineParts):
    """Seconds of one step [s], arrays [rows]; all parts add up to `step`.

    `straggler` is the spread between processors, `fixed` the constant per step.
    """

    step: Floats
    data_exposed: Floats
    tied: Floats
    optimizer: Floats
    straggler: Floats
    fixed: Floats


def step_times(case: Case, p: Parameters) -> StepTimes:
    """Seconds of one step of every row, with its parts [s]."""
    return batch_level(case, block_level(case, p), p)


def block_level(case: Case, p: Parameters) -> BlockLevel:
    """Blocks and ends of every row [s]."""
    rates = sustained_rates(case.accelerator, case.software.age_years, p)
    dense = dense_block(case, rates, p)
    both = ends(case, rates, p)
    shape = np.broadcast_shapes(np.shape(dense.forward), np.shape(both.head))
    routed = np.broadcast_to(case.model.experts > 0, shape)
    if not routed.any():
        return BlockLevel(dense, dense, both)
    if routed.all():
        return BlockLevel(dense, expert_block(case, rates, p), both)
    rows = np.flatnonzero(routed)
    part = case.take(rows)
    found = expert_block(part, sustained_rates(part.accelerator, part.software.age_years, p), p)
    merged = []
    for field in fields(BlockTimes):
        values = np.array(np.broadcast_to(getattr(dense, field.name), shape))
        values[rows] = getattr(found, field.name)
        merged.append(values)
    return BlockLevel(dense, BlockTimes(*merged), both)


@dataclass(frozen=True, slots=True)
class _Stages:
    """What one microbatch costs on the first, a middle and the last stage [s], and how they are made up."""

    blocks: Blocks
    dense: Blocks
    edges: tuple[Floats, Floats, Floats]
    waits: Floats
    gathers: tuple[Gathers, Gathers]
    embedding_gather: Floats


@dataclass(frozen=True, slots=True)
class _Flow:
    """Microbatches through the pipeline [s]: per stage and microbatch, the slowest stage, the sum of all, the whole."""

    stages: _Stages
    message: Floats
    times: tuple[Floats, Floats, Floats]
    waits: tuple[Floats, Floats, Floats]
    slowest: Floats
    total: Floats
    running: Floats


@dataclass(frozen=True, slots=True)
class PipelineLevel(PipelineParts):
    """All microbatches through the pipeline [s], arrays [rows].

    `running` is the sum of the parts. `window` is the computation that an exchange of gradients can hide behind.
    `computing` is the forward share of linear layers, attention, element-wise work and launches; `repeated_exposed` the
    communication among `recompute`. `block_forward` and `block_backward` are one block and microbatch with the gathers
    of its weights.
    """

    running: Floats
    window: Floats
    block_forward: Floats
    block_backward: Floats
    computing: Floats
    repeated_exposed: Floats


@dataclass(frozen=True, slots=True)
class Update:
    """What comes once per step [s]: the exchange of gradients, hidden or not; tied embeddings; the optimizer."""

    exchange: Floats
    tied: Floats
    optimizer: Floats


def step_seconds(case: Case, level: BlockLevel, p: Parameters) -> Floats:
    """Seconds of one step of every row from its blocks [s]; `batch_level` without the parts, in half its time."""
    flow, once = _flow(case, level, p), update_level(case, p)
    window = flow.slowest / case.layout.pipeline_interleaving
    data = exposed_exchange(once.exchange, case.software.overlap_data, window, p)
    straggler = (flow.running + data) * straggling(case, p)
    return flow.running + data + straggler + once.optimizer + once.tied + p.step_constant


def running_seconds(case: Case, level: BlockLevel, p: Parameters) -> Floats:
    """Seconds of all microbatches of every row through the pipeline [s]; `pipeline_level` without the parts."""
    return _flow(case, level, p).running


def straggling(case: Case, p: Parameters) -> Floats:
    """Share of the running time that waiting for the slowest of many processors adds [dimensionless]."""
    return p.straggler * np.log2(np.maximum(case.processors / 8.0, 1.0))


def update_level(case: Case, p: Parameters) -> Update:
    """What every row does once per step [s]; no figure of a block matters to it."""
    rates = sustained_rates(case.accelerator, case.software.age_years, p)
    held, held_experts = shares(case, blocks_per_stage(case))
    return Update(
        gradient_exchange(case, rates, p, held, held_experts),
        tied_exchange(case, rates, p, local_weights(case).vocabulary),
        optimizer_time(case, rates, held, held_experts, launch_time(case, p)),
    )


def _flow(case: Case, level: BlockLevel, p: Parameters) -> _Flow:
    layout, software = case.layout, case.software
    rates = sustained_rates(case.accelerator, software.age_years, p)
    message = message_time(case, rates, p)
    stages = _stages(case, level, rates, p, message)
    per_dense = _per_block(level.dense, stages.gathers[0])
    routed = bool(np.any(case.model.experts > 0))
    per_sparse = _per_block(level.sparse, stages.gathers[1]) if routed else per_dense
    waits = (stages.waits / 2.0, stages.waits, stages.waits / 2.0)

    def stage(position: int) -> Floats:
        blocks, dense = stages.blocks[position], stages.dense[position]
        work = dense * per_dense + (blocks - dense) * per_sparse if routed else blocks * per_dense
        return work + stages.edges[position] + waits[position]

    times = (stage(0), stage(1), stage(2))
    slowest = np.maximum(np.maximum(times[0], times[2]), np.where(layout.pipeline_par > 2, times[1], 0.0))
    dense_total = np.where(case.model.experts > 0, case.model.dense_blocks, case.model.num_blocks)
    total = dense_total * per_dense + (case.model.num_blocks - dense_total) * per_sparse
    total = total + level.ends.embedding + level.ends.head + stages.embedding_gather
    total = np.maximum(total + stages.waits * (layout.pipeline_par - 1.0), slowest)
    # A stage alone waits for nobody, not even for what rounding leaves.
    total = np.where(layout.pipeline_par == 1, slowest, total)
    running = pipeline_time(case, slowest, total, message)
    return _Flow(stages, message, times, waits, slowest, total, running)


def pipeline_level(case: Case, level: BlockLevel, p: Parameters) -> PipelineLevel:
    """All microbatches of every row through the pipeline from its blocks, with the parts [s]."""
    layout = case.layout
    flow = _flow(case, level, p)
    stages = flow.stages
    first = flow.times[0] >= flow.slowest
    middle = ~first & (layout.pipeline_par > 2) & (flow.times[1] >= flow.slowest)

    def slow(of: tuple[Floats, Floats, Floats] | Blocks) -> Floats:
        return np.where(first, of[0], np.where(middle, of[1], of[2]))

    n_dense, n_sparse = slow(stages.dense), slow(stages.blocks) - slow(stages.dense)
    micro = case.microbatches

    def on_path(name: str) -> Floats:
        return np.asarray(micro * (n_dense * getattr(level.dense, name) + n_sparse * getattr(level.sparse, name)))

    gathered = n_dense * (stages.gathers[0].forward + stages.gathers[0].backward)
    gathered = gathered + n_sparse * (stages.gathers[1].forward + stages.gathers[1].backward)
    edge = slow(stages.edges)
    at_edge = np.where(edge > 0, stages.embedding_gather, 0.0)
    routed = case.model.experts > 0

    def of_a_block(name: str) -> Floats:
        dense = getattr(level.dense, name) + getattr(stages.gathers[0], name)
        return np.asarray(np.where(routed, getattr(level.sparse, name) + getattr(stages.gathers[1], name), dense))

    of_blocks = (
        "linear", "attention", "elementwise", "recompute", "launch", "tensor_exposed", "context_exposed",
        "expert_exposed", "computing", "repeated_exposed",
    )  # fmt: skip
    parts = {name: on_path(name) for name in of_blocks} | {
        "ends": micro * (edge - at_edge),
        "gather_exposed": micro * (gathered + at_edge),
        "pipeline_exposed": micro * slow(flow.waits) + (layout.pipeline_par - 1.0) * 2.0 * flow.message,
        "bubble": bubble(case, flow.slowest, flow.total),
        "running": flow.running,
        "window": flow.slowest / layout.pipeline_interleaving,
        "block_forward": of_a_block("forward"),
        "block_backward": of_a_block("backward"),
    }
    return PipelineLevel(**dict(zip(parts, np.broadcast_arrays(*parts.values()), strict=True)))


def batch_level(case: Case, level: BlockLevel, p: Parameters) -> StepTimes:
    """Seconds of one step of every row from its blocks, with its parts [s]."""
    flow, once = pipeline_level(case, level, p), update_level(case, p)
    data = exposed_exchange(once.exchange, case.software.overlap_data, flow.window, p)
    straggler = (flow.running + data) * straggling(case, p)
    parts = {field.name: getattr(flow, field.name) for field in fields(PipelineParts)} | {
        "data_exposed": data,
        "tied": once.tied,
        "optimizer": once.optimizer,
        "straggler": straggler,
        "fixed": np.asarray(p.step_constant),
        "step": flow.running + data + straggler + once.optimizer + once.tied + p.step_constant,
    }
    return StepTimes(**dict(zip(parts, np.broadcast_arrays(*parts.values()), strict=True)))


def _per_block(block: BlockTimes, gathers: Gathers) -> Floats:
    return block.forward + block.backward + gathers.forward + gathers.backward


def _stages(case: Case, level: BlockLevel, rates: Rates, p: Parameters, message: Floats) -> _Stages:
    layout, software = case.layout, case.software
    blocks = blocks_per_stage(case)
    local = local_weights(case)
    dense, sparse = level.dense, level.sparse
    plain = layer_gathers(case, rates, p, local.dense, dense.forward, dense.backward)
    routed = bool(np.any(case.model.experts > 0))
    gathers = (
        plain,
        layer_gathers(case, rates, p, local.sparse, sparse.forward, sparse.backward, local.experts)
        if routed
        else plain,
    )
    gather: Floats = np.zeros(())
    if np.any(layout.fully_sharded):
        tiers = data_tiers(case, rates, layout.data_par * layout.context_par)
        gather = EMBEDDING_GATHERS * collective(software.gather_bytes * local.vocabulary, tiers, p, passes=1.0)
        gather = np.where(layout.fully_sharded > 0, gather, 0.0)
    blocking = (layout.pipeline_interleaving == 1) & (software.overlap_pipeline == 0)
    one = layout.pipeline_par == 1
    edges = (
        level.ends.embedding + np.where(one, level.ends.head, 0.0) + gather,
        np.zeros(()),
        level.ends.head + np.where(one, level.ends.embedding, 0.0) + gather,
    )
    # Stages between others wait for messages on both sides, the first and the last on one.
    waits = np.where(blocking, software.messages * message, 0.0)
    return _Stages(blocks, dense_blocks_per_stage(case, blocks), edges, waits, gathers, gather)

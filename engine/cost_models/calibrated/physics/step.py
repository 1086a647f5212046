"""One training step: block level once per distinct shape, batch level on gathered figures.

`stage_times` has all that depends on what one microbatch does in one block and at the ends of the model, and runs
microbatches through the stages; here are the parts of that, and what comes once per step. A space evaluates the former
on its few thousand distinct keys (`BLOCK_FIELDS` of the layout) and gathers; `step_times` does both.

Source: the calibration study on 1,147 measured rows.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np

from engine.cost_models.calibrated.physics.communication.sharding import (
    exchange_passes,
    exposed_exchange,
    gradient_exchange,
    tied_exchange,
)
from engine.cost_models.calibrated.physics.inputs import Case, Floats
from engine.cost_models.calibrated.physics.layers.launch import launch_time
from engine.cost_models.calibrated.physics.layers.rates import sustained_rates
from engine.cost_models.calibrated.physics.optimizer import held_by_stage, optimizer_time
from engine.cost_models.calibrated.physics.parameters import Parameters
from engine.cost_models.calibrated.physics.pipeline.schedules import INTERLEAVED, PAIRED, among
from engine.cost_models.calibrated.physics.pipeline.stage_times import (
    BLOCK_FIELDS,
    BlockLevel,
    Flow,
    block_level,
    largest,
    of_kinds,
    pipeline_flow,
    separation_time,
)
from engine.cost_models.calibrated.physics.pipeline.stages import kinds_of
from engine.cost_models.calibrated.physics.pipeline.unequal_stages import pairs_per_stage
from engine.cost_models.calibrated.physics.weights import local_weights

__all__ = [
    "BLOCK_FIELDS",
    "BlockLevel",
    "PipelineLevel",
    "StepTimes",
    "Update",
    "WholeStep",
    "batch_level",
    "block_level",
    "pipeline_level",
    "running_seconds",
    "step_times",
    "straggling",
    "update_level",
    "whole_step",
]


@dataclass(frozen=True, slots=True)
class PipelineParts:
    """Seconds of one step in the pipeline, on the slowest stage [s], arrays [rows].

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
    """Returns the seconds of one step of every row, with its parts [rows] [s].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        p: parameters of a calibration.
    """
    return batch_level(case, block_level(case, p), p)


@dataclass(frozen=True, slots=True)
class PipelineLevel(PipelineParts):
    """All microbatches through the pipeline [s], arrays [rows].

    `running` is the sum of the parts. `window` is the computation that an exchange of gradients can hide behind.
    `computing` is the forward share of linear layers, attention, element-wise work and launches; `repeated_exposed` the
    communication among `recompute`.
    """

    running: Floats
    window: Floats
    computing: Floats
    repeated_exposed: Floats


@dataclass(frozen=True, slots=True)
class Update:
    """Seconds once per step [s]: the exchange of gradients, hidden or not; tied embeddings; the optimizer."""

    exchange: Floats
    tied: Floats
    optimizer: Floats


def running_seconds(case: Case, level: BlockLevel, p: Parameters, *, split: bool = True) -> Floats:
    """Returns the seconds of all microbatches of every row through the pipeline [rows] [s]; `pipeline_level` without
    the parts.

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        level: blocks and ends of every row [s].
        p: parameters of a calibration.
        split: as for `pipeline_flow`.
    """
    return pipeline_flow(case, level, p, split=split).running


def straggling(case: Case, p: Parameters) -> Floats:
    """Returns the share of running time that waiting for the slowest of many processors adds [rows] [dimensionless].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        p: parameters of a calibration.
    """
    # j log2(N / 8): the slowest of N processors, none within one host of 8.
    return p.straggler * np.log2(np.maximum(case.processors / 8.0, 1.0))


class WholeStep(NamedTuple):
    """Seconds of a whole step [s], and the part of them spent waiting for the slowest of many processors [s]."""

    seconds: Floats
    waiting: Floats


def whole_step(
    running: Floats, share: Floats, p: Parameters, *once: Floats, exchange: Floats | None = None
) -> WholeStep:
    """Returns a step from its parts [rows] [s].

    Stragglers stretch the pipeline and the exposed exchange; times once per step are added.

    Args:
        running: seconds of all microbatches through the pipeline [rows] [s].
        share: share from `straggling` [rows] [dimensionless].
        p: parameters of a calibration.
        once: seconds of the update, of tied embeddings and the like, added in this order [rows] [s].
        exchange: seconds of the exchange of gradients that nothing hides [rows] [s]; None without one.
    """
    # T = (t_pipe + t_dp) (1 + j log2(N / 8)) + optimizer + tied embeddings + constant.
    stretched = running if exchange is None else running + exchange
    waiting = stretched * share
    seconds = stretched + waiting
    for each in once:
        seconds = seconds + each
    return WholeStep(seconds + p.step_constant, waiting)


def update_level(case: Case, p: Parameters) -> Update:
    """Returns what every row does once per step [rows] [s]; no figure of a block matters to it.

    Every stage waits for the one whose exchange or update takes longest.

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        p: parameters of a calibration.
    """
    rates = sustained_rates(case.accelerator, case.software.age_years, p)
    host = launch_time(case, p)
    exchange, update = [], []
    for held, held_experts in held_by_stage(case):
        exchange.append(gradient_exchange(case, rates, p, held, held_experts))
        update.append(optimizer_time(case, rates, held, held_experts, host))
    tied = tied_exchange(case, rates, p, local_weights(case).vocabulary)
    found = Update(largest(exchange), tied, largest(update))
    alone = case.forward_only
    if alone is None:
        return found
    return Update(*(np.where(alone, 0.0, getattr(found, each.name)) for each in fields(Update)))


def pipeline_level(case: Case, level: BlockLevel, p: Parameters, flow: Flow | None = None) -> PipelineLevel:
    """Returns all microbatches of every row through the pipeline from its blocks, with the parts [rows] [s].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        level: blocks and ends of every row [s].
        p: parameters of a calibration.
        flow: what `pipeline_flow` returns, where that is known.
    """
    flow = pipeline_flow(case, level, p) if flow is None else flow
    kinds = range(len(kinds_of(case.model)))
    numbers = [flow.of_slowest([stage.blocks[kind] for stage in flow.stages]) for kind in kinds]
    micro, saved = case.microbatches, flow.saved

    def on_path(name: str) -> Floats:
        return np.asarray(micro * of_kinds(numbers, {kind: getattr(b, name) for kind, b in level.kinds.items()}))

    gathered = of_kinds(numbers, {kind: each.forward + each.backward for kind, each in flow.gathers.items()})
    # Embedding or head of the slowest stage; the gather of its vocabulary counts with gathers.
    edge = flow.of_slowest(flow.edges)
    at_edge = np.where(edge > 0, flow.embedding_gather, 0.0)
    whole = micro * flow.of_slowest([load.whole for load in flow.loads])
    of_blocks = (
        "linear",
        "attention",
        "elementwise",
        "recompute",
        "launch",
        "tensor_exposed",
        "context_exposed",
        "expert_exposed",
        "computing",
        "repeated_exposed",
    )
    parts = {name: on_path(name) for name in of_blocks} | {
        "ends": micro * (edge - at_edge),
        "gather_exposed": micro * (gathered + at_edge),
        "pipeline_exposed": micro * flow.of_slowest(flow.waits) + flow.messages + flow.path.late,
        # What the path takes beyond the work of the slowest stage; overlapped pairs have made that shorter.
        # Rounding leaves less than nothing where there is none.
        "bubble": np.maximum(flow.path.seconds - flow.path.late - whole + saved, 0.0),
        "running": flow.running,
        "window": flow.slowest * exchange_passes(case),
    }
    if np.any(case.layout.schedule > INTERLEAVED):
        # A rank that never waits has rounding for a bubble.
        parts["bubble"] = np.maximum(parts["bubble"], 0.0)
        apart = {kind: separation_time(case, block) for kind, block in level.kinds.items()}
        parts["launch"] = parts["launch"] + micro * of_kinds(numbers, apart)
        # Gathers hide behind a pair otherwise than behind its passes one after the other.
        less = {kind: each.forward + each.backward - each.paired for kind, each in flow.gathers.items()}
        gathered = np.where(among(case.layout.schedule, PAIRED), pairs_per_stage(case) * of_kinds(numbers, less), 0.0)
        parts["gather_exposed"] = parts["gather_exposed"] - gathered
        saved = saved - gathered
    # What pairs hide is communication of experts, and waiting for launches that is hidden with it.
    exchanged = np.minimum(saved, parts["expert_exposed"])
    parts["expert_exposed"] = parts["expert_exposed"] - exchanged
    parts["launch"] = parts["launch"] - (saved - exchanged)
    return PipelineLevel(**dict(zip(parts, np.broadcast_arrays(*parts.values()), strict=True)))


def batch_level(case: Case, level: BlockLevel, p: Parameters) -> StepTimes:
    """Returns the seconds of one step of every row from its blocks, with its parts [rows] [s].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        level: blocks and ends of every row [s].
        p: parameters of a calibration.
    """
    flow, once = pipeline_level(case, level, p), update_level(case, p)
    data = exposed_exchange(once.exchange, case.software.overlap_data, flow.window, p)
    whole = whole_step(flow.running, straggling(case, p), p, once.optimizer, once.tied, exchange=data)
    parts = {field.name: getattr(flow, field.name) for field in fields(PipelineParts)} | {
        "data_exposed": data,
        "tied": once.tied,
        "optimizer": once.optimizer,
        "straggler": whole.waiting,
        "fixed": np.asarray(p.step_constant),
        "step": whole.seconds,
    }
    return StepTimes(**dict(zip(parts, np.broadcast_arrays(*parts.values()), strict=True)))

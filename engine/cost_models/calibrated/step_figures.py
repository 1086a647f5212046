"""Figures of a step under their registered names, combined from the pipeline, the update and offloading.

The times of the register's group "Time" add up to the step. Some times of the register combine several of this cost
model: forward and backward hold linear layers, attention, element-wise work, launches, embedding and head (a third of
the last two forward, as one of the head's three products is); data-parallel communication holds gradients, gathers of
sharded weights and tied embeddings.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.cost_models.calibrated.physics.communication.sharding import exposed_exchange
from engine.cost_models.calibrated.physics.inputs import Floats
from engine.cost_models.calibrated.physics.layers.head import EndShares
from engine.cost_models.calibrated.physics.offload import Exposed
from engine.cost_models.calibrated.physics.parameters import Parameters
from engine.cost_models.calibrated.physics.step import PipelineLevel, Update, whole_step

__all__ = ["FlowPart", "StepFigures", "flow_part", "step_part", "with_exchange"]


@dataclass(slots=True)
class FlowPart:
    """The pipeline of a step under the register's names [s], and what the exchange of gradients needs of it."""

    fw_time: Floats
    bw_time: Floats
    recompute_time: Floats
    recomm_exposed_time: Floats
    bubble_time: Floats
    tp_comm_exposed_time: Floats
    pp_comm_exposed_time: Floats
    cp_comm_exposed_time: Floats
    ep_comm_exposed_time: Floats
    gathers: Floats
    running: Floats
    window: Floats


def flow_part(flow: PipelineLevel, shares: EndShares) -> FlowPart:
    """Returns the figures of a step that its pipeline decides [rows] [s].

    Args:
        flow: the pipeline with its parts [rows] [s].
        shares: shares of the ends' seconds by pass, of `end_shares` [rows] [dimensionless].
    """
    forward = flow.computing + shares.forward * flow.ends
    computed = flow.linear + flow.attention + flow.elementwise + flow.launch
    backward = computed - flow.computing + (1.0 - shares.forward) * flow.ends
    if np.ndim(shares.forward):  # rounding leaves something of a pass that does not run
        backward = np.where(np.asarray(shares.forward) >= 1.0, 0.0, backward)
    return FlowPart(
        fw_time=forward,
        bw_time=backward,
        recompute_time=flow.recompute - flow.repeated_exposed,
        recomm_exposed_time=flow.repeated_exposed,
        bubble_time=flow.bubble,
        tp_comm_exposed_time=flow.tensor_exposed,
        pp_comm_exposed_time=flow.pipeline_exposed,
        cp_comm_exposed_time=flow.context_exposed,
        ep_comm_exposed_time=flow.expert_exposed,
        gathers=flow.gather_exposed,
        running=flow.running,
        window=flow.window,
    )


@dataclass(slots=True)
class StepFigures:
    """A step before gradients are exchanged: the figures that do not depend on it, and what the exchange needs [s].

    `computing` is forward, backward and update; `running` what stragglers stretch; `rest` what comes once besides.
    """

    metrics: dict[str, Floats]
    computing: Floats
    running: Floats
    rest: Floats
    window: Floats
    shared: Floats
    """Data-parallel communication other than the exchange [s]."""


def step_part(flow: FlowPart, once: Update, moved: Exposed | None, passes: Floats, perfect: Floats) -> StepFigures:
    """Returns the figures of a step that do not depend on how gradients are exchanged [rows], in the base units of the
    register.

    The exchange hides behind waiting for the second tier as well as behind computation: otherwise a second of
    computation that is saved would come back twice.

    Args:
        flow, once: the pipeline and the update [rows] [s].
        moved: what offloading shows [rows] [s], None if nothing is offloaded.
        passes: microbatches' work that hides the exchange of gradients, from `exchange_passes` [rows] [microbatches].
        perfect: seconds that the model's arithmetic would take at the peak of the matrix units [rows] [s].
    """
    computing = flow.fw_time + flow.bw_time + once.optimizer
    none = np.zeros(np.shape(computing))
    shown = (none, none, none) if moved is None else (moved.forward, moved.backward, moved.update)
    metrics = {
        "compute_efficiency": perfect / computing,
        "fw_time": flow.fw_time,
        "bw_time": flow.bw_time,
        "optim_step_time": once.optimizer,
        "recompute_time": flow.recompute_time,
        "recomm_exposed_time": flow.recomm_exposed_time,
        "bubble_time": flow.bubble_time,
        "tp_comm_exposed_time": flow.tp_comm_exposed_time,
        "pp_comm_exposed_time": flow.pp_comm_exposed_time,
        "fw_offload_exposed_time": shown[0],
        "bw_offload_exposed_time": shown[1] + shown[2],
        "offload_mem_bw_req": none if moved is None else moved.bandwidth,
        "cp_comm_exposed_time": flow.cp_comm_exposed_time,
        "ep_comm_exposed_time": flow.ep_comm_exposed_time,
    }
    return StepFigures(
        metrics,
        computing,
        flow.running + shown[0] + shown[1],
        once.optimizer + once.tied + shown[2],
        flow.window if moved is None else moved.slowest * passes,
        flow.gathers + once.tied,
    )


def with_exchange(
    part: StepFigures,
    exchange: Floats,
    overlapped: Floats,
    *,
    straggling: Floats,
    batch: Floats,
    perfect: Floats,
    p: Parameters,
) -> dict[str, Floats]:
    """Returns the figures that depend on how gradients are exchanged [rows], in the base units of the register.

    Args:
        part: the rest of the step [rows] [s].
        exchange: seconds of the exchange, hidden or not [rows] [s].
        overlapped: 1 where the exchange hides behind computation, 0 where not [rows].
        straggling: share of the running time that waiting for the slowest processor adds [rows] [dimensionless].
        batch: samples per step [rows].
        perfect: as for `step_part` [rows] [s].
        p: parameters of a calibration.
    """
    data = exposed_exchange(exchange, overlapped, part.window, p)
    whole = whole_step(part.running, straggling, p, part.rest, exchange=data)
    return {
        "sample_rate": batch / whole.seconds,
        "total_time": whole.seconds,
        "total_efficiency": perfect / whole.seconds,
        "system_efficiency": part.computing / whole.seconds,
        "dp_comm_exposed_time": data + part.shared,
        "overhead_time": whole.waiting + p.step_constant,
    }

"""Times of each kind of communication on its links in a step, hidden or not.

Equal to the exposed times without any overlap: the same step with every overlap switched off, and a ring without
attention to hide it.

Source: stated by us; the formulas are the formulas of a step.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from engine.cost_models.calibrated.physics.communication.context_parallel import ring
from engine.cost_models.calibrated.physics.inputs import Case, Floats
from engine.cost_models.calibrated.physics.layers.rates import sustained_rates
from engine.cost_models.calibrated.physics.layers.recompute import recomputed
from engine.cost_models.calibrated.physics.parameters import Parameters
from engine.cost_models.calibrated.physics.pipeline.stage_times import block_level, pipeline_flow
from engine.cost_models.calibrated.physics.pipeline.stages import kinds_of
from engine.cost_models.calibrated.physics.pipeline.unequal_stages import message_time
from engine.cost_models.calibrated.physics.step import pipeline_level, update_level

__all__ = ["link_times"]


def link_times(case: Case, p: Parameters) -> dict[str, Floats]:
    """Returns the seconds on the links per step of the slowest stage [rows] [s], by the kind's name in the register's
    exposed times.

    "tp", "recomm" (repeated tensor-parallel communication), "cp", "ep", "pp" and "dp" (gradients, gathers of sharded
    weights and tied embeddings). An interleaved schedule sends a message per chunk, all hidden except the ones that
    fill the pipeline. Communication hidden by overlapped pairs is included.

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        p: parameters of a calibration.
    """
    none = np.zeros(())
    software = replace(
        case.software, overlap_tensor=none, overlap_expert=none, overlap_data=none, overlap_pipeline=none
    )
    alone = replace(case, software=software)
    level = block_level(alone, p)
    flow = pipeline_flow(alone, level, p)
    step, once = pipeline_level(alone, level, p, flow), update_level(alone, p)
    rates = sustained_rates(case.accelerator, case.software.age_years, p)
    forward, backward = ring(alone, rates, p, none, none)
    # Recomputed attention needs its keys and values a second time.
    whole = forward * (1.0 + recomputed(alone).attention) + backward
    kinds = range(len(kinds_of(case.model)))
    exchanged = sum(
        flow.of_slowest([stage.blocks[kind.position] for stage in flow.stages]) * block.expert_exposed
        for kind, block in level.kinds.items()
    )
    blocks = sum(flow.of_slowest([stage.blocks[kind] for stage in flow.stages]) for kind in kinds)
    chunks = case.layout.pipeline_interleaving
    messages = case.microbatches * chunks * software.messages * message_time(case, rates, p)
    # A stage between others has messages on both sides, whether it is the slowest with or without all overlap.
    sides = np.where(case.layout.pipeline_par > 2, 1.0, 0.5)
    every = np.where(chunks == 1, sides * messages + flow.messages, 0.0)
    return {
        "tp": step.tensor_exposed,
        "recomm": step.repeated_exposed,
        "cp": case.microbatches * blocks * whole,
        "ep": case.microbatches * exchanged,
        "pp": np.maximum(step.pipeline_exposed + np.where(chunks > 1, messages, 0.0), every),
        "dp": once.exchange + once.tied + step.gather_exposed,
    }

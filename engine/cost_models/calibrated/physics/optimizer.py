"""Parameters updated by a processor, and the time of the update.

Sources: sharding by ZeRO stages, Rajbhandari et al. 2020; bytes per parameter, the calibration study on 1,147 measured
rows.
"""

from __future__ import annotations

import numpy as np

from engine.cost_models.calibrated.physics.case_cache import once_per_case
from engine.cost_models.calibrated.physics.inputs import Case, Floats
from engine.cost_models.calibrated.physics.layers.rates import SustainedRates
from engine.cost_models.calibrated.physics.pipeline.stages import fullest_stages
from engine.cost_models.calibrated.physics.weights import held_on, local_weights, replicas_of, trained_on

__all__ = ["held_by_stage", "optimizer_time"]

OPTIMIZER_BYTES = 22.0
"""Bytes per owned parameter of an Adam step, without the moments [bytes]. Source: the 38 bytes of the calibration study
on 1,147 measured rows, less 16 of two 32-bit moments in and out. Of these 22, 14 are the step's own reads and writes (4
of the gradient, 8 of the master weight, 2 of the 16-bit weight); the study does not say what the others are."""
MOMENT_PASSES = 4.0
"""Times that a moment's bytes pass per parameter [dimensionless]: two moments, in and out. Source: count of reads and
writes."""
LOCAL_BYTES = 6.0
"""Bytes per local parameter for zeroing and scaling gradients [bytes]. Source: the calibration study on 1,147 measured
rows; stated, not fitted."""
OPTIMIZER_LAUNCHES = 50.0
"""Kernels of the update [kernels]. Source: the calibration study on 1,147 measured rows; stated, not fitted."""


@once_per_case
def held_by_stage(case: Case) -> tuple[tuple[Floats, Floats], ...]:
    """Returns the trained parameters on one processor, outside and inside experts, of every stage that may hold most
    [rows] [elements].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
    """
    local = local_weights(case)
    found = (
        trained_on(case, held_on(case, local, stage, number), stage)
        for number, stage in enumerate(fullest_stages(case))
    )
    return tuple((held.blocks + held.vocabulary, held.experts) for held in found)


def optimizer_time(case: Case, rates: SustainedRates, held: Floats, held_experts: Floats, host: Floats) -> Floats:
    """Returns the seconds of the optimizer's update per step, bound by memory [rows] [s].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        rates: sustained rates of the accelerators [FLOP/s, bytes/s] [rows].
        held, held_experts: parameters on one processor, outside and inside experts [rows] [elements].
        host: host time per kernel [rows] [s].
    """
    layout = case.layout
    replicas, expert_replicas = replicas_of(case)
    sharded = layout.zero_stage >= 1
    # ZeRO stage 1 and up: each replica updates its own share (Rajbhandari et al. 2020, section 5.1).
    owned = held / np.where(sharded, replicas, 1.0)
    owned = owned + held_experts / np.where(sharded, expert_replicas, 1.0)
    local = np.where(layout.fully_sharded > 0, 0.0, held + held_experts)
    each = OPTIMIZER_BYTES + MOMENT_PASSES * case.software.moment_bytes
    # Bound by memory: bytes per parameter over the sustained bandwidth, plus launches.
    return (each * owned + LOCAL_BYTES * local) / rates.memory + OPTIMIZER_LAUNCHES * host

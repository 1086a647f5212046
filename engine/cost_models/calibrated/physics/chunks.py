"""What every stage of the model takes for a microbatch: one chunk of one rank each, for pictures of a schedule.

Source: the calibration study on 1,147 measured rows, as for `stage_times`.
"""

from __future__ import annotations

import numpy as np

from engine.cost_models.calibrated.physics.inputs import Case, Floats
from engine.cost_models.calibrated.physics.parameters import Parameters
from engine.cost_models.calibrated.physics.stage_times import block_level, pipeline_flow
from engine.cost_models.calibrated.physics.stages import KINDS, blocks_of_model_stages

__all__ = ["chunk_seconds"]


def chunk_seconds(case: Case, p: Parameters) -> Floats:
    """Returns what every stage of the model takes for a microbatch, as a share of a chunk of the stage whose path is
    the longest [stages of the model] [dimensionless].

    Args:
        case: shapes, layout, software and accelerators of one row.
        p: parameters of a calibration.
    """
    level, chunks = block_level(case, p), float(np.ravel(case.layout.pipeline_interleaving)[0])
    flow = pipeline_flow(case, level, p)
    held = blocks_of_model_stages(case)
    seconds = np.zeros(held.shape[1])
    for position, kind in enumerate(KINDS):
        if kind in level.kinds:
            block, gathers = level.kinds[kind], flow.gathers[kind]
            each = block.forward + block.backward + gathers.forward + gathers.backward
            seconds = seconds + held[position] * float(np.ravel(each)[0])
    seconds[0] += float(np.ravel(level.ends.embedding + flow.embedding_gather)[0])
    seconds[-1] += float(np.ravel(level.ends.head + flow.embedding_gather)[0])
    slowest = flow.of_slowest([load.whole for load in flow.loads]) - flow.of_slowest(flow.waits)
    return np.asarray(seconds * chunks / float(np.ravel(slowest)[0]))

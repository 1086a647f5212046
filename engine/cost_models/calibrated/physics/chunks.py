"""What every stage of the model takes for a microbatch, one chunk of one rank each, and the options that cut it so.

Source: the calibration study on 1,147 measured rows, as for `stage_times`; options of Megatron-LM,
`megatron/training/arguments.py`.
"""

from __future__ import annotations

import numpy as np

from engine.columns.stage_layouts import BOTH_COUNTED, EMBEDDING_COUNTED, EVEN, LOSS_COUNTED, list_of_layers
from engine.cost_models.calibrated.physics.inputs import Case, Floats
from engine.cost_models.calibrated.physics.layouts import layout_at
from engine.cost_models.calibrated.physics.parameters import Parameters
from engine.cost_models.calibrated.physics.schedules import COMBINED, INTERLEAVED, ONE_F_ONE_B
from engine.cost_models.calibrated.physics.stage_times import block_level, pipeline_flow
from engine.cost_models.calibrated.physics.stages import KINDS, blocks_of_model_stages

__all__ = ["chunk_seconds", "megatron_options"]


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


def megatron_options(case: Case) -> str:
    """Returns the options with which Megatron-LM cuts the model into a row's stages; empty where it needs none, or does
    not have the schedule.

    Args:
        case: shapes, layout, software and accelerators of one row.
    """
    stages, number = (int(np.ravel(each)[0]) for each in (case.layout.pipeline_par, case.layout.stage_layout))
    sizes = blocks_of_model_stages(case).sum(axis=0).astype(int).tolist()
    offered = int(np.ravel(case.layout.schedule)[0]) in (ONE_F_ONE_B, INTERLEAVED, COMBINED)
    if stages == 1 or not offered or (number == EVEN and len(set(sizes)) == 1):
        return ""
    asked = layout_at(number)
    counted = {EMBEDDING_COUNTED: ("embedding",), LOSS_COUNTED: ("loss",), BOTH_COUNTED: ("embedding", "loss")}
    if asked.rule in counted:
        return " ".join(f"--account-for-{end}-in-pipeline-split" for end in counted[asked.rule])
    ends = [(name, size) for name, size in (("first", asked.first), ("last", asked.last)) if size is not None]
    if ends:
        return " ".join(f"--decoder-{name}-pipeline-num-layers {size}" for name, size in ends)
    # A list may say where predictions are, which are no blocks.
    listed = asked.word if asked.layers else list_of_layers(sizes)
    return f"--pipeline-model-parallel-layout '{listed}'"

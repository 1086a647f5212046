"""The calibrated cost model: step time and memory as measured runs show them.

`case_of` turns a model, a system and a table of executions into arrays; `step_times` and `memory_use` evaluate them;
`block_level` and `batch_level` are the two halves of a step for spaces whose executions share blocks. `parameters()`
are the values of the shipped calibration, `library_calibration()` the document with their sources, and
`effective_rates(system)` what an accelerator sustains by it, and how well that is founded.
"""

from engine.cost_models.calibrated.case_building import case_of, model_shapes
from engine.cost_models.calibrated.effective import accelerator_error, effective_rates
from engine.cost_models.calibrated.physics.inputs import Accelerators, Case, Layout, ModelShapes, Software
from engine.cost_models.calibrated.physics.memory import MemoryUse, memory_use
from engine.cost_models.calibrated.physics.parameters import (
    FITTED,
    Parameters,
    library_calibration,
    parameters,
    parameters_of,
)
from engine.cost_models.calibrated.physics.step import (
    BLOCK_FIELDS,
    BlockLevel,
    StepTimes,
    batch_level,
    block_level,
    step_times,
)
from engine.cost_models.calibrated.systems import accelerator_of, calibrated, generation_of, system_named

__all__ = [
    "BLOCK_FIELDS",
    "FITTED",
    "Accelerators",
    "BlockLevel",
    "Case",
    "Layout",
    "MemoryUse",
    "ModelShapes",
    "Parameters",
    "Software",
    "StepTimes",
    "accelerator_error",
    "accelerator_of",
    "batch_level",
    "block_level",
    "calibrated",
    "case_of",
    "effective_rates",
    "generation_of",
    "library_calibration",
    "memory_use",
    "model_shapes",
    "parameters",
    "parameters_of",
    "step_times",
    "system_named",
]

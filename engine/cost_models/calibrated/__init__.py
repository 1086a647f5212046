"""The calibrated cost model: step time and memory, fitted to measured runs.

`__all__` is the public interface for rooms with the same physics (`serving`, `calibrate`, `validation`, `measure`); the
modules inside are private.

- Whole: `CALIBRATED` is the cost model. `case_of` turns a model, a system and a table of executions into arrays, a
  `Case`; `step_times` and `memory_use` evaluate them; `block_level` and `batch_level` are the two halves of a step for
  spaces whose executions share blocks.
- Values: `parameters()` returns the values of the shipped calibration, `library_calibration()` the document with their
  sources, `parameters_of` the values of any calibration; `effective_rates(system)` are the sustained rates of an
  accelerator by it, with their provenance; `aspects` are the properties of a case that need a measured run.
- Single effects, each by its formula in `physics`: products (`gemm`, `LinearLayer`, `MatrixUnit`), attention, kernels
  over elements (`norms`, `activation`, `casts`), collectives and messages, experts and their `exchange`, head,
  launches, sustained rates, weights.
"""

from engine.cost_models.calibrated.case_building import SOFTWARE_DEFAULTS, case_of, model_shapes
from engine.cost_models.calibrated.cost_model import CALIBRATED
from engine.cost_models.calibrated.effective import accelerator_error, effective_rates
from engine.cost_models.calibrated.fields import DISPATCH_BYTES, layer_rules, undivided_sizes
from engine.cost_models.calibrated.measured import MEASURED_FILE, OFFLOADS, aspects, generation_words, kind_words
from engine.cost_models.calibrated.physics.communication.collectives import collective, network_tiers
from engine.cost_models.calibrated.physics.communication.expert_exchange import exchange
from engine.cost_models.calibrated.physics.communication.networks import LARGEST_HOST, farthest
from engine.cost_models.calibrated.physics.formats import DATATYPES, LINEAR_BITS, LINEAR_FORMATS
from engine.cost_models.calibrated.physics.inputs import (
    ATTENTION_KERNELS,
    CONTEXT_EXCHANGES,
    DISPATCHERS,
    GENERATIONS,
    LAUNCHES,
    RECOMPUTES,
    SIZES,
    Accelerators,
    Case,
    Layout,
    ModelShapes,
    Software,
)
from engine.cost_models.calibrated.physics.layers.attention import attention_core, kernel_rate
from engine.cost_models.calibrated.physics.layers.block import attention_layers, feedforward_layers, tensor_exchange
from engine.cost_models.calibrated.physics.layers.elementwise import activation, casts, norms
from engine.cost_models.calibrated.physics.layers.experts import PERMUTE_BYTES, active_width, expert_layers
from engine.cost_models.calibrated.physics.layers.gemm import TILE, LinearLayer, MatrixUnit, computing, gemm
from engine.cost_models.calibrated.physics.layers.head import EMBEDDING_FORWARD, LOGIT_FORWARD, head_layer
from engine.cost_models.calibrated.physics.layers.launch import EXPERTS_FORWARD, block_launches, launch_time
from engine.cost_models.calibrated.physics.layers.pattern_blocks import (
    inner_sum,
    local_products,
    mixing_time,
    scan_bandwidth,
    sent_case,
)
from engine.cost_models.calibrated.physics.layers.rates import SustainedRates, power_factor, sustained_rates
from engine.cost_models.calibrated.physics.layers.views import layer_cases, modelled_layers, split_sizes
from engine.cost_models.calibrated.physics.memory import ProcessorMemory, memory_use
from engine.cost_models.calibrated.physics.parameters import (
    FITTED,
    SUSTAINED,
    Parameters,
    largest,
    library_calibration,
    parameters,
    parameters_of,
)
from engine.cost_models.calibrated.physics.pipeline.schedules import (
    SCHEDULES,
    interleaved_where,
    plain_schedule,
    refusals,
)
from engine.cost_models.calibrated.physics.pipeline.unequal_stages import message_time
from engine.cost_models.calibrated.physics.step import (
    BLOCK_FIELDS,
    BlockLevel,
    StepTimes,
    batch_level,
    block_level,
    step_times,
)
from engine.cost_models.calibrated.physics.weights import (
    attention_weights,
    dense_weights,
    embedding_weights,
    expert_weights,
    router_weights,
    shared_weights,
)
from engine.cost_models.calibrated.systems import accelerator_of, calibrated, generation_of, system_named

__all__ = [
    "ATTENTION_KERNELS",
    "BLOCK_FIELDS",
    "CALIBRATED",
    "CONTEXT_EXCHANGES",
    "DATATYPES",
    "DISPATCHERS",
    "DISPATCH_BYTES",
    "EMBEDDING_FORWARD",
    "EXPERTS_FORWARD",
    "FITTED",
    "GENERATIONS",
    "LARGEST_HOST",
    "LAUNCHES",
    "LINEAR_BITS",
    "LINEAR_FORMATS",
    "LOGIT_FORWARD",
    "MEASURED_FILE",
    "OFFLOADS",
    "PERMUTE_BYTES",
    "RECOMPUTES",
    "SCHEDULES",
    "SIZES",
    "SOFTWARE_DEFAULTS",
    "SUSTAINED",
    "TILE",
    "Accelerators",
    "BlockLevel",
    "Case",
    "Layout",
    "LinearLayer",
    "MatrixUnit",
    "ModelShapes",
    "Parameters",
    "ProcessorMemory",
    "Software",
    "StepTimes",
    "SustainedRates",
    "accelerator_error",
    "accelerator_of",
    "activation",
    "active_width",
    "aspects",
    "attention_core",
    "attention_layers",
    "attention_weights",
    "batch_level",
    "block_launches",
    "block_level",
    "calibrated",
    "case_of",
    "casts",
    "collective",
    "computing",
    "dense_weights",
    "effective_rates",
    "embedding_weights",
    "exchange",
    "expert_layers",
    "expert_weights",
    "farthest",
    "feedforward_layers",
    "gemm",
    "generation_of",
    "generation_words",
    "head_layer",
    "inner_sum",
    "interleaved_where",
    "kernel_rate",
    "kind_words",
    "largest",
    "launch_time",
    "layer_cases",
    "layer_rules",
    "library_calibration",
    "local_products",
    "memory_use",
    "message_time",
    "mixing_time",
    "model_shapes",
    "modelled_layers",
    "network_tiers",
    "norms",
    "parameters",
    "parameters_of",
    "plain_schedule",
    "power_factor",
    "refusals",
    "router_weights",
    "scan_bandwidth",
    "sent_case",
    "shared_weights",
    "split_sizes",
    "step_times",
    "sustained_rates",
    "system_named",
    "tensor_exchange",
    "undivided_sizes",
]

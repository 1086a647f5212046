"""DistIR's simulator: a multilayer perceptron under data, horizontal and pipeline parallelism, in three revisions.

Source: Santhanam et al., "DistIR: An Intermediate Representation for Optimizing Distributed Neural Networks"
(EuroMLSys 2021; arXiv:2111.05426), and its code, microsoft/dist-ir. `cost_models` lists the differences of the
revisions. They cost ops of this simulator only: executions of a model have the cost models of `engine.cost_models`.
"""

from engine.reproductions.distir.simulator.calibration import (
    Constants,
    agreement,
    fit_kernels,
    fit_steps,
    load_constants,
    measured_steps,
    overlay,
    parse_measured,
    read_measured,
)
from engine.reproductions.distir.simulator.configurations import style
from engine.reproductions.distir.simulator.cost_models import REVISIONS, Allreduce, DistIRCostModel
from engine.reproductions.distir.simulator.errors import ConfigurationError
from engine.reproductions.distir.simulator.evaluation import grid
from engine.reproductions.distir.simulator.figures import envelopes, over_devices, with_speedup
from engine.reproductions.distir.simulator.records import Records
from engine.reproductions.distir.simulator.searching import (
    MODEL_SIZES,
    RULES,
    STYLES,
    ModelSize,
    configurations,
    pareto,
    search,
    top_configurations,
)
from engine.reproductions.distir.simulator.timelines import DistIRTimeline, timeline

__all__ = [
    "MODEL_SIZES",
    "REVISIONS",
    "RULES",
    "STYLES",
    "Allreduce",
    "ConfigurationError",
    "Constants",
    "DistIRCostModel",
    "DistIRTimeline",
    "ModelSize",
    "Records",
    "agreement",
    "configurations",
    "envelopes",
    "fit_kernels",
    "fit_steps",
    "grid",
    "load_constants",
    "measured_steps",
    "over_devices",
    "overlay",
    "pareto",
    "parse_measured",
    "read_measured",
    "search",
    "style",
    "timeline",
    "top_configurations",
    "with_speedup",
]

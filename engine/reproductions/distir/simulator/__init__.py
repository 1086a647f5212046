"""DistIR's simulator: a multilayer perceptron under data, horizontal and pipeline parallelism, in three revisions.

Source: Santhanam et al., "DistIR: An Intermediate Representation for Optimizing Distributed Neural Networks"
(EuroMLSys 2021; arXiv:2111.05426), and its code, microsoft/dist-ir. What the three revisions do differently stands in
`cost_models`; they are of the simulator only, and no cost models of executions.
"""

from engine.simulate.distir.calibration import (
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
from engine.simulate.distir.configurations import style
from engine.simulate.distir.cost_models import REVISIONS, Allreduce, DistIRCostModel
from engine.simulate.distir.errors import ConfigurationError
from engine.simulate.distir.evaluation import grid
from engine.simulate.distir.figures import envelopes, over_devices, with_speedup
from engine.simulate.distir.records import Records
from engine.simulate.distir.searching import (
    MODEL_SIZES,
    RULES,
    STYLES,
    ModelSize,
    configurations,
    pareto,
    search,
    top_configurations,
)
from engine.simulate.distir.timelines import DistIRTimeline, timeline

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

"""DistIR's simulator: a multilayer perceptron under data, horizontal and pipeline parallelism, in three revisions.

Source: Santhanam et al., "DistIR: An Intermediate Representation for Optimizing Distributed Neural Networks"
(EuroMLSys 2021; arXiv:2111.05426), and its code, microsoft/dist-ir.
"""

from engine.simulate.distir.configurations import ConfigurationError
from engine.simulate.distir.cost_models import REVISIONS, Allreduce, CostModel
from engine.simulate.distir.grid import grid

__all__ = ["REVISIONS", "Allreduce", "ConfigurationError", "CostModel", "grid"]

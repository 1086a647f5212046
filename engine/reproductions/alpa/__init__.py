"""Zheng et al., "Alpa: Automating Inter- and Intra-Operator Parallelism for Distributed Deep Learning" (OSDI 2022).

Its solver for chains of linear layers, in its own units, and its model suites. The planner knows their models by name,
such as "gpt F", once this package is imported.
"""

from engine.planners.intra_operator.named_models import register_models
from engine.reproductions.alpa.figures import PAPER
from engine.reproductions.alpa.suite_models import SuiteModels

__all__ = ["PAPER"]

register_models("suites", SuiteModels())

"""Layer-wise planning: a profile of layers divided into pipeline stages with replicas, as DAPPLE's planner does it.

Fan et al., "DAPPLE: A Pipelined Data Parallel Approach for Training Large Models" (PPoPP 2021). Mode `paper`
finds the optimum of the paper's latency. Mode `released` plans in milliseconds, with the figures of HPGO 0.9.2, the
authors' program.
"""

from engine.planners.layerwise.planner import plan, solve
from engine.planners.layerwise.problem import LayerwiseProblem
from engine.planners.layerwise.result import Candidate, LayerStage, LayerwisePlan

__all__ = ["Candidate", "LayerStage", "LayerwisePlan", "LayerwiseProblem", "plan", "solve"]

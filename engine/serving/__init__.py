"""Serving: prefill and decode of a model on a system, modelled with the rates of the calibrated cost model.

    from engine import inference
    found = inference.explore("llama-3-70B", "h100_80g_sxm", num_procs=8, prompt=1024, output=256)
    found.best, found.frontier

`evaluate` returns the figures of a table of deployments, `explore` the figures of every deployment of a space. All
figures are modelled: the calibration rests on training runs, and no measured serving run was used to fit anything.
"""

from engine.cost_models.calibrated import library_calibration
from engine.serving.assumptions import Assumptions
from engine.serving.columns import FIELDS, FIGURES, HEADLINE, MEMORY_PARTS, STEP_PARTS, by_name
from engine.serving.deployments import DeploymentTableError
from engine.serving.evaluation import WorkloadError, evaluate
from engine.serving.exploration import ServingExploration, explore
from engine.serving.reasons import REASONS
from engine.serving.shapes import not_represented
from engine.serving.space import DeploymentSpace, ServingLimitError, SpaceTooLarge

__all__ = [
    "FIELDS",
    "FIGURES",
    "HEADLINE",
    "MEMORY_PARTS",
    "REASONS",
    "STEP_PARTS",
    "Assumptions",
    "DeploymentSpace",
    "DeploymentTableError",
    "ServingExploration",
    "ServingLimitError",
    "SpaceTooLarge",
    "WorkloadError",
    "by_name",
    "evaluate",
    "explore",
    "library_calibration",
    "not_represented",
]

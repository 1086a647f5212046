"""Serving: prefill and decode of a model on a system, by constants fitted to measured kernels and servers.

    from engine import inference
    found = inference.explore("llama-3-70B", "h100_80g_sxm", num_procs=8, prompt=1024, output=256)
    found.best, found.frontier

`evaluate` returns the figures of a table of deployments, `explore` the figures of every deployment of a space,
`recommend_deployment` the one to run, `try_changes` what other GPUs, lengths or limits change,
`figure_ranges` the ranges in which comparable servers were measured, and `size_service` the fewest GPUs that hold
limits under a load; `size_pools` does that with prefill and decode in pools of their own.
"""

from engine.cost_models.calibrated import library_calibration
from engine.serving.arrivals import RequestTrace, ServiceLoad, read_trace
from engine.serving.assumptions import Assumptions
from engine.serving.changes import ChangedDeployment, try_changes
from engine.serving.columns import FIELDS, FIGURES, HEADLINE, MEMORY_PARTS, SERVICE_FIGURES, STEP_PARTS, by_name
from engine.serving.comparison import DeploymentComparison, compare_deployments
from engine.serving.deployments import DeploymentTableError
from engine.serving.evaluation import WorkloadError, evaluate
from engine.serving.exploration import ServingExploration, explore
from engine.serving.factors import EngineFactors, FactorError
from engine.serving.pools import PoolService, PoolSizing, compare_services, size_pools
from engine.serving.reasons import REASONS
from engine.serving.recommended import DeploymentRecommendation, deployment_name, recommend_deployment
from engine.serving.services import ServiceSizing, size_service
from engine.serving.shapes import not_represented
from engine.serving.space import DeploymentSpace, ServingLimitError, SpaceTooLarge
from engine.serving.uncertainty import FigureRange, figure_ranges

__all__ = [
    "FIELDS",
    "FIGURES",
    "HEADLINE",
    "MEMORY_PARTS",
    "REASONS",
    "SERVICE_FIGURES",
    "STEP_PARTS",
    "Assumptions",
    "ChangedDeployment",
    "DeploymentComparison",
    "DeploymentRecommendation",
    "DeploymentSpace",
    "DeploymentTableError",
    "EngineFactors",
    "FactorError",
    "FigureRange",
    "PoolService",
    "PoolSizing",
    "RequestTrace",
    "ServiceLoad",
    "ServiceSizing",
    "ServingExploration",
    "ServingLimitError",
    "SpaceTooLarge",
    "WorkloadError",
    "by_name",
    "compare_deployments",
    "compare_services",
    "deployment_name",
    "evaluate",
    "explore",
    "figure_ranges",
    "library_calibration",
    "not_represented",
    "read_trace",
    "recommend_deployment",
    "size_pools",
    "size_service",
    "try_changes",
]

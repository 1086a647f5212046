"""The engine: every execution of a model on a system, evaluated exactly."""

from engine import launch
from engine.cost_models.contract import CostModelError, LayerError
from engine.cost_models.registry import COST_MODELS
from engine.executions.limits import LimitError
from engine.executions.table import ExecutionTableError
from engine.exploration.proven_optimum import Optimum, best, best_of
from engine.exploration.result import Exploration
from engine.exploration.run import ExplorationCancelled, ExplorationTooLarge, Progress, explore, explore_scenario
from engine.scenarios.dispatch import evaluate, operations
from engine.scenarios.scenario import Scenario, ScenarioError
from engine.space.space import Space, SpaceError

__all__ = [
    "COST_MODELS",
    "CostModelError",
    "ExecutionTableError",
    "Exploration",
    "ExplorationCancelled",
    "ExplorationTooLarge",
    "LayerError",
    "LimitError",
    "Optimum",
    "Progress",
    "Scenario",
    "ScenarioError",
    "Space",
    "SpaceError",
    "best",
    "best_of",
    "evaluate",
    "explore",
    "explore_scenario",
    "launch",
    "operations",
]

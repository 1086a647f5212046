"""The engine: every execution of a model on a system, evaluated exactly."""

from engine.cost_models.calculon.evaluation import evaluate
from engine.cost_models.calculon.layer_table import LayerError, layer_table
from engine.cost_models.calibrated.operation_table import operation_table
from engine.cost_models.names import COST_MODELS, CostModelError
from engine.executions.limits import LimitError
from engine.executions.table import ExecutionTableError
from engine.exploration.result import Exploration
from engine.exploration.run import ExplorationCancelled, ExplorationTooLarge, Progress, explore, explore_scenario
from engine.exploration.search import Optimum, best, best_of
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
    "layer_table",
    "operation_table",
]

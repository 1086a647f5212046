"""The engine: every execution of a model on a system, evaluated exactly."""

from engine.cost_model_names import COST_MODELS, CostModelError
from engine.evaluate import evaluate
from engine.execution import ExecutionTableError
from engine.exploration import Exploration
from engine.explore import ExplorationCancelled, ExplorationTooLarge, Progress, explore, explore_scenario
from engine.layer_table import LayerError, layer_table
from engine.limits import LimitError
from engine.operation_table import operation_table
from engine.scenario import Scenario, ScenarioError
from engine.search import Optimum, best, best_of
from engine.space import Space, SpaceError

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

"""The engine: every execution of a model on a system, evaluated exactly."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from engine.cost_models.contract import CostModelError, LayerError
from engine.cost_models.registry import COST_MODELS
from engine.executions.limits import LimitError
from engine.executions.table import ExecutionTableError
from engine.executions.work_sizes import WorkSizes, set_work_sizes, working_in
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
    "WorkSizes",
    "best",
    "best_of",
    "evaluate",
    "explore",
    "explore_scenario",
    "operations",
    "set_work_sizes",
    "working_in",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Returns a room that stands above those imported here, when it is asked for first: `engine.launch`."""
        if name == "launch":
            return import_module("engine.launch")
        raise AttributeError(f"module 'engine' has no attribute {name!r}")

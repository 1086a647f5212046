"""The engine: every execution of a model on a system, evaluated exactly.

Names are loaded when they are first used, so that a program loads only the modules that it uses.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.cost_models.contract import CostModelError, LayerError
    from engine.cost_models.registry import COST_MODELS
    from engine.executions.limits import LimitError
    from engine.executions.table import ExecutionTableError
    from engine.executions.work_sizes import WorkSizes, set_work_sizes, working_in
    from engine.exploration.proven_optimum import Optimum, best, best_of
    from engine.exploration.result import Exploration
    from engine.exploration.run import ExplorationCancelled, ExplorationTooLarge, Progress, explore, explore_scenario
    from engine.scenarios.dispatch import evaluate, evaluate_forward, operations
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
    "evaluate_forward",
    "explore",
    "explore_scenario",
    "operations",
    "set_work_sizes",
    "working_in",
]

if not TYPE_CHECKING:
    _MODULES = {
        "cost_models.contract": ("CostModelError", "LayerError"),
        "cost_models.registry": ("COST_MODELS",),
        "executions.limits": ("LimitError",),
        "executions.table": ("ExecutionTableError",),
        "executions.work_sizes": ("WorkSizes", "set_work_sizes", "working_in"),
        "exploration.proven_optimum": ("Optimum", "best", "best_of"),
        "exploration.result": ("Exploration",),
        "exploration.run": ("ExplorationCancelled", "ExplorationTooLarge", "Progress", "explore", "explore_scenario"),
        "scenarios.dispatch": ("evaluate", "evaluate_forward", "operations"),
        "scenarios.scenario": ("Scenario", "ScenarioError"),
        "space.space": ("Space", "SpaceError"),
    }
    _HOMES = {name: f"engine.{module}" for module, names in _MODULES.items() for name in names}
    _ROOMS = ("columns", "cost_models", "executions", "exploration", "launch", "scenarios", "space", "store")

    def __getattr__(name: str) -> Any:
        """Return a public name, or a room such as `engine.launch`, when it is first used."""
        if name in _ROOMS:
            return import_module(f"engine.{name}")
        if name not in _HOMES:
            raise AttributeError(f"module 'engine' has no attribute {name!r}")
        globals()[name] = found = getattr(import_module(_HOMES[name]), name)
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__, *_ROOMS})

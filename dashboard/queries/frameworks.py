"""Cost of a framework for a scenario, in the form that pages show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dashboard.compat.caches import remembered
from engine import LimitError, Scenario, launch
from engine.launch import FrameworkCost, LaunchError
from engine.space.space import SpaceError

__all__ = ["framework_cost", "model_refusal", "obstacles"]


@remembered(64, copied=False)
def framework_cost(_scenario: Scenario, key: str, framework: str) -> FrameworkCost | None:
    """Return what a framework costs; None for scenarios whose cost model takes no framework.

    key: of the scenario. framework: word of a framework.
    """
    try:
        return launch.find_framework_cost(_scenario, framework)
    except (LimitError, SpaceError):
        return None


def model_refusal(scenario: Scenario) -> str:
    """Return why the framework of a scenario does not train its model, a sentence; empty where it does."""
    return launch.find_model_refusal(scenario.model, scenario.framework, scenario.datatype)


def obstacles(scenario: Scenario, execution: Mapping[Any, Any], framework: str) -> tuple[str, ...]:
    """Return what an execution has that a framework does not run as it is, nouns."""
    try:
        return launch.list_obstacles(scenario, execution, framework)
    except (LaunchError, ValueError):
        return ()

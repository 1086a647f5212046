"""Cost of a framework for a scenario, and the execution that it runs, in the form that pages show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dashboard.compat.caches import remembered
from engine import LimitError, Scenario, launch
from engine.launch import FrameworkCost, LaunchError
from engine.questions.documents.explorations import FiguresQuestion
from engine.questions.shown_executions import find_shown
from engine.recommendation import ShownExecution
from engine.space.space import SpaceError

__all__ = ["framework_cost", "framework_execution", "model_refusal", "obstacles"]


@remembered(64, copied=False)
def framework_cost(_scenario: Scenario, key: str, framework: str) -> FrameworkCost | None:
    """Return what a framework costs; None for scenarios whose cost model takes no framework.

    key: of the scenario. framework: word of a framework.
    """
    try:
        return launch.find_framework_cost(_scenario, framework)
    except (LimitError, SpaceError):
        return None


def framework_execution(own: Scenario, asked: FiguresQuestion) -> ShownExecution | None:
    """Return the execution of a framework that pages show, evaluated; None if it runs nothing.

    own: scenario with the framework. asked: the choice of the recommended or the fastest, and its terms.
    """
    return _find_execution(own, own.key, asked, asked.model_dump_json())


@remembered(64, copied=False, spinner="Searching what the framework runs.")
def _find_execution(_own: Scenario, key: str, _asked: FiguresQuestion, terms: str) -> ShownExecution | None:
    return find_shown(_own, _asked)


def model_refusal(scenario: Scenario) -> str:
    """Return why the framework of a scenario does not train its model, a sentence; empty where it does."""
    return launch.find_model_refusal(scenario.model, scenario.framework, scenario.datatype)


def obstacles(scenario: Scenario, execution: Mapping[Any, Any], framework: str) -> tuple[str, ...]:
    """Return what an execution has that a framework does not run as it is, nouns."""
    try:
        return launch.list_obstacles(scenario, execution, framework)
    except (LaunchError, ValueError):
        return ()

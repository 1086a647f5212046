"""Cost of a choice of framework: the best execution that it runs, next to the best of all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from engine.columns import ALL_FIELDS, by_name
from engine.cost_models.registry import cost_model_of
from engine.executions.frameworks.contract import LaunchSubject, refusals_of
from engine.executions.frameworks.registry import ANY
from engine.executions.limits import framework_limit
from engine.exploration.proven_optimum import best_of
from engine.exploration.run import Cancel
from engine.launch.contract import LaunchError
from engine.launch.conversion import complete, write
from engine.launch.registry import framework_of
from engine.scenarios.scenario import Scenario
from models import Model

__all__ = ["FrameworkCost", "find_framework_cost", "find_model_refusal", "list_obstacles", "with_framework"]


@dataclass(frozen=True)
class FrameworkCost:
    """Best execution that a framework runs, next to the best of all executions of the scenario.

    Rows have `id`, fields and statistics by name; None where nothing runs.
    """

    scenario: Scenario
    """The scenario with the framework, whose ids `best` has."""
    title: str
    """Name of the framework."""
    best: Mapping[str, Any] | None
    fastest: Mapping[str, Any] | None
    """Best execution of any framework, with ids of the scenario without one."""
    obstacles: tuple[str, ...]
    """Properties of the fastest that the framework does not run, nouns; empty where the framework runs it."""
    refusal: str
    """Sentence that refuses the model in any execution; empty where the framework trains it."""

    @property
    def slowdown(self) -> float | None:
        """Share of the throughput of the fastest that the framework's best lacks [dimensionless]; None where either
        does not run."""
        if self.best is None or self.fastest is None:
            return None
        return 1.0 - float(self.best["sample_rate"]) / float(self.fastest["sample_rate"])

    @property
    def sentence(self) -> str:
        """Say in a sentence what the framework costs."""
        if self.refusal:
            return self.refusal
        if self.fastest is None:
            return f"Nothing runs, with {self.title} or without."
        needs = f", which needs {_listed(self.obstacles)}" if self.obstacles else ""
        if self.best is None or self.slowdown is None:
            why = f" The fastest of all needs {_listed(self.obstacles)}." if self.obstacles else ""
            return f"{self.title} runs no execution of this scenario.{why}"
        if self.slowdown == 0.0:
            return f"{self.title} runs the fastest of all executions."
        share = 100.0 * self.slowdown
        shown = f"{share:.1f} %" if share >= 0.1 else "less than 0.1 %"
        return f"The fastest with {self.title} is {shown} slower than the fastest of all{needs}."


def _listed(words: tuple[str, ...]) -> str:
    if len(words) > 3:
        words = (*words[:3], f"{len(words) - 3} more")
    if any("," in each for each in words):
        return "; ".join(words)
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def with_framework(scenario: Scenario, framework: str) -> Scenario:
    """Return a scenario whose executions a framework runs.

    Args:
        scenario: any.
        framework: word of a framework, or `any`.

    Raises `engine.LimitError` for an unknown framework, or a cost model that takes none.
    """
    further = framework_limit(framework, scenario.cost_model)
    limits = {**scenario.field_limits, **{name: word for name, word in further.items() if word != ANY}}
    return replace(scenario, limits=dict(sorted(limits.items())))


def find_framework_cost(scenario: Scenario, framework: str, *, cancel: Cancel | None = None) -> FrameworkCost:
    """Return the best execution that a framework runs, next to the best of all.

    Args:
        scenario: with any framework, which is not read.
        framework: word of a framework.
        cancel: a function or event that asks to stop.

    Raises what `engine.best` raises.
    """
    chosen, free = framework_of(framework), with_framework(scenario, ANY)
    own = with_framework(scenario, chosen.name)
    refusal = find_model_refusal(scenario.model, chosen.name, scenario.datatype)
    fastest = best_of(free, cancel=cancel)
    best = {} if refusal else best_of(own, cancel=cancel)
    obstacles = list_obstacles(free, fastest, chosen.name) if fastest else ()
    return FrameworkCost(own, chosen.title, dict(best) or None, dict(fastest) or None, obstacles, refusal)


def find_model_refusal(model: Model, framework: str, datatype: str) -> str:
    """Return why a framework does not train a model in a datatype, however it is split; empty where it does.

    Args:
        model: any.
        framework: word of a framework.
        datatype: of its products.
    """
    degrees = ("num_procs", "tensor_par", "pipeline_par", "data_par", "batch_size", "microbatch_size")
    alone: dict[str, Any] = {**dict.fromkeys(degrees, 1), "datatype": datatype, "training": True}
    try:
        write(alone, model, framework=framework)
    except LaunchError as problem:
        return str(problem)
    return ""


def list_obstacles(scenario: Scenario, execution: Mapping[str, Any], framework: str) -> tuple[str, ...]:
    """Return what an execution has that a framework does not run, nouns; empty where it runs the execution.

    Args:
        scenario: of the execution.
        execution: its fields by name; absent ones have their default.
        framework: word of a framework.

    Raises `LaunchError` for an invalid execution.
    """
    fields = complete(execution)
    words = by_name("stage_layout").words

    def stage_blocks(pipeline: int, chunks: int, layout: int) -> tuple[int, ...]:
        word = words[layout] if layout < len(words) else str(fields["stage_layout"])
        return cost_model_of(scenario).stage_cut(scenario.model, pipeline, chunks, word).blocks

    columns = {
        column.name: np.array([_code_of(column.name, fields[column.name])])
        for column in ALL_FIELDS
        if fields[column.name] is not None and column.name != "datatype"
    }
    columns.setdefault("attention_kernel", np.array([_code_of("attention_kernel", "native")]))
    subject = LaunchSubject(scenario.model, str(fields["datatype"]), stage_blocks)
    rules = framework_of(framework).rules
    found = refusals_of(rules, columns, subject)
    return tuple(reason for reason, where in found.items() if np.any(where))


def _code_of(name: str, value: Any) -> Any:
    column = by_name(name)
    return column.position(value) if column.dtype == "str" else value

"""Scenarios in words: titles, and the rest of one in a few words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from engine import Scenario
from engine.columns import choice_label
from engine.cost_models.registry import cost_model_of
from engine.executions.frameworks.registry import ANY, FRAMEWORK_RULES
from hardware import System

__all__ = ["in_words", "name_of", "sentence_of", "system_name", "system_titles"]


def in_words(scenario: Scenario) -> str:
    """Returns the cost model as the sentence names it: "calibrated", "calibrated by mine", "exact as Calculon
    0.1.0"."""
    title = cost_model_of(scenario).words.title
    return title if scenario.calibration is None else f"{title} by {scenario.calibration.name}"


def system_name(system: System) -> str:
    """Returns the title of a system without the remark in brackets."""
    return (system.title or system.name).partition(" (")[0]


def system_titles(systems: Mapping[str, System]) -> dict[str, str]:
    """Returns short titles of systems for a list, by their names; the size of the innermost network appears only if
    titles would be equal without it."""
    whole = {name: system_name(system) for name, system in systems.items()}
    short = {name: title.partition(", ")[0] for name, title in whole.items()}
    often = Counter(short.values())
    return {name: short[name] if often[short[name]] == 1 else title for name, title in whole.items()}


def name_of(scenario: Scenario) -> str:
    """Returns a title for an untitled scenario: "GPT-3 175B on 512 × H100 80 GB"."""
    model = scenario.model.title or scenario.model.name
    return f"{model} on {scenario.num_procs:,} × {system_name(scenario.system)}"


def sentence_of(scenario: Scenario) -> str:
    """Returns the rest of a scenario in a few words: "FP16 · batch 512 · 3 limits · calibrated"."""
    words = [choice_label("datatype", scenario.datatype), f"batch {scenario.max_batch_size:,}"]
    if limits := scenario.field_limits:
        words.append(f"{len(limits)} limit{'s' if len(limits) != 1 else ''}")
    if scenario.framework != ANY:
        words.append(FRAMEWORK_RULES[scenario.framework].title)
    words.append("exact" if cost_model_of(scenario).reference else in_words(scenario))
    return " · ".join(words)

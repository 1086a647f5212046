"""Printed lines about the scenario and the best execution of a command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.cli.output import evaluated_by, text_table, write_line
from engine.executions.frameworks.registry import ANY, FRAMEWORK_RULES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TextIO

    from engine import Scenario
    from models import Model

__all__ = [
    "write_error",
    "write_framework_cost",
    "write_reasons",
    "write_scenario",
    "write_stages",
    "write_unrepresented",
]


def write_scenario(scenario: Scenario) -> None:
    """Print the scenario in a line, and parts of its model that the figures do not represent."""
    run_by = "" if scenario.framework == ANY else f", run by {FRAMEWORK_RULES[scenario.framework].title}"
    write_line(
        f"{scenario.model.title or scenario.model.name} on {scenario.num_procs:,} x "
        f"{scenario.system.title or scenario.system.name}, batch up to {scenario.max_batch_size:,}, "
        f"{scenario.datatype}{run_by}; {evaluated_by(scenario.cost_model, scenario.calibration_name)}"
    )
    write_unrepresented(scenario.model)


def write_unrepresented(model: Model, stream: TextIO | None = None) -> None:
    """Print parts of a model that no figure represents; nothing for most models."""
    import models

    for sentence in models.unrepresented(model):
        write_line(f"Not represented: {sentence}", stream=stream)


def write_reasons(counts: Mapping[str, int]) -> None:
    """Prints why executions are infeasible, and how many; nothing where none is."""
    from engine.executions.reasons import BY_CODE

    reasons = sorted(counts.items(), key=lambda item: -item[1])
    if reasons:
        write_line()
        write_line(text_table(("infeasible because", "executions"), [(BY_CODE[c].label, f"{n:,}") for c, n in reasons]))


def write_stages(scenario: Scenario, execution: Mapping[Any, Any]) -> None:
    """Prints the options with which a framework cuts the model as the first execution does, where it needs any."""
    if int(execution["pipeline_par"]) == 1 or not execution.get("stage_layout"):
        return  # before the readers and writers of launch files are loaded, which take a while
    from engine.launch import stage_options

    if options := stage_options(scenario.model, execution):
        write_line(f"Stages of the first, for Megatron: {options}")


def write_framework_cost(scenario: Scenario) -> None:
    """Print what the framework of a scenario costs; nothing for any framework."""
    if scenario.framework == ANY:
        return
    from engine.launch import find_framework_cost

    write_line(find_framework_cost(scenario, scenario.framework).sentence)


def write_error(scenario: Scenario, execution: Mapping[Any, Any]) -> None:
    """Prints what was never measured of what the first execution rests on, and how far its step time may be off."""
    from engine.cost_models.registry import cost_model_of
    from engine.cost_models.words import told_not_measured
    from engine.validation.uncertainty import interval_of

    if not cost_model_of(scenario).takes_calibration:
        return
    if unknown := scenario.not_measured(execution):
        write_line(f"Of the first: {told_not_measured(unknown)}")
        return
    found = interval_of(scenario, execution)
    if found is None:
        write_line("Too few runs of this kind of model were measured to say how far the step of the first may be off.")
        return
    step = float(execution["total_time"])
    low, high = step * found.low, step * found.high
    write_line(
        f"Step of the first: {found.share:.0%} of {found.rests_on}, took {found.low:.2f} to {found.high:.2f} times "
        f"what a fit without their source predicts; here {low:.4g} to {high:.4g} s. {found.held_words}"
    )

"""Scenario of `explore` and `best`, from arguments or a document, and its printed line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.cli.output import calibration_of, evaluated_by, text_table, write_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path
    from typing import TextIO

    from engine import Scenario
    from models import Model

__all__ = [
    "scenario_of",
    "write_error",
    "write_reasons",
    "write_scenario",
    "write_stages",
    "write_unrepresented",
]


def scenario_of(
    model: str | None,
    system: str | None,
    procs: int | None,
    max_batch: int | None,
    datatype: str | None,
    limits: Iterable[str] | None,
    cost_model: str | None,
    calibration: str | None,
    document: Path | None,
) -> Scenario:
    """The scenario of the arguments and options that `explore` and `best` share; with a document of one, what else is
    given replaces what that says. Raises what `engine.Scenario.of` and `engine.Scenario.from_document` raise."""
    import engine
    from engine.cli.limits import parse_limits

    said = {} if document is None else _read_scenario_document(document)
    given = {
        "model": model,
        "system": system,
        "num_procs": procs,
        "max_batch_size": max_batch,
        "datatype": datatype,
        "cost_model": cost_model,
        "calibration": calibration_of(calibration),
    }
    asked = {**said, **{name: value for name, value in given.items() if value is not None}}
    words = {
        "model": "MODEL",
        "system": "SYSTEM",
        "num_procs": "--procs",
        "max_batch_size": "--max-batch",
        "datatype": "--datatype",
    }
    if missing := [word for name, word in words.items() if name not in asked]:
        lacks = f"Without {', '.join(missing)} there is no scenario"
        raise engine.ScenarioError(f"{lacks}; give all of them, or a saved scenario with --scenario FILE.")
    return engine.Scenario.of(**{**asked, "limits": {**said.get("limits", {}), **parse_limits(limits or [])}})


def _read_scenario_document(file: Path) -> dict[str, Any]:
    """Return the document of a scenario, by the arguments of `engine.Scenario.of`."""
    from engine import ScenarioError
    from engine.questions.scenario_documents import scenario_of as scenario_in
    from models.documents import read_json

    document = read_json(file, "scenario", ScenarioError)
    if not isinstance(document, dict):
        raise ScenarioError(f"{file} holds no scenario; it must be a JSON object.")
    found = scenario_in(document, str(file))
    return {
        name: getattr(found, name)
        for name in (
            "model",
            "system",
            "num_procs",
            "max_batch_size",
            "datatype",
            "limits",
            "cost_model",
            "calibration",
        )
    }


def write_scenario(scenario: Scenario) -> None:
    """Print the scenario in a line, and parts of its model that the figures do not represent."""
    write_line(
        f"{scenario.model.title or scenario.model.name} on {scenario.num_procs:,} x "
        f"{scenario.system.title or scenario.system.name}, batch up to {scenario.max_batch_size:,}, "
        f"{scenario.datatype}; {evaluated_by(scenario.cost_model, scenario.calibration_name)}"
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
    from engine.launch import stage_options

    if options := stage_options(scenario.model, execution):
        write_line(f"Stages of the first, for Megatron: {options}")


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
        f"what a fit without their source predicts; here {low:.4g} to {high:.4g} s."
    )

"""What `explore` and `best` share: the scenario asked for, and how it is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.cli.output import calibration_of, evaluated_by, text_table, write

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from engine import Scenario

__all__ = [
    "confidence_document", "scenario_document", "scenario_line", "scenario_of", "write_error", "write_reasons",
    "write_stages",
]  # fmt: skip


def scenario_of(
    model: str,
    system: str,
    procs: int,
    max_batch: int,
    datatype: str,
    limits: Iterable[str] | None,
    cost_model: str | None,
    calibration: str | None,
) -> Scenario:
    """The scenario of the options that `explore` and `best` share. Raises what `engine.Scenario.of` raises."""
    import engine
    from engine.cli.limits import parse_limits

    return engine.Scenario.of(
        model,
        system,
        num_procs=procs,
        max_batch_size=max_batch,
        datatype=datatype,
        limits=parse_limits(limits or []),
        cost_model=cost_model,
        calibration=calibration_of(calibration),
    )


def scenario_document(scenario: Scenario) -> dict[str, Any]:
    """The scenario as the head of a JSON document."""
    return {
        "model": scenario.model.name,
        "system": scenario.system.name,
        "num_procs": scenario.num_procs,
        "max_batch_size": scenario.max_batch_size,
        "datatype": scenario.datatype,
        "limits": dict(scenario.limits),
        "cost_model": scenario.cost_model,
        "calibration": scenario.calibration_name,
    }


def scenario_line(scenario: Scenario) -> str:
    """The scenario in a line."""
    return (
        f"{scenario.model.title or scenario.model.name} on {scenario.num_procs:,} x "
        f"{scenario.system.title or scenario.system.name}, batch up to {scenario.max_batch_size:,}, "
        f"{scenario.datatype}; {evaluated_by(scenario.cost_model, scenario.calibration_name)}"
    )


def write_reasons(counts: Mapping[str, int]) -> None:
    """Prints why executions are infeasible, and how many; nothing where none is."""
    from engine.executions.reasons import BY_CODE

    reasons = sorted(counts.items(), key=lambda item: -item[1])
    if reasons:
        write()
        write(text_table(("infeasible because", "executions"), [(BY_CODE[c].label, f"{n:,}") for c, n in reasons]))


def write_stages(scenario: Scenario, execution: Mapping[Any, Any]) -> None:
    """Prints the options with which a framework cuts the model as the first execution does, where it needs any."""
    from engine.cost_models.registry import cost_model_of

    account = cost_model_of(scenario).account(scenario.model, scenario.system, execution, scenario.calibration)
    if options := account.stage_options():
        write(f"Stages of the first, for Megatron: {options}")


def write_error(scenario: Scenario, execution: Mapping[Any, Any]) -> None:
    """Prints what was never measured of what the first execution rests on, and how far its step time may be off."""
    from engine.cost_models.contract import told_not_measured
    from engine.cost_models.registry import cost_model_of
    from engine.validation.uncertainty import interval_of

    if not cost_model_of(scenario).takes_calibration:
        return
    if unknown := scenario.not_measured(execution):
        write(f"Of the first: {told_not_measured(unknown)}")
        return
    found = interval_of(scenario, execution)
    if found is None:
        write("Too few runs of this kind of model were measured to say how far the step of the first may be off.")
        return
    step = float(execution["total_time"])
    low, high = step * found.low, step * found.high
    write(
        f"Step of the first: {found.share:.0%} of {found.rests_on}, took {found.low:.2f} to {found.high:.2f} times "
        f"what a fit without their source predicts; here {low:.4g} to {high:.4g} s."
    )


def confidence_document(scenario: Scenario, execution: Mapping[Any, Any] | None) -> dict[str, Any]:
    """The same for JSON, about the best execution.

    `step_time_interval` has seconds, the share of comparable measured runs between them, how many, from how many
    sources and which these are; None where nothing tells. `not_measured` is a list of words.
    """

    from engine.validation.uncertainty import interval_of

    if execution is None:
        return {"step_time_interval": None, "not_measured": []}
    found = interval_of(scenario, execution)
    told = None
    if found is not None:
        step = float(execution["total_time"])
        told = {"low": step * found.low, "high": step * found.high, "share": found.share, "rows": found.rows,
                "sources": found.sources, "runs": found.described, "few_sources": found.is_weak}  # fmt: skip
    return {"step_time_interval": told, "not_measured": list(scenario.not_measured(execution))}

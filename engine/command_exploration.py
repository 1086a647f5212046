"""What `explore` and `best` share: the scenario asked for, and how it is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.command_output import calibration_of, evaluated_by, text_table, write

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from engine import Scenario

__all__ = [
    "interval_document", "scenario_document", "scenario_line", "scenario_of", "write_error", "write_reasons",
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
    from engine.command_limits import parse_limits

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


def _calibration_name(scenario: Scenario) -> str | None:
    return None if scenario.cost_model == "calculon" else scenario.used_calibration.name


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
        "calibration": _calibration_name(scenario),
    }


def scenario_line(scenario: Scenario) -> str:
    """The scenario in a line."""
    return (
        f"{scenario.model.title or scenario.model.name} on {scenario.num_procs:,} x "
        f"{scenario.system.title or scenario.system.name}, batch up to {scenario.max_batch_size:,}, "
        f"{scenario.datatype}; {evaluated_by(scenario.cost_model, _calibration_name(scenario))}"
    )


def write_reasons(counts: Mapping[str, int]) -> None:
    """Prints why executions are infeasible, and how many; nothing where none is."""
    from engine.reasons import BY_CODE

    reasons = sorted(counts.items(), key=lambda item: -item[1])
    if reasons:
        write()
        write(text_table(("infeasible because", "executions"), [(BY_CODE[c].label, f"{n:,}") for c, n in reasons]))


ERROR_SHARE = 0.8
"""Share of comparable measured runs inside the interval that is printed."""


def write_error(scenario: Scenario, execution: Mapping[Any, Any]) -> None:
    """Prints how far the step time of the best execution may be off, where measured runs tell."""
    from engine.validation.uncertainty import interval_of, is_modelled

    if is_modelled(scenario):
        write("Nothing was measured on processors of this generation: the figures are modelled, not calibrated.")
        return
    found = interval_of(scenario, execution, ERROR_SHARE)
    if found is None:
        return
    step = float(execution["total_time"])
    write(
        f"Step of the first: {ERROR_SHARE:.0%} of {found.rows} comparable measured runs took {found.low - 1:+.0%} to "
        f"{found.high - 1:+.0%} of such a prediction, here {step * found.low:.4g} to {step * found.high:.4g} s."
    )


def interval_document(scenario: Scenario, execution: Mapping[Any, Any]) -> dict[str, Any] | None:
    """The same for JSON: seconds, the share of comparable measured runs between them, how many and which these are."""
    from engine.validation.uncertainty import interval_of

    found = interval_of(scenario, execution, ERROR_SHARE)
    if found is None:
        return None
    step = float(execution["total_time"])
    low, high = step * found.low, step * found.high
    return {"low": low, "high": high, "share": ERROR_SHARE, "rows": found.rows, "runs": found.described}

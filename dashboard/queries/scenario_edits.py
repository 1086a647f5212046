"""A scenario with some changes and everything else kept: the rules for its cost model and its limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from dashboard.link.document_validation import PROBLEMS, Refused, checked, sentence
from engine import Scenario
from engine.columns import fields_of
from engine.cost_models.registry import able, chosen_cost_model, cost_model_of, named
from engine.executions.limits import FRAMEWORK, options_of
from hardware import Calibration, System
from models import Model
from models.token_flops import Convention

__all__ = ["altered", "datatypes_of", "on_same_accelerator", "scenario_with", "switch_cost_model"]

_KEPT: Final[Literal["kept"]] = "kept"


def altered(
    scenario: Scenario,
    *,
    model: Model | None = None,
    system: System | None = None,
    num_procs: int | None = None,
    max_batch_size: int | None = None,
    datatype: str | None = None,
    limits: Mapping[str, Any] | None = None,
    cost_model: str | None = None,
    calibration: Calibration | str | None = _KEPT,
    attention: Convention | Literal["kept"] | None = _KEPT,
    framework: str | None = None,
) -> Scenario:
    """Returns the scenario with the given changes.

    Unless one is given, the cost model stays; if it is the default of the old system, it becomes the default of the new
    system, and a model that it cannot compute takes the first that can. Limits on fields that the cost model lacks are
    dropped, and so is a framework; `limits` leaves the framework as it is. A calibration stays with cost models that
    take one, and is dropped when the system gets another accelerator than the one it was fitted for.

    Raises the exceptions of `Scenario.of`.
    """
    model, system = model or scenario.model, system or scenario.system
    if cost_model is None:
        plain = scenario.cost_model == scenario.system.cost_model
        preferred = chosen_cost_model(None if plain else scenario.cost_model, system)
        cost_model = able(model, preferred.name).name
    found = scenario.calibration if isinstance(calibration, str) else calibration
    moved = found is not None and found.system != "" and not on_same_accelerator(scenario.system, system)
    if moved or not named(cost_model).takes_calibration:
        found = None
    names = {column.name for column in fields_of(cost_model)} | set(options_of(cost_model))
    held = {FRAMEWORK: framework or scenario.framework, **(scenario.field_limits if limits is None else limits)}
    return Scenario.of(
        model,
        system,
        num_procs=num_procs or scenario.num_procs,
        max_batch_size=max_batch_size or scenario.max_batch_size,
        datatype=datatype or scenario.datatype,
        limits={name: limit for name, limit in held.items() if name in names},
        cost_model=cost_model,
        calibration=found,
        attention=scenario.attention if attention == _KEPT else attention,
    )


def on_same_accelerator(one: System, other: System) -> bool:
    """Returns whether two systems have the same accelerator."""
    if one.accelerator is None or other.accelerator is None:
        return one.name == other.name
    return one.accelerator.name == other.accelerator.name


def datatypes_of(scenario: Scenario) -> list[str]:
    """Returns the datatypes that the system has rates for and the cost model takes."""
    accepted = cost_model_of(scenario).datatypes
    return [name for name in scenario.system.offered_datatypes if name in accepted]


def switch_cost_model(scenario: Scenario, cost_model: str) -> Scenario:
    """Returns the scenario with another cost model, and a datatype that it takes. Raises what `Scenario.of` raises."""
    datatype = scenario.datatype
    accepted = named(cost_model).datatypes
    if datatype not in accepted:
        known = [name for name in scenario.system.offered_datatypes if name in accepted]
        datatype = scenario.system.closest_datatype(datatype, known) if known else datatype
    return altered(scenario, cost_model=cost_model, datatype=datatype)


def scenario_with(now: Scenario, thing: Model | System) -> Scenario:
    """Returns the scenario with another model or system. Raises `Refused` where that cannot be explored.

    Limits on networks go with the system they were for; a datatype that the new system has no rates for gives way to
    the closest.
    """
    model, system, datatype, limits = now.model, now.system, now.datatype, dict(now.field_limits)
    if isinstance(thing, Model):
        model = thing
    else:
        system = thing
        limits = {field: limit for field, limit in limits.items() if not field.endswith("_net")}
        if not system.has_rate(datatype):
            datatype = system.closest_datatype(datatype)
    try:
        return checked(altered(now, model=model, system=system, datatype=datatype, limits=limits))
    except PROBLEMS as problem:
        raise Refused(sentence(problem)) from None

"""Parameters of a scenario that a what-if study can change: rates and capacities, sizes of model and machine."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import hardware
import models
from engine.cost_models.registry import cost_model_of
from engine.executions.table import LARGEST
from engine.scenarios.scenario import Scenario
from models import Model
from models.documents import did_you_mean, shown

__all__ = ["ChangeError", "Parameter", "changed", "otherwise", "parameter", "parameters", "system_changes"]

About = Literal["system", "model", "run"]

MICRO: Final = 1e6
"""Microseconds of a second: the unit in which latencies are changed."""
POWER: Final = "accelerator.tdp_w"


class ChangeError(ValueError):
    """An invalid change; the message names the parameter, its value and the accepted values."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One number of a scenario that a what-if study may change.

    `name` identifies it, in links too. `value` is the scenario's, in `unit`. `discrete` numbers are whole and change
    by doubling and halving: ten percent more would have no meaning. `layout` is True if a change gives
    another space to enumerate, `mask` if it changes the memory check.
    """

    name: str
    label: str
    unit: str
    value: float
    about: About
    description: str
    path: str
    scale: float = 1.0
    """The document's value times this is the value in `unit`."""
    discrete: bool = False
    layout: bool = False
    mask: bool = False
    can_be_off: bool = False
    """True if 0 is valid and means that the part is absent."""
    part_of: str = ""
    """Name of the parameter that moves this one together with others; alone it is changed on request only."""

    @property
    def lowest(self) -> float:
        """The smallest value that is accepted, apart from 0 where that switches it off."""
        return 1.0 if self.discrete else self.value / 1000

    @property
    def highest(self) -> float:
        """The largest value that is accepted."""
        return float(LARGEST) if self.discrete else self.value * 1000


def parameters(scenario: Scenario) -> tuple[Parameter, ...]:
    """Return all parameters of a scenario that can be changed, parameters of the system first.

    Args:
        scenario: the scenario before any change.
    """
    system, datatype = scenario.system, scenario.datatype
    rate = system.rate_name(datatype) or datatype
    unread = cost_model_of(scenario).unread
    found = [
        *_compute_parameters(scenario),
        Parameter(
            "vector",
            "Vector peak",
            "TFLOP/s",
            system.vector[rate].tflops,
            "system",
            f"Peak of everything that is not a matrix product in {datatype}, per GPU.",
            f"vector.{rate}.tflops",
        ),
        Parameter(
            "hbm_bandwidth",
            "HBM bandwidth",
            "GB/s",
            system.mem1.bandwidth_gb_per_s,
            "system",
            "Rate at which a GPU reads and writes its own memory.",
            "mem1.bandwidth_gb_per_s",
        ),
        Parameter(
            "hbm_capacity",
            "HBM capacity",
            "GiB",
            system.mem1.capacity_gib,
            "system",
            "Memory of a GPU.",
            "mem1.capacity_gib",
            mask=True,
        ),
    ]
    if "vector" in unread:
        found = [which for which in found if which.name != "vector"]
    last, names, words = system.tiers - 1, hardware.network_names(system), hardware.network_words(system)
    for tier, network in enumerate(system.networks):
        named = names[tier][:1].upper() + names[tier][1:]
        reach = f"{words[tier]}, which links {network.size:,} GPUs"
        found += [
            Parameter(
                f"net{tier}_bandwidth",
                f"{named} bandwidth",
                "GB/s",
                network.bandwidth_gb_per_s,
                "system",
                f"Rate per GPU and direction of {reach}.",
                f"networks.{tier}.bandwidth_gb_per_s",
            ),
            Parameter(
                f"net{tier}_latency",
                f"{named} latency",
                "µs",
                _rounded_value(network.latency_s * MICRO),
                "system",
                f"Time that any operation takes on {reach}, before the first byte.",
                f"networks.{tier}.latency_s",
                scale=MICRO,
            ),
        ]
        if "latency" in unread:
            found.pop()
        if tier < last:
            found.append(
                Parameter(
                    f"net{tier}_size",
                    f"{named} size",
                    "GPUs",
                    float(network.size),
                    "system",
                    f"How many GPUs {reach.split(',')[0]} links.",
                    f"networks.{tier}.size",
                    discrete=True,
                    layout=True,
                )
            )
    if system.mem2.capacity_gib > 0:
        found += [
            Parameter(
                "host_bandwidth",
                "Host bandwidth",
                "GB/s",
                system.mem2.bandwidth_gb_per_s,
                "system",
                "Rate per direction of the link to host memory.",
                "mem2.bandwidth_gb_per_s",
            ),
            Parameter(
                "host_capacity",
                "Host memory",
                "GiB",
                system.mem2.capacity_gib,
                "system",
                "Memory per GPU that may be offloaded to; 0 means that there is none.",
                "mem2.capacity_gib",
                mask=True,
                can_be_off=True,
            ),
        ]
    model = scenario.model
    shape = model.block if cost_model_of(scenario).reference or model.architecture is None else None
    found += [
        Parameter(
            "sequence",
            "Sequence length",
            "tokens",
            float(model.seq_size),
            "model",
            "Tokens of one sample.",
            "seq_size",
            discrete=True,
            layout=True,
        ),
    ]
    if shape is not None:  # widths of a published architecture do not change one at a time
        found += [
            Parameter(
                "hidden",
                "Hidden size",
                "elements",
                float(shape.hidden),
                "model",
                "Width of the model; its feedforward and head widths follow in proportion.",
                "hidden",
                discrete=True,
                layout=True,
            ),
            Parameter(
                "blocks",
                "Blocks",
                "blocks",
                float(shape.num_blocks),
                "model",
                "Transformer blocks of the model.",
                "num_blocks",
                discrete=True,
                layout=True,
            ),
        ]
    found += [
        Parameter(
            "procs",
            "GPUs",
            "GPUs",
            float(scenario.num_procs),
            "run",
            "Processors that the model runs on.",
            "num_procs",
            discrete=True,
            layout=True,
        ),
        Parameter(
            "batch",
            "Batch",
            "sequences",
            float(scenario.max_batch_size),
            "run",
            "Samples of a step, at most.",
            "max_batch_size",
            discrete=True,
            layout=True,
        ),
    ]
    return tuple(found)


def _compute_parameters(scenario: Scenario) -> list[Parameter]:
    """Matrix peak and design power, together and each alone where the cost model reads both and power is known."""
    system, datatype = scenario.system, scenario.datatype
    rate = system.rate_name(datatype) or datatype
    peak = system.peak_tflops(datatype)
    text, path = f"Dense peak of matrix products in {datatype}, per GPU.", f"matrix.{rate}.tflops"
    power = system.accelerator.tdp_w if system.accelerator is not None else None
    if "power" in cost_model_of(scenario).unread or not power:
        return [Parameter("matrix", "Matrix peak", "TFLOP/s", peak, "system", text, path)]
    alone = text + " Design power stays what it is."
    bound = cost_model_of(scenario).power_bounds(system)
    if scenario.datatype in cost_model_of(scenario).one_unit and bound:
        alone += " Power bounds the clock, so a higher peak alone is not sustained and changes little or nothing."
    return [
        Parameter(
            "compute",
            "Compute and power",
            "TFLOP/s",
            peak,
            "system",
            f"More or fewer matrix units of the same kind: {text[0].lower()}{text[1:]} Peaks in other datatypes "
            "and the design power change in proportion, so that the energy of an operation stays what it is.",
            path,
        ),
        Parameter("matrix", "Matrix peak alone", "TFLOP/s", peak, "system", alone, path, part_of="compute"),
        Parameter(
            "power",
            "Design power alone",
            "W",
            float(power),
            "system",
            "Power that a GPU is built to draw, with the matrix peak as it is. "
            + (
                "It bounds the clock, and so the rate of matrix products and attention."
                if bound
                else "No GPUs of this generation with unlike power were measured, so its rates do not depend on it."
            ),
            POWER,
            part_of="compute",
        ),
    ]


def _rounded_value(value: float) -> float:
    """A value without the noise that changing its unit adds."""
    return float(f"{value:.12g}")


def parameter(scenario: Scenario, name: str) -> Parameter:
    """Returns the parameter of that name. Raises `ChangeError` naming those there are.

    Args:
        scenario: the scenario before any change.
        name: of a parameter.
    """
    return _find_parameter(_by_name(scenario), name)


def _by_name(scenario: Scenario) -> dict[str, Parameter]:
    return {each.name: each for each in parameters(scenario)}


def _find_parameter(every: Mapping[str, Parameter], name: str) -> Parameter:
    if name not in every:
        hint = did_you_mean(name, list(every)) or f"; there are {', '.join(every)}"
        raise ChangeError(f"Nothing called {str(name)[:40]!r} can be changed here{hint}.")
    return every[name]


def otherwise(scenario: Scenario, changes: Mapping[str, float], name: str) -> float:
    """Returns the value that a parameter has under the other changes: the scenario's, or in proportion to what moves
    it.

    Args:
        scenario: the scenario before any change.
        changes: values by name of `parameters`.
        name: of the parameter that is asked about.
    """
    return _value_under_changes(_by_name(scenario), changes, name)


def _value_under_changes(every: Mapping[str, Parameter], changes: Mapping[str, float], name: str) -> float:
    which = _find_parameter(every, name)
    if which.part_of not in changes:
        return which.value
    return which.value * changes[which.part_of] / _find_parameter(every, which.part_of).value


def changed(scenario: Scenario, changes: Mapping[str, float]) -> Scenario:
    """Returns the scenario with the named parameters at other values, in their units.

    A parameter with parts, such as compute, is applied first; parts that are named too then get their own values.
    System and model are edited copies that record their originals. Limits do not change. Raises
    `ChangeError`, `hardware.SystemFileError` or `models.ModelFileError` for an invalid value, and later, when its
    space is made, `engine.SpaceError`.

    Args:
        scenario: the scenario before any change.
        changes: values by name of `parameters`.
    """
    if not changes:
        return scenario
    every = _by_name(scenario)
    real = {name: _checked_value(_find_parameter(every, name), value) for name, value in changes.items()}
    real = {name: value for name, value in real.items() if value != _value_under_changes(every, real, name)}
    result = scenario
    to_system = _system_changes(scenario, every, real)
    if to_system:
        result = replace(result, system=hardware.edited(scenario.system, to_system))
    to_model = {name: int(value) for name, value in real.items() if every[name].about == "model"}
    if to_model:
        result = replace(result, model=_changed_model(scenario.model, to_model))
    if "procs" in real:
        result = replace(result, num_procs=int(real["procs"]))
    if "batch" in real:
        result = replace(result, max_batch_size=int(real["batch"]))
    return result


def system_changes(scenario: Scenario, changes: Mapping[str, float]) -> dict[str, float | int]:
    """Returns those changes that are about the system, by path into its document and in the document's units.

    Args:
        scenario: the scenario before any change.
        changes: values by name of `parameters`.
    """
    return _system_changes(scenario, _by_name(scenario), changes) if changes else {}


def _system_changes(
    scenario: Scenario, every: Mapping[str, Parameter], changes: Mapping[str, float]
) -> dict[str, float | int]:
    found: dict[str, float | int] = {}
    for name, value in sorted(changes.items(), key=lambda change: bool(_find_parameter(every, change[0]).part_of)):
        which = _find_parameter(every, name)
        if name == "compute":
            factor = value / which.value
            found |= {f"matrix.{one}.tflops": each.tflops * factor for one, each in scenario.system.matrix.items()}
            found[POWER] = _find_parameter(every, "power").value * factor
        if which.about == "system":
            found[which.path] = int(value) if which.discrete else value / which.scale
        if name == "matrix" and scenario.datatype in (unit := cost_model_of(scenario).one_unit):
            # One unit computes both, and the cost model reads either; one that was higher stays so.
            peaks = {one: engine.tflops for one, engine in scenario.system.matrix.items() if one in unit}
            own = peaks[scenario.datatype]
            found |= {
                f"matrix.{one}.tflops": value if peak == own else value * (peak / own) for one, peak in peaks.items()
            }
    return found


def _checked_value(which: Parameter, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ChangeError(f"{which.label} is {shown(value)}; it must be a number in {which.unit}.")
    if which.can_be_off and value == 0:
        return 0.0
    slack = 1e-9  # so that a bound that was computed, written down and read again is accepted
    if not which.lowest * (1 - slack) <= value <= which.highest * (1 + slack):
        raise ChangeError(
            f"{which.label} is {value:,g} {which.unit}; it must be from {which.lowest:,g} to {which.highest:,g}."
        )
    if which.discrete and value != int(value):
        raise ChangeError(f"{which.label} is {value:,g}; it must be a whole number of {which.unit}.")
    return float(value)


def _changed_model(model: Model, changes: Mapping[str, int]) -> Model:
    """The model with other sizes. Where an architecture is recorded, it no longer holds and is left out."""
    to_document: dict[str, Any] = {}
    if "sequence" in changes:
        to_document["seq_size"] = changes["sequence"]
    if "blocks" in changes:
        to_document["num_blocks"] = changes["blocks"]
    if "hidden" in changes:
        hidden = changes["hidden"]
        ratio = hidden / model.hidden
        to_document |= {
            "hidden": hidden,
            "feedforward": max(1, round(model.feedforward * ratio)),
            "attn_size": max(1, round(model.attn_size * ratio)),
        }
    if set(to_document) != {"seq_size"} and model.architecture is not None:
        plain = model.model_dump(exclude={"architecture", "calculon", "seq_size"})
        model = Model(**plain, seq_size=model.seq_size, calculon=model.require_block())
    return models.edited(model, to_document)

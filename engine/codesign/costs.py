"""Price and power of designs, from inputs that everyone can see and change.

The price of a machine is the sum of amounts times unit prices: processors, the rates and capacities of each, hosts and
switches; its power likewise, times what the building adds. Presets give every input with its source.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from importlib import resources
from typing import Any, Final, Literal

import numpy as np
import pandas as pd
from pydantic import ValidationError

from engine.codesign.design_space import DesignSpace
from engine.codesign.errors import StudyError
from engine.codesign.schema import CostItems, Costs, given_fields, middle_of
from engine.economics import INPUTS
from engine.executions.arrays import Floats, Ints
from hardware import System, network_names
from models.documents import did_you_mean, sentence

__all__ = ["ITEMS", "bill", "breakdown", "count_amounts", "filled_in", "preset", "preset_names", "said_of", "unpriced"]

NAN: Final = float("nan")
Unit = Literal["usd", "watts"]
MOST_COMPARED: Final = 10_000
"""Most designs whose amounts are compared; above it an even sample of this size."""
SAME: Final = 1e-9
"""Relative difference up to which two amounts are equal but for rounding."""
DEFAULT_SHARE: Final = float(INPUTS["power_share"].default or 0.0)
DEFAULT_PUE: Final = float(INPUTS["pue"].default or 0.0)

ITEMS: Final[Mapping[str, tuple[str, str]]] = {
    "processor": ("Processors", ""),
    "tflops": ("Matrix peak", "TFLOP/s"),
    "tflops_16_bit": ("Matrix peak in 16 bit", "TFLOP/s"),
    "mem1_gib": ("HBM capacity", "GiB"),
    "mem1_gb_per_s": ("HBM bandwidth", "GB/s"),
    "mem2_gib": ("Host memory", "GiB"),
    "mem2_gb_per_s": ("Host bandwidth", "GB/s"),
    "network_gb_per_s": ("Network tier", "GB/s"),
    "network_size": ("Network domain", "processors"),
    "host": ("Hosts", ""),
    "switch": ("Switches", ""),
}
"""Label and unit of everything with a price; network tiers separately."""


def preset_names() -> list[str]:
    """Returns the names of the presets of costs, in alphabetical order."""
    folder = resources.files("engine.codesign") / "presets"
    return sorted(file.name.removesuffix(".json") for file in folder.iterdir() if file.name.endswith(".json"))


@lru_cache(maxsize=16)
def preset(name: str) -> Costs:
    """Returns the inputs of a preset, with their sources. Raises `StudyError` naming those there are.

    Args:
        name: one of `preset_names`.
    """
    if name not in preset_names():
        there, near = ", ".join(preset_names()), did_you_mean(name, preset_names())
        raise StudyError(f"There is no preset of costs {name!r}{near}; there are {there}.")
    text = (resources.files("engine.codesign") / "presets" / f"{name}.json").read_text(encoding="utf-8")
    try:
        return Costs.model_validate({**json.loads(text), "preset": name})
    except ValidationError as problem:
        raise StudyError(sentence(problem, Costs, f"preset {name}", by_alias=True)) from None


def filled_in(costs: Costs, where: str) -> Costs:
    """Return costs with missing values taken from their preset; sources only of the values taken from it.

    Args:
        costs: as given in a document.
        where: name of the document in messages.
    """
    if not costs.preset:
        return costs
    try:
        base = preset(costs.preset)
    except StudyError as problem:
        raise StudyError(f"{where}, costs: {problem}") from None

    def items(name: str) -> CostItems:
        own: CostItems = getattr(costs, name)
        found: CostItems = getattr(base, name).model_copy(update=dict(given_fields(own)))
        return found

    said = dict(given_fields(costs)) | {"usd": items("usd"), "watts": items("watts")}
    own = {
        *costs.model_fields_set,
        *(f"usd.{name}" for name in given_fields(costs.usd)),
        *(f"watts.{name}" for name in given_fields(costs.watts)),
    }
    sources = {path: text for path, text in base.sources.items() if path not in own} | costs.sources
    return base.model_copy(update=said | {"sources": sources})


def said_of(costs: Costs) -> dict[str, Any]:
    """Return the shortest document of costs with the same `filled_in` form: the differences from the preset.

    Args:
        costs: as `filled_in` returns them.
    """
    base = preset(costs.preset) if costs.preset else Costs()
    own, theirs = (each.model_dump(mode="json", by_alias=True) for each in (costs, base))

    def differs(path: str, value: Any, other: Any) -> bool:
        # Values that the study gives itself have no source of the preset.
        return bool(value != other) or (path in base.sources and path not in costs.sources)

    found: dict[str, Any] = {"preset": costs.preset} if costs.preset else {}
    for name, value in own.items():
        if name in ("usd", "watts"):
            items = {key: each for key, each in value.items() if differs(f"{name}.{key}", each, theirs[name][key])}
            found |= {name: items} if items else {}
        elif name == "sources":
            sources = {path: text for path, text in value.items() if theirs[name].get(path) != text}
            found |= {name: sources} if sources else {}
        elif name != "preset" and differs(name, value, theirs[name]):
            found[name] = value
    return found


def count_amounts(study: DesignSpace, numbers: Ints) -> pd.DataFrame:
    """Returns how much designs have of everything that has a price, of the whole machine: one column per item, network
    tiers as `network_gb_per_s 0`, `network_size 0` and so on, and `tdp`, the design power of all processors [W].

    Args:
        study: whose designs.
        numbers: of designs [designs].
    """
    processors = np.array(study.document.sizes, np.float64)[study.positions(numbers)["size"]]
    per_processor = _per_processor(study, numbers)
    power = per_processor.pop("tdp")
    return pd.DataFrame(
        {
            "processor": processors,
            # A machine has no larger domain than itself.
            **{
                name: processors * (np.minimum(each, processors) if name.startswith("network_size") else each)
                for name, each in per_processor.items()
            },
            "host": np.ceil(processors / study.document.costs.processors_per_host),
            "switch": np.ceil(processors / study.document.costs.processors_per_switch),
            "tdp": power * processors,
        }
    )


def _per_processor(study: DesignSpace, numbers: Ints) -> dict[str, Floats]:
    """Return the amounts of one processor of designs, by the columns of `count_amounts` [designs]; whole domains of
    networks.
    """
    at, said = study.positions(numbers), study.document
    tiers = max(system.tiers for system in study.systems)
    own = {name: _unedited_values(study, name)[at["system"], at["datatype"]] for name in _priced_parameters(tiers)}
    value = dict(own)
    for number, edit in enumerate(said.edits):
        rows = np.array(edit.rows, np.float64)[at[f"edit {number}"]]
        for place, name in enumerate(edit.names):
            if name in own:
                value[name] = own[name] * rows[:, place] if edit.relative else rows[:, place]
    for each in said.follow:
        if each.parameter in own and each.follows in own:
            value[each.parameter] = own[each.parameter] * (value[each.follows] / own[each.follows]) ** each.exponent
    edited = {name for edit in said.edits for name in edit.names} | {each.parameter for each in said.follow}
    factor = value["compute"] / own["compute"]
    power = value["power"] if "power" in edited else own["power"] * factor
    peak = value["matrix"] if "matrix" in edited else value["compute"]
    sixteen = np.array([[_sixteen_bit(system, each) for each in said.datatypes] for system in study.systems])
    return {
        "tflops": peak,
        "tflops_16_bit": sixteen[at["system"], at["datatype"]] * (peak / own["compute"]),
        "mem1_gib": value["hbm_capacity"],
        "mem1_gb_per_s": value["hbm_bandwidth"],
        "mem2_gib": value["host_capacity"],
        "mem2_gb_per_s": value["host_bandwidth"],
        **{f"network_gb_per_s {tier}": value[f"net{tier}_bandwidth"] for tier in range(tiers)},
        **{f"network_size {tier}": value[f"net{tier}_size"] for tier in range(tiers)},
        "tdp": power,
    }


def _priced_parameters(tiers: int) -> tuple[str, ...]:
    return (
        "compute",
        "matrix",
        "power",
        "hbm_capacity",
        "hbm_bandwidth",
        "host_capacity",
        "host_bandwidth",
        *(f"net{tier}_{what}" for tier in range(tiers) for what in ("bandwidth", "size")),
    )


def _sixteen_bit(system: System, datatype: str) -> float:
    """Matrix peak in 16 bit [TFLOP/s]; in another datatype for a system that has none of these."""
    name = next((each for each in ("bfloat16", "float16") if each in system.matrix), datatype)
    return system.peak_tflops(name) or NAN


def _unedited_values(study: DesignSpace, name: str) -> Floats:
    """Return a parameter of the systems before any edit [systems, datatypes]."""

    def of(system: Any, datatype: str) -> float:
        match name:
            case "compute" | "matrix":
                return system.peak_tflops(datatype) or NAN
            case "power":
                return float(system.accelerator.tdp_w or NAN) if system.accelerator is not None else NAN
            case "hbm_capacity":
                return float(system.mem1.capacity_gib)
            case "hbm_bandwidth":
                return float(system.mem1.bandwidth_gb_per_s)
            case "host_capacity":
                return float(system.mem2.capacity_gib)
            case "host_bandwidth":
                return float(system.mem2.bandwidth_gb_per_s) if system.mem2.capacity_gib else 0.0
        number, _, what = name.removeprefix("net").partition("_")
        if int(number) >= system.tiers:
            return 0.0
        network = system.network_at(int(number))
        return float(network.bandwidth_gb_per_s if what == "bandwidth" else network.size)

    return np.array([[of(system, each) for each in study.document.datatypes] for system in study.systems])


def _unit_costs(items: CostItems, column: str) -> tuple[float, float, float] | None:
    """Return low, middle and high cost of one unit of a column of `amounts`; None if the system states it."""
    name, _, tier = column.partition(" ")
    found: tuple[float, ...] | None = (0.0, 0.0)
    if name == "network_gb_per_s":
        listed = items.network_gb_per_s
        found = listed[min(int(tier), len(listed) - 1)] if listed else found
    elif name == "network_size":
        found = items.network_size[int(tier)] if int(tier) < len(items.network_size) else found
    else:
        found = getattr(items, name)
    return None if found is None else (found[0], middle_of(found), found[-1])


def bill(study: DesignSpace, numbers: Ints) -> pd.DataFrame:
    """Returns what designs cost: `processors` [count]; `usd_low`, `usd_middle` and `usd_high` [USD], `watts_low` and so
    on of the building [W], `usd_per_h_low` and so on of renting [USD/h]; NaN if unknown.

    Args:
        study: whose designs.
        numbers: of designs [designs].
    """
    costs = study.document.costs
    have = {str(name): column.to_numpy() for name, column in count_amounts(study, numbers).items()}
    design_power = have.pop("tdp")
    found: dict[str, Any] = {"processors": have["processor"]}
    for unit, items in (("usd", costs.usd), ("watts", costs.watts)):
        # The middle is half way between the ends, but for items whose own middle is elsewhere.
        low, high, off = (np.zeros(len(numbers)) for _ in range(3))
        for name, amount in have.items():
            each = _unit_costs(items, name)
            if each is not None:
                low += amount * each[0]
                high += amount * each[2]
                off += amount * (each[1] - (each[0] + each[2]) / 2.0)
            else:
                own = design_power * (costs.power_share or DEFAULT_SHARE) if unit == "watts" else NAN
                low, high = low + own, high + own
        more = (costs.pue or DEFAULT_PUE) if unit == "watts" else 1.0
        low, high = low * more, high * more
        found |= {f"{unit}_low": low, f"{unit}_middle": (low + high) / 2.0 + off * more, f"{unit}_high": high}
    at = study.positions(numbers)["system"]
    rents = np.array([_rent_range(study, number) for number in range(len(study.systems))])
    for end, side in enumerate(("low", "middle", "high")):
        found[f"usd_per_h_{side}"] = found["processors"] * rents[at, end]
    return pd.DataFrame(found)


def _rent_range(study: DesignSpace, system: int) -> tuple[float, float, float]:
    costs = study.document.costs
    if (rent := costs.usd_per_processor_hour) is not None:
        return rent[0], middle_of(rent), rent[-1]
    facts = study.systems[system].accelerator
    known = facts.usd_per_h if facts is not None and facts.usd_per_h is not None else (NAN, NAN)
    return min(known), (min(known) + max(known)) / 2.0, max(known)


def _column_label(system: System, column: str) -> tuple[str, str]:
    """Return the name of a column of `count_amounts`, and its unit."""
    name, _, tier = column.partition(" ")
    label, unit = ITEMS[name]
    if tier:
        names = network_names(system)
        own = names[int(tier)] if int(tier) < len(names) else f"Network tier {tier}"
        label = f"{own} {'bandwidth' if name == 'network_gb_per_s' else 'domain size'}"
    return label[:1].upper() + label[1:], unit


def unpriced(study: DesignSpace, unit: Unit = "usd") -> list[str]:
    """Returns the rates, capacities and domain sizes in which designs differ although more of them costs nothing: what
    a front takes the largest of for free.

    Args:
        study: the study.
        unit: whether the cost is money, or power.
    """
    costs = study.document.costs
    items: CostItems = getattr(costs, unit)
    numbers = np.unique(np.linspace(0, study.designs - 1, min(study.designs, MOST_COMPARED)).astype(np.int64))
    largest = max(study.systems, key=lambda system: system.tiers)
    # The outermost network reaches all processors of any machine.
    whole = f"network_size {largest.tiers - 1}"
    free, paid = [], set()
    for column, amount in _per_processor(study, numbers).items():
        if column in ("tdp", whole):
            continue
        each = _unit_costs(items, column)
        name = "tflops" if column == "tflops_16_bit" else column
        if each is not None and each[2] > 0:
            paid.add(name)
        elif amount.max() > amount.min() * (1.0 + SAME):
            free.append((name, _column_label(largest, name)[0]))
    if unit == "watts" and items.processor is None:  # the system's design power, which grows with its compute
        paid.add("tflops")
    return list(dict.fromkeys(label for name, label in free if name not in paid))


def breakdown(study: DesignSpace, number: int) -> pd.DataFrame:
    """Return the origin of price and power of one design: one row per item with `item`, `amount`, `unit`, and low,
    middle and high `usd` and `watts`; what a building adds to the power is a row of its own.

    Args:
        study: whose design.
        number: of the design.
    """
    costs, have = study.document.costs, count_amounts(study, np.array([number])).iloc[0]
    system = study.systems[int(study.positions(np.array([number]))["system"][0])]
    rows: list[tuple[Any, ...]] = []
    for column in have.index.drop("tdp"):
        usd, watts = _unit_costs(costs.usd, str(column)), _unit_costs(costs.watts, str(column))
        own = float(have["tdp"]) * (costs.power_share or DEFAULT_SHARE)
        drawn = [own] * 3 if watts is None else [float(have[column]) * each for each in watts]
        price = [NAN] * 3 if usd is None else [float(have[column]) * each for each in usd]
        label, unit = _column_label(system, str(column))
        if sum(price) + sum(drawn) == 0.0 and str(column).startswith(("tflops", "network_size")):
            continue
        rows.append((label, float(have[column]), unit, *price, *drawn))
    pue = (costs.pue or DEFAULT_PUE) - 1.0
    building = (sum(row[place] for row in rows) * pue for place in (6, 7, 8))
    rows.append(("Building", NAN, "", 0.0, 0.0, 0.0, *building))
    names = [f"{unit}_{end}" for unit in ("usd", "watts") for end in ("low", "middle", "high")]
    return pd.DataFrame(rows, columns=["item", "amount", "unit", *names])

"""Shortfall of a scenario in which nothing runs, and the nearest changes that would help."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import pandas as pd

from dashboard.compat.caches import remembered
from dashboard.queries.scenario_edits import altered
from dashboard.words.numbers import count, gibibytes
from engine import Exploration, Scenario, whatif
from engine.executions.frameworks.registry import ANY, FRAMEWORK_RULES
from engine.executions.table import LARGEST
from engine.exploration.memory_requirements import least_memory
from engine.whatif import size_range
from hardware import GIB

__all__ = ["enough_processors", "fits", "how_far", "lacking", "least_hbm", "remedies", "runs", "short_of", "ways"]

_LARGEST_FACTOR: Final = 64
"""Up to how many times the GPUs are tried."""


def how_far(exploration: Exploration) -> str:
    """Returns what the nearest execution lacks, and how much more HBM alone would do where that is another; in
    Markdown."""
    system, total = exploration.scenario.system, exploration.total
    if total == 0:
        if exploration.scenario.framework != ANY:
            title = FRAMEWORK_RULES[exploration.scenario.framework].title
            return f"**Nothing runs.** {title} runs no way to divide the model among the GPUs."
        return "**Nothing runs.** There is no way to divide the model among the GPUs."
    short = _cells_short_of_memory(exploration)
    if not len(short):
        return (
            f"**Nothing runs.** None of the {count(total)} executions can, and more memory would not help: networks "
            "or stages stand in the way."
        )
    nearest = short.iloc[0]
    tiers = (("HBM", system.mem1, "shortfall_hbm_bytes"), ("host memory", system.mem2, "shortfall_host_bytes"))
    needs = [
        f"**{gibibytes(have.capacity_gib * GIB + float(nearest[name]))}** of {kind} where a GPU has "
        f"{gibibytes(have.capacity_gib * GIB)}, {gibibytes(nearest[name])} too much"
        for kind, have, name in tiers
        if nearest[name] > 0
    ]
    both = f" ({gibibytes(nearest['shortfall_bytes'])} in all)" if len(needs) > 1 else ""
    said = (
        f"**Nothing fits.** The nearest of {count(total)} executions needs {', and '.join(needs)}{both}. It is in "
        f"TP\u00a0{int(nearest['tensor_par'])}\u00a0×\u00a0PP\u00a0{int(nearest['pipeline_par'])}."
    )
    alone = short["hbm_alone_bytes"].min()
    if nearest["shortfall_host_bytes"] > 0 and not math.isnan(alone):
        enough = gibibytes(system.mem1.capacity_gib * GIB + alone)
        said += f" Without more host memory, another fits with {enough} of HBM."
    return said


def _cells_short_of_memory(exploration: Exploration) -> pd.DataFrame:
    """The cells that lack nothing but memory, the nearest to fitting first."""
    cells = exploration.by_pair()
    found: pd.DataFrame = cells[cells["shortfall_bytes"].notna()].sort_values("shortfall_bytes", kind="stable")
    return found


def short_of(exploration: Exploration) -> str:
    """Returns the shortfall of the nearest execution, such as "129 GiB of HBM and 311 GiB of host memory, 440 GiB in
    all"; empty if memory is not the reason."""
    short = _cells_short_of_memory(exploration)
    return lacking(short.iloc[0]) if len(short) else ""


def lacking(row: Mapping[Any, Any] | pd.Series[Any]) -> str:
    """Returns what the nearest execution of a row of `Exploration.by_pair` lacks of each memory, and in all."""
    parts = [
        f"{gibibytes(row[name])} of {kind}"
        for name, kind in (("shortfall_hbm_bytes", "HBM"), ("shortfall_host_bytes", "host memory"))
        if row[name] > 0
    ]
    return " and ".join(parts) + (f", {gibibytes(row['shortfall_bytes'])} in all" if len(parts) > 1 else "")


@remembered(entries=64)
def ways(_scenario: Scenario, key: str) -> dict[str, dict[str, Any]]:
    """Returns changes after which something fits: their labels, and the arguments of `altered`.

    key: of the scenario.
    """
    found: dict[str, dict[str, Any]] = {}
    if _scenario.field_limits and fits(_scenario, limits={}):
        found["Lift all limits"] = {"limits": {}}
    if _scenario.framework != ANY and fits(_scenario, framework=ANY):
        found["Any framework"] = {"framework": ANY}
    enough = enough_processors(_scenario)
    if enough is not None:
        found[f"{enough:,} GPUs instead of {_scenario.num_procs:,}"] = {"num_procs": enough}
    return found


@remembered(entries=64)
def least_hbm(_scenario: Scenario, key: str) -> tuple[float, tuple[int, int]] | None:
    """Returns the least HBM with which anything would run [bytes], and its (tensor, pipeline) degrees; None where no
    HBM would help. key: of the scenario."""
    needs = least_memory(_scenario.space)
    if not len(needs):
        return None
    least = needs.sort_values("need", kind="stable").iloc[0]
    return float(least["need"]), (int(least["tensor_par"]), int(least["pipeline_par"]))


class Remedy(NamedTuple):
    """A change of one parameter of What-if after which something runs."""

    name: str
    value: float
    words: str


@remembered(entries=64)
def remedies(_scenario: Scenario, key: str) -> list[Remedy]:
    """Returns the least value of each parameter that alone would make something run, the smallest multiple of its
    present value first.

    More of either memory, or more GPUs. key: of the scenario.
    """
    found = []
    every = {which.name: which for which in whatif.parameters(_scenario)}
    for tier, (name, words) in enumerate((("hbm_capacity", "HBM"), ("host_capacity", "host memory")), 1):
        which = every.get(name)
        if which is None or which.value == 0:  # without any there are no executions that would need it
            continue
        needs = least_memory(_scenario.space, tier)
        enough = math.ceil(float(needs["need"].min()) / GIB) if len(needs) else 0
        if which.value < enough <= which.highest:
            found.append((enough / which.value, Remedy(name, float(enough), f"{gibibytes(enough * GIB)} of {words}")))
    for words, change in ways(_scenario, key).items():
        if "num_procs" in change:
            more = change["num_procs"]
            found.append((more / _scenario.num_procs, Remedy("procs", float(more), words)))
    return [remedy for _, remedy in sorted(found)]


def enough_processors(scenario: Scenario) -> int | None:
    """Returns the smallest of What-if's numbers of processors that fits; None up to 64 times as many."""
    most = min(_LARGEST_FACTOR * scenario.num_procs, LARGEST)
    likely = size_range(scenario, scenario.num_procs, most)
    return next((size for size in likely if size > scenario.num_procs and fits(scenario, num_procs=size)), None)


@remembered(entries=256)
def runs(_scenario: Scenario, key: str) -> bool:
    """Returns whether an execution of the scenario runs. key: of the scenario."""
    return fits(_scenario)


def fits(scenario: Scenario, **changes: Any) -> bool:
    """Returns whether an execution of the scenario with such changes runs."""
    try:
        changed = altered(scenario, **changes)
        needs = least_memory(changed.space)
    except ValueError:  # there is no such scenario, such as one with more processors than the networks reach
        return False
    return bool((needs["need"] <= changed.system.mem1.capacity_gib * GIB).any())

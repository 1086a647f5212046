"""Least memory of every cell, and the change that makes its nearest execution fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pandas as pd

from dashboard.queries.scenario_edits import altered
from engine import Scenario
from engine.executions.codes import OFFLOADS
from engine.exploration.memory_requirements import least_memory
from hardware import GIB

__all__ = ["REMEDIES", "needs_of", "with_hbm"]


REMEDIES: Final[Mapping[str, tuple[str, ...]]] = {
    "offload": OFFLOADS,
    "recompute": ("activation_recompute",),
    "optimizer sharding": ("optimizer_sharding",),
    "sequence parallel": ("tensor_par_comm_type",),
    "another microbatch": ("microbatch_size",),
    "offload and recompute": (*OFFLOADS, "activation_recompute"),
}
"""Limits that may keep an execution from fitting: what allowing it is called, and the fields whose limit to lift."""


def needs_of(scenario: Scenario) -> pd.DataFrame:
    """Returns the least tier-1 memory of every cell that only memory can make infeasible.

    Columns: tensor_par, pipeline_par, data_par, need [bytes], id (of the least demanding execution), fits, and remedy:
    the change besides more memory that would make the cell fit, empty if it fits or no other change would. Cells that
    do not fit come first, the nearest to fitting on top; then the others, the most demanding first.
    """
    capacity = scenario.system.mem1.capacity_gib * GIB
    needs = least_memory(scenario.space)
    needs["fits"] = needs["need"] <= capacity
    lifted = {} if needs["fits"].all() else _cells_without_limits(scenario, capacity)
    fitting = needs[needs["fits"]]
    needs["remedy"] = ["" if row["fits"] else _remedy_words(row, lifted, fitting) for row in needs.to_dict("records")]
    order = needs["need"].where(~needs["fits"], -needs["need"])
    result: pd.DataFrame = needs.assign(order=order).sort_values(["fits", "order", "tensor_par"], kind="stable")
    return result.drop(columns="order").reset_index(drop=True)


def _cells_without_limits(scenario: Scenario, capacity: float) -> dict[str, set[tuple[int, int]]]:
    """The cells that fit when a limit is lifted, by what that is called."""
    found: dict[str, set[tuple[int, int]]] = {}
    for words, fields in REMEDIES.items():
        held = [name for name in fields if name in scenario.limits]
        offloads = any(name.endswith("_offload") for name in fields)
        if not held or (offloads and scenario.system.mem2.capacity_gib == 0):
            continue
        if len(fields) > 3 and len(held) == len([name for name in held if name.endswith("_offload")]):
            continue  # the same as lifting the limits on offload alone
        limits: Mapping[str, Any] = {name: limit for name, limit in scenario.limits.items() if name not in held}
        least = least_memory(altered(scenario, limits=limits).space)
        least = least[least["need"] <= capacity]
        found[words] = set(zip(least["tensor_par"], least["pipeline_par"], strict=True))
    return found


def _remedy_words(row: Mapping[Any, Any], lifted: Mapping[str, set[tuple[int, int]]], fitting: pd.DataFrame) -> str:
    """Return the changes that make a cell fit, in a few words: lifted limits first, then the next larger pipeline
    degree."""
    cell = (row["tensor_par"], row["pipeline_par"])
    words = [name for name, cells in lifted.items() if cell in cells][:2]
    words = [word for word in words if word != "offload and recompute" or len(words) == 1]
    larger = fitting[(fitting["tensor_par"] == cell[0]) & (fitting["pipeline_par"] > cell[1])]
    if len(larger):
        words.append(f"PP {int(larger['pipeline_par'].min())}")
    return " or ".join(words[:2])


def with_hbm(needs: pd.DataFrame, gibibytes: float) -> int:
    """Returns how many cells would have an execution with that much tier-1 memory [GiB]."""
    return int((needs["need"] <= gibibytes * GIB).sum())

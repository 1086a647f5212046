"""How little memory would do: per cell, the execution that needs least of one tier, whether or not it fits.

Capacity of that tier is left out of account; everything else still counts (networks, divisibility, the other tier).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from engine.calibrated.plan import CalibratedPlan
from engine.cost_models import AnyPlan, prepare
from engine.explore import slabs
from engine.space import Space

__all__ = ["least_memory"]

Floats = npt.NDArray[np.float64]

_NONE = -1
GIB = 2.0**30


def least_memory(space: Space, tier: int = 1) -> pd.DataFrame:
    """The least demanding execution of every cell in which any could run with enough memory of a tier, 1 or 2.

    Returns one row per (tensor, pipeline) pair: `tensor_par`, `pipeline_par`, `data_par`, `need` [bytes] of the tier
    and the `id` of an execution that needs no more. Cells that none of it would help (no network fits, the other tier
    overflows) are left out. With several batch sizes the least demanding counts.
    """
    parts = []
    for numbers in slabs(space):
        plan = prepare(space, numbers)
        if len(plan.sites.cell):
            parts.append(_of_plan(plan, tier))
    columns = ["tensor_par", "pipeline_par", "data_par", "need", "id"]
    if not parts:
        return pd.DataFrame(columns=columns)
    found = pd.concat(parts, ignore_index=True)
    least = found.sort_values(["tensor_par", "pipeline_par", "need", "id"], kind="stable")
    result: pd.DataFrame = least.drop_duplicates(["tensor_par", "pipeline_par"])[columns].reset_index(drop=True)
    return result


def _of_plan(plan: AnyPlan, tier: int) -> pd.DataFrame:
    """The least demanding execution of each cell of one plan."""
    sites, modes, cells = plan.sites, plan.modes, plan.cells
    exists = np.maximum(modes.position[0], modes.position[1])  # [kinds of cells, modes]
    needs, capacities, least_blocks = _tiers(plan)
    own, other = tier - 1, 2 - tier
    memory_modes = needs[own].shape[1]
    # One mode per memory mode and kind of cell: memory does not tell the others apart.
    mode_of = np.full((len(exists), memory_modes), _NONE)
    for kind, places in enumerate(exists):
        there = np.flatnonzero(places >= 0)[::-1]
        mode_of[kind, modes.memory[there]] = there
    mm = modes.memory_modes
    offloads = mm["weight_offload"] | mm["activations_offload"] | mm["optimizer_offload"]
    few = least_blocks[sites.cell] < 3
    possible = mode_of[sites.kind] >= 0
    possible &= ~(few[:, None] & offloads[None, :])
    possible &= capacities[other] >= needs[other]
    need: Floats = np.where(possible, needs[own], np.inf)
    which = need.argmin(axis=1)
    least = need[np.arange(len(which)), which]
    mode = mode_of[sites.kind, which]
    place = np.where(modes.position[0][sites.kind, mode] >= 0, modes.position[0][sites.kind, mode],
                     modes.position[1][sites.kind, mode])  # fmt: skip
    ids = sites.first + place * sites.stride + _an_assignment(plan)
    here = np.isfinite(least)
    found = pd.DataFrame(
        {
            "tensor_par": cells.tensor_par[sites.cell],
            "pipeline_par": cells.pipeline_par[sites.cell],
            "data_par": cells.data_par[sites.cell],
            "need": least,
            "id": ids,
        }
    )
    result: pd.DataFrame = found[here]
    return result


def _tiers(plan: AnyPlan) -> tuple[tuple[Floats, Floats], tuple[float, float], npt.NDArray[np.int64]]:
    """What both tiers need [sites, memory modes] [bytes], their capacities [bytes], blocks of a stage [cells]."""
    degrees = plan.cells.pipeline_par
    if isinstance(plan, CalibratedPlan):
        system = plan.space.system
        # No memory helps where the networks reach no further.
        reached = plan.space.connected
        capacities = [tier.capacity_gib * GIB if reached else -np.inf for tier in (system.mem1, system.mem2)]
        needs = plan.layout.first_tier, plan.layout.second_tier
        return needs, (capacities[0], capacities[1]), plan.space.num_blocks // degrees
    blocks = -(-plan.space.model.num_blocks // degrees)
    rate = plan.rate
    return (plan.first_tier.T, plan.second_tier.T), (float(rate.capacity), float(rate.second_capacity)), blocks


def _an_assignment(plan: AnyPlan) -> npt.NDArray[np.int64]:
    """A network assignment that fits, by position, for every site."""
    result = np.zeros(len(plan.sites.cell), np.int64)
    for group in plan.groups:
        result[group.site] = group.assignment[group.data_nets[0]]
    return result

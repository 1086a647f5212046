"""Smallest sufficient memory: per cell, the execution that needs least of one tier, whether or not it fits.

Capacity of that tier is left out of account; everything else still counts (networks, divisibility, the other tier).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from engine.cost_models.contract import PreparedCells
from engine.cost_models.registry import cost_model_of
from engine.executions.arrays import Floats
from engine.exploration.run import slabs
from engine.space.space import Space

__all__ = ["least_memory"]


_NONE = -1


def least_memory(space: Space, tier: int = 1) -> pd.DataFrame:
    """Returns the least demanding execution of every cell in which any could run with enough memory of a tier, 1 or 2.

    Returns one row per (tensor, pipeline) pair: `tensor_par`, `pipeline_par`, `data_par`, `need` [bytes] of the tier
    and the `id` of an execution that needs no more. Cells that none of it would help (no network fits, the other tier
    overflows) are left out. With several batch sizes the least demanding counts.

    Args:
        space: the space.
        tier: 1 for HBM, 2 for host memory.
    """
    parts = []
    for numbers in slabs(space):
        prepared = cost_model_of(space).prepare(space, numbers)
        if len(prepared.points.cell):
            parts.append(_of_prepared(prepared, tier))
    columns = ["tensor_par", "pipeline_par", "data_par", "need", "id"]
    if not parts:
        return pd.DataFrame(columns=columns)
    found = pd.concat(parts, ignore_index=True)
    least = found.sort_values(["tensor_par", "pipeline_par", "need", "id"], kind="stable")
    result: pd.DataFrame = least.drop_duplicates(["tensor_par", "pipeline_par"])[columns].reset_index(drop=True)
    return result


def _of_prepared(prepared: PreparedCells, tier: int) -> pd.DataFrame:
    """The least demanding execution of each of these prepared cells."""
    points, modes, cells = prepared.points, prepared.modes, prepared.cells
    exists = np.maximum(modes.position[0], modes.position[1])  # [kinds of cells, modes]
    wanted = prepared.memory_requirements()
    needs, capacities = wanted.needs, wanted.capacities
    own, other = tier - 1, 2 - tier
    memory_modes = needs[own].shape[1]
    # One mode per memory mode and kind of cell: memory does not tell the others apart.
    mode_of = np.full((len(exists), memory_modes), _NONE)
    for kind, places in enumerate(exists):
        there = np.flatnonzero(places >= 0)[::-1]
        mode_of[kind, modes.memory[there]] = there
    possible = mode_of[points.kind] >= 0
    possible &= wanted.allowed
    possible &= capacities[other] >= needs[other]
    need: Floats = np.where(possible, needs[own], np.inf)
    which = need.argmin(axis=1)
    least = need[np.arange(len(which)), which]
    mode = mode_of[points.kind, which]
    place = np.where(
        modes.position[0][points.kind, mode] >= 0,
        modes.position[0][points.kind, mode],
        modes.position[1][points.kind, mode],
    )
    ids = points.first + place * points.stride + _an_assignment(prepared)
    here = np.isfinite(least)
    found = pd.DataFrame(
        {
            "tensor_par": cells.tensor_par[points.cell],
            "pipeline_par": cells.pipeline_par[points.cell],
            "data_par": cells.data_par[points.cell],
            "need": least,
            "id": ids,
        }
    )
    result: pd.DataFrame = found[here]
    return result


def _an_assignment(prepared: PreparedCells) -> npt.NDArray[np.int64]:
    """A network assignment that fits, by position, for every schedule point."""
    result = np.zeros(len(prepared.points.cell), np.int64)
    for group in prepared.groups:
        result[group.point] = group.assignment[group.data_nets[0]]
    return result

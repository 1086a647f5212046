"""Calibrated cells laid out: what of a plan depends neither on rates nor on capacities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.arrays import take
from engine.block_keys import distinct
from engine.calibrated.fields import DATATYPES, FULLY_SHARDED, case_of_fields
from engine.calibrated.figures import offload_repeats, offload_share
from engine.calibrated.inputs import Case, Floats
from engine.calibrated.memory import StageMemory, stage_memory
from engine.calibrated.offload import tiers
from engine.calibrated.space import FIELDS_OF_A_MODE, CalibratedSpace
from engine.sites import CellColumns, Grains, Sites, StepModes, cell_columns, sites_of, step_modes

__all__ = ["BLOCK_FIELDS", "CalibratedLayout", "case_at", "lay_out_calibrated"]

Ints = npt.NDArray[np.int64]

BLOCK_FIELDS = (
    "activation_recompute", "selective_recompute", "tensor_par_comm_type", "tensor_par_overlap", "attention_kernel",
    "launch", "expert_overlap",
)  # fmt: skip
TIME_FIELDS = (*BLOCK_FIELDS, "pipeline_overlap", "fully_sharded", "gradient_datatype", "training")
UPDATE_FIELDS = ("zero_stage", "gradient_datatype", "optimizer_datatype", "launch")
STAGE_FIELDS = (
    "activation_recompute", "selective_recompute", "tensor_par_comm_type", "attention_kernel", "zero_stage",
    "optimizer_datatype",
)  # fmt: skip
OFFLOADS = ("weight_offload", "activations_offload", "optimizer_offload")
GRAINS = Grains(
    (*FIELDS_OF_A_MODE, "fully_sharded"), TIME_FIELDS, UPDATE_FIELDS, (*STAGE_FIELDS, *OFFLOADS, "training")
)


@dataclass(slots=True)
class CalibratedLayout:
    """Cells laid out: what of a plan depends neither on rates nor on capacities.

    It does depend on the generation of the processors (which attention kernel), and on whether there is a second memory
    tier. `site` are the fields that a site decides [sites]. `weights`, `activations` and `state` are what offloading
    moves, by stage kind `stage_of` [memory modes]: bytes [sites x stage kinds]. `needs` are the memory needed of either
    tier [memory modes, sites] [bytes], and `first_tier`, `second_tier` the same with sites first.
    """

    cells: CellColumns
    sites: Sites
    modes: StepModes
    site: dict[str, Ints]
    stage_of: Ints
    stage_kinds: int
    weights: Floats
    activations: Floats
    state: Floats
    needs: tuple[Floats, Floats]
    first_tier: Floats
    second_tier: Floats
    repeats: Floats
    share: Floats
    batch: Floats


def lay_out_calibrated(space: CalibratedSpace, numbers: range) -> CalibratedLayout:
    """Lays out these cells of a space, with the memory that everything in them needs."""
    modes = step_modes(space.modes, GRAINS)
    cells = cell_columns(space, numbers)
    cells.possible[:] = 1
    sites, _ = sites_of(space, cells, np.ones(len(cells.number), bool))
    site = _site_fields(cells, sites)
    stages, stage_of = _stages(space, site, modes)
    needs = _needs(modes, stages, stage_of, len(sites.cell))
    batch = cells.batch_size[sites.cell].astype(np.float64)
    plain = case_at(space, site, {})
    first = stages[0]
    blocks = np.maximum(first.blocks, 1.0)
    return CalibratedLayout(
        cells=cells,
        sites=sites,
        modes=modes,
        site=site,
        stage_of=stage_of,
        stage_kinds=len(blocks),
        weights=(first.weights / blocks).T.ravel(),
        activations=(first.activations / (blocks * np.maximum(first.flying, 1e-30))).T.ravel(),
        state=(first.gradients + first.optimizer).T.ravel(),
        needs=needs,
        first_tier=np.ascontiguousarray(needs[0].T),
        second_tier=np.ascontiguousarray(needs[1].T),
        repeats=np.broadcast_to(offload_repeats(plain, first.blocks[0]), batch.shape),
        share=np.broadcast_to(offload_share(plain), batch.shape),
        batch=batch,
    )


def _site_fields(cells: CellColumns, sites: Sites) -> dict[str, Ints]:
    """The fields that a site decides [sites]."""
    names = ("tensor_par", "pipeline_par", "data_par", "batch_size", "context_par", "expert_par", "expert_tensor_par")
    found: dict[str, Ints] = {name: getattr(cells, name)[sites.cell] for name in names}
    found["microbatch_size"], found["pipeline_interleaving"] = sites.microbatch_size, sites.interleaving
    return found


NEUTRAL = {
    "activation_recompute": 2, "selective_recompute": 0, "tensor_par_comm_type": 0, "tensor_par_overlap": 0,
    "attention_kernel": 3, "launch": 1, "expert_overlap": 0, "pipeline_overlap": 0, "zero_stage": 0,
    "gradient_datatype": 0, "optimizer_datatype": 0, "data_par_overlap": 0,
}  # fmt: skip
"""What a case needs of fields that a table does not depend on."""


def case_at(space: CalibratedSpace, site: Mapping[str, Any], modes: Mapping[str, npt.NDArray[Any]]) -> Case:
    """The case of all (mode, site) pairs [modes, sites], or of the sites alone."""
    values: dict[str, Any] = {**NEUTRAL, "datatype": DATATYPES.index(space.datatype)}
    values.update(site)
    for name, values_of in modes.items():
        if name == "fully_sharded":
            # Gathers of sharded weights are always overlapped here.
            values["zero_stage"] = np.where(values_of, FULLY_SHARDED, 0)[:, None]
            values["data_par_overlap"] = values_of[:, None]
        else:
            values[name] = values_of[:, None]
    return case_of_fields(space.model, space.system, values)


def _stages(
    space: CalibratedSpace, site: Mapping[str, Ints], modes: StepModes
) -> tuple[tuple[StageMemory, StageMemory], Ints]:
    """Memory of first and last stage without offloading [stage kinds, sites], and the kind of each memory mode."""
    first, kind_of = distinct(*(modes.memory_modes[name] for name in STAGE_FIELDS))
    kinds = {name: modes.memory_modes[name][first] for name in STAGE_FIELDS}
    case = case_at(space, site, kinds)
    shape = (len(first), len(site["tensor_par"]))

    def stage(last: bool) -> StageMemory:
        found = stage_memory(case, last=last)
        return StageMemory(*(np.broadcast_to(getattr(found, item.name), shape) for item in fields(StageMemory)))

    return (stage(False), stage(True)), kind_of.astype(np.int64)


def _needs(
    modes: StepModes, stages: tuple[StageMemory, StageMemory], stage_of: Ints, count: int
) -> tuple[Floats, Floats]:
    """Memory of both tiers that every (memory mode, site) needs [memory modes, sites] [bytes]."""
    mm = modes.memory_modes
    first, second = np.empty((len(stage_of), count)), np.empty((len(stage_of), count))
    chosen = np.array([mm[name] for name in OFFLOADS], float)
    # Few ways to offload, each for all kinds of stages that have it.
    ways, way_of = np.unique(chosen, axis=1, return_inverse=True)
    for way in range(ways.shape[1]):
        here = np.flatnonzero(way_of == way)
        kinds = stage_of[here]
        first[here], second[here] = tiers((take(stages[0], kinds), take(stages[1], kinds)), *ways[:, way])
    return first, second

"""Calibrated cells laid out: what of a plan depends neither on rates nor on capacities."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.cost_models.calibrated.physics.inputs import Floats
from engine.cost_models.calibrated.rows.memory_requirements import memory_needs, stages_of
from engine.cost_models.calibrated.rows.schedule_points import Outline, outlined
from engine.cost_models.calibrated.space import CalibratedSpace
from engine.executions.arrays import Ints
from engine.space.schedule_points import CellColumns, Sites, StepModes

__all__ = ["CalibratedLayout", "lay_out", "lay_out_calibrated"]


@dataclass(slots=True)
class CalibratedLayout:
    """Cells laid out: what of a plan depends neither on rates nor on capacities.

    It does depend on the generation of the processors (which attention kernel), and on whether there is a second memory
    tier. `site` are the fields that a site decides [sites]. `state` is the optimizer state and gradients of the stage
    with most, by stage kind `stage_of` [memory modes]: bytes [sites x stage kinds]. `needs` are the memory needed of
    either tier [memory modes, sites] [bytes], and `first_tier`, `second_tier` the same with sites first.
    """

    cells: CellColumns
    sites: Sites
    modes: StepModes
    site: dict[str, Ints]
    stage_of: Ints
    stage_kinds: int
    state: Floats
    needs: tuple[Floats, Floats]
    first_tier: Floats
    second_tier: Floats
    batch: Floats


def lay_out_calibrated(space: CalibratedSpace, numbers: range) -> CalibratedLayout:
    """Lays out these cells of a space, with the memory that everything in them needs."""
    return lay_out(space, outlined(space, numbers))


def lay_out(space: CalibratedSpace, outline: Outline) -> CalibratedLayout:
    """Lays out what is outlined; see `lay_out_calibrated`."""
    sites, modes, site = outline.sites, outline.modes, outline.site
    stages = stages_of(space, site, modes)
    needs = memory_needs(stages, modes)
    batch = site["batch_size"].astype(np.float64)
    state = np.maximum.reduce([stages.by_kind(stage.state()) for stage in stages.stages])
    return CalibratedLayout(
        cells=outline.cells,
        sites=sites,
        modes=modes,
        site=site,
        stage_of=stages.kind_of,
        stage_kinds=stages.shape[0] * stages.shape[1],
        state=state.T.ravel(),
        needs=needs,
        first_tier=np.ascontiguousarray(needs[0].T),
        second_tier=np.ascontiguousarray(needs[1].T),
        batch=batch,
    )

"""Calibrated cells as a search for the best execution wants them: little is kept, and most is never computed.

Three sieves, each finer and dearer than the one before, and each for what the last one left:

1. which (site, block mode) anything fits for, which only capacities decide, and which is remembered;
2. a bound of those: their blocks through the pipeline, without gathers of weights, waiting and updates;
3. plans of the few sites that remain (`engine.calibrated.plan`), with the bounds of `engine.calibrated.bounds`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.block_keys import distinct
from engine.calibrated.bounds import CalibratedCandidates, calibrated_candidates
from engine.calibrated.head import Ends
from engine.calibrated.inputs import Floats
from engine.calibrated.layout import lay_out
from engine.calibrated.needs import GIB, needs_by_way, stages_of, without_room_to_offload
from engine.calibrated.outline import BLOCK_FIELDS, case_at, outlined
from engine.calibrated.parameters import Parameters
from engine.calibrated.plan import TABLE_CHUNK, CalibratedPlan, block_keys, blocks_at, plan_calibrated
from engine.calibrated.space import CalibratedSpace
from engine.calibrated.step import BlockLevel, running_seconds, straggling
from engine.sites import mode_counts

__all__ = ["Ground"]

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

SITES_AT_ONCE = 1024
"""Sites whose memory is looked at together: a few MiB, which stay in cache."""
BOUNDS_AT_ONCE = 262_144
"""(site, block mode) pairs whose bounds are computed together."""
FITTING_KEPT = 32 * 2**20
"""Bytes of remembered fits, beyond those of the latest capacities."""


@dataclass(slots=True)
class _Fitting:
    """What fits at two capacities: groups of block modes that anything fits for, as bits [sites, bytes]; executions
    that run."""

    bits: npt.NDArray[np.uint8]
    feasible: int


class Ground:
    """Cells of a calibrated space, for systems that differ in rates and capacities only. Ids are those of the space."""

    def __init__(self, space: CalibratedSpace, numbers: range) -> None:
        self.outline = outlined(space, numbers)
        modes, sites = self.outline.modes, self.outline.sites
        first, self._block_of = distinct(*(modes.time_modes[name] for name in BLOCK_FIELDS))
        self._block_modes = {name: modes.time_modes[name][first] for name in BLOCK_FIELDS}
        self._count = mode_counts(space, modes)
        exists = np.maximum(modes.position[0], modes.position[1]) >= 0
        # Which memory modes and block modes go together in some mode, per kind of cell; many block modes with the same.
        partners = np.zeros((len(exists), self._count.shape[1], len(first)), bool)
        kind, mode = np.nonzero(exists)
        partners[kind, modes.memory[mode], self._block_of[modes.time[mode]]] = True
        columns = np.packbits(partners.reshape(-1, len(first)).T, axis=1)
        groups: dict[bytes, int] = {}
        self._group_of = np.array([groups.setdefault(column.tobytes(), len(groups)) for column in columns], np.int64)
        _, one_of = np.unique(self._group_of, return_index=True)
        self._partners = [[np.flatnonzero(column) for column in table[:, one_of].T] for table in partners]
        self._fitting: OrderedDict[tuple[float, float], _Fitting] = OrderedDict()
        self.size = len(sites.cell)

    def feasible(self, space: CalibratedSpace) -> int:
        """Executions that run on the space's system."""
        return self._fits(space).feasible

    def bounds(self, space: CalibratedSpace) -> Iterator[tuple[Ints, Ints, Floats]]:
        """Sites, block modes, and the sample rate that none of their executions exceeds [samples/s], up to rounding;
        all of those that anything fits for, in parts."""
        p, width = space.parameters, len(self._block_modes["launch"])
        bits = self._fits(space).bits
        keys, shape_of, count = block_keys(self.outline.site, self._block_modes)
        level = _together(space, p, keys)
        modes = self._block_modes | {"pipeline_overlap": np.ones(width, bool)}
        step = max(1, BOUNDS_AT_ONCE // max(1, width))
        for start in range(0, self.size, step):
            here = slice(start, min(start + step, self.size))
            possible = np.unpackbits(bits[here], axis=1).astype(bool)[:, self._group_of].T
            if not possible.any():
                continue
            site = {name: array[here] for name, array in self.outline.site.items()}
            case = case_at(space, site, modes)
            row = np.arange(width)[:, None] * count + shape_of[here]
            seconds = running_seconds(case, level.take(row), p) * (1.0 + straggling(case, p)) + p.step_constant
            mode, place = np.nonzero(possible)
            yield place + start, mode, site["batch_size"][place] / seconds[mode, place]

    def plan(
        self, space: CalibratedSpace, site: Ints, mode: Ints | None = None
    ) -> tuple[CalibratedPlan, CalibratedCandidates]:
        """A plan of these sites, and its candidates that have these block modes, one for each site listed, or all."""
        kept, place = np.unique(site, return_inverse=True)
        wanted = None
        if mode is not None:
            chosen = np.zeros((len(kept), len(self._block_modes["launch"])), bool)
            chosen[place, mode] = True
            wanted = chosen[:, self._block_of]
        plan = plan_calibrated(space, lay_out(space, self.outline.at(kept)), rows=False, wanted=wanted)
        return plan, calibrated_candidates(plan)

    def site_of(self, execution: int) -> Ints:
        """The site that an execution belongs to, as an array of one; empty where it is of other cells."""
        sites = self.outline.sites
        rest = execution - sites.first
        position, other = np.divmod(rest, sites.stride)
        modes_of = np.array([(table >= 0).sum(axis=1) for table in self.outline.modes.position]).sum(axis=0)
        return np.flatnonzero((rest >= 0) & (other == 0) & (position < modes_of[sites.kind]))

    def _fits(self, space: CalibratedSpace) -> _Fitting:
        capacities = (space.system.mem1.capacity_gib * GIB, space.system.mem2.capacity_gib * GIB)
        found = self._fitting.get(capacities)
        if found is None:
            found = self._fitting[capacities] = self._fit(space, capacities)
            while len(self._fitting) > 1 and sum(each.bits.nbytes for each in self._fitting.values()) > FITTING_KEPT:
                self._fitting.popitem(last=False)
        return found

    def _fit(self, space: CalibratedSpace, capacities: tuple[float, float]) -> _Fitting:
        modes, kinds = self.outline.modes, self.outline.sites.kind
        bits = np.zeros((self.size, -(-len(self._partners[0]) // 8)), np.uint8)
        feasible = 0
        for kind in np.unique(kinds).tolist():
            every, listed = np.flatnonzero(kinds == kind), self._count[kind] > 0
            for start in range(0, len(every), SITES_AT_ONCE):
                here = every[start : start + SITES_AT_ONCE]
                site = {name: array[here] for name, array in self.outline.site.items()}
                fits = listed[:, None] & ~without_room_to_offload(space, modes, site["pipeline_par"])
                for chosen, stage, first, second in needs_by_way(stages_of(space, site, modes), modes):
                    fits[chosen] &= ((first <= capacities[0]) & (second <= capacities[1]))[stage]
                feasible += int(self._count[kind] @ np.count_nonzero(fits, axis=1))
                possible = np.array([fits[partners].any(axis=0) for partners in self._partners[kind]])
                bits[here] = np.packbits(possible, axis=0).T
        return _Fitting(bits, feasible)


def _together(space: CalibratedSpace, p: Parameters, keys: dict[str, npt.NDArray[Any]]) -> BlockLevel:
    """Blocks with forward and backward as one, of all keys."""
    parts = []
    for start in range(0, max(1, len(keys["tensor_par"])), TABLE_CHUNK):
        part = {name: array[start : start + TABLE_CHUNK] for name, array in keys.items()}
        parts.append(blocks_at(space, p, part).together())
    dense, sparse = (
        replace(getattr(parts[0], name), forward=np.concatenate([getattr(part, name).forward for part in parts]))
        for name in ("dense", "sparse")
    )
    return BlockLevel(dense, sparse, Ends(*map(np.concatenate, zip(*(part.ends for part in parts), strict=True))))

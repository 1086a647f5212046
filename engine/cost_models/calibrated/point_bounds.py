"""Bounds of schedule points and of their search modes: the pipeline's highest rate, and the update after it.

A search mode is a block mode whose weights are gathered block by block or not. The bound of a schedule point is the
bound of its fastest search mode, with each part of a block as fast as in the fastest similar mode: one with the same
exchange of activations and the same sharding of weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.columns import by_name
from engine.cost_models.calibrated.fields import FULLY_SHARDED
from engine.cost_models.calibrated.physics.communication.sharding import exchange_passes, exposed_exchange
from engine.cost_models.calibrated.physics.inputs import Floats
from engine.cost_models.calibrated.physics.layers.head import Ends
from engine.cost_models.calibrated.physics.parameters import Parameters
from engine.cost_models.calibrated.physics.step import (
    BlockLevel,
    Update,
    running_seconds,
    straggling,
    update_level,
    whole_step,
)
from engine.cost_models.calibrated.rows.prepared_rows import blocks_at
from engine.cost_models.calibrated.rows.schedule_points import case_at
from engine.cost_models.calibrated.space import CalibratedSpace
from engine.executions.arrays import Flags, Ints, distinct
from engine.executions.work_sizes import work_sizes
from models import datatypes

__all__ = ["PointBounds", "blocks_together", "least_update", "quickest_gathers", "rates_of"]

Fields = Mapping[str, npt.NDArray[Any]]


class PointBounds:
    """Bounds of schedule points at the rates of one system.

    Args:
        space: the space at the system.
        level: blocks of all pairs of block modes and shapes, forward and backward as one [s].
        search: fields of the search modes by name, each [search modes].
        block_of: block mode of each search mode.
        group_of: group of each search mode; modes of a group exchange activations alike, and shard weights or do not.
        possible: groups that anything fits for [groups, alike points].
        shape: shape of the blocks of each of the alike points.
        update_modes: fields of the modes of the update by name.
    """

    def __init__(
        self,
        space: CalibratedSpace,
        level: BlockLevel,
        *,
        search: Fields,
        block_of: Ints,
        group_of: Ints,
        possible: Flags,
        shape: Ints,
        update_modes: Fields,
    ) -> None:
        self._space, self._update_modes = space, update_modes
        _, first = np.unique(group_of, return_index=True)
        exchange, sharded = search["tensor_par_comm_type"][first], search["fully_sharded"][first]
        one, kind_of = distinct(exchange, sharded)
        self._exchange, self._sharded = exchange[one], sharded[one]
        # Modes of one kind share the exchange and whether weights are gathered.
        kinds = [np.flatnonzero(kind_of == kind) for kind in range(len(one))]
        self._there = np.array([possible[groups].any(axis=0) for groups in kinds])
        by_group = np.argsort(group_of, kind="stable")
        starts = np.flatnonzero(np.diff(group_of[by_group], prepend=-1))
        width = int(block_of.max()) + 1

        def fastest(values: Floats) -> Floats:
            """The least of what the modes of each kind have [kinds, alike points]; endless where nothing fits."""
            of_modes = values.reshape(width, -1)[block_of[by_group]]
            found = np.where(possible, np.minimum.reduceat(of_modes, starts, axis=0)[:, shape], np.inf)
            return np.array([found[groups].min(axis=0) for groups in kinds])

        self._blocks = {
            kind: replace(
                block,
                forward=fastest(block.forward),
                paired=fastest(block.paired) if np.ndim(block.paired) else np.zeros(()),
            )
            for kind, block in level.kinds.items()
        }
        self._ends = [fastest(end) for end in level.ends]

    def of_pipelines(self, point: Fields, alike: Ints) -> Floats:
        """Returns sample rates that no execution of a schedule point exceeds, by its pipeline alone [samples/s]
        [points]; minus infinity where nothing fits.

        Args:
            point: fields of the schedule points by name, each [points].
            alike: which of the alike points each of them is [points].
        """
        # Whether weights are gathered is not told apart: that of each exchange which is there and has least to do.
        starts = np.flatnonzero(np.diff(self._exchange, prepend=-1))
        modes = {"tensor_par_comm_type": self._exchange[starts]}
        return self._fastest(point, alike, modes, starts, None)

    def of_steps(self, point: Fields, alike: Ints) -> Floats:
        """Returns the same by the pipeline with gathers of sharded weights, and by the update: finer and dearer.

        Args:
            point, alike: as for `of_pipelines`.
        """
        modes = {"tensor_par_comm_type": self._exchange, "fully_sharded": self._sharded}
        update = least_update(self._space, point, self._update_modes, self._sharded)
        return self._fastest(point, alike, modes, np.arange(len(self._exchange)), update)

    def _fastest(self, point: Fields, alike: Ints, modes: Fields, starts: Ints, update: Update | None) -> Floats:
        there = np.logical_or.reduceat(self._there, starts, axis=0)

        def least(values: Floats) -> Floats:
            if not np.ndim(values):
                return values
            found = np.where(there, np.minimum.reduceat(values, starts, axis=0), 0.0)
            return found[:, alike]

        blocks = {
            kind: replace(block, forward=least(block.forward), paired=least(block.paired))
            for kind, block in self._blocks.items()
        }
        level = BlockLevel(blocks, Ends(*map(least, self._ends)))
        every = {**modes, **quickest_gathers(self._update_modes, len(starts))}
        rate = rates_of(self._space, point, every, level, update)
        found: Floats = np.where(there[:, alike], rate, -np.inf).max(axis=0)
        return found


def quickest_gathers(modes: Fields, number: int) -> Fields:
    """Return the choices of a space that no other gathers weights and sends messages in less time than, for some search
    modes, which do not distinguish them [search modes].

    Args:
        modes: fields of the modes of the update by name.
        number: of search modes.
    """
    sizes = np.array([datatypes.named(word).num_bytes for word in by_name("gradient_datatype").choices])
    given = np.unique(modes["gradient_datatype"])
    return {
        "gradient_datatype": np.full(number, given[np.argmin(sizes[given])]),
        "fp8_param_gather": np.full(number, bool(np.any(modes["fp8_param_gather"]))),
        "pipeline_overlap": np.ones(number, bool),
    }


def least_update(space: CalibratedSpace, point: Fields, modes: Fields, sharded: npt.NDArray[Any]) -> Update:
    """Return the least time of any update of a schedule point, part by part [modes, points] [s].

    Args:
        space: the space at a system.
        point: fields of the schedule points by name, each [points].
        modes: fields of the modes of the update by name.
        sharded: whether weights are sharded in each of the modes that are asked about [modes].
    """
    update = update_level(case_at(space, point, modes), space.parameters)
    shape, full = (len(modes["launch"]), len(point["tensor_par"])), modes["zero_stage"] == FULLY_SHARDED

    def least(values: Floats) -> Floats:
        every = np.broadcast_to(values, shape)
        either = np.array([every[here].min(axis=0, initial=np.inf) for here in (~full, full)])
        return either[sharded.astype(np.intp)]

    return Update(least(update.exchange), least(update.tied), least(update.optimizer))


def rates_of(
    space: CalibratedSpace, point: Fields, modes: Fields, level: BlockLevel, update: Update | None = None
) -> Floats:
    """Returns sample rates of pipelines of these blocks, with this update, if nothing else took any time [samples/s]
    [modes, points].

    Args:
        space: the space at a system.
        point: fields of the schedule points by name, each [points].
        modes: fields of modes by name, each [modes].
        level: blocks with forward and backward as one [modes, points] [s].
        update: what comes once per step [modes, points] [s]; None for nothing.
    """
    p, case = space.parameters, case_at(space, point, modes)
    running, share = running_seconds(case, level, p, split=False), straggling(case, p)
    if update is None:
        return np.asarray(point["batch_size"] / whole_step(running, share, p).seconds)
    # As in `bounds`: a longer pipeline hides less of an exchange than it takes longer.
    window = running * (exchange_passes(case) / case.microbatches)
    # Overlapped as well as it can be.
    shown = exposed_exchange(update.exchange, np.ones(()), window, p)
    whole = whole_step(running, share, p, update.optimizer, update.tied, exchange=shown)
    return np.asarray(point["batch_size"] / whole.seconds)


def blocks_together(space: CalibratedSpace, p: Parameters, shapes: Mapping[str, Ints], modes: Fields) -> BlockLevel:
    """Returns blocks with forward and backward as one, of all pairs of modes and shapes, mode by mode [s].

    Args:
        space: the space at a system.
        p: parameters of a calibration.
        shapes: fields of the shapes of blocks by name, each [shapes].
        modes: fields of the block modes by name, each [modes].
    """
    width, parts = len(modes["launch"]), []
    step = max(1, work_sizes().rows_tabulated // max(1, width))
    for start in range(0, max(1, len(shapes["tensor_par"])), step):
        part = {name: array[start : start + step] for name, array in shapes.items()}
        parts.append(blocks_at(space, p, part, modes).together())

    def joined(values: Iterable[Floats]) -> Floats:
        return np.concatenate([value.reshape(width, -1) for value in values], axis=1).ravel()

    kinds = {
        kind: replace(
            block,
            forward=joined([part.kinds[kind].forward for part in parts]),
            paired=joined([part.kinds[kind].paired for part in parts]),
        )
        for kind, block in parts[0].kinds.items()
    }
    return BlockLevel(kinds, Ends(*map(joined, zip(*(part.ends for part in parts), strict=True))))

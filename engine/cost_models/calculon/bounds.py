"""Upper bounds of sample rates: what rows can at best reach, without evaluating them.

Rows that share a schedule point, block times and networks share a bound: the step without what offloading, or a longer
gradient exchange, can only add to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from engine.cost_models.calculon.physics.batch import pipeline_part
from engine.cost_models.calculon.physics.data_parallel import block_exchanges
from engine.cost_models.calculon.physics.pipeline import Stages
from engine.cost_models.calculon.rows.prepared_rows import PreparedRows, RowTable
from engine.executions.arrays import Flags, Floats, Ints, take
from engine.space.rows import ROWS_PER_CHUNK
from engine.space.schedule_points import SchedulePoints, StepModes

__all__ = ["Candidates", "bounds", "candidates"]


@dataclass(slots=True)
class Candidates:
    """Rows that share a bound, each an array [candidates]; no rate matters to them.

    `group` and `place` as in `engine.cost_models.calculon.rows.prepared_rows`, `time` the block times of a mode. `key`
    is their block key, `whole` and `sharded` where the optimizer's figures are. `data_nets` [tiers, candidates] are the
    networks that the gradient exchange may use, none where there is no exchange.
    """

    group: Ints
    place: Ints
    time: Ints
    cell: Ints
    key: Ints
    whole: Ints
    sharded: Ints
    training: Flags
    pipeline_net: Ints
    members: Floats
    batch: Floats
    data_nets: Flags
    stages: Stages


def candidates(prepared: RowTable | PreparedRows, fits: Flags) -> Candidates:
    """Returns the candidates of all (memory mode, schedule point) pairs that fit.

    Args:
        prepared: rows, or their table before any rate is known.
        fits: which pairs have memory [memory modes, schedule points].
    """
    points, modes, cells = prepared.points, prepared.modes, prepared.cells
    possible = _possible(points, modes, fits)
    parts = list(_of_groups(prepared, possible))
    empty = np.zeros(0, np.int64)
    group, place, point, time, key, pipeline_net = (
        np.concatenate(column) for column in (zip(*parts, strict=True) if parts else [(empty,)] * 6)
    )
    cell = points.cell[point]
    kind = _optimizer_kinds(modes)[time]
    exchanging = np.array([item.exchanges for item in prepared.groups], bool)
    nets = np.zeros((len(prepared.groups), prepared.space.tiers), bool)
    for number, item in enumerate(prepared.groups):
        nets[number, list(item.data_nets)] = exchanging[number]
    return Candidates(
        group=group,
        place=place,
        time=time,
        cell=cell,
        key=key,
        whole=prepared.optimizer_of[0][point] + kind,
        sharded=prepared.optimizer_of[1][point] + kind,
        training=modes.time_modes["training"][time],
        pipeline_net=pipeline_net,
        members=cells.data_par[cell].astype(np.float64),
        batch=cells.batch_size[cell].astype(np.float64),
        data_nets=np.ascontiguousarray(nets[group].T),
        stages=take(prepared.stages, point),
    )


def _of_groups(
    prepared: RowTable | PreparedRows, possible: Flags
) -> Iterator[tuple[Ints, Ints, Ints, Ints, Ints, Ints]]:
    """Per group: group number, place, schedule point, time, block key and pipeline network [candidates]."""
    for number, group in enumerate(prepared.groups):
        place, time = np.nonzero(possible[group.point])
        point = group.point[place]
        key = group.block[place] + time
        yield np.full(len(place), number), place, point, time, key, np.full(len(place), group.pipeline_net)


def _possible(points: SchedulePoints, modes: StepModes, fits: Flags) -> Flags:
    """Which schedule points have a mode of each block time that fits [points, times]."""
    exists = np.maximum(modes.position[0], modes.position[1]) >= 0
    result = np.zeros((len(points.cell), len(modes.time_modes["training"])), bool)
    for kind in np.unique(points.kind).tolist():
        here = np.flatnonzero(points.kind == kind)
        partners = np.zeros((result.shape[1], len(fits)), bool)
        there = exists[kind]
        partners[modes.time[there], modes.memory[there]] = True
        fitting = fits[:, here]
        result[here] = np.array([fitting[memory].any(axis=0) for memory in partners]).T
    return result


def _optimizer_kinds(modes: StepModes) -> Ints:
    """Which optimizer figures go with each block time [times]."""
    times, kinds = modes.time_modes, modes.optimizer_modes
    overlapped = times["tensor_par_overlap"] != 0
    agrees = (
        (kinds["training"][None, :] == times["training"][:, None])
        & (kinds["attention_type"][None, :] == times["attention_type"][:, None])
        & (kinds["overlapped"][None, :] == overlapped[:, None])
    )
    result: Ints = np.argmax(agrees, axis=1)
    return result


def bounds(prepared: PreparedRows, rows: Candidates) -> Floats:
    """Returns the sample rate that no execution of a candidate exceeds [samples/s] [candidates], up to rounding.

    Args:
        prepared: rows of the cells.
        rows: candidates among them.
    """
    result = np.empty(len(rows.group))
    for start in range(0, len(result), ROWS_PER_CHUNK):
        here = slice(start, start + ROWS_PER_CHUNK)
        result[here] = _bounds_of(prepared, rows, here)
    return result


def _bounds_of(prepared: PreparedRows, rows: Candidates, here: slice) -> Floats:
    b = take(prepared.block, rows.key[here])
    training = rows.training[here]
    # The cheaper of a sharded and an unsharded optimizer, and of a sharded and an unsharded exchange.
    optimizer = np.minimum(prepared.optimizer.time[rows.whole[here]], prepared.optimizer.time[rows.sharded[here]])
    pipe = pipeline_part(
        prepared.rate,
        take(rows.stages, here),
        b,
        optimizer,
        pipeline_net=rows.pipeline_net[here],
        training=training,
        moved=None,
    )
    members, networks = rows.members[here], prepared.rate.networks
    exchange = np.full(len(b.weights), np.inf)
    for tier in range(prepared.space.tiers):
        seconds = np.minimum(*block_exchanges(networks, np.asarray(tier), b.weights, members))
        exchange = np.minimum(exchange, np.where(rows.data_nets[tier][here], seconds, np.inf))
    total = pipe.total + np.where(training & np.isfinite(exchange), exchange, 0.0)
    return rows.batch[here] / total

"""Upper bounds of sample rates: what rows can at best reach, without evaluating them.

Rows that share a schedule point, block times and networks share a bound: the step without what offloading, or a longer
gradient exchange, can only add to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np

from engine.cost_models.calculon.physics.data_parallel import block_exchanges
from engine.cost_models.calculon.physics.pipeline import PipelineShape
from engine.cost_models.calculon.physics.rates import SystemRates
from engine.cost_models.calculon.physics.step_parts import StepBlock, pipeline_part
from engine.cost_models.calculon.rows.prepared_rows import PreparedRows, RowTable
from engine.executions.arrays import Flags, Floats, Ints, take
from engine.executions.work_sizes import work_sizes
from engine.space.schedule_points import SchedulePoints, StepModes

__all__ = ["CalculonCandidates", "bounds", "candidates", "point_bounds"]


@dataclass(slots=True)
class CalculonCandidates:
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
    stages: PipelineShape

    def at(self, chosen: Ints) -> CalculonCandidates:
        """Returns these candidates alone.

        Args:
            chosen: positions of the candidates.
        """
        columns = {item.name: getattr(self, item.name) for item in fields(self)}
        stages, nets = columns.pop("stages"), columns.pop("data_nets")
        rows = {name: column[chosen] for name, column in columns.items()}
        return CalculonCandidates(**rows, data_nets=nets[:, chosen], stages=take(stages, chosen))


def candidates(prepared: RowTable | PreparedRows, fits: Flags) -> CalculonCandidates:
    """Returns the candidates of all (memory mode, schedule point) pairs that fit.

    Args:
        prepared: rows, or the row table without rates.
        fits: pairs that fit in memory [memory modes, schedule points].
    """
    points, modes, cells = prepared.points, prepared.modes, prepared.cells
    possible = _possible_times(points, modes, fits)
    # A candidate is a schedule point with one block time: all that its step depends on but the exchange.
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
    return CalculonCandidates(
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


def _possible_times(points: SchedulePoints, modes: StepModes, fits: Flags) -> Flags:
    """Return which schedule points have a fitting mode of each block time [points, times]."""
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
    """Return the optimizer figures that belong to each block time [times]."""
    times, kinds = modes.time_modes, modes.optimizer_modes
    overlapped = times["tensor_par_overlap"] != 0
    agrees = (
        (kinds["training"][None, :] == times["training"][:, None])
        & (kinds["attention_type"][None, :] == times["attention_type"][:, None])
        & (kinds["overlapped"][None, :] == overlapped[:, None])
    )
    result: Ints = np.argmax(agrees, axis=1)
    return result


def bounds(prepared: PreparedRows, rows: CalculonCandidates) -> Floats:
    """Returns the sample rate that no execution of a candidate exceeds [samples/s] [candidates], up to rounding.

    Args:
        prepared: rows of the cells.
        rows: candidates among them.
    """
    result = np.empty(len(rows.group))
    together = work_sizes().rows_evaluated
    for start in range(0, len(result), together):
        here = slice(start, start + together)
        result[here] = _bounds_of(prepared, rows, here)
    return result


def point_bounds(row_table: RowTable, rate: SystemRates, blocks: StepBlock, optimizer_time: Floats) -> Floats:
    """Returns the sample rate that no execution of a schedule point exceeds [samples/s] [points], up to rounding; minus
    infinity of those without any.

    It is the bound of a candidate whose every figure is the least that any mode of the schedule point has. A step is a
    sum of these with weights that are not negative, and collectives take no less time for more.

    Args:
        row_table: the cells.
        rate: rates of the system.
        blocks: figures of the distinct blocks, each [keys].
        optimizer_time: the optimizer's step on them [keys] [s].
    """
    points, modes, cells = row_table.points, row_table.modes, row_table.cells
    found = np.full(len(points.cell), -np.inf)
    groups = [group for group in row_table.groups if len(group.point)]
    if not groups:
        return found
    exists = np.maximum(modes.position[0], modes.position[1]) >= 0
    kinds = [np.unique(modes.time[there]) for there in exists]
    # The least of each figure over the modes, so that the sum of a step with any of them is no less.
    least = _least_blocks(blocks, row_table.keyed.width, kinds)
    optimizers = [np.unique(modes.optimizer[there]) for there in exists]
    trains = np.array([bool(there.any()) and bool(modes.fields["training"][there].all()) for there in exists])
    for group in groups:
        point = group.point
        kind, cell = points.kind[point], points.cell[point]
        update = np.zeros(len(point))
        for number in np.unique(kind).tolist():
            here = np.flatnonzero(kind == number)
            starts = np.array([start[point[here]] for start in row_table.optimizer_of])
            update[here] = optimizer_time[starts[:, :, None] + optimizers[number]].min(axis=(0, 2))
        b = take(least, kind * (len(least.weights) // len(kinds)) + group.block // row_table.keyed.width)
        pipe = pipeline_part(
            rate,
            take(row_table.stages, point),
            b,
            update,
            pipeline_net=np.asarray(group.pipeline_net),
            training=trains[kind],
            moved=None,
        )
        total = pipe.total
        if group.exchanges:
            members = cells.data_par[cell].astype(np.float64)
            # The cheapest network, and the cheaper of a sharded and a whole optimizer.
            exchange = np.minimum.reduce(
                [
                    np.minimum(*block_exchanges(rate.networks, np.asarray(net), b.weights, members))
                    for net in group.data_nets
                ]
            )
            total = total + np.where(trains[kind], exchange, 0.0)
        found[point] = np.maximum(found[point], cells.batch_size[cell] / total)
    return found


def _least_blocks(blocks: StepBlock, width: int, kinds: Sequence[Ints]) -> StepBlock:
    """The least of every figure of a block among the block times of each kind of cell, kind by kind, each
    [kinds x (pairs with a network)]; endless for kinds without any."""
    names = [item.name for item in fields(blocks)]
    figures = np.array([getattr(blocks, name) for name in names]).reshape(len(names), -1, width)
    least = [figures[:, :, times].min(axis=2, initial=np.inf) for times in kinds]
    return StepBlock(*np.concatenate(least, axis=1))


def _bounds_of(prepared: PreparedRows, rows: CalculonCandidates, here: slice) -> Floats:
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
    # One block's exchange at least is exposed (`data_parallel.least_exposed`).
    total = pipe.total + np.where(training & np.isfinite(exchange), exchange, 0.0)
    return rows.batch[here] / total

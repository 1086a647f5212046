"""Pipelines with unequal stages: the stage that sets the pace, and its wait for the others.

1F1B and ZB-H1 take the longest of a path through every stage: the time until it starts, its own work, its wait while
others fill and drain, and the time until the first stage ends. A slow early stage works while others fill and drain, so
the slowest
stage is not taken to be the last. For the other schedules the slowest stage has the steady state and the mean of all
others fills and drains; that is exact for equal stages, and at most a few percent too long for unequal ones.

Sources: the steady state and its ends, the calibration study on 1,147 measured rows; interleaving, Narayanan et al.
2021 (arXiv:2104.04473, section 2.2); paths through unequal stages, stated by us, never longer than a replay of the
schedule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from engine.columns.stage_layouts import EVEN
from engine.cost_models.calibrated.physics.case_cache import once_per_case
from engine.cost_models.calibrated.physics.communication.networks import rate_over
from engine.cost_models.calibrated.physics.inputs import Case, Floats
from engine.cost_models.calibrated.physics.layers.rates import SustainedRates
from engine.cost_models.calibrated.physics.parameters import Parameters
from engine.cost_models.calibrated.physics.pipeline.schedules import (
    COMBINED,
    DUALPIPE,
    DUALPIPE_V,
    INTERLEAVED,
    ONE_F_ONE_B,
    PAIRED,
    SPLIT,
    ZB_H1,
    ZB_V,
    among,
    hops,
    idle,
    overlapped_pairs,
)
from engine.cost_models.calibrated.physics.pipeline.stages import ENDS, pace_of
from engine.executions.arrays import Columns, Flags

__all__ = ["Load", "StageCriticalPath", "critical_path", "message_time", "messages_time", "pairs_per_stage"]


def message_time(case: Case, rates: SustainedRates, p: Parameters) -> Floats:
    """Returns the seconds of one message of activations between neighbouring stages [rows] [s]; 0 without a pipeline.

    Some neighbours are as far apart as any ranks: on either side of what the outermost network in use connects.

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        rates: sustained rates of the accelerators [FLOP/s, bytes/s] [rows].
        p: parameters of a calibration.
    """
    layout = case.layout
    split = np.where(case.software.split_messages > 0, layout.tensor_par, 1.0)
    rate = rate_over(case.processors, case.accelerator, rates)
    # 2 T h bytes of activations, divided by t where ranks send a part each (Narayanan et al. 2021, section 4.1).
    time = 2.0 * case.tokens * case.model.hidden / split / rate + p.latency
    return np.where(layout.pipeline_par > 1, time, 0.0)


@dataclass(frozen=True, slots=True)
class Load:
    """Load of a stage per microbatch, arrays [rows] [s]: all of its work; forward; gradients of weights; time saved by
    overlapped pairs; the work of all stages before it, and its forward and gradients of weights. The last two are known
    of stages between the first and the last only, where a schedule separates gradients."""

    whole: Floats
    forward: Floats
    weights: Floats
    saved: Floats
    before: Floats
    forward_before: Floats = field(default_factory=lambda: np.zeros(()))
    weights_before: Floats = field(default_factory=lambda: np.zeros(()))

    def take(self, rows: npt.NDArray[np.intp]) -> Load:
        """Returns some rows; numbers stay as they are [s].

        Args:
            rows: positions of the rows [rows].
        """
        return _take_rows(self, rows)


@dataclass(frozen=True, slots=True)
class _Pipelines:
    """Properties of pipelines that paths depend on, apart from the loads of their stages, arrays [rows].

    A pipeline has `stages`, of which a chunk is the share `each`, and runs `microbatches`. Its slowest stage works at
    `steady` of them, including the ones missing for whole groups, and takes `pace` times as long for each as its blocks
    do; see `critical_path`. Forward and backward of `pairs` of them overlap. `early` is True for 1F1B in several
    stages, `further` for schedules other than 1F1B and interleaved.
    """

    stages: Floats
    each: Floats
    schedule: Floats
    microbatches: Floats
    steady: Floats
    pace: Floats
    pairs: Floats
    early: Flags
    further: Flags


@once_per_case
def _describe_pipelines(case: Case) -> _Pipelines:
    """Return the pipelines of a case."""
    layout, microbatches = case.layout, case.microbatches
    stages, each, schedule = layout.pipeline_par, 1.0 / layout.pipeline_interleaving, layout.schedule
    # Whole groups of p would need this many more microbatches.
    missing = np.mod(-microbatches, stages)
    return _Pipelines(
        stages=stages,
        each=each,
        schedule=schedule,
        microbatches=microbatches,
        # n - 1/v + r (v - 1)/v microbatches at the pace of the slowest stage.
        steady=microbatches - each + missing * (1.0 - each),
        pace=pace_of(case),
        pairs=pairs_per_stage(case) if among(schedule, PAIRED).any() else np.zeros(()),
        early=(schedule == ONE_F_ONE_B) & (each == 1.0) & (stages > 1),
        further=schedule > INTERLEAVED,
    )


@dataclass(frozen=True, slots=True)
class StageCriticalPath:
    """All microbatches through the pipeline, arrays [rows].

    `seconds` in all without messages that fill it [s], `late` the part of them in which every microbatch waits for a
    round trip [s]; `critical` is the stage whose path is the longest; `total` the time per microbatch of all stages,
    not less
    than that of one [s].
    """

    seconds: Floats
    late: Floats
    critical: npt.NDArray[np.intp]
    total: Floats


def critical_path(
    case: Case, loads: Sequence[Load], total: Load, positions: Sequence[Floats], message: Floats, *, split: bool = True
) -> StageCriticalPath:
    """Returns the longest path of every row through any of some stages [rows] [s].

    An interleaved pipeline takes n x + (sum of all x - x) / v + r x (v - 1) / v seconds by a stage that takes x. It
    runs n microbatches; the second part fills and drains the pipeline. In the third r microbatches are missing for n to
    be whole groups of p: an interleaved schedule sends a group through all stages before its next chunk, and a group
    that lacks some waits as if they were there, at every chunk but the last (Narayanan et al., arXiv:2104.04473,
    section 2.2, ask for whole groups; Calculon charges the same). Where a layout has chunks that are not alike, stages
    wait for each other in the steady state, too (`pace`). Neither a slower stage nor a larger sum ever makes it
    shorter.

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        loads: loads of the first stage, the last, and others between them [rows] [s].
        total: the sum over all stages [rows] [s].
        positions: positions of the stages, from 0 [rows].
        message: seconds of one message [rows] [s].
        split: whether `loads` have forward and gradients of weights separately; otherwise an upper bound over all
            shares.
    """
    pipelines = _describe_pipelines(case)
    # A stage alone waits for nobody, not even for what rounding leaves.
    slowest, critical = loads[0].whole, np.zeros(np.shape(loads[0].whole), np.intp)
    for number, load in enumerate(loads[1:], 1):
        critical = np.where(load.whole > slowest, number, critical)
        slowest = np.maximum(slowest, load.whole)
    whole = np.where(pipelines.stages == 1, slowest, np.maximum(total.whole, slowest))
    # n x + (sum of all x - x)/v + r x (v - 1)/v.
    seconds = np.asarray(pipelines.steady * slowest * pipelines.pace + pipelines.each * whole)
    # Where the last stage is the slowest of 1F1B, its path is the longest; so is the slowest stage's of an interleaved
    # pipeline.
    apart = np.broadcast_to((pipelines.early & (critical != ENDS - 1)) | pipelines.further, seconds.shape)
    if apart.ndim != 1 and apart.any():
        # Others keep theirs, so that no row depends on which are computed with it.
        found, through = _longest_path(pipelines, loads, total, whole, positions, split=split)
        seconds, critical = np.where(apart, found, seconds), np.where(apart, through, critical)
    elif apart.any():
        rows, critical = np.flatnonzero(apart), np.broadcast_to(critical, apart.shape).copy()
        seconds[rows], critical[rows] = _longest_path(
            _take_rows(pipelines, rows),
            [load.take(rows) for load in loads],
            total.take(rows),
            _index_rows(whole, rows),
            [_index_rows(position, rows) for position in positions],
            split=split,
        )
    late: Floats = np.zeros(())
    beside = pipelines.early & (case.software.overlap_pipeline > 0)
    if split and np.any(beside):
        late = np.where(beside, _late_messages(case, whole, message, seconds), 0.0)
        seconds = seconds + late
    return StageCriticalPath(seconds, late, critical, whole)


def _index_rows(values: Floats, rows: npt.NDArray[np.intp]) -> Floats:
    """Return some rows of an array; a number is returned unchanged."""
    return np.asarray(values[rows] if np.ndim(values) else values)


def _take_rows(table: Columns, rows: npt.NDArray[np.intp]) -> Columns:
    """Return some rows of a dataclass of arrays; numbers are unchanged."""
    return type(table)(*(_index_rows(getattr(table, name), rows) for name in table.__dataclass_fields__))


def _longest_path(
    pipelines: _Pipelines,
    loads: Sequence[Load],
    total: Load,
    whole: Floats,
    positions: Sequence[Floats],
    *,
    split: bool,
) -> tuple[Floats, npt.NDArray[np.intp]]:
    """The longest of the paths through each of some stages [s], and which it is; arguments as of `critical_path`, of
    which `whole` is the total."""
    of_slowest = pipelines.steady * pipelines.pace
    early, further = bool(np.any(pipelines.early)), bool(np.any(pipelines.further))
    paths = []
    for number, (load, position) in enumerate(zip(loads, positions, strict=True)):
        path = of_slowest * load.whole + pipelines.each * whole
        if early and number != ENDS - 1:
            forward = load.forward if split else load.whole / 2.0
            path = np.where(pipelines.early, _early_path(pipelines, load, forward, whole, position), path)
        if further:
            path = _further_path(pipelines, path, load, total, loads[0], position, split=split)
        # A row that has no such stage has no path through it.
        paths.append(path if number < ENDS else np.where(position > 0, path, 0.0))
    seconds, critical = paths[0], np.zeros(np.shape(paths[0]), np.intp)
    for number, path in enumerate(paths[1:], 1):
        critical = np.where(path > seconds, number, critical)
        seconds = np.maximum(seconds, path)
    return seconds, critical


@once_per_case
def pairs_per_stage(case: Case) -> Floats:
    """Returns how many forwards and backwards of a whole stage overlap in a step [rows] [microbatches].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
    """
    layout = case.layout
    chunks = layout.pipeline_interleaving
    return overlapped_pairs(layout.schedule, layout.pipeline_par, case.microbatches, chunks) / chunks


def _early_path(pipelines: _Pipelines, load: Load, forward: Floats, whole: Floats, position: Floats) -> Floats:
    """Seconds of 1F1B by a stage that is not the last, of which `forward` are forward [s].

    With p microbatches or more it waits twice for what comes after it: before the first backward, less the forwards of
    k others that it does meanwhile, and before the last, less k backwards, where k stages come after it.
    """
    steady = pipelines.microbatches
    after = whole - load.whole - load.before
    behind = pipelines.stages - 1.0 - position
    backward = load.whole - forward
    # What the later stages take, less what this one does meanwhile: before its first backward, and before its last.
    waits = np.maximum(after - behind * forward, 0.0) + np.maximum(after - behind * backward, 0.0)
    # With fewer microbatches than stages it waits once, for the shorter of both.
    few = steady < pipelines.stages
    if np.any(few):
        once = after - (steady - 1.0) * np.minimum(forward, backward)
        waits = np.where(few, np.maximum(once, 0.0), waits)
    return np.asarray(load.before + steady * load.whole + waits)


def _further_path(
    pipelines: _Pipelines, plain: Floats, load: Load, total: Load, first: Load, position: Floats, *, split: bool
) -> Floats:
    """The path by a stage where the schedule is another than 1F1B or interleaved, `plain` elsewhere [s]."""
    p, schedule, steady = pipelines.stages, pipelines.schedule, pipelines.microbatches
    found = plain
    paired = among(schedule, PAIRED)
    saved: Floats = np.zeros(())
    if paired.any():
        saved = pipelines.pairs * load.saved
        found = np.where(schedule == COMBINED, plain - saved, found)
    if not split:
        return np.where(among(schedule, SPLIT), steady * load.whole - saved, found)
    if np.any(schedule == ZB_H1):
        found = np.where(schedule == ZB_H1, _split_path(pipelines, load, total, first, position), found)
    waiting = among(schedule, (ZB_V, DUALPIPE, DUALPIPE_V))
    if waiting.any():
        # Half of a stage is a chunk of a V.
        each = np.where(schedule == DUALPIPE, 1.0, 2.0)
        # Mean of the other stages' passes, per chunk: these schedules wait for them.
        share = each * np.maximum(p - 1.0, 1.0)
        forward, weights = (total.forward - load.forward) / share, (total.weights - load.weights) / share
        every = (total.whole - load.whole) / share
        pair = every - (total.saved - load.saved) / share
        # What a stage does meanwhile is its own work.
        own_forward, own_weights = load.forward / each, load.weights / each
        own = (own_forward, load.whole / each - own_forward - own_weights, own_weights)
        idling = idle(schedule, p, forward, every - forward - weights, weights, pair, own=own)
        found = np.where(waiting, steady * load.whole - saved + np.maximum(idling, 0.0), found)
    return found


def _split_path(pipelines: _Pipelines, load: Load, total: Load, first: Load, position: Floats) -> Floats:
    """Seconds of ZB-H1 by a stage [s]: gradients of inputs wait for later stages before the first, and on their way
    back after the last, while the stage itself has `position` gradients of weights left to do."""
    last = position == pipelines.stages - 1.0
    inputs = load.whole - load.forward - load.weights
    all_inputs = total.whole - total.forward - total.weights
    forward = np.where(last, total.forward - load.forward, load.forward_before)
    back = np.where(last, all_inputs - inputs, load.before - load.forward_before - load.weights_before)
    after = total.forward - load.forward - forward + all_inputs - inputs - back
    behind = pipelines.stages - 1.0 - position
    ending = np.where(position > 0, back + first.weights - (position + 1.0) * load.weights, 0.0)
    return (
        forward
        + pipelines.microbatches * load.whole
        + np.maximum(after - behind * load.forward, 0.0)
        + np.maximum(ending, 0.0)
    )


def _late_messages(case: Case, whole: Floats, message: Floats, seconds: Floats) -> Floats:
    """Return the time that messages add to a path of `seconds`, when they overlap computation [s].

    If a layout gives the first stages most work, the path is shorter than with equal stages and no messages, so only
    the messages of a round trip can be late.
    """
    trips = _round_trips(case, whole, message)
    found = np.maximum(trips - seconds, 0.0)
    cut = case.layout.stage_layout != EVEN
    if not np.any(cut):
        return found
    return np.where(cut, np.minimum(found, trips - _round_trips(case, whole, np.zeros(()))), found)


def _round_trips(case: Case, whole: Floats, message: Floats) -> Floats:
    """Return the seconds of 1F1B with messages that overlap computation, for equal stages, without the messages that
    fill the pipeline [s].

    A round trip of the pipeline holds p microbatches, so that each takes its share of one at least.
    """
    p, steady = case.layout.pipeline_par, case.microbatches
    # A round trip passes 2 (p - 1) messages and holds p microbatches.
    trips = np.floor((p - 1.0) * (steady - 1.0) / p)
    return np.asarray(whole + (steady - 1.0) * whole / p + 2.0 * trips * message)


def messages_time(case: Case, message: Floats, *, least: bool = False) -> Floats:
    """Return the exposed seconds of messages that fill and drain the pipeline, with the rest of overlapped ones [rows]
    [s].

    Where stages wait for every message, in 1F1B and where it is interleaved, 2 (p - 1) messages fill and drain the
    pipeline, as the calibration was fitted with. Of an interleaved schedule that is too few: its replay shows
    2 (v p - 1), and by hand so do whole groups of p. The first microbatch comes back to the first stage for its next
    chunk after p chunks and p messages, while that stage has p chunks to do in between: it waits for p messages at each
    of v - 1 turns, the last chunk takes p - 1 more, and the way back as many. With the same
    parameters, before prediction layers were counted, the 428 scored published runs were 5.56 % off with 2 (v p - 1)
    and 5.58 % with 2 (p - 1), 221 runs change, the median of them by 0.3 % and one by 9 %; it waits for the next fit.
    See `schedules.hops` for the other schedules.

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        message: seconds of one message [rows] [s].
        least: whether only what any way to send them has is counted.
    """
    layout = case.layout
    p, chunks, schedule = layout.pipeline_par, layout.pipeline_interleaving, layout.schedule
    fill = (p - 1.0) * 2.0 * message
    if not np.any(schedule > INTERLEAVED):
        return fill
    beside = (schedule > INTERLEAVED) & (chunks > 1)
    if not least:
        beside = beside | (schedule > INTERLEAVED) & (case.software.overlap_pipeline > 0)
    return np.where(beside, hops(schedule, p, case.microbatches, chunks) * message, fill)

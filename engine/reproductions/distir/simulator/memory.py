"""Peak memory of every device: allocations and frees of a step, counted in a few sizes.

Memory of a device is a number of activations (whole, or cut by horizontal shards), of weights (a shard, or all of it),
of gathered outputs, and R3's batch size. So a moment is a vector of counts, which depends on P, m, the layers per stage
and whether there are shards and replicas, but on no size: the peak of a configuration is the largest product of any
such vector with its sizes. Within an item, moments of layers of one parity lie on a line, so the moments of the
outermost layers are enough.

An op allocates its outputs, and then frees the inputs without remaining users. Inputs of the program are never freed,
nor are its outputs. R1 and R2 do not count inputs, and place tensors and weights within the program; R3's step starts
with its inputs in place, and its optimizer works in place.

Source: `dist_ir/executor/simulator.py` of microsoft/dist-ir.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import numpy as np

from engine.executions.arrays import Ints
from engine.reproductions.distir.simulator.configurations import Configurations
from engine.reproductions.distir.simulator.cost_models import SCALAR_BYTES, DistIRCostModel
from engine.reproductions.distir.simulator.schedule import BACKWARD, FORWARD, folded

__all__ = ["StageMemoryShape", "memory_curve", "peak_bytes", "shape_of", "size_bytes"]

_UNITS: Final = np.eye(7, dtype=np.int64)
WHOLE, CUT, SHARD, WEIGHT, GATHERED, SCALAR, GROWN = _UNITS
"""Counted are: a microbatch's activations and a shard's part of them; a weight's shard and all of it; an output of all
replicas; the batch size; and, within an item, a microbatch's activations times the number of microbatches before."""
NOTHING: Final = np.zeros(len(_UNITS), np.int64)
OUTERMOST: Final = 4
"""Layers at either end of a stage whose moments are kept: two of each parity, and the first of all beside them."""
(
    F_FIRST,
    F_LATER,
    B_FIRST,
    B_LATER,
    B_LAST,
    ACTIVATION_IN,
    ACTIVATION_OUT,
    GRADIENT_IN,
    GRADIENT_OUT,
    LABEL_OUT,
    WEIGHTS_OUT,
) = range(11)
"""Kinds of events on a device."""


@dataclass(frozen=True)
class StageMemoryShape:
    """Properties of a stage that its memory moments depend on, besides the schedule."""

    stage: int
    stages: int
    each: int
    """Layers per stage."""
    several: bool
    """True if there is more than one microbatch."""
    shards: bool
    replicas: bool
    inputs_count: bool
    """True if inputs are in place, and count, from the start (R3)."""
    placed: bool
    """True if inputs and labels are inputs of the program, which are never freed."""
    weights_placed: bool
    gathered: bool

    @property
    def last(self) -> bool:
        """Return True for the last stage."""
        return self.stage == self.stages - 1

    @property
    def layers(self) -> range:
        """The stage's layers."""
        return range(self.stage * self.each, (self.stage + 1) * self.each)


class Tape:
    """Live memory op by op, and the moments just after an op allocated."""

    def __init__(self) -> None:
        self.live = NOTHING
        self.seen: list[Ints] = []
        self.kept = True

    def take(self, *sizes: Ints) -> None:
        """Adds the outputs of an op."""
        self.live = self.live + sum(sizes, NOTHING)
        if self.kept:
            self.seen.append(self.live)

    def free(self, *sizes: Ints) -> None:
        """Removes inputs that nothing needs any more."""
        self.live = self.live - sum(sizes, NOTHING)

    def swap(self, size: Ints) -> None:
        """Puts an op's output in place of its input."""
        self.take(size)
        self.free(size)


def _output_size(layer: int) -> Ints:
    return WHOLE if layer % 2 else CUT


def _concatenate_output(tape: Tape, first: bool, several: bool) -> None:
    """An output of a microbatch joins those before it."""
    if not first:
        tape.swap(GROWN + WHOLE)
    elif several:
        tape.swap(WHOLE)


def _visit_layers(tape: Tape, layers: Sequence[int], take: Callable[[int], None]) -> None:
    """Goes through layers, and keeps the moments of the outermost; pairs between leave what the first of them does."""
    inner = len(layers) - 2 * OUTERMOST
    pairs = max(inner // 2, 0)
    for layer in layers[:OUTERMOST]:
        take(layer)
    if pairs:
        tape.kept, before = False, tape.live
        for layer in layers[OUTERMOST : OUTERMOST + 2]:
            take(layer)
        tape.live = before + pairs * (tape.live - before)
        tape.kept = True
    for layer in layers[OUTERMOST + 2 * pairs :]:
        take(layer)


def _record_forward(s: StageMemoryShape, tape: Tape, first: bool) -> None:
    def take(layer: int) -> None:
        if first and s.stage > 0 and not s.weights_placed:
            tape.take(SHARD)
        tape.take(_output_size(layer))
        if s.shards and layer % 2:
            tape.swap(WHOLE)
        tape.take(_output_size(layer))

    _visit_layers(tape, s.layers, take)
    if s.last:
        if s.stages > 1 and not s.placed:
            tape.take(WHOLE)  # labels, from the first stage
        tape.take(WHOLE)
        _concatenate_output(tape, first, s.several)
        tape.take(WHOLE)
        tape.free(_output_size(s.layers[-1]), NOTHING if s.placed else WHOLE)


def _record_backward(s: StageMemoryShape, tape: Tape, first: bool, last: bool) -> None:
    def take(layer: int) -> None:
        out, into = _output_size(layer), _output_size(layer + 1)
        tape.take(out)
        tape.free(out, out)
        tape.take(into, SHARD)
        tape.free(out, NOTHING if layer == 0 and s.placed else into)
        if last and not s.weights_placed:
            tape.free(SHARD)
        if s.shards and layer % 2 == 0:
            tape.swap(WHOLE)
        if layer == 0:
            _concatenate_output(tape, first, s.several)
        if not first:
            tape.take(SHARD)
            tape.free(SHARD, SHARD)
        elif s.several:
            tape.swap(SHARD)

    _visit_layers(tape, s.layers[::-1], take)


def _record_beginning(s: StageMemoryShape, microbatches: int) -> Tape:
    """Record the placement before the first item: within the program on the first stage of the first shard, or before
    it.
    """
    tape = Tape()
    if s.inputs_count:
        given = s.each * SHARD
        given = given + (microbatches * WHOLE if s.stage == 0 else NOTHING)
        tape.take(given + (microbatches * WHOLE + SCALAR if s.last else NOTHING))
    elif s.stage == 0 and not s.placed:
        layers = 0 if s.weights_placed else s.each * s.stages
        whole = microbatches * WHOLE
        tape.take(whole, whole, layers * WEIGHT)
        if s.shards:
            tape.swap(whole)
            tape.swap(whole)
            for _ in range(layers):
                tape.take(SHARD)
                tape.free(WEIGHT)
        if s.stages > 1:
            tape.swap(whole)
            tape.swap(whole)
    return tape


def _record_ending(s: StageMemoryShape, microbatches: int, tape: Tape) -> None:
    """Over replicas, in the order of the outputs: loss, gradients, and the input's gradient before the last of them."""
    if not s.replicas:
        return
    for mine, gradients in ((s.last, s.each - (s.stage == 0)), (s.stage == 0, s.stage == 0)):
        if mine and s.gathered:
            tape.take(GATHERED)
            tape.free(microbatches * WHOLE)
        if gradients:
            tape.swap(SHARD)


@lru_cache(maxsize=512)
def _build_templates(s: StageMemoryShape) -> tuple[tuple[Ints, Ints], ...]:
    """Return the moments from the start of an event [moments, counts] and its net change [counts] per kind of event."""
    into, out = _output_size(s.layers[0] + 1), _output_size(s.layers[-1])
    result = []
    for kind in range(WEIGHTS_OUT + 1):
        tape = Tape()
        if kind in (F_FIRST, F_LATER):
            _record_forward(s, tape, kind == F_FIRST)
        elif kind in (B_FIRST, B_LATER, B_LAST):
            first = kind == B_FIRST or (kind == B_LAST and not s.several)
            _record_backward(s, tape, first, kind == B_LAST)
        elif kind in (ACTIVATION_IN, GRADIENT_IN):
            tape.take(into if kind == ACTIVATION_IN else out)
        elif kind in (ACTIVATION_OUT, GRADIENT_OUT):
            tape.free(out if kind == ACTIVATION_OUT else into)
        elif kind == LABEL_OUT and not s.placed:
            tape.free(WHOLE)
        elif kind == WEIGHTS_OUT and not s.weights_placed:
            tape.free(s.each * SHARD)
        seen = np.array(tape.seen, np.int64).reshape(-1, len(_UNITS))
        result.append((_filter_undominated(seen), tape.live))
    return tuple(result)


@dataclass(frozen=True, slots=True)
class Events:
    """Events on a stage's device in order.

    Of a folded schedule, the events from `cut` to `next` come `repeated` times more before them. Live memory then lies
    on a line through the moments of the periods on either side, so nothing between can be the fullest.
    """

    kinds: Ints
    numbers: Ints
    """Microbatch of each event, numbered in the whole schedule."""
    cut: int
    next: int
    repeated: int


@lru_cache(maxsize=256)
def _list_events(stages: int, microbatches: int) -> tuple[Events, ...]:
    """Return the events on the device of each stage."""
    kinds: list[list[int]] = [[] for _ in range(stages)]
    numbers: list[list[int]] = [[] for _ in range(stages)]
    plan = folded(stages, microbatches)
    last = microbatches - plan.repeated - 1
    cuts = []

    def add(stage: int, kind: int, microbatch: int) -> None:
        kinds[stage].append(kind)
        numbers[stage].append(microbatch)

    for number, step in enumerate(plan.steps):
        if number in (plan.cut, plan.cut + 2):
            cuts.append([len(each) for each in kinds])
        for stage, backward, j in step:
            if backward:
                add(stage, B_LAST if j == last else B_FIRST if j == 0 else B_LATER, j)
                continue
            if j == 0 and stage > 0:
                add(0, WEIGHTS_OUT, j)
            if stage == stages - 1 and stage > 0:
                add(0, LABEL_OUT, j)
            add(stage, F_FIRST if j == 0 else F_LATER, j)
        for stage, backward, j in step:
            if backward is FORWARD and stage < stages - 1:
                add(stage + 1, ACTIVATION_IN, j)
                add(stage, ACTIVATION_OUT, j)
            elif backward is BACKWARD and stage > 0:
                add(stage - 1, GRADIENT_IN, j)
                add(stage, GRADIENT_OUT, j)
    result = []
    for stage in range(stages):
        cut, after = (each[stage] for each in cuts) if plan.repeated else (0, 0)
        shifted = np.array(numbers[stage], np.int64)
        shifted[cut:] += plan.repeated
        result.append(Events(np.array(kinds[stage], np.int64), shifted, cut, after, plan.repeated))
    return tuple(result)


def _count_live(s: StageMemoryShape, microbatches: int, start: Ints) -> Ints:
    """Return the live memory at the start of each event of a stage, and after the last [events + 1, counts]."""
    events = _list_events(s.stages, microbatches)[s.stage]
    net = np.stack([after for _, after in _build_templates(s)])[events.kinds]
    live = np.concatenate([start[None, :], start + np.cumsum(net, axis=0)])
    if events.repeated:
        live[events.cut :] += events.repeated * net[events.cut : events.next].sum(axis=0)
    return live


@lru_cache(maxsize=4096)
def _find_moments(s: StageMemoryShape, microbatches: int) -> Ints:
    """The moments of a stage's device that can be its fullest [moments, counts]."""
    events = _list_events(s.stages, microbatches)[s.stage]
    begun = _record_beginning(s, microbatches)
    live = _count_live(s, microbatches, begun.live)
    end = Tape()
    end.live = live[-1]
    _record_ending(s, microbatches, end)
    found = [np.array([NOTHING, *begun.seen, *end.seen])]
    for kind, (seen, _) in enumerate(_build_templates(s)):
        at = events.kinds == kind
        if len(seen) and at.any():
            moments = live[:-1][at][:, None, :] + seen[None, :, :]
            moments[:, :, :1] += moments[:, :, -1:] * events.numbers[at][:, None, None]
            moments[:, :, -1] = 0
            found.append(moments.reshape(-1, len(_UNITS)))
    return np.concatenate(found)


def _filter_undominated(moments: Ints) -> Ints:
    """Moments of which no other holds at least as much of everything, and of equal ones the first [moments, counts]."""
    most = np.all(moments[:, None, :] <= moments[None, :, :], axis=2)
    earlier = np.tri(len(moments), k=-1, dtype=bool)
    kept: Ints = moments[~np.any(most & (~most.T | earlier), axis=1)]
    return kept


def size_bytes(c: Configurations, model: DistIRCostModel) -> Ints:
    """Return the bytes of each counted size [counts, rows].

    Args:
        c: degrees and sizes of configurations [rows].
        model: cost model of the revision.
    """
    share, part, element = c.batch // c.D // c.m, c.width // c.H, model.datatype_bytes
    elements = (share * c.width, share * part, c.width * part, c.width * c.width, c.batch * c.width)
    scalar = np.full(len(c), SCALAR_BYTES, np.int64)
    return np.stack([*(element * number for number in elements), scalar, np.zeros(len(c), np.int64)])


def shape_of(
    c: Configurations, row: int, stage: int, model: DistIRCostModel, *, filtered: bool, single: bool
) -> StageMemoryShape:
    """Returns what the moments of a stage of one configuration depend on.

    Args:
        c: degrees and sizes of configurations [rows].
        row: number of the configuration.
        stage: number of the stage, from 0.
        model: cost model of the revision.
        filtered: counts a step with its weights already in place. R3 always does.
        single: takes one device as the program before any transform.
    """
    before = not model.placement_in_step
    return StageMemoryShape(
        stage=stage,
        stages=int(c.P[row]),
        each=int(c.layers[row] // c.P[row]),
        several=bool(c.m[row] > 1),
        shards=bool(c.H[row] > 1),
        replicas=bool(c.D[row] > 1),
        inputs_count=before,
        placed=before or single,
        weights_placed=before or filtered or single,
        gathered=model.outputs_gathered,
    )


def peak_bytes(c: Configurations, model: DistIRCostModel, *, filtered: bool, single: bool = False) -> Ints:
    """Returns the fullest moment of the device of every stage [bytes; stages, rows].

    Args:
        c: feasible configurations that have P and m in common [rows].
        model: which revision.
        filtered: whether weights are taken as placed before the step.
        single: whether the program is that of one device before any transform.
    """
    stages, microbatches = int(c.P[0]), int(c.m[0])
    sizes = size_bytes(c, model)
    result = np.zeros((stages, len(c)), np.int64)
    keys: dict[StageMemoryShape, list[int]] = {}
    for row in range(len(c)):
        keys.setdefault(shape_of(c, row, 0, model, filtered=filtered, single=single), []).append(row)
    for key, rows in keys.items():
        for stage in range(stages):
            moments = _find_moments(replace(key, stage=stage), microbatches)
            result[stage, rows] = (moments @ sizes[:, rows]).max(axis=0)
    return result


def memory_curve(
    c: Configurations, row: int, stage: int, model: DistIRCostModel, *, filtered: bool
) -> tuple[Ints, Ints, Ints, Ints]:
    """Return the events on a stage's device and its memory.

    Returns kinds of events and their microbatches [events], the bytes that are live before the first and after each
    event [events + 1], and the bytes at the fullest moment of each event [events].

    Args:
        c: configurations.
        row: row of the configuration.
        stage: number of the stage.
        model: cost model of the revision.
        filtered: if true, weights are placed before the step.
    """
    s = shape_of(c, row, stage, model, filtered=filtered, single=False)
    microbatches = int(c.m[row])
    events = _list_events(s.stages, microbatches)[stage]
    kinds, numbers = events.kinds, events.numbers
    sizes = size_bytes(c, model)[:, row]
    live = _count_live(s, microbatches, _record_beginning(s, microbatches).live) @ sizes
    fullest = live[:-1].copy()
    for kind, (seen, _) in enumerate(_build_templates(s)):
        at = kinds == kind
        if len(seen):
            # What the last coordinate counts grows with the microbatch.
            inside = seen @ sizes + numbers[at][:, None] * (seen[:, -1] * sizes[0])
            fullest[at] += inside.max(axis=1)
    return kinds, numbers, live, np.maximum(fullest, live[1:])

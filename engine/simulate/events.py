"""The event replay: start and end of every entry of an order, for given durations and sends.

A rank does its list in order. An entry starts when the rank is free and its inputs have arrived; a result of another
rank arrives one send after its end. Sends occupy no rank (`overlap`), or the sending rank too, once for each message
(`block`). All arrays may have a second axis of executions: one replay then serves them all.

Source: the execution model is that of the schedules' own programs, compared with them list by list; see
`tests/reference/schedules`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Any, Final

import numpy as np

from engine.executions.arrays import Floats, Ints
from engine.simulate.order import ScheduleOrder
from engine.simulate.schedules.contract import BACKWARD, FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, ScheduleError

__all__ = ["ActionDurations", "Mode", "ReplayTiming", "Sends", "durations_from", "replayed", "sends_from"]

LONGEST: Final = 1e15
"""Longest duration that is taken: beyond it sums of thousands lose their last digits."""


class Mode(StrEnum):
    """Cost of a send besides its latency."""

    NONE = "none"
    """Results are everywhere at once."""
    OVERLAP = "overlap"
    """A send delays its receiver and occupies no rank."""
    BLOCK = "block"
    """A send also occupies the rank that sends."""


@dataclass(frozen=True, slots=True)
class Sends:
    """Time of a result to another rank [s], a number or one per execution, and its mode."""

    mode: Mode = Mode.NONE
    time: Floats | float = 0.0


@dataclass(frozen=True, slots=True)
class ActionDurations:
    """Seconds by stage of the model, and by execution where there is a second axis."""

    forward: Floats
    input_gradient: Floats
    weight_gradient: Floats
    backward: Floats
    pair: Floats | None = None
    """Duration of an overlapped forward and backward of a stage; None stands for the sum of the two.

    The time that two stages hide of each other is the mean of what each hides by itself: one hides the exchange of its
    forward, the other that of its backward.
    """


@dataclass(frozen=True, slots=True)
class ReplayTiming:
    """Start, end and duration of every entry [s]; `free` is when its rank can go on."""

    start: Floats
    end: Floats
    free: Floats
    duration: Floats


def replayed(order: ScheduleOrder, durations: ActionDurations, sends: Sends = Sends()) -> ReplayTiming:
    """Returns when every entry of an order starts and ends.

    Args:
        order: who does what in turn.
        durations: of each kind of action [s].
        sends: between ranks.
    """
    length = entry_durations(order, durations)
    if isinstance(sends.time, np.ndarray) and length.ndim == 1:
        length = np.repeat(length[:, None], len(sends.time), axis=1)
    total, wide = len(order), length.shape[1:]
    latency = 0.0 if sends.mode is Mode.NONE else sends.time
    start = np.zeros((total, *wide))
    arrived = np.zeros((total + 1, *wide))
    free = np.zeros((total + 1, *wide))
    busy = length
    if sends.mode is Mode.BLOCK:
        count = order.sends.reshape(-1, *(1,) * len(wide))
        # In mode `block` a rank that sends goes on only when the message is out.
        busy = length + count * latency
    bounds = order.levels.tolist()
    before, sources = order.before, [order.sources[:, column] for column in range(order.sources.shape[1])]
    width = max(1, int((order.sources < total).sum(axis=1).max(initial=0)))
    for first, last in pairwise(bounds):
        # start = max(end of the entry before on this rank, arrival of every input).
        begins = free[before[first:last]]
        for column in range(width):
            np.maximum(begins, arrived[sources[column][first:last]], out=begins)
        start[first:last] = begins
        arrived[first:last] = begins + length[first:last] + latency
        free[first:last] = begins + busy[first:last]
    return ReplayTiming(start, start + length, free[:total], length)


def entry_durations(order: ScheduleOrder, durations: ActionDurations) -> Floats:
    """Returns how long every entry takes [s].

    Args:
        order: actions of every rank.
        durations: of actions by kind and stage of the model [s].
    """
    kind, stage = order.kind[:, 0], order.stage[:, 0]
    wide = durations.forward.shape[1:]
    found = np.zeros((len(order), *wide))
    for each, times in (
        (FORWARD, durations.forward),
        (INPUT_GRADIENT, durations.input_gradient),
        (WEIGHT_GRADIENT, durations.weight_gradient),
        (BACKWARD, durations.backward),
    ):
        rows = kind == each
        found[rows] = times[stage[rows]]
    paired = order.kind[:, 1] >= 0
    if paired.any():
        if durations.pair is not None:
            found[paired] = _pair_durations(durations, durations.pair, stage[paired], order.stage[paired, 1])
        else:
            found[paired] += durations.backward[order.stage[paired, 1]]
    if order.empty_from < order.microbatches:
        chunk = order.chunk
        unspent = (kind == FORWARD) & (chunk == order.chunks - 1) | (kind == BACKWARD) & (chunk == 0)
        found[(order.microbatch[:, 0] >= order.empty_from) & unspent] = 0.0
    return found


def _pair_durations(durations: ActionDurations, alone: Floats, first: Ints, second: Ints) -> Floats:
    """Seconds of pairs of a forward at one stage and a backward at another; `alone` where all stages have the same."""
    # What a pair of the stage with itself hides.
    hidden = durations.forward + durations.backward - alone
    apart = durations.forward[first] + durations.backward[second] - (hidden[first] + hidden[second]) / 2.0
    return np.where((alone == alone[:1]).all(axis=0), alone[first], apart)


def durations_from(times: Mapping[str, Any], stages: int) -> ActionDurations:
    """Returns durations from a mapping: `F`, `B`, `W`, and where given `BW` (else B + W) and `FB` (else F + BW).

    Args:
        times: seconds, each a number or one per stage of the model, or an array of executions by stages. Of several
            `FB`, each is of a stage with itself.
        stages: of the model.

    Raises: ScheduleError naming the duration that is missing, unknown, negative, no number, or of another length.
    """
    if not isinstance(times, Mapping):
        raise ScheduleError("times must be a mapping of F, B and W to durations.")
    unknown = [str(name)[:20] for name in times if name not in ("F", "B", "W", "BW", "FB")]
    if unknown:
        raise ScheduleError(f"There is no duration {unknown[0]!r}; there are F, B, W, BW and FB.")
    given = {name: _by_stage(name, value, stages) for name, value in times.items() if value is not None}
    if "F" not in given or not ({"B", "BW"} & given.keys()):
        raise ScheduleError("times must have F and B: a forward, and a gradient of the input (W: of the weights).")
    if "B" not in given:
        raise ScheduleError("times has the whole backward BW but not its part B, the gradient of the input.")
    given.setdefault("W", np.zeros(stages))
    given.setdefault("BW", _add_durations(given["B"], given["W"]))
    count = max((each.shape[1] for each in given.values() if each.ndim > 1), default=0)
    if count:
        for name, each in given.items():
            wide = each if each.ndim > 1 else each[:, None]
            if wide.shape[1] not in (1, count):
                raise ScheduleError(f"{name} is of {wide.shape[1]} executions, others of {count}.")
            given[name] = np.ascontiguousarray(np.broadcast_to(wide, (stages, count)))
    return ActionDurations(given["F"], given["B"], given["W"], given["BW"], given.get("FB"))


def _add_durations(first: Floats, second: Floats) -> Floats:
    if first.ndim == second.ndim:
        return first + second
    return (first if first.ndim > 1 else first[:, None]) + (second if second.ndim > 1 else second[:, None])


def _by_stage(name: str, value: Any, stages: int) -> Floats:
    """Returns one duration as an array by stage, or by stage and execution."""
    try:
        found = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ScheduleError(f"{name} must be a duration or one per stage, not {str(value)[:40]!r}.") from None
    if isinstance(value, (bool, str)):
        raise ScheduleError(f"{name} must be a duration or one per stage, not {str(value)[:40]!r}.")
    if not bool((np.isfinite(found) & (found >= 0) & (found <= LONGEST)).all()):
        raise ScheduleError(f"{name} must be finite and not negative, and at most {LONGEST:g}.")
    if found.ndim == 0:
        return np.full(stages, float(found))
    if found.ndim > 2 or found.shape[-1] not in (stages, 1 if found.ndim == 2 else stages) or not found.size:
        raise ScheduleError(
            f"{name} has {found.size} values; the model has {stages} stages, so it is a number or one per stage."
        )
    if found.ndim == 2:
        return np.broadcast_to(found, (found.shape[0], stages)).T
    return found


def sends_from(sends: Mapping[str, Any] | Sends | None) -> Sends:
    """Returns sends from a mapping of `mode` (none, overlap, block) and `c` [s].

    Args:
        sends: such a mapping, a `Sends`, or None for sends that take no time.

    Raises: ScheduleError naming the invalid entry.
    """
    if sends is None:
        return Sends()
    if isinstance(sends, Sends):
        return sends
    if not isinstance(sends, Mapping):
        raise ScheduleError("sends must be a mapping of mode and c.")
    unknown = [str(name)[:20] for name in sends if name not in ("mode", "c")]
    if unknown:
        raise ScheduleError(f"There is no {unknown[0]!r} of sends; there are mode and c.")
    mode, time = sends.get("mode", "overlap"), sends.get("c", 0.0)
    if mode not in list(Mode):
        raise ScheduleError(f"The mode of sends cannot be {str(mode)[:20]!r}; it is none, overlap or block.")
    if isinstance(time, (Sequence, np.ndarray)) and not isinstance(time, str):
        several = np.asarray(time, dtype=np.float64)
        if several.ndim != 1 or not bool((np.isfinite(several) & (several >= 0)).all()):
            raise ScheduleError("c must be finite and not negative, a number or one per execution.")
        return Sends(Mode(mode), several)
    if (
        isinstance(time, bool)
        or not isinstance(time, (int, float))
        or not math.isfinite(time)
        or not 0 <= time <= LONGEST
    ):
        raise ScheduleError(f"c must be a finite duration that is not negative, and is {str(time)[:40]}.")
    return Sends(Mode(mode), float(time))

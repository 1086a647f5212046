"""Figures of one rank's trace: where the time of its devices went, for the whole trace and for each step.

Times are unions of intervals over all streams of a device, in whole nanoseconds. Communication is exposed while no
computation runs beside it. Work belongs to the step in which it was launched, since devices run behind the host by up
to more than a step.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from engine.traces.events import DeviceEvents, HostRanges, RankTrace
from engine.traces.intervals import intersect, measure, subtract, unite
from engine.traces.kernel_classes import CLASSES

__all__ = ["PHASES", "figures_of", "is_inside", "list_longest", "phase_of_events", "step_of_events", "step_seconds"]

PHASES: Final = ("forward_and_other", "backward", "optimizer", "unknown")
"""Phases of a step by what launched the work; `unknown` without a launch in the trace."""
COPIES: Final = ("memcpy", "memset")
LONGEST: Final = 3
"""Kernels of the class "other" that are named."""


def _microseconds(nanoseconds: float) -> float:
    return round(nanoseconds / 1000, 3)


def figures_of(trace: RankTrace, most_steps: int = 1000) -> dict[str, Any]:
    """Return the figures of a trace in microseconds, as the keys say.

    Args:
        trace: of one rank.
        most_steps: steps that are listed.
    """
    events, steps = trace.events, trace.steps
    step = step_of_events(events, steps)
    phase = phase_of_events(trace)
    duration = events.duration()
    comm = np.flatnonzero(events.is_of("comm"))
    operations: dict[str, list[int]] = {}
    for place in comm.tolist():
        operations.setdefault(trace.collectives[events.collective[place]].operation, []).append(place)
    longest = [name for name, kind, *_ in list_longest(trace, len(trace.names)) if kind == "other"][:LONGEST]
    phases = {
        name: _microseconds(int(duration[phase == place].sum()))
        for place, name in enumerate(PHASES)
        if (phase == place).any()
    }
    return {
        "gpu_events": len(events),
        "without_launch": int((events.thread < 0).sum()),
        "whole": {**window_figures(events), "idle_parts": idle_parts(events)},
        "comm_ops": {
            name: {"events": len(places), "sum_us": _microseconds(int(duration[places].sum()))}
            for name, places in sorted(operations.items())
        },
        "phase_sum_us_by_launch": dict(sorted(phases.items())),
        "streams": trace.num_streams,
        "longest_other": [name[:80] for name in longest],
        "steps": [
            _figures_of_step(trace, launched, place)
            for place, launched in enumerate(_split_by_step(step, min(len(steps), most_steps)))
        ],
        "kernels_outside_steps": int((step < 0).sum()) if len(steps) else None,
    }


def list_longest(trace: RankTrace, most: int) -> list[tuple[str, str, int, int]]:
    """Return the names that take longest: name, class, sum of durations [ns] and number of events.

    Args:
        trace: of one rank.
        most: names that are returned.
    """
    events, size = trace.events, len(trace.names)
    total = np.bincount(events.name, events.duration(), size)
    count = np.bincount(events.name, minlength=size)
    kind = np.zeros(size, np.int64)
    kind[events.name] = events.kind
    order = np.argsort(-total, kind="stable")[:most].tolist()
    return [(trace.names[place], CLASSES[kind[place]], int(total[place]), int(count[place])) for place in order]


def _split_by_step(step: npt.NDArray[np.int64], number: int) -> list[npt.NDArray[np.int64]]:
    """Return the positions of the events of each step, in their order."""
    order = np.argsort(step, kind="stable")
    bounds = np.searchsorted(step[order], np.arange(number + 1))
    return [order[begin:end] for begin, end in pairwise(bounds.tolist())]


def _figures_of_step(trace: RankTrace, events: npt.NDArray[np.int64], place: int) -> dict[str, Any]:
    steps, name = trace.steps, trace.steps.names[place]
    following = int(steps.start[place + 1] - steps.start[place]) if place + 1 < len(steps) else None
    on_device = trace.device_steps.get(name)
    launched = trace.events.take(events)
    return {
        "name": name,
        "host_us": _microseconds(int(steps.end[place] - steps.start[place])),
        "to_next_start_us": None if following is None else _microseconds(following),
        "gpu_annotation_us": None if on_device is None else _microseconds(on_device),
        "launched": window_figures(launched) if len(launched) else None,
    }


def window_figures(events: DeviceEvents) -> dict[str, Any]:
    """Return unions, sums and counts of some events, at least one.

    Args:
        events: of one device.
    """
    start, end, duration = events.start, events.end, events.duration()
    comm, copies = events.is_of("comm"), events.is_of(*COPIES)
    compute = ~comm & ~copies
    unions = {
        name: unite(start[chosen], end[chosen])
        for name, chosen in (("compute", compute), ("comm", comm), ("copies", copies))
    }
    busy, window = measure(unite(start, end)), int(end.max() - start.min())
    hidden, talking = intersect(unions["comm"], unions["compute"]), measure(unions["comm"])
    working = unite(start[~copies], end[~copies])
    present = [kind for kind in sorted(CLASSES) if events.is_of(kind).any()]
    return {
        "window_us": _microseconds(window),
        "busy_us": _microseconds(busy),
        "idle_us": _microseconds(window - busy),
        "compute_union_us": _microseconds(measure(unions["compute"])),
        "comm_union_us": _microseconds(talking),
        "memory_union_us": _microseconds(measure(unions["copies"])),
        "comm_hidden_by_compute_us": _microseconds(hidden),
        "comm_exposed_us": _microseconds(talking - hidden),
        "overlap_pct_of_comm": round(100 * hidden / talking, 4) if talking else None,
        "memory_exposed_us": _microseconds(subtract(unions["copies"], working)),
        "sum_us": {kind: _microseconds(int(duration[events.is_of(kind)].sum())) for kind in present},
        "events": {kind: int(events.is_of(kind).sum()) for kind in present},
    }


def idle_parts(events: DeviceEvents) -> dict[str, float]:
    """Return the idle time by cause: the host had not launched what comes next; the rest; unknown without a launch.

    Args:
        events: of one device, in order of their start.
    """
    reach = np.maximum.accumulate(events.end)
    gap = np.maximum(events.start[1:] - reach[:-1], 0)
    late = np.clip(events.launch_end[1:] - reach[:-1], 0, gap)
    known = events.thread[1:] >= 0
    host = int(late[known].sum())
    return {
        "host_us": _microseconds(host),
        "rest_us": _microseconds(int(gap[known].sum()) - host),
        "unknown_us": _microseconds(int(gap[~known].sum())),
    }


def step_of_events(events: DeviceEvents, steps: HostRanges) -> npt.NDArray[np.int64]:
    """Return the position of the step in which each event was launched, -1 outside of all [events].

    A step lasts from its start to the start of the next; the last one to its own end.

    Args:
        events: of one device.
        steps: in order.
    """
    if not len(steps):
        return np.full(len(events), -1, np.int64)
    place = np.searchsorted(steps.start, events.launch_start, "right") - 1
    end = np.concatenate((steps.start[1:], steps.end[-1:]))
    inside = (place >= 0) & (events.launch_start < end[np.maximum(place, 0)]) & (events.thread >= 0)
    return np.where(inside, place, -1).astype(np.int64)


def phase_of_events(trace: RankTrace) -> npt.NDArray[np.int64]:
    """Return the phase of each event as a position in `PHASES` [events].

    Work launched inside an optimizer's step is the optimizer's; on a thread inside a function of automatic
    differentiation, the backward pass's. Where the trace has no such ranges, a thread of its own is the backward pass.

    Args:
        trace: of one rank.
    """
    events = trace.events
    found = np.full(len(events), PHASES.index("forward_and_other"), np.int64)
    backward = is_inside(events, trace.backward)
    if trace.main_thread is not None:
        backward = events.thread != trace.main_thread
    found[backward] = PHASES.index("backward")
    found[is_inside(events, trace.optimizer)] = PHASES.index("optimizer")
    found[events.thread < 0] = PHASES.index("unknown")
    return found


def is_inside(events: DeviceEvents, ranges: HostRanges) -> npt.NDArray[np.bool_]:
    """Return which events were launched inside one of the ranges, on its thread [events].

    Args:
        events: of one rank.
        ranges: on the host.
    """
    inside = np.zeros(len(events), bool)
    for thread in np.unique(ranges.thread).tolist():
        own = ranges.thread == thread
        together = unite(ranges.start[own], np.maximum(ranges.end[own], ranges.start[own] + 1))
        there = np.flatnonzero(events.thread == thread)
        moment = events.launch_start[there]
        place = np.searchsorted(together[:, 0], moment, "right") - 1
        inside[there] = (place >= 0) & (moment < together[np.maximum(place, 0), 1])
    return inside


def step_seconds(steps: HostRanges) -> float | None:
    """Return the time of a step: the median from one start to the next, or the only step's own duration [s]; None
    without steps.

    Args:
        steps: in order.
    """
    if not len(steps):
        return None
    if len(steps) == 1:
        return float(steps.end[0] - steps.start[0]) / 1e9
    return float(np.median(np.diff(steps.start))) / 1e9

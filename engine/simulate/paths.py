"""The critical path of a replay: a chain of actions and sends without a gap from 0 to the end.

Its counts are the closed form of this picture: makespan = #F f + #B b + #W w + #BW (b + w) + #FB FB + #c c.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from engine.simulate.events import Mode, ReplayTiming, Sends
from engine.simulate.order import ScheduleOrder
from engine.simulate.schedules.contract import KINDS

__all__ = ["ReplayCriticalPath", "critical_path"]


@dataclass(frozen=True, slots=True)
class ReplayCriticalPath:
    """Entries of the order from the first to the last, and how many there are of each kind."""

    entries: tuple[int, ...]
    counts: dict[str, int]
    """`F`, `B`, `W`, `BW`, `FB` for overlapped pairs, and `c` for sends."""

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[int]:
        return iter(self.entries)


def critical_path(order: ScheduleOrder, timing: ReplayTiming, sends: Sends) -> ReplayCriticalPath:
    """Returns a critical path; of several the one that stays on a rank as long as it can.

    Args:
        order: actions of every rank.
        timing: when every entry starts and ends [s].
        sends: whether sends take time, whom they occupy, and their time [s].
    """
    start, end, free = timing.start.tolist(), timing.end.tolist(), timing.free.tolist()
    total = len(order)
    latency = 0.0 if sends.mode is Mode.NONE else float(np.asarray(sends.time))
    entry = int(np.argmax(timing.free))
    path, counts = [entry], Counter(dict.fromkeys(("F", "B", "W", "BW", "FB", "c"), 0))
    if sends.mode is Mode.BLOCK:
        counts["c"] += int(order.sends[entry])
    # Ends and starts of one moment differ by rounding.
    slack = 1e-9 * max(free)
    while True:
        before = int(order.before[entry])
        # The rank itself was the last to be ready: stay on it.
        if before < total and free[before] >= start[entry] - slack:
            if sends.mode is Mode.BLOCK:
                counts["c"] += int(order.sends[before])
            entry = before
        else:
            sources = [int(each) for each in order.sources[entry] if each < total]
            source = max(sources, key=lambda each: end[each], default=None)
            if source is None or start[entry] <= slack:
                break
            if latency:
                counts["c"] += 1
            entry = source
        path.append(entry)
    kinds = order.kind
    for each in path:
        counts["FB" if kinds[each, 1] >= 0 else KINDS[kinds[each, 0]]] += 1
    return ReplayCriticalPath(tuple(reversed(path)), dict(counts))

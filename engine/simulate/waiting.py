"""Idle time of ranks: every gap of a replay with its cause.

A rank that has not begun waits for the pipeline to fill, one that is done for it to drain. Between, it waits for the
forward or the gradient of another rank, and for the send once that has ended; or it sends itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

import numpy as np
import pandas as pd

from engine.executions.arrays import Floats
from engine.simulate.events import Mode, ReplayTiming, Sends
from engine.simulate.order import ScheduleOrder
from engine.simulate.schedules.contract import FORWARD

__all__ = ["Cause", "idle_times"]


class Cause(StrEnum):
    """Cause of a rank's idle time."""

    FILL = "fill"
    """Its first input is not there."""
    FORWARD = "forward"
    """It waits for the forward of another rank."""
    GRADIENT = "gradient"
    """It waits for the gradient of another rank."""
    LATENCY = "latency"
    """The awaited result is done and on its way."""
    SEND = "send"
    """It is occupied by sending."""
    DRAIN = "drain"
    """It has nothing left to do."""


def idle_times(order: ScheduleOrder, timing: ReplayTiming, sends: Sends) -> pd.DataFrame:
    """Returns the gaps: `rank`, `start`, `end` [s], `cause` and `of`, the rank waited for, or -1.

    Args:
        order: actions of every rank.
        timing: when every entry starts and ends [s].
        sends: whether sends take time, whom they occupy, and their time [s].
    """
    whole = float(timing.free.max())
    least = 1e-9 * whole
    rows = []
    for rank, entries in enumerate(order.by_rank):
        for start, end, cause, of in _list_gaps(order, timing, sends, entries.tolist(), whole):
            if end - start > least:
                rows.append((rank, start, end, cause.value, of))
    return pd.DataFrame(rows, columns=["rank", "start", "end", "cause", "of"])


def _list_gaps(
    order: ScheduleOrder, timing: ReplayTiming, sends: Sends, entries: list[int], whole: float
) -> Iterator[tuple[float, float, Cause, int]]:
    """Yield the gaps of one rank, including gaps of zero length."""
    reached, begun = 0.0, False
    latency = 0.0 if sends.mode is Mode.NONE else float(np.asarray(sends.time))
    start, end, free = timing.start, timing.end, timing.free
    for entry in entries:
        at = float(start[entry])
        if at > reached:
            source = _find_last_source(order, end, entry)
            if not begun:
                yield reached, at, Cause.FILL, -1 if source is None else int(order.rank[source])
            elif source is not None:
                cause = (
                    Cause.FORWARD
                    if order.kind[source, 0] == FORWARD and _is_forward(order, entry, source)
                    else (Cause.GRADIENT)
                )
                of = int(order.rank[source])
                done = min(max(reached, at - latency), at)
                yield reached, done, cause, of
                yield done, at, Cause.LATENCY, of
        begun = True
        reached = float(end[entry])
        if free[entry] > reached:
            yield reached, float(free[entry]), Cause.SEND, -1
            reached = float(free[entry])
    yield reached, whole, Cause.DRAIN if begun else Cause.FILL, -1


def _find_last_source(order: ScheduleOrder, end: Floats, entry: int) -> int | None:
    """Returns the entry on another rank that ended last of those waited for."""
    sources = [int(each) for each in order.sources[entry] if each < len(order)]
    return max(sources, key=lambda each: float(end[each]), default=None)


def _is_forward(order: ScheduleOrder, entry: int, source: int) -> bool:
    """Returns whether what an entry needs of a source is its forward: of a pair it may be either."""
    for stage, m, kind in zip(order.stage[entry], order.microbatch[entry], order.kind[entry], strict=True):
        if kind == FORWARD and (stage - 1, m) == (order.stage[source, 0], order.microbatch[source, 0]):
            return True
    return False

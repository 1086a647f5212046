"""One schedule with the durations of many executions: its order is built once and replayed for all of them together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from engine.executions.arrays import Floats
from engine.simulate.events import ActionDurations, Sends, durations_from, entry_durations, replayed, sends_from
from engine.simulate.order import ScheduleOrder, check_shape, order_of
from engine.simulate.replay import shape_of
from engine.simulate.schedules.contract import ScheduleError
from engine.simulate.schedules.registry import rule

__all__ = ["Many", "replay_many"]

AT_ONCE: Final = 4_000_000
"""Times of entries that are held in memory together."""


@dataclass(frozen=True, slots=True)
class Many:
    """Figures by execution."""

    makespan: Floats
    """From 0 to the end of the last action on any rank [s]."""
    longest_span: Floats
    """Longest time from the first start to the last end of a rank [s]."""
    busy: Floats
    """By execution and rank [s]."""

    @property
    def bubble_fraction(self) -> Floats:
        """By execution and rank, the share of the makespan in which it does nothing."""
        return 1.0 - self.busy / np.maximum(self.makespan, np.finfo(float).tiny)[:, None]


def replay_many(
    schedule: str,
    *,
    stages: int,
    microbatches: int,
    chunks: int = 1,
    times: Mapping[str, Any],
    sends: Mapping[str, Any] | None = None,
    group: int | None = None,
) -> Many:
    """Returns the figures of a schedule for many executions.

    Args:
        schedule: a name.
        stages: ranks of the pipeline, P.
        microbatches: of one replica in a step, M.
        chunks: pieces of the model per rank.
        times: seconds of `F`, `B`, `W` and, where given, `FB`, each a number, one per stage of the model, or an array
            of executions by stages (or by one).
        sends: `mode` (none, overlap, block) and `c` [s], a number or one per execution.
        group: microbatches that pass a chunk before the next one's turn.

    Raises: ScheduleError, in words, where the schedule does not exist for these numbers.
    """
    known = rule(schedule)
    if known.timed:
        raise ScheduleError(
            f"{known.title} plans another order for every execution's durations; replay them one by one."
        )
    shape = shape_of(known, stages, microbatches, chunks, group=group)
    check_shape(shape, 2 * shape.ranks * shape.chunks * shape.microbatches)
    durations, sent = durations_from(times, known.stages(shape)), sends_from(sends)
    durations, sent, count = _align_executions(durations, sent)
    built = order_of(known, shape)
    step = max(1, AT_ONCE // max(1, len(built)))
    parts = [
        _replay_figures(built, *_slice_executions(durations, sent, first, first + step))
        for first in range(0, count, step)
    ]
    return Many(*(np.concatenate(each) for each in zip(*parts, strict=True)))


def _align_executions(durations: ActionDurations, sends: Sends) -> tuple[ActionDurations, Sends, int]:
    """Returns durations and sends with an axis of executions each, and its length."""
    counts = {each.shape[1] for each in _list_arrays(durations) if each.ndim > 1 and each.shape[1] > 1}
    if isinstance(sends.time, np.ndarray) and len(sends.time) > 1:
        counts.add(len(sends.time))
    if len(counts) > 1:
        raise ScheduleError(f"Durations and sends are of different numbers of executions: {sorted(counts)}.")
    count = counts.pop() if counts else 1
    wide = [
        np.broadcast_to(each if each.ndim > 1 else each[:, None], (len(each), count))
        for each in _list_arrays(durations)
    ]
    sent = Sends(sends.mode, np.broadcast_to(np.asarray(sends.time, dtype=np.float64), (count,)))
    return ActionDurations(*wide), sent, count


def _list_arrays(durations: ActionDurations) -> list[Floats]:
    found = [durations.forward, durations.input_gradient, durations.weight_gradient, durations.backward]
    return found if durations.pair is None else [*found, durations.pair]


def _slice_executions(durations: ActionDurations, sends: Sends, first: int, last: int) -> tuple[ActionDurations, Sends]:
    assert isinstance(sends.time, np.ndarray)
    return ActionDurations(*(each[:, first:last] for each in _list_arrays(durations))), Sends(
        sends.mode, sends.time[first:last]
    )


def _replay_figures(order: ScheduleOrder, durations: ActionDurations, sends: Sends) -> tuple[Floats, Floats, Floats]:
    timing = replayed(order, durations, sends)
    spent = entry_durations(order, durations)
    spent[order.microbatch[:, 0] >= order.empty_from] = 0.0
    busy = np.stack([spent[each].sum(axis=0) for each in order.by_rank], axis=1)
    spans = [timing.free[each[-1]] - timing.start[each[0]] for each in order.by_rank if len(each)]
    return timing.free.max(axis=0), np.max(spans, axis=0), busy

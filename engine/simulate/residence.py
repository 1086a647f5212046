"""Memory that ranks hold during their lists: activations and pending gradients of weights.

One activation is that of one chunk of the model for one microbatch, held from the start of its forward. Three
conventions: until the whole backward or the gradient of the weights ends, until the gradient of the input, and a share
of it until either. A pair counts its forward before its backward frees anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from engine.executions.arrays import Floats
from engine.simulate.events import ReplayTiming
from engine.simulate.order import ScheduleOrder
from engine.simulate.schedules.contract import BACKWARD, FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT

__all__ = ["Residence", "count_residence", "held_over_time", "shared_peaks", "weighted_peaks"]


@dataclass(frozen=True, slots=True)
class Residence:
    """Peaks by rank, in chunks of microbatches."""

    peaks: list[int]
    peaks_freed_at_input_gradient: list[int]
    peaks_pending: list[int]


def count_residence(order: ScheduleOrder) -> Residence:
    """Returns the peaks of an order, which do not depend on durations.

    Args:
        order: actions of every rank.
    """
    gains, losses, early, waits = _count_changes(order)
    pending = waits.copy()
    found: tuple[list[int], list[int], list[int]] = ([], [], [])
    for entries in order.by_rank:
        for peaks, loss, gain in ((found[0], losses, gains), (found[1], early, gains)):
            peaks.append(_peak_held(gain[entries], loss[entries]))
        found[2].append(int(np.maximum(np.cumsum(pending[entries]), 0).max(initial=0)))
    return Residence(*found)


def shared_peaks(order: ScheduleOrder, kept: float) -> list[float]:
    """Returns the peaks by rank if the gradient of the input frees all but a share of an activation.

    Args:
        order: who does what in turn.
        kept: the share that stays until the gradient of the weights, from 0 to 1.
    """
    gains, losses, early, _ = _count_changes(order)
    # The gradient of the inputs frees 1 - k of an activation, the gradient of the weights k.
    freed = (1.0 - kept) * early + kept * losses
    return [float((np.cumsum(gains[each] - freed[each]) + freed[each]).max(initial=0.0)) for each in order.by_rank]


def weighted_peaks(order: ScheduleOrder, sizes: Sequence[float]) -> list[float]:
    """Returns the peaks by rank where the activations of stages differ, in the unit of `sizes`.

    Args:
        order: actions of every rank.
        sizes: activations of one microbatch of every stage of the model.
    """
    size = np.asarray(sizes, np.float64)[np.maximum(order.stage, 0)]
    real = (order.microbatch >= 0) & (order.microbatch < order.empty_from)
    gains, losses = (
        np.where(real & np.isin(order.kind, kinds), size, 0.0).sum(axis=1)
        for kinds in ((FORWARD,), (BACKWARD, WEIGHT_GRADIENT))
    )
    return [float((np.cumsum(gains[each] - losses[each]) + losses[each]).max(initial=0.0)) for each in order.by_rank]


def held_over_time(
    order: ScheduleOrder, timing: ReplayTiming, *, freed_at_input_gradient: bool = False
) -> pd.DataFrame:
    """Returns what every rank holds when: `rank`, `time` [s] and `held` from then on [chunks of microbatches].

    Args:
        order: actions of every rank.
        timing: when every entry starts and ends [s].
        freed_at_input_gradient: whether activations are freed with the gradient of the input, not of the weights.
    """
    gains, losses, early, _ = _count_changes(order)
    loss = early if freed_at_input_gradient else losses
    frames = []
    for rank, entries in enumerate(order.by_rank):
        times = np.concatenate([timing.start[entries], timing.end[entries]])
        change = np.concatenate([gains[entries], -loss[entries]])
        # At one moment what ends is freed before what starts is held.
        ordered = np.lexsort((change, times))
        ordered = ordered[change[ordered] != 0]
        frames.append(pd.DataFrame({"rank": rank, "time": times[ordered], "held": np.cumsum(change[ordered])}))
    return pd.concat(frames, ignore_index=True)


def _peak_held(gain: Floats, loss: Floats) -> int:
    """Returns the most held when each entry takes before it gives back."""
    return int((np.cumsum(gain - loss) + loss).max(initial=0))


def _count_changes(order: ScheduleOrder) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the units that each entry takes, frees at its end, would free at the gradient of the input, and leaves
    pending.
    """
    real = (order.microbatch >= 0) & (order.microbatch < order.empty_from)
    kind = order.kind

    def count(*kinds: int) -> Floats:
        counted: Floats = (real & np.isin(kind, kinds)).sum(axis=1).astype(np.float64)
        return counted

    gains = count(FORWARD)
    losses, early = count(BACKWARD, WEIGHT_GRADIENT), count(BACKWARD, INPUT_GRADIENT)
    return gains, losses, early, count(INPUT_GRADIENT) - count(WEIGHT_GRADIENT)

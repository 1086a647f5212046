"""Timing of one operation: warm up, then repeat until the median is stable or the time is over."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Final

from engine.measure.samples import SampleTiming

__all__ = ["STABLE", "steady", "summary", "timed"]

STABLE: Final = 0.01
"""Standard error of the median, relative to it, at which repeating ends. Source: stated by us."""
FEWEST: Final = 5
"""Samples before the median may count as stable. Source: stated by us."""
AT_LEAST: Final = 3
"""Samples that are taken even where the time is up. Source: stated by us."""
WARM_SHARE: Final = 0.2
"""Share of the time that may go into warming up. Source: stated by us."""
LONGEST_BATCH: Final = 1_000
"""Most calls that are timed together. Source: stated by us."""


def timed(
    call: Callable[[], object],
    *,
    seconds: float,
    synchronize: Callable[[], object] = lambda: None,
    sample_seconds: float = 2e-3,
    warm_seconds: float = 0.0,
    clock: Callable[[], float] = time.perf_counter,
) -> SampleTiming:
    """Returns the time of one `call` [s], within about `seconds` after `warm_seconds`.

    Args:
        call: the operation; may return before an accelerator has finished it.
        seconds: after this time no further sample is begun, apart from the fewest that a median needs.
        synchronize: waits until all started work has finished.
        sample_seconds: calls are timed in batches of at least this long, so that neither the clock's resolution nor
            waiting for the accelerator counts.
        warm_seconds: work without pauses before the first sample [s], and least total time of the samples, for devices
            that are fast until they reach their power limit and then oscillate around it. 0 ends warming up as soon as
            two calls agree, and sampling as soon as the median is stable.
        clock: for tests.
    """
    start = clock()
    one = _time_batch(call, synchronize, clock, 1)
    # The first call allocates, compiles and chooses kernels: it says nothing.
    one = _time_batch(call, synchronize, clock, 1)
    begun = clock()
    while one > 0 and clock() - begun + one < warm_seconds:
        one = min(one, _time_batch(call, synchronize, clock, _batch_size(one, sample_seconds)))
    spent = clock() - begun
    while one > 0 and clock() - start - spent + one < WARM_SHARE * seconds:
        again = _time_batch(call, synchronize, clock, 1)
        settled = abs(again - one) <= STABLE * one
        one = min(one, again)
        if settled:
            break
    batch = _batch_size(one, sample_seconds)
    found: list[float] = []
    sampled = clock()
    while len(found) < AT_LEAST or (
        (not steady(found) or clock() - sampled < warm_seconds) and clock() - start - spent < seconds
    ):
        found.append(_time_batch(call, synchronize, clock, batch))
    return summary(found, batch)


def _batch_size(one: float, sample_seconds: float) -> int:
    """Returns how many calls of `one` second make a sample."""
    return LONGEST_BATCH if one <= 0 else min(max(math.ceil(sample_seconds / one), 1), LONGEST_BATCH)


def _time_batch(
    call: Callable[[], object], synchronize: Callable[[], object], clock: Callable[[], float], batch: int
) -> float:
    synchronize()
    start = clock()
    for _ in range(batch):
        call()
    synchronize()
    return (clock() - start) / batch


def steady(found: Sequence[float]) -> bool:
    """Return True if the median of the samples is known well enough.

    Its standard error is 1.25 standard deviations over the root of the number; the deviation is taken from the median
    absolute deviation (times 1.48) or the quartiles (over 1.35), the larger of the two: single interruptions of the
    process change neither, and timings that jump between two values give a large one.

    Args:
        found: seconds of a call, in each sample [s] [samples].
    """
    if len(found) < FEWEST:
        return False
    middle = statistics.median(found)
    lower, _, upper = statistics.quantiles(found, n=4, method="inclusive")
    absolute = statistics.median(abs(each - middle) for each in found)
    deviation = max(1.4826 * absolute, (upper - lower) / 1.349)
    return 1.2533 * deviation / math.sqrt(len(found)) <= STABLE * middle


def summary(found: Sequence[float], batch: int) -> SampleTiming:
    """Returns the median and spread of samples, each the mean of `batch` calls [s].

    Args:
        found: seconds of a call, in each sample [s] [samples].
        batch: calls of each sample.
    """
    middle = statistics.median(found)
    lower, _, upper = statistics.quantiles(found, n=4, method="inclusive")
    tiny = 1e-12  # a clock too coarse to see anything
    return SampleTiming(
        seconds=max(middle, tiny), spread=(upper - lower) / 2.0 / max(middle, tiny), repeats=len(found) * batch
    )

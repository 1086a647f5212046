"""Measuring on one core: repeated runs, medians, peak memory."""

from __future__ import annotations

import gc
import os
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

__all__ = ["Times", "peak_memory", "pin", "repeated"]

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of repeated runs [s]."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle one [s]: what to expect."""
        return statistics.median(self.seconds)

    @property
    def best(self) -> float:
        """The shortest [s]: what the machine can do when nothing disturbs it."""
        return min(self.seconds)

    def to_document(self) -> list[float]:
        """As JSON."""
        return list(self.seconds)


def pin() -> int:
    """Keeps this process, and threads that it starts, on one core; returns its number.

    The last core that is allowed: interrupts mostly go to the first.
    """
    core = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})
    return core


def repeated(run: Callable[[], Result], repeats: int, *, warm: bool = True) -> tuple[Times, Result]:
    """Times of `repeats` runs and the last result; before them, one that is not counted if `warm`."""
    if warm:
        run()
    seconds = []
    for _ in range(repeats):
        gc.collect()
        start = time.perf_counter()
        result = run()
        seconds.append(time.perf_counter() - start)
    return Times(tuple(seconds)), result


def peak_memory() -> int:
    """Largest resident memory of this process so far [bytes]."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux counts in KiB


def medians(parts: list[dict[str, float]]) -> dict[str, float]:
    """The median of each part over runs."""
    return {name: statistics.median(run[name] for run in parts) for name in parts[0]}


Document = dict[str, Any]

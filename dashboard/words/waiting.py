"""Progress of work and waiting times, as text."""

from __future__ import annotations

import math
from typing import Final

from dashboard.words.numbers import count, counted, plain, with_unit

__all__ = ["progress_words", "span"]

MINUTE: Final = 60.0
HOUR: Final = 3600.0


def span(seconds: float) -> str:
    """Returns a time to wait [s] in words: "1.5 s", "80 s", "4 min", "1.5 h"."""
    if seconds < 1.5 * MINUTE:
        return with_unit(plain(max(1.0, seconds), 2), "s")
    if seconds < 1.5 * HOUR:
        return with_unit(plain(round(seconds / MINUTE), 2), "min")
    return with_unit(plain(seconds / HOUR, 2), "h")


def progress_words(done: float, total: float, unit: str, rate: float, left: float) -> str:
    """Returns progress, rate and remaining time: "2.94 M of 7.00 M · 3.4 M per second · 1.2 s left".

    unit: "point", of "2 of 40 points". rate: per second, shown from 1 on. left: [s], infinite if unknown.
    """
    words = f"{count(done)} of {counted(total, unit) if unit else count(total)}"
    if rate >= 1:
        words += f" · {count(rate)} per second"
    return words if math.isinf(left) else f"{words} · {span(left)} left"

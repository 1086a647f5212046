"""Progress of jobs whose work says which share of it is done."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from dashboard.jobs.worker import Task

__all__ = ["ShareProgress", "report_shares"]

STEPS: Final = 100
"""Steps in which progress is reported."""


@dataclass(frozen=True, slots=True)
class ShareProgress:
    """Progress in hundredths of the work."""

    done: int
    total: int
    rate: float
    seconds_left: float


def report_shares(task: Task) -> Callable[[float, str], None]:
    """Return a callback that reports the share of a job that is done, 0 to 1, with the time left at the pace so far.

    Args:
        task: connection of the worker to the board.
    """
    start = time.monotonic()

    def report(share: float, _: str) -> None:
        spent = time.monotonic() - start
        left = spent * (1 - share) / share if share > 0 else math.inf
        task.tell(ShareProgress(round(STEPS * share), STEPS, 0.0, left))

    return report

"""What tests have a worker's process do; apart from the tests, as the process imports all that stands beside it."""

from __future__ import annotations

import os
import time

from dashboard.jobs.worker import Task
from engine import ExplorationCancelled, Progress


def ended(task: Task, how: str) -> int:
    """Ends in any way that a function in a worker may."""
    task.give(how)
    problem = {"refused": ValueError, "memory": MemoryError, "cancelled": ExplorationCancelled, "failed": KeyError}
    if how == "dies":
        os._exit(1)
    if how in problem:
        raise problem[how]("in its words")
    return os.getpid()


def counted(task: Task, most: int) -> int:
    """Counts slowly, and tells how far it is."""
    for done in range(most):
        if task.stops():
            raise ExplorationCancelled
        task.tell(Progress(done, most, done, 0.01))
        task.give(done)
        time.sleep(0.002)
    return most

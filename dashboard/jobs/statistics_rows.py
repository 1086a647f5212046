"""Unstored statistics, evaluated in a worker process; inputs and results pass through a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from dashboard.jobs.worker import Task
from engine import Scenario
from engine.exploration.unstored_statistics import evaluate_into
from engine.store.added_columns import ColumnFiles

__all__ = ["IDS", "evaluate"]

IDS: Final = "ids.npy"
"""File in the folder with the ids of the executions."""


def evaluate(task: Task, scenario: Scenario, names: Sequence[str], folder: Path) -> None:
    """Evaluates the executions of a folder, and writes a file per statistic into it."""
    task.owns(folder)
    ids = np.load(folder / IDS, mmap_mode="r")
    with ColumnFiles(folder, names, len(ids)) as writer:
        evaluate_into(writer, scenario, ids, progress=task.tell, cancel=lambda: task.stops() or not folder.exists())

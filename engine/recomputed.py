"""Statistics that are not stored, of every stored row: executions are evaluated again, some thousand at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from engine.columns import by_name, statistics_of
from engine.exploration import Exploration
from engine.explore import ExplorationCancelled, Progress
from engine.store_conditions import STORED, Condition

__all__ = ["CHUNK", "is_stored", "recomputed"]

Floats = npt.NDArray[np.float64]

CHUNK = 32_768
"""Rows evaluated at a time: some 50 MiB with all their statistics, most of which are dropped at once."""


def is_stored(name: str) -> bool:
    """Whether stored rows answer a column, so that nothing has to be evaluated for it."""
    return name in STORED


def recomputed(
    exploration: Exploration,
    names: Sequence[str],
    *,
    where: Sequence[Condition] = (),
    progress: Callable[[Progress], None] | None = None,
    cancel: Callable[[], bool] | None = None,
) -> dict[str, Floats]:
    """Any statistics of all feasible executions that meet conditions, each an array [rows] in its column's unit.

    The order is that of `exploration.rows.table` under the same conditions, so that they go with stored columns. Takes
    two to four seconds per million rows on one core; what is kept are 8 bytes per row and name.

    Args:
        names: of statistics of the exploration's cost model; those that it leaves undefined are not a number.
        progress: called after every `CHUNK` rows.
        cancel: asked as often whether to stop.

    Raises:
        engine.columns.UnknownColumn, ValueError: a name of no statistic of the cost model.
        engine.ExplorationCancelled: on `cancel`.
        engine.store.StoreError: the rows cannot be read.
    """
    known = {column.name for column in statistics_of(exploration.scenario.cost_model)}
    for name in names:
        by_name(name)
        if name not in known:
            raise ValueError(f"{name} is no statistic of the {exploration.scenario.cost_model} cost model.")
    ids = exploration.rows.table(["id"], where=where)["id"].to_numpy()
    found = {name: np.empty(len(ids)) for name in names}
    space = exploration.scenario.space
    start = time.perf_counter()
    for first in range(0, len(ids), CHUNK):
        if cancel is not None and cancel():
            raise ExplorationCancelled("The evaluation was stopped.")
        here = slice(first, first + CHUNK)
        # An id is the fields of its execution; decoding it is quicker than reading them all.
        rows = exploration.scenario.evaluate(space.table(ids[here]))
        for name, values in found.items():
            values[here] = rows[name].to_numpy()
        if progress is not None:
            done = min(first + CHUNK, len(ids))
            progress(Progress(done, len(ids), done, time.perf_counter() - start))
    return found

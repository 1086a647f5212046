"""Statistics that are not stored, of every stored row: executions are evaluated again, some thousand at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from engine.columns import by_name, statistics_of
from engine.executions.arrays import Ints
from engine.executions.work_sizes import work_sizes
from engine.exploration.result import Exploration
from engine.exploration.run import ExplorationCancelled, Progress
from engine.scenarios.scenario import Scenario
from engine.store.added_columns import AddedWriter
from engine.store.conditions import STORED

__all__ = ["add_columns", "evaluate_into", "is_stored"]


def is_stored(name: str) -> bool:
    """Return True if stored rows have a column, which then needs no evaluation.

    Args:
        name: of a column of the register.
    """
    return name in STORED


def add_columns(
    exploration: Exploration,
    names: Sequence[str],
    *,
    evaluate: Callable[[Scenario, Ints, AddedWriter], None] | None = None,
    progress: Callable[[Progress], None] | None = None,
    cancel: Callable[[], bool] | None = None,
) -> None:
    """Let the rows of an exploration answer any statistics: missing ones are evaluated for all rows.

    After that they can be asked for by every method of `exploration.rows`, as stored columns can, until they give way
    to others (`Rows.adding`). Takes two to four seconds per million rows on one core, not half as much again for all
    statistics as for one; and at most 8 bytes per row and name, next to the store mostly a fiftieth of that.

    Args:
        exploration: whose rows they are.
        names: statistics of the exploration's cost model; undefined ones are not a number.
        evaluate: does it in another way, such as in another process, and does without the two below; by default
            `evaluate_into`.
        progress: called after every `WorkSizes.rows_with_statistics` rows.
        cancel: asked as often whether to stop, which adds nothing.

    Raises:
        engine.columns.UnknownColumn, ValueError: a name of no statistic of the cost model.
        engine.ExplorationCancelled: on `cancel`.
        engine.store.TooManyValuesError: for more than are kept at once.
        engine.store.StoreError: rows cannot be read, or columns not written.
    """
    known = {column.name for column in statistics_of(exploration.scenario.cost_model)}
    for name in names:
        by_name(name)
        if name not in known:
            raise ValueError(f"{name} is no statistic of the {exploration.scenario.cost_model} cost model.")
    rows, scenario = exploration.rows, exploration.scenario
    missing = rows.missing(names)
    if not missing:
        return
    with rows.adding(missing) as writer:
        ids = rows.table(["id"])["id"].to_numpy()
        if evaluate is not None:
            evaluate(scenario, ids, writer)
        else:
            evaluate_into(writer, scenario, ids, progress=progress, cancel=cancel)


def evaluate_into(
    writer: AddedWriter,
    scenario: Scenario,
    ids: Ints,
    *,
    progress: Callable[[Progress], None] | None = None,
    cancel: Callable[[], bool] | None = None,
) -> None:
    """Evaluate executions of a scenario by their ids, and append the statistics of a writer.

    Raises `engine.ExplorationCancelled`, and what the writer raises.

    Args:
        writer: takes the values, in order.
        scenario: the scenario of the executions.
        ids: which ones [rows].
        progress: called with the progress now and then.
        cancel: asks to stop.
    """
    start = time.perf_counter()
    together = work_sizes().rows_with_statistics
    for first in range(0, len(ids), together):
        if cancel is not None and cancel():
            raise ExplorationCancelled("The evaluation was stopped.")
        # An id is the fields of its execution; decoding it is quicker than reading them all.
        found = scenario.evaluate(scenario.space.table(ids[first : first + together]))
        writer.append({name: found[name].to_numpy() for name in writer.names})
        if progress is not None:
            progress(Progress(writer.done, writer.rows, writer.done, time.perf_counter() - start))

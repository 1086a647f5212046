"""Exploring: every execution of a scenario's space, rejected with proof or evaluated, reduced and kept."""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from engine.cost_models.registry import cost_model_of
from engine.executions.work_sizes import work_sizes
from engine.exploration.reductions import Reductions
from engine.exploration.result import ArrowRows, Exploration
from engine.exploration.stored_rows import schema_for, to_arrow
from engine.exploration.workers import reduce_slabs, workers_for
from engine.scenarios.scenario import Scenario
from engine.space.rows import chunks_of
from engine.space.space import Space
from engine.store import Store, StoreCorruptError, StoreError, StoreLossWarning
from engine.store.catalogue import Record
from engine.store.errors import ADVICE
from hardware import Calibration, SystemLike
from models import ModelLike

__all__ = [
    "ExplorationCancelled",
    "ExplorationTooLarge",
    "Progress",
    "RowWriter",
    "Watch",
    "explore",
    "explore_into",
    "explore_scenario",
    "from_store",
    "record_of",
    "slabs",
]


LARGEST_EXPLORATION = 2_000_000_000
"""Executions beyond which exploring is refused: some minutes of work."""


class ExplorationCancelled(Exception):  # noqa: N818 - not an error of anyone's
    """The caller asked to stop; nothing was stored."""


class ExplorationTooLarge(ValueError):  # noqa: N818 - reads as a sentence where it is raised
    """Space with more executions than the limits allow."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of an exploration: executions settled (rejected or evaluated) of all, with the feasible ones among
    them.
    """

    done: int
    total: int
    feasible: int
    seconds: float

    @property
    def rate(self) -> float:
        """Executions settled per second."""
        return self.done / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float:
        """Estimated time left [s]."""
        return (self.total - self.done) / self.rate if self.rate > 0 else float("inf")


Cancel = Callable[[], bool] | threading.Event


class Watch:
    """Reports the progress of a computation to the caller, and stops it on the caller's request."""

    def __init__(self, total: int, progress: Callable[[Progress], None] | None, cancel: Cancel | None) -> None:
        self._total, self._progress = total, progress
        self._stop = cancel.is_set if isinstance(cancel, threading.Event) else cancel
        self._start, self._reported = time.perf_counter(), 0.0

    def tell(self, done: int, feasible: int, *, last: bool = False) -> None:
        """Says so where `WorkSizes.seconds_between_reports` has gone by. Raises `ExplorationCancelled` on request."""
        if self._stop is not None and self._stop():
            raise ExplorationCancelled("The exploration was stopped.")
        seconds = time.perf_counter() - self._start
        if self._progress is not None and (last or seconds - self._reported > work_sizes().seconds_between_reports):
            self._reported = seconds
            self._progress(Progress(done, self._total, feasible, seconds))


def explore(
    model: ModelLike,
    system: SystemLike,
    *,
    num_procs: int,
    max_batch_size: int,
    datatype: str,
    limits: Mapping[str, Any] | None = None,
    store: str | os.PathLike[str] | Store | None = None,
    progress: Callable[[Progress], None] | None = None,
    cancel: Cancel | None = None,
    workers: int | None = None,
    cost_model: str | None = None,
    calibration: Calibration | None = None,
) -> Exploration:
    """Evaluates every execution of a model on `num_procs` processors of a system.

    Args:
        model, system: by library name, path or object.
        num_procs: processors; every execution uses all of them.
        max_batch_size: samples per step at most; each data-parallel degree uses its largest multiple unless `limits`
            name batch sizes.
        datatype: numeric format of the computation.
        limits: limits of fields (see `engine.executions.limits`), and extensions of the space (see
            `engine.space.space.Space`).
        store: a store or the path of one, which stays open as long as the result and its rows are referred to. A
            scenario that it already contains is not evaluated again. None keeps results in memory; their rows are made
            when first asked for.
        progress: called now and then.
        cancel: an event, or a function that says whether to stop.
        workers: processes to use while no rows are kept. None uses all cores where the space is large enough to repay
            starting them. With a store one process evaluates: writing takes the time there.
        cost_model: `calibrated`, which predicts measured runs, or `calculon`, which is exact against Calculon. None
            selects the cost model that the system's figures are meant for: calibrated, except for Calculon's own
            descriptions.
        calibration: values for the calibrated cost model; None uses the library's.

    Raises:
        models.ModelFileError, hardware.SystemFileError, engine.executions.limits.LimitError,
        engine.space.space.SpaceError, engine.cost_models.registry.CostModelError: input.
        ExplorationTooLarge: too many executions; limits would help.
        ExplorationCancelled: on `cancel`; a store is left as it was.
        engine.exploration.workers.WorkerError: one of several processes died.
        engine.store.StoreError: the store cannot be used.

    Warns with `engine.store.StoreLossWarning` about explorations that the store at a path has lost.
    """
    scenario = Scenario.of(
        model,
        system,
        num_procs=num_procs,
        max_batch_size=max_batch_size,
        datatype=datatype,
        limits=limits,
        cost_model=cost_model,
        calibration=calibration,
    )
    return explore_scenario(scenario, store=store, progress=progress, cancel=cancel, workers=workers)


def explore_scenario(
    scenario: Scenario,
    *,
    store: str | os.PathLike[str] | Store | None = None,
    progress: Callable[[Progress], None] | None = None,
    cancel: Cancel | None = None,
    workers: int | None = None,
) -> Exploration:
    """Explores a scenario; see `explore`.

    Args:
        scenario: the scenario to explore.
        store: store for results, read and written; None keeps them in memory.
        progress: called with the progress now and then.
        cancel: a function or event that asks to stop.
        workers: processes; None leaves that to the size of the space.
    """
    if store is None:
        return _in_memory(scenario, progress, cancel, workers)
    if not isinstance(store, Store):
        store = Store(store)
        for sentence in store.losses:
            warnings.warn(sentence, StoreLossWarning, stacklevel=2)
    found: Exploration | None = None
    while (
        found is None
    ):  # results that another process stores while this waits may be removed before they are read here
        found = from_store(scenario, store) or _explore_stored(scenario, store, progress, cancel, workers)
    return found


def _explore_stored(
    scenario: Scenario,
    store: Store,
    progress: Callable[[Progress], None] | None,
    cancel: Cancel | None,
    workers: int | None,
) -> Exploration | None:
    """Explore a scenario into a store; None if another process has done so meanwhile."""
    with store.writer(**record_of(scenario)) as writer:
        if writer.record is not None:
            return None
        reductions, timings = explore_into(scenario, writer, progress=progress, cancel=cancel, workers=workers)
    return Exploration(scenario, reductions, timings, lambda: store.rows(scenario.key))


class RowWriter(Protocol):
    """Receiver of the rows of an exploration, and then of all other results."""

    def append(self, rows: pa.Table) -> None:
        """Add rows, in ascending order of ids."""

    def complete(
        self,
        *,
        infeasible_by_reason: Mapping[str, int],
        timings: Mapping[str, float],
        reductions: Mapping[str, pa.Table],
    ) -> object:
        """Receive counts by reason code, seconds by phase and reduced tables, after the last rows."""


def record_of(scenario: Scenario) -> dict[str, Any]:
    """Return the record that a store's writer needs before any rows: the arguments of `engine.store.Store.writer`.

    Raises `ExplorationTooLarge`.

    Args:
        scenario: the scenario to explore.
    """
    total = _check_size(scenario).total
    return {"key": scenario.key, "scenario": scenario.to_document(), "total": total, "engine_version": scenario.physics}


def explore_into(
    scenario: Scenario,
    writer: RowWriter,
    *,
    progress: Callable[[Progress], None] | None = None,
    cancel: Cancel | None = None,
    workers: int | None = None,
) -> tuple[Reductions, dict[str, float]]:
    """Explore a scenario and pass everything to a writer; return the reductions, and seconds by phase [s].

    Raises the errors of `explore` and of the writer.

    Args:
        scenario: the scenario to explore.
        writer: takes rows as they come, then everything else.
        progress: called with the progress now and then.
        cancel: a function or event that asks to stop.
        workers: processes; None leaves that to the size of the space.
    """
    clock = _Clock()
    reductions = _explore_space(scenario, progress, cancel, writer.append, workers)
    timings = {"explore": clock.seconds()}
    writer.complete(
        infeasible_by_reason=reductions.infeasible_by_reason(), timings=timings, reductions=reductions.to_tables()
    )
    return reductions, timings


def from_store(scenario: Scenario, store: Store) -> Exploration | None:
    """Returns the exploration of a scenario that a store holds complete, else None. Raises StoreError, also for damage.

    Args:
        scenario: what was explored.
        store: where it may be.
    """
    record = store.find(scenario.key)
    if record is None:
        return None
    try:
        tables = store.reductions(scenario.key)
    except StoreError:
        if store.find(scenario.key) is None:  # removed in between
            return None
        raise
    return read_back(scenario, store, record, tables)


def read_back(scenario: Scenario, store: Store, record: Record, tables: dict[str, pa.Table]) -> Exploration:
    """Returns the exploration of a scenario from what a store holds of it. Raises StoreCorruptError where that is not
    what was explored.

    Args:
        scenario: what was explored.
        store: where it is.
        record: its record there.
        tables: its reductions there, by name.
    """
    try:
        reductions = Reductions.from_tables(scenario.space, tables)
        whole = int(reductions.feasible.sum()) == record.feasible
    except (KeyError, ValueError, TypeError, IndexError, OverflowError, pa.ArrowException):
        whole = False
    if not whole:
        raise StoreCorruptError(
            f"The store {store.path} keeps other reductions of {scenario.key} than written: {ADVICE}"
        )
    _measure_shortfalls(reductions)
    return Exploration(scenario, reductions, record.timings, lambda: store.rows(scenario.key))


def _measure_shortfalls(reductions: Reductions) -> None:
    """Finds out again what an older store did not keep of the cells in which nothing runs."""
    unknown = reductions.unmeasured
    for numbers in slabs(reductions.space) if unknown.any() else ():
        if unknown[numbers.start : numbers.stop].any():
            reductions.measure(cost_model_of(reductions.space).prepare(reductions.space, numbers, rows=False))


class _Clock:
    def __init__(self) -> None:
        self._start = time.perf_counter()

    def seconds(self) -> float:
        return time.perf_counter() - self._start


def _check_size(scenario: Scenario) -> Space:
    space = scenario.space
    if space.total > LARGEST_EXPLORATION:
        raise ExplorationTooLarge(
            f"The space has {space.total:,} executions; up to {LARGEST_EXPLORATION:,} are explored. Limit some fields."
        )
    return space


def _in_memory(
    scenario: Scenario, progress: Callable[[Progress], None] | None, cancel: Cancel | None, workers: int | None
) -> Exploration:
    _check_size(scenario)
    clock = _Clock()
    reductions = _explore_space(scenario, progress, cancel, None, workers)
    seconds = clock.seconds()
    if int(reductions.feasible.sum()) > work_sizes().largest_in_memory:
        raise ExplorationTooLarge(
            f"{int(reductions.feasible.sum()):,} executions are feasible, more than the "
            f"{work_sizes().largest_in_memory:,} that are kept in memory; give a store, or limit some fields."
        )

    def rows() -> ArrowRows:
        # Evaluating again is as fast as keeping, and most callers never ask.
        tables = list(_list_tables(scenario))
        empty = schema_for(scenario.cost_model).empty_table()
        return ArrowRows(pa.concat_tables(tables) if tables else empty, scenario.cost_model)

    return Exploration(scenario, reductions, {"explore": seconds}, rows)


def _explore_space(
    scenario: Scenario,
    progress: Callable[[Progress], None] | None,
    cancel: Cancel | None,
    sink: Callable[[pa.Table], None] | None,
    workers: int | None,
) -> Reductions:
    """Reject, evaluate and reduce the whole space, and pass rows on as they are computed."""
    space = scenario.space
    reductions = Reductions.empty(space)
    watch = Watch(space.total, progress, cancel)
    feasible = rejected = 0

    def tell(*, last: bool = False) -> None:
        watch.tell(feasible + rejected, feasible, last=last)

    tell()
    count = workers_for(space, workers)
    if count > 1 and sink is None:
        for part in reduce_slabs(scenario, list(slabs(space)), count):
            reductions.merge(part)
            feasible += int(part.feasible.sum())
            rejected += int(part.rejected.sum())
            tell()
    else:
        for numbers in slabs(space):
            prepared = cost_model_of(space).prepare(space, numbers)
            reductions.reject(prepared)
            rejected += int(prepared.rejected.counts.sum())
            for group, chunk in chunks_of(prepared.groups):
                rows = cost_model_of(space).evaluate_rows(prepared, group, chunk)
                reductions.add(prepared, rows)
                feasible += rows.executions()
                if sink is not None:
                    sink(to_arrow(prepared, rows))
                tell()
    assert feasible + rejected == space.total, "every execution is either rejected or evaluated"
    tell(last=True)
    return reductions


def _list_tables(scenario: Scenario) -> Iterator[pa.Table]:
    """Yields the rows of the whole space, without reducing them again."""
    model = cost_model_of(scenario.space)
    for numbers in slabs(scenario.space):
        prepared = model.prepare(scenario.space, numbers)
        for group, chunk in chunks_of(prepared.groups):
            yield to_arrow(prepared, model.evaluate_rows(prepared, group, chunk))


def slabs(space: Space, most: int | None = None) -> Iterator[range]:
    """Yield the cells of a space in runs of a limited number of schedule points, by default the number prepared
    together.

    Args:
        space: the space.
        most: schedule points of a run of cells [count]; None for the number prepared together.
    """
    most = work_sizes().points_explored if most is None else most
    start = points = 0
    for number, cell in enumerate(space.cells):
        here = len(cell.interleavings) * len(cell.microbatches)
        if points and points + here > most:
            yield range(start, number)
            start, points = number, 0
        points += here
    if start < len(space.cells):
        yield range(start, len(space.cells))

"""Running a study: what its folder does not have yet is cut into tasks of about a second, in the order of the study."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future, wait
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from engine.codesign.errors import ClusterError, FolderError, StudyCancelled, StudyError
from engine.codesign.executors import HereExecutor, Interpreters, of_client, workers_of
from engine.codesign.folder import ResultFolder
from engine.codesign.merging import find_merges, merge_parts
from engine.codesign.pruning import Pruner
from engine.codesign.reading import results, study_in
from engine.codesign.study import Study
from engine.codesign.tasks import Done, StudyTask, compute_task
from engine.codesign.versions import version
from engine.executions.work_sizes import work_sizes
from engine.exploration.workers import cores
from models.documents import shown

__all__ = ["Progress", "find_missing", "run"]

TASK_SECONDS: Final = 1.0
"""Target duration of a task [s]: long against the overhead of its submission, short against the loss with a worker."""

FIRST_TASK: Final = 8
"""Places of the first tasks, before anything is known about the time that a point takes."""

MOST_PLACES: Final = 100_000
"""Places of a task at most."""

AHEAD: Final = 2
"""Tasks per worker that are under way or wait at it, so that no worker waits for the caller."""


ASKED_AGAIN: Final = 2.0
"""Seconds between two questions to a scheduler about its workers: it has more to do than to answer every turn."""

GONE_SECONDS: Final = 60.0
"""Longest absence of all workers of a cluster before a run ends [s]; a restarted one returns in a few seconds."""

Cancel = Callable[[], bool] | threading.Event


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a study.

    `done` of `total` points are in the folder, `before` of them from earlier runs. Of this run: `found` points have a
    best execution, for `problems` there is no such scenario, `skipped` are proven by bounds to lose; `bytes` are
    written. For `waiting` seconds all workers of the cluster have been gone; 0 before the first one joins.
    """

    done: int
    total: int
    before: int
    found: int
    problems: int
    skipped: int
    tasks: int
    bytes: int
    seconds: float
    waiting: float = 0.0

    @property
    def rate(self) -> float:
        """Points of this run per second [1/s]."""
        return (self.done - self.before) / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float:
        """Estimated time left [s]."""
        return (self.total - self.done) / self.rate if self.rate > 0 else float("inf")


def run(
    study: Study,
    folder: str | os.PathLike[str],
    *,
    client: Any = None,
    workers: int | None = None,
    progress: Callable[[Progress], None] | None = None,
    cancel: Cancel | None = None,
    task_seconds: float = TASK_SECONDS,
    point_seconds: float | None = None,
) -> Progress:
    """Compute the missing points of a study in a folder, and return the final progress.

    The rows are the same to the last bit on every machine. An interrupted run keeps its written parts, and the next run
    computes the rest.

    Args:
        study: the study.
        folder: a folder, or an fsspec URL that caller and workers see alike.
        client: a `distributed.Client`, or the address of a Dask scheduler; None for this machine.
        workers: processes on this machine; None takes all cores if the study takes more than a few seconds.
        progress: called now and then.
        cancel: an event, or a function that says whether to stop.
        task_seconds: target duration of a task [s]; longer tasks relieve a scheduler with thousands of workers.
        point_seconds: time of a point as it was estimated [s], so that the first tasks are no longer than others; None
            if unknown.

    Raises `StudyError` for an invalid number of workers, `FolderError` for a folder that cannot be written or holds
    another study, `ClusterError` for workers that are gone or run another version, `StudyCancelled` on `cancel`.
    """
    if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int) or workers < 1):
        raise StudyError(f"workers is {shown(workers)}; it must be a whole number of at least 1.")
    if not 0 < task_seconds <= 3600:
        raise StudyError(f"task_seconds is {shown(task_seconds)}; it must be a number above 0 and at most 3600.")
    place = ResultFolder(folder)
    _begin_study(study, place)
    gaps = find_missing(study, place)
    left = sum(study.designs_before(end) - study.designs_before(start) for start, end in gaps)
    with ExitStack() as stack:
        executor: Executor
        if client is not None:
            executor = stack.enter_context(of_client(client))
        else:
            count = workers or (cores() if left * len(study.models) > 1_000 else 1)
            executor = HereExecutor() if count == 1 else stack.enter_context(Interpreters(count))
        return _StudyRun(study, place, executor, left, progress, cancel, task_seconds, point_seconds).through(gaps)


def _begin_study(study: Study, place: ResultFolder) -> None:
    """Write the study into its folder, or check that the folder has the same one.

    A damaged text is written again if all parts are of this study, or without parts if this version wrote the text.
    """
    try:
        there = place.study()
        other = None if there is None else study_in(there, place)
    except FolderError:
        parts = place.parts()
        ours = all(place.is_of(name, study.key) for _, _, name in parts) if parts else place.study_state() == "damaged"
        if not ours:
            raise
        place.keep_study(study.to_document())
        return
    if other is None:
        if place.parts():
            raise FolderError(
                f"{shown(place.place)} has parts but no study.json, so nothing says what they are; give another folder."
            )
        place.keep_study(study.to_document())
        return
    if other.key != study.key:
        raise FolderError(
            f"{shown(place.place)} holds the results of another study"
            f"{f' ({shown(other.document.name)})' if other.document.name else ''}; give another folder."
        )
    if other.document != study.document:  # other prices or questions: the newest stand in the folder
        place.keep_study(study.to_document())


def find_missing(study: Study, place: ResultFolder) -> list[tuple[int, int]]:
    """Returns the runs of places, from and up to, that the parts in a folder do not hold; parts that are damaged are
    removed.

    Args:
        study: the study.
        place: its folder.
    """
    gaps, reached = [], 0
    for first, count, name in place.parts():
        if place.part_state(name) == "damaged":
            place.remove(name)
            continue
        if first > reached:
            gaps.append((reached, first))
        reached = max(reached, first + count)
    if reached < study.places:
        gaps.append((reached, study.places))
    return gaps


def _build_pruner(study: Study, place: ResultFolder) -> Pruner:
    """Return a pruner with the results of earlier runs."""
    found = Pruner(study)
    if place.parts():
        rows = results(place.place).rows
        rows = rows[rows["status"] == "ok"]
        found.add(*(rows[name].tolist() for name in ("point", "samples_per_s", "bound")))
    return found


class _StudyRun:
    """One run of a study."""

    def __init__(
        self,
        study: Study,
        place: ResultFolder,
        executor: Executor,
        left: int,
        progress: Callable[[Progress], None] | None,
        cancel: Cancel | None,
        task_seconds: float,
        point_seconds: float | None,
    ) -> None:
        self._study, self._place, self._executor = study, place, executor
        self._progress, self._task_seconds = progress, task_seconds
        self._stop = cancel.is_set if isinstance(cancel, threading.Event) else cancel
        self._start, self._reported = time.perf_counter(), 0.0
        self._first = FIRST_TASK
        if point_seconds:
            self._first = max(1, min(FIRST_TASK, int(task_seconds / point_seconds / len(study.models))))
        self._pace: float | None = None
        self._workers, self._asked, self._joined = 0, -ASKED_AGAIN, False
        self._gone: float | None = None
        self._pruner = _build_pruner(study, place) if study.document.prune else None
        models = len(study.models)
        before = study.points - left * models
        self._at = Progress(before, study.points, before, 0, 0, 0, 0, 0, 0.0)

    def through(self, gaps: list[tuple[int, int]]) -> Progress:
        """Works through the missing places."""
        tasks = self._tasks(gaps)
        running: set[Future[Done]] = set()
        self._tell(last=False)
        try:
            while True:
                room = self._room()
                while len(running) < room and (task := next(tasks, None)) is not None:
                    running.add(self._executor.submit(compute_task, task))
                if not running:
                    break
                finished, running = wait(
                    running, timeout=work_sizes().seconds_between_reports, return_when=FIRST_COMPLETED
                )
                for each in finished:
                    self._take(each.result())
                self._tell(last=False)
                if self._stop is not None and self._stop():
                    raise StudyCancelled("The study was stopped; what is written stays, and the next run goes on.")
        except (ClusterError, FolderError, StudyCancelled, StudyError):
            raise
        except Exception as problem:
            raise self._explained(problem) from problem
        finally:
            for each in running:
                each.cancel()
        self._merge()
        self._tell(last=True)
        return self._at

    def _room(self) -> int:
        """Return the number of tasks that may be pending. Raises `ClusterError` if all workers have been gone for too
        long.
        """
        if isinstance(self._executor, HereExecutor):
            return 1
        now = time.perf_counter()
        if now - self._asked >= ASKED_AGAIN:
            self._asked, self._workers = now, workers_of(self._executor)
            self._joined |= self._workers > 0
            self._gone = None if self._workers or not self._joined else now if self._gone is None else self._gone
            waiting = 0.0 if self._gone is None else now - self._gone
            self._at = replace(self._at, waiting=waiting)
            if waiting >= GONE_SECONDS:
                raise ClusterError(
                    f"All workers of the cluster have been gone for {waiting:,.0f} s; {self._at.done:,} of "
                    f"{self._at.total:,} points are written and stay good: start workers and run the study again to "
                    "go on."
                )
        return AHEAD * max(1, self._workers)

    def _merge(self) -> None:
        """Merge small parts into large ones, from all writers, and remove the drafts of killed writers.

        If that fails, the small parts stay: they are as good.
        """
        with suppress(ClusterError, FolderError, OSError, CancelledError):
            listed = list(find_merges(self._place, len(self._study.models)))
            left = {self._executor.submit(merge_parts, task, self._study.key) for task in listed}
            while left:
                finished, left = wait(left, timeout=work_sizes().seconds_between_reports, return_when=FIRST_COMPLETED)
                for each in finished:
                    each.result()
                self._room()  # which ends it where all workers are gone
                self._tell(last=False)
            self._place.sweep()

    def _tasks(self, gaps: list[tuple[int, int]]) -> Iterator[StudyTask]:
        """Yield the missing places as tasks, whose size is decided at submission."""
        place, key, ours = self._place.shared, self._study.key, version()
        for start, end in gaps:
            while start < end:
                count = min(end - start, self._places())
                lost = {} if self._pruner is None else self._pruner.lost(self._study.designs_at(start, count))
                yield StudyTask(place, key, start, count, ours, lost)
                start += count

    def _places(self) -> int:
        if self._pace is None:
            return self._first
        return max(1, min(MOST_PLACES, int(self._task_seconds / self._pace)))

    def _take(self, done: Done) -> None:
        if self._pruner is not None and done.rates:
            self._pruner.add(*zip(*done.rates, strict=True))
        pace = max(done.seconds, 1e-6) / done.count
        self._pace = pace if self._pace is None else 0.7 * self._pace + 0.3 * pace
        at = self._at
        self._at = replace(
            at,
            done=at.done + done.points,
            found=at.found + done.found,
            problems=at.problems + done.problems,
            skipped=at.skipped + done.skipped,
            tasks=at.tasks + 1,
            bytes=at.bytes + done.size,
        )

    def _tell(self, *, last: bool) -> None:
        seconds = time.perf_counter() - self._start
        self._at = replace(self._at, seconds=seconds)
        if self._progress is not None and (last or seconds - self._reported > work_sizes().seconds_between_reports):
            self._reported = seconds
            self._progress(self._at)

    def _explained(self, problem: Exception) -> Exception:
        """Return an executor's error as a sentence; our own errors unchanged."""
        kind = type(problem).__module__.split(".")[0]
        lost = isinstance(problem, CancelledError | OSError | ModuleNotFoundError)
        if isinstance(self._executor, HereExecutor | Interpreters) and not isinstance(problem, CancelledError):
            return problem
        if not lost and kind not in ("distributed", "dask", "tornado"):
            return problem
        name = type(problem).__name__
        if name == "KilledWorker":
            text = "Workers ended over and over again on the same points, perhaps for lack of memory"
        elif isinstance(problem, ModuleNotFoundError):
            text = "A worker has no Shardscape that knows studies"
        else:
            text = "The scheduler of the cluster is gone, or gave up what it was asked"
        return ClusterError(
            f"{text}; {self._at.done:,} of {self._at.total:,} points are written and stay good: run the study again to "
            "go on."
        )

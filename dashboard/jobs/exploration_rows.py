"""Explorations in a worker's process, whose rows only the server's may write into the store.

So they come over in files, as shards of a store, which are moved into it as they are.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Protocol, Self

import pyarrow as pa

from dashboard.jobs.scratch_folders import scratch_folder
from dashboard.jobs.worker import Task
from engine import Exploration, ExplorationCancelled, Scenario
from engine.executions.work_sizes import work_sizes
from engine.exploration.run import explore_into, from_store, record_of
from engine.store import Store, StoreError, Writer
from engine.store.shards import RowGroups, ShardFile

__all__ = ["Run", "explore_into_store", "explore_to_files"]

FILES_AHEAD: Final = 4
"""Files that may wait to be stored; then the process waits, too."""


class _Stored(Exception):  # noqa: N818 - no error: the exploration is there
    """Another thread has stored the same exploration meanwhile."""


class Run(Protocol):
    """Runner of functions in a worker: `dashboard.jobs.job.Job.run`."""

    def __call__(self, function: Any, *arguments: Any, give: Any) -> Any:
        """Returns what the function returns; `give` is called with every part that it gives."""


def explore_into_store(scenario: Scenario, store: Store, run: Run) -> Exploration:
    """Explores a scenario into a store by a worker, or finds it there.

    Raises what `Worker.run` and the store raise.
    """
    found = from_store(scenario, store)
    if found is not None:
        return found
    with scratch_folder() as folder, contextlib.ExitStack() as stack, contextlib.suppress(_Stored):
        # Made anew, without the space that it may remember: making one is quicker than sending it.
        run(explore_to_files, replace(scenario), folder, give=_Taker(store, folder, stack))
    found = from_store(scenario, store)
    if found is None:
        raise StoreError("It was removed from the store before it could be read.")
    return found


class _Taker:
    """Write the transferred rows to the store."""

    def __init__(self, store: Store, folder: Path, stack: contextlib.ExitStack) -> None:
        """stack: in which the writer is open. Raises what the store raises, and `_Stored`, when called."""
        self._store, self._folder, self._stack = store, folder, stack
        self._writer: Writer

    def __call__(self, part: tuple[str, Any]) -> None:
        what, content = part
        if what == "open":
            self._writer = self._stack.enter_context(self._store.writer(**content))
            if self._writer.record is not None:
                raise _Stored
        elif what == "shard":
            self._writer.take(self._folder / content[0], *content[1:])
        elif what == "complete":
            self._writer.complete(**content)


def explore_to_files(task: Task, scenario: Scenario, folder: Path) -> None:
    """Explores a scenario and passes everything on, rows in files of a folder."""
    task.owns(folder)
    task.give(("open", record_of(scenario)))
    with _Relay(task, folder) as relay:
        explore_into(scenario, relay, progress=task.tell, cancel=relay.stopped, workers=1)


class _Relay:
    """Takes the rows of an exploration in the process, and passes them on to where the store is."""

    def __init__(self, task: Task, folder: Path) -> None:
        self._task = task
        self._folder = folder
        self._groups = RowGroups(work_sizes().rows_of_group)
        self._file: ShardFile | None = None
        self._steps: list[Future[Any]] = []
        """Pending steps on the current file: each appends a row group, and the last returns its checksum."""
        self._begun = 0
        self._ended: deque[tuple[ShardFile, list[Future[Any]]]] = deque()
        """Files to which everything is done, or soon will be."""
        self._writer = ThreadPoolExecutor(1)  # which leaves the process's own thread to evaluate

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self._writer.shutdown(cancel_futures=True)
        for file in (self._file, *(file for file, _ in self._ended)):
            if file is not None:
                file.discard()

    def append(self, rows: pa.Table) -> None:
        """Passes on rows, many at a time."""
        self._write(self._groups.full(rows))
        while self._ended and self._ended[0][1][-1].done():
            self._pass_on()

    def complete(self, *, reductions: Mapping[str, pa.Table], **more: Any) -> None:
        """Passes on everything else, and ends the exploration."""
        self._write(self._groups.rest())
        self._end_file()
        while self._ended:
            self._pass_on()
        self._task.give(("complete", {"reductions": dict(reductions), **more}))

    def _write(self, groups: list[pa.Table]) -> None:
        """Begins to write row groups while what follows them is evaluated."""
        for group in groups:
            if self._file is None:
                self._wait_for_room()
                self._file = ShardFile(self._folder / f"{self._begun}.parquet")
                self._begun += 1
            self._steps.append(self._writer.submit(self._file.append, group))
            if len(self._steps) >= work_sizes().groups_of_transfer:
                self._end_file()

    def _wait_for_room(self) -> None:
        """Waits while too many files are left for the server to take."""
        while sum(entry.suffix == ".parquet" for entry in self._folder.iterdir()) >= FILES_AHEAD:
            if self.stopped():
                raise ExplorationCancelled("The exploration was stopped.")
            if self._ended:
                self._pass_on()
            else:
                time.sleep(0.002)

    def _end_file(self) -> None:
        if self._file is not None:
            self._steps.append(self._writer.submit(self._file.close))
            self._ended.append((self._file, self._steps))
            self._file, self._steps = None, []

    def _pass_on(self) -> None:
        """Passes on the file that was begun first, once it is written."""
        file, steps = self._ended[0]
        *_, checksum = [step.result() for step in steps]
        self._ended.popleft()
        self._task.give(("shard", (file.path.name, file.rows, checksum)))

    def stopped(self) -> bool:
        """Returns True after a request to stop, or if the server no longer takes the rows."""
        return self._task.stops() or not self._folder.exists()

"""Explorations in a process of their own, so that pages and explorations do not wait for each other.

Why, see `dashboard.jobs.interpreters`. Only the server's process may write the store, so rows come over in files, as
shards of a store, which are moved into it as they are.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Self

import pyarrow as pa

from dashboard.jobs.interpreters import BEHIND, Interpreter, connected
from dashboard.jobs.scratch_folders import scratch_folder
from engine import Exploration, ExplorationCancelled, Progress, Scenario
from engine.exploration.run import explore_into, from_store, record_of
from engine.store import Store, StoreError, Writer
from engine.store.shards import write_shard

__all__ = ["Refused", "Worker", "serve"]

ROWS_PER_FILE: Final = 524_288
"""Rows that come over at a time, some 100 MB in memory and 20 in the file."""
FILES_AHEAD: Final = 4
"""Files that may wait to be stored; then the process waits, too."""
_STOP: Final = "stop"
"""File that asks the process to stop."""


class Refused(ValueError):  # noqa: N818 - reads as a sentence where it is raised
    """The engine does not explore this scenario; the message says why."""


_ENDS: Final[Mapping[str, type[Exception]]] = {"refused": Refused, "memory": MemoryError, "failed": RuntimeError}


class Worker:
    """A process that explores one scenario after the other. It is started when it is first needed, and again after a
    death."""

    def __init__(self, behind: int = BEHIND) -> None:
        """behind: how far it stands back, as `nice` counts."""
        self._behind = behind
        self._process: Interpreter | None = None
        self._lock = threading.Lock()
        self._closed = False

    def start(self) -> None:
        """Starts the process if there is none, without waiting until it is ready. Raises OSError."""
        with self._lock:
            if self._closed or (self._process is not None and self._process.poll() is None):
                return
            if self._process is not None:
                self._process.end()
            self._process = Interpreter("worker_process", self._behind, "exploring")

    def close(self) -> None:
        """Ends the process at once, whatever it is doing."""
        with self._lock:
            self._closed = True
            if self._process is not None:
                self._process.end()

    def explore(
        self, scenario: Scenario, store: Store, progress: Callable[[Progress], None], cancel: Callable[[], bool]
    ) -> Exploration:
        """Explores a scenario into a store, or finds it there.

        Raises what `engine.explore_scenario` raises, with `Refused` for anything that is wrong with the scenario, and
        `WorkerError` when the process has ended by itself.
        """
        found = from_store(scenario, store)
        if found is not None:
            return found
        with scratch_folder() as folder:
            self._explore(scenario, store, folder, progress, cancel)
        found = from_store(scenario, store)
        if found is None:
            raise StoreError("It was removed from the store before it could be read.")
        return found

    def _explore(
        self,
        scenario: Scenario,
        store: Store,
        folder: Path,
        progress: Callable[[Progress], None],
        cancel: Callable[[], bool],
    ) -> None:
        self.start()
        process = self._process
        if process is None or self._closed:
            raise ExplorationCancelled("The server is being stopped.")
        # Made anew, without the space that it may remember: making one is quicker than sending it.
        process.send((replace(scenario), str(folder)))
        try:
            _take(process.messages(), store, folder, progress, cancel)
        except (ExplorationCancelled, Refused, MemoryError):  # it has said so itself, and is ready for the next
            raise
        except BaseException:  # it goes on with what nobody will take
            process.end()
            raise


def _take(
    messages: Iterator[tuple[str, Any]],
    store: Store,
    folder: Path,
    progress: Callable[[Progress], None],
    cancel: Callable[[], bool],
) -> None:
    """Does what the messages say until one says that the exploration has ended."""
    with contextlib.ExitStack() as stack:
        writer: Writer | None = None
        for what, content in messages:
            if cancel():
                (folder / _STOP).touch()
            if what == "progress":
                progress(content)
            elif what == "open":
                writer = stack.enter_context(store.writer(**content))
                if writer.record is not None:  # another thread has stored it meanwhile
                    (folder / _STOP).touch()
            elif what == "shard":
                if writer is not None and writer.record is None:
                    writer.take(folder / content[0], *content[1:])
                else:
                    (folder / content[0]).unlink()
            elif what == "complete":
                if writer is not None and writer.record is None:
                    writer.complete(**content)
                return
            elif what == "cancelled":
                if writer is not None and writer.record is not None:
                    return
                raise ExplorationCancelled(content)
            else:
                raise _ENDS[what](content)


class _Relay:
    """Takes the rows of an exploration in the process, and passes them on to where the store is."""

    def __init__(self, send: Callable[[str, Any], None], folder: Path) -> None:
        self._send_on = send
        self._folder = folder
        self._pending: list[pa.Table] = []
        self._begun = 0
        self._shards: deque[tuple[str, int, Future[int]]] = deque()
        """Those that are being written, by name, with the number of their rows."""
        self._server = os.getppid()
        self._writer = ThreadPoolExecutor(1)  # which leaves the process's own thread to evaluate

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self._writer.shutdown()

    def append(self, rows: pa.Table) -> None:
        """Passes on rows, many at a time."""
        self._pending.append(rows)
        if sum(table.num_rows for table in self._pending) >= ROWS_PER_FILE:
            self._write()
        while self._shards and self._shards[0][2].done():
            self._pass_on()

    def complete(self, *, reductions: Mapping[str, pa.Table], **more: Any) -> None:
        """Passes on everything else, and ends the exploration."""
        if self._pending:
            self._write()
        while self._shards:
            self._pass_on()
        self._send_on("complete", {"reductions": dict(reductions), **more})

    def _write(self) -> None:
        """Begins to write what there is as a shard, once there are not too many that nobody has taken."""
        while sum(entry.suffix == ".parquet" for entry in self._folder.iterdir()) >= FILES_AHEAD:
            if self.stopped():
                raise ExplorationCancelled("The exploration was stopped.")
            if self._shards:
                self._pass_on()
            else:
                time.sleep(0.002)
        table = pa.concat_tables(self._pending)
        self._pending = []
        name = f"{self._begun}.parquet"
        self._begun += 1
        self._shards.append((name, table.num_rows, self._writer.submit(write_shard, self._folder / name, table)))

    def _pass_on(self) -> None:
        """Passes on the shard that was begun first, once it is written."""
        name, rows, written = self._shards.popleft()
        self._send_on("shard", (name, rows, written.result()))

    def stopped(self) -> bool:
        """Whether to stop: asked to, or nobody is there any more to tell."""
        return (self._folder / _STOP).exists() or not self._folder.exists() or self.alone()

    def alone(self) -> bool:
        """Whether the server has been killed; it has cleaned up nothing then."""
        return os.getppid() != self._server


def serve(behind: int) -> None:
    """In the process: explores what it is told to until the server is gone. behind: see `Worker`."""
    with connected(behind) as (source, tell):

        def send(what: str, content: Any) -> None:
            tell((what, content))

        folder = ""
        while True:
            try:
                scenario, folder = pickle.load(source)
            except EOFError:  # the server is done, or was killed before it took the last rows
                if folder:
                    shutil.rmtree(folder, ignore_errors=True)
                return
            relay = _Relay(send, Path(folder))
            try:
                send("open", record_of(scenario))
                with relay:
                    explore_into(
                        scenario,
                        relay,
                        progress=lambda progress: send("progress", progress),
                        cancel=relay.stopped,
                        workers=1,
                    )
            except ExplorationCancelled as problem:
                if relay.alone():
                    shutil.rmtree(folder, ignore_errors=True)
                    return
                send("cancelled", str(problem))
            except BrokenPipeError:  # the server was killed
                shutil.rmtree(folder, ignore_errors=True)
                return
            except ValueError as problem:
                send("refused", str(problem))
            except MemoryError as problem:
                send("memory", str(problem))
            except Exception:
                send("failed", traceback.format_exc())

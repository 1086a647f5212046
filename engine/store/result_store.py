"""The result store: one DuckDB file that stores every exploration, so that no scenario is evaluated twice.

A store keeps, per exploration, a record (scenario, engine version, counts, timings), its reductions (named Arrow
tables) and one row per feasible execution. Records and reductions are in the database file, rows are Parquet shards in
the folder `<stem>.rows` next to it. Explorations of up to 131,072 rows that earlier versions stored have theirs in a
table of the database file, and are read there.

Shards are used for any number of rows: measured on one core, in turns with tables, in CPU time. Exploring and storing
takes 0.76 of the time with 6,000 rows, 0.43 with 80,000, 0.36 with 1.25 million; the whole store then takes 0.91, 0.67
and 0.58 of the room. Opening a store of 60 explorations of some hundred rows and listing them takes 0.07 s instead of
0.42. Questions take longer, 1.2 to 1.5 times with up to 80,000 rows, which is 1 to 10 ms each, and 1.3 to 2.3 times
with more.

An exploration exists only when it is complete: rows that are shards are on disk before one transaction inserts
reductions and record. Files are recorded before they are made, so the remains of a dying process are removed when the
store is next opened for writing; other files are not touched. The store contains no physics; the columns come from
`engine.columns`.
"""

import contextlib
import os
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa

from engine.store import catalogue
from engine.store.catalogue import Record, catalogued, records_of, reductions_of
from engine.store.conditions import source_of_shards, source_of_table
from engine.store.database import Database, checked_key, rows_table
from engine.store.errors import (
    StoreAccessError,
    StoreError,
)
from engine.store.keyed import KeyedTable
from engine.store.query import Rows, interrupt_all
from engine.store.shards import Shards
from engine.store.writer import Writer

__all__ = ["Store"]


class Store:
    """A result store. All methods may be called from any thread.

    Use it as a context manager or call `close`; one that nothing refers to any more, nor to its rows, closes itself.
    """

    def __init__(self, path: str | os.PathLike[str], *, read_only: bool = False, rebuild: bool = False) -> None:
        """Open the store at `path`, a file ending in `.duckdb`; make it if it is missing and `read_only` is false.

        A list of contents or rows without their database, or with the database of another store, are refused and not
        changed. With `rebuild` the database is made again, or the other one taken, and `losses` says what the list
        names.

        Raises a StoreError that explains in one sentence why the path is refused: StoreAccessError, StoreLockedError
        (one process may write, or several may read), StoreVersionError, StoreCorruptError.
        """
        self.read_only = read_only
        self._active: set[duckdb.DuckDBPyConnection] = set()
        self._open: Database | None = Database.acquire(Path(path), read_only=read_only, rebuild=rebuild)
        self._release = weakref.finalize(self, self._open.release)
        self.path: Final = self._open.path

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Gives the file back. Running queries are cancelled; closing twice does nothing."""
        if self._open is not None:
            self._open = None
            self.interrupt()
            self._release()

    def interrupt(self) -> None:
        """Cancels all queries now running through this store; they raise StoreInterruptedError. Writers go on."""
        interrupt_all(self._active)

    def find(self, key: str) -> Record | None:
        """Returns the record of a complete exploration whose rows are all there, else None."""
        found = records_of(self._database(), checked_key(key), self._active)
        return found[0] if found and found[0].damage is None else None

    def records(self) -> list[Record]:
        """Return all explorations, newest first, including ones that lost rows since (`damage` says how)."""
        return records_of(self._database(), None, self._active)

    def rows(self, key: str) -> Rows:
        """Gives access to the rows of a complete exploration, whose shards are verified when they are first used.

        Raises StoreCorruptError when a shard is missing or damaged, whose file it names, or the record is.
        """
        database = self._database()
        found = catalogued(database, key, self._active)
        model = found.cost_model
        if found.shards is None:
            shards, source = None, source_of_table(rows_table(key), model, there=database.columns_of(key))
        else:
            shards = Shards(database.folder, found.shards, database.verified)
            try:
                shards.verify()
            except StoreError:
                catalogued(database, key)  # raises when the exploration has been removed meanwhile
                raise
            source = source_of_shards(model, shards.files, shards.columns())
        return Rows(database, source, self._active, model, database.added, key, shards, self)

    @property
    def losses(self) -> list[str]:
        """Lost explorations: stored once and missing now, a sentence for each; see `engine.store.contents`."""
        database = self._database()
        lost = database.contents.lost(database.stored())
        return [catalogue.loss(database, key, entry) for key, entry in lost.items()]

    def reductions(self, key: str) -> dict[str, pa.Table]:
        """Returns the reductions of a complete exploration by name, with exactly the types that were stored."""
        return reductions_of(self._database(), key, self._active)

    def delete(self, key: str) -> None:
        """Remove an exploration with its rows and reductions. Raises StoreError for an unknown key."""
        database = self._writable()
        with database.sole_writer(checked_key(key), timeout=None):
            if not records_of(database, key):
                raise catalogue.no_exploration(database, key)
            catalogue.delete(database, key)

    def keyed(self, name: str, schema: pa.Schema) -> KeyedTable:
        """Return a table of single results by key, which is made when something is first put in.

        Raises StoreError for names and types that it cannot have, and where the store has another table of the name.
        """
        return KeyedTable(self._database(), name, schema, read_only=self.read_only)

    @contextlib.contextmanager
    def writer(
        self,
        key: str,
        scenario: Mapping[str, Any],
        *,
        total: int,
        engine_version: str,
        timeout: float | None = None,
    ) -> Iterator[Writer]:
        """Writes one exploration: `append` rows in any order, which is kept, then `complete`.

        While another thread writes the same key this waits, up to `timeout` [s]. If the exploration is complete by
        then, the writer's `record` is set and there is nothing to do. Leaving without `complete`, or by an exception,
        removes every trace. A damaged exploration of the same key is replaced. The store may be closed meanwhile: the
        file stays open until the writer is done.
        """
        database = self._writable()
        with database.in_use(), database.sole_writer(checked_key(key), timeout):
            record = next(iter(records_of(database, key)), None)
            if record is not None and record.damage is not None:
                catalogue.delete(database, key)
                record = None
            if record is None:
                catalogue.remove_rows(database, key)  # which damage has left without a record
            with Writer(database, key, scenario, total=total, engine_version=engine_version, record=record) as writer:
                yield writer

    def _database(self) -> Database:
        if self._open is None:
            raise StoreError(f"The store {self.path} is closed: open it again.")
        return self._open

    def _writable(self) -> Database:
        database = self._database()
        if self.read_only:
            raise StoreAccessError(f"The store {self.path} is open for reading only: open it for writing to change it.")
        return database

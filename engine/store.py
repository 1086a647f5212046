"""The result store: one DuckDB file that remembers every exploration, so that no scenario is evaluated twice.

A store keeps, per exploration, a record (scenario, engine version, counts, timings), its reductions (named Arrow
tables) and one row per feasible execution. Records and reductions are always in the database file. Rows are there too
up to `ROWS_IN_DATABASE`; beyond, they are Parquet shards in the folder `<stem>.rows` beside it.

An exploration exists only when it is complete: rows that are shards are on disk under their final name before one
transaction inserts reductions and record. Whatever a dying process leaves behind is swept when the store is next opened
for writing. The store knows no physics; the columns come from `engine.columns`.
"""

import contextlib
import datetime
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa

from engine import columns, store_shards
from engine.store_conditions import Condition, source_of_shards
from engine.store_database import Database, checked_key, rows_table
from engine.store_errors import (
    StoreAccessError,
    StoreCorruptError,
    StoreError,
    StoreInterruptedError,
    StoreLockedError,
    StoreVersionError,
    StoreWriteError,
)
from engine.store_query import SCHEMA, Histogram, Rows, interrupt_all
from engine.store_shards import ROWS_PER_GROUP, Shard, ShardWriter

__all__ = [
    "Condition",
    "Histogram",
    "Record",
    "Rows",
    "Store",
    "StoreAccessError",
    "StoreCorruptError",
    "StoreError",
    "StoreInterruptedError",
    "StoreLockedError",
    "StoreVersionError",
    "StoreWriteError",
    "Writer",
]

ROWS_IN_DATABASE: Final = 2 * ROWS_PER_GROUP
"""Most rows an exploration may have to be kept inside the database file."""


@dataclass(frozen=True, slots=True)
class Record:
    """One complete exploration."""

    key: str
    scenario: dict[str, Any]
    engine_version: str
    total: int
    """Executions in the space."""
    feasible: int
    """Executions that run: the number of stored rows."""
    infeasible_by_reason: dict[str, int]
    timings: dict[str, float]
    """Seconds per phase, as whoever explored measured them [s]."""
    created_at: datetime.datetime
    """When it was completed, UTC."""
    bytes: int
    """Room taken by rows and reductions [bytes]; for rows inside the database file, the blocks they occupy by now."""
    damage: str | None = None
    """What is wrong with the stored rows; None when they look whole."""


class Store:
    """A result store. All methods may be called from any thread; use it as a context manager or call `close`."""

    def __init__(self, path: str | os.PathLike[str], *, read_only: bool = False) -> None:
        """Open the store at `path`, a file ending in `.duckdb`; make it if it is missing and `read_only` is false.

        Raises a StoreError that says in one sentence what is wrong with the path: StoreAccessError, StoreLockedError
        (one process may write, or several may read), StoreVersionError, StoreCorruptError.
        """
        self.read_only = read_only
        self._active: set[duckdb.DuckDBPyConnection] = set()
        self._open: Database | None = Database.acquire(Path(path), read_only=read_only)
        self.path: Final = self._open.path

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the file back. Running queries are cancelled; closing twice does nothing."""
        database, self._open = self._open, None
        if database is not None:
            self.interrupt()
            database.release()

    def interrupt(self) -> None:
        """Cancel all queries now running through this store; they raise StoreInterruptedError. Writers go on."""
        interrupt_all(self._active)

    def find(self, key: str) -> Record | None:
        """Return the record of a complete exploration whose rows are all there, else None."""
        found = self._records("WHERE key = $key", {"key": checked_key(key)})
        return found[0] if found and found[0].damage is None else None

    def records(self) -> list[Record]:
        """Return all explorations, newest first, also those that lost rows since (`damage` says how)."""
        return self._records("", {})

    def rows(self, key: str) -> Rows:
        """Return access to the rows of a complete exploration.

        Raises StoreCorruptError, naming the file, when a shard is missing or damaged.
        """
        database = self._database()
        shards = self._shards(key)
        if shards is None:
            return Rows(database, rows_table(key), None, self._active)
        folder = database.folder / key
        store_shards.check(folder, shards)
        return Rows(database, source_of_shards(), [str(folder / shard.name) for shard in shards], self._active)

    def reductions(self, key: str) -> dict[str, pa.Table]:
        """Return the reductions of a complete exploration by name, with exactly the types that were stored."""
        self._shards(key)  # raises when there is no such exploration
        with self._database().cursor(self._active) as cursor:
            text = "SELECT name, content FROM reduction WHERE key = $key ORDER BY name"
            found = cursor.execute(text, {"key": key}).fetchall()
        return {name: pa.ipc.open_stream(content).read_all() for name, content in found}

    def delete(self, key: str) -> None:
        """Remove an exploration with its rows and reductions. Raises StoreError when there is none."""
        database = self._writable()
        with database.sole_writer(checked_key(key), timeout=None):
            self._shards(key)
            _delete(database, key)

    @contextlib.contextmanager
    def writer(
        self,
        key: str,
        scenario: Mapping[str, Any],
        *,
        total: int,
        engine_version: str,
        timeout: float | None = None,
    ) -> Iterator["Writer"]:
        """Write one exploration: `append` rows in enumeration order, then `complete`.

        While another thread writes the same key this waits, up to `timeout` [s]. If the exploration is complete by
        then, the writer's `record` is set and there is nothing to do. Leaving without `complete`, or by an exception,
        removes every trace. A damaged exploration of the same key is replaced.
        """
        database = self._writable()
        with database.sole_writer(checked_key(key), timeout):
            record = self.find(key)
            if record is None and self._records("WHERE key = $key", {"key": key}):
                _delete(database, key)
            writer = Writer(self, database, key, scenario, total=total, engine_version=engine_version, record=record)
            with writer:
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

    def _shards(self, key: str) -> list[Shard] | None:
        """Return an exploration's shards, None when its rows are in the database; raise StoreError if there is none."""
        with self._database().cursor(self._active) as cursor:
            text = "SELECT shards FROM exploration WHERE key = $key"
            found = cursor.execute(text, {"key": checked_key(key)}).fetchall()
        if not found:
            raise StoreError(f"The store {self.path} has no exploration {key}: `records` lists those it has.")
        return None if found[0][0] is None else store_shards.from_json(found[0][0])

    def _records(self, where: str, parameters: dict[str, str]) -> list[Record]:
        """Return records, newest first; `where` is one of this class's own clauses."""
        database = self._database()
        names = "key, scenario, engine_version, total, feasible, infeasible_by_reason, timings, created_at, shards"
        sizes = "(SELECT coalesce(sum(octet_length(content)), 0) FROM reduction r WHERE r.key = e.key)"
        with database.cursor(self._active) as cursor:
            text = f"SELECT {names}, {sizes} FROM exploration e {where} ORDER BY created_at DESC, key"
            found = cursor.execute(text, parameters).fetchall()
            inside = {row[0]: _blocks(cursor, row[0]) for row in found if row[8] is None}
        records = []
        for key, scenario, version, total, feasible, reasons, timings, created_at, shard_text, reduction_bytes in found:
            shards = [] if shard_text is None else store_shards.from_json(shard_text)
            records.append(
                Record(
                    key=key,
                    scenario=json.loads(scenario),
                    engine_version=version,
                    total=total,
                    feasible=feasible,
                    infeasible_by_reason=json.loads(reasons),
                    timings=json.loads(timings),
                    created_at=created_at.replace(tzinfo=datetime.UTC),
                    bytes=int(reduction_bytes) + sum(shard.bytes for shard in shards) + inside.get(key, 0),
                    damage=store_shards.damage(database.folder / key, shards),
                )
            )
        return records


class Writer:
    """Writes one exploration; made by `Store.writer`. Rows come from one thread at a time."""

    def __init__(
        self,
        store: Store,
        database: Database,
        key: str,
        scenario: Mapping[str, Any],
        *,
        total: int,
        engine_version: str,
        record: Record | None,
    ) -> None:
        self.record = record
        """The complete exploration: set from the start when another writer was first, or by `complete`."""
        self._store = store
        self._database = database
        self._key = key
        self._scenario = _json("scenario", scenario)
        self._total = total
        self._engine_version = engine_version
        self._pending: list[pa.Table] = []
        self._pending_rows = 0
        self._rows = 0
        self._shards: ShardWriter | None = None
        self._committed = False

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, *_: object) -> None:
        self._pending.clear()
        if self._shards is not None and not self._committed:
            self._shards.discard()

    def append(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Add feasible executions with the columns and types of `engine.columns.headline_schema()`."""
        self._check_unfinished()
        table = _checked_rows(rows)
        if not table.num_rows:
            return
        self._pending.append(table)
        self._pending_rows += table.num_rows
        self._rows += table.num_rows
        if self._shards is None and self._rows > ROWS_IN_DATABASE:
            self._shards = ShardWriter(self._database.folder, self._key)
        if self._shards is not None:
            self._write_groups(self._shards)

    def complete(
        self,
        *,
        infeasible_by_reason: Mapping[str, int],
        timings: Mapping[str, float],
        reductions: Mapping[str, pa.Table],
    ) -> Record:
        """Make the exploration exist, with everything appended so far; return its record.

        Raises StoreError when rows and reasons do not add up to the whole space, StoreWriteError when there is no room.
        """
        self._check_unfinished()
        if self._rows + sum(infeasible_by_reason.values()) != self._total:
            raise StoreError(
                f"Exploration {self._key} is not complete: {self._rows} rows and {sum(infeasible_by_reason.values())} "
                f"infeasible executions are not the {self._total} of its space."
            )
        shards = None
        if self._shards is not None:
            self._write_groups(self._shards, all_rows=True)
            shards = store_shards.to_json(self._shards.publish())
        record = {
            "key": self._key,
            "scenario": self._scenario,
            "engine_version": self._engine_version,
            "total": self._total,
            "feasible": self._rows,
            "infeasible_by_reason": _json("infeasible_by_reason", infeasible_by_reason),
            "timings": _json("timings", timings),
            "created_at": datetime.datetime.now(datetime.UTC).replace(tzinfo=None),
            "shards": shards,
        }
        with self._database.transaction() as cursor:
            if shards is None:
                cursor.execute(columns.ddl(f"rows_{self._key}"))
                if self._pending:
                    cursor.register("appended", pa.concat_tables(self._pending))
                    cursor.execute(f"INSERT INTO {rows_table(self._key)} SELECT * FROM appended").fetchall()
                    cursor.unregister("appended")
            for name, table in reductions.items():
                content = {"key": self._key, "name": name, "rows": table.num_rows, "content": _arrow_stream(table)}
                cursor.execute("INSERT INTO reduction VALUES ($key, $name, $rows, $content)", content)
            places = ", ".join(f"${name}" for name in record)
            cursor.execute(f"INSERT INTO exploration ({', '.join(record)}) VALUES ({places})", record)
        self._committed = True
        self._pending.clear()
        self.record = self._store.find(self._key)
        if self.record is None:
            raise StoreCorruptError(f"Exploration {self._key} lost shards while it was being stored.")
        return self.record

    def _write_groups(self, shards: ShardWriter, *, all_rows: bool = False) -> None:
        """Pass pending rows on in full row groups, and the remainder too if `all_rows`."""
        if self._pending_rows < ROWS_PER_GROUP and not all_rows:
            return
        table = pa.concat_tables(self._pending)
        offset = 0
        while table.num_rows - offset >= ROWS_PER_GROUP or (all_rows and offset < table.num_rows):
            shards.write(table.slice(offset, ROWS_PER_GROUP))
            offset += ROWS_PER_GROUP
        rest = table.slice(offset)
        self._pending = [rest] if rest.num_rows else []
        self._pending_rows = rest.num_rows

    def _check_unfinished(self) -> None:
        if self.record is not None or self._committed:
            raise StoreError(f"Exploration {self._key} is already complete: nothing can be added to it.")


def _delete(database: Database, key: str) -> None:
    """Remove an exploration: first its record, so that it is gone whatever happens then."""
    with database.transaction() as cursor:
        cursor.execute("DELETE FROM exploration WHERE key = $key", {"key": key})
        cursor.execute("DELETE FROM reduction WHERE key = $key", {"key": key})
        cursor.execute(f"DROP TABLE IF EXISTS {rows_table(key)}")
    store_shards.remove_shards(database.folder / key)


def _blocks(cursor: duckdb.DuckDBPyConnection, key: str) -> int:
    """Return the room that a table of rows occupies in the database file [bytes]; 0 while it is only in the log."""
    text = (
        "SELECT count(DISTINCT block_id) * (SELECT block_size FROM pragma_database_size() LIMIT 1) "
        "FROM pragma_storage_info($table) WHERE block_id IS NOT NULL AND persistent"
    )
    return int(cursor.execute(text, {"table": f"rows_{key}"}).fetchall()[0][0])


def _checked_rows(rows: pa.Table | pa.RecordBatch) -> pa.Table:
    """Return rows as a table with exactly the stored schema; raise StoreError naming the column at fault."""
    table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
    if table.column_names != SCHEMA.names:
        differing = ", ".join(sorted(set(table.column_names) ^ set(SCHEMA.names))) or "their order"
        raise StoreError(f"Rows to store do not have the columns of the register: {differing} differs.")
    for field, column in zip(SCHEMA, table.columns, strict=True):
        if column.type != field.type:
            raise StoreError(f"The column {field.name} to store has type {column.type}: {field.type} is accepted.")
        if column.null_count:
            raise StoreError(f"The column {field.name} to store has missing values: none are accepted.")
    return pa.Table.from_arrays(table.columns, schema=SCHEMA)


def _json(what: str, value: Mapping[str, Any]) -> str:
    """Return a mapping as JSON; raise StoreError when it holds something that JSON cannot."""
    try:
        return json.dumps(dict(value), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise StoreError(f"The {what} of an exploration cannot be stored as JSON: {error}.") from error


def _arrow_stream(table: pa.Table) -> bytes:
    """Return a table as a compressed Arrow stream, which keeps every type."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
        stream.write_table(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]

"""Writer of one exploration: rows as they are computed, then everything else at once; all or nothing."""

import contextlib
import datetime
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from engine import columns
from engine.columns import cost_model_in
from engine.executions.work_sizes import work_sizes
from engine.store import shards as store_shards
from engine.store.catalogue import Record, records_of
from engine.store.database import Database
from engine.store.errors import StoreCorruptError, StoreError
from engine.store.shards import RowGroups, ShardWriter


class Writer:
    """Writes one exploration; made by `Store.writer`. Rows come from one thread at a time."""

    def __init__(
        self,
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
        self._database = database
        self._key = key
        self._schema = columns.headline_schema(cost_model_in(scenario))
        self._scenario = _dump_json("scenario", scenario)
        self._total = int(total)
        self._engine_version = engine_version
        self._groups = RowGroups(work_sizes().rows_of_group)
        self._rows = 0
        self._shards: ShardWriter | None = None
        self._committed = False
        self._failed = False

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, *_: object) -> None:
        self._groups = RowGroups(work_sizes().rows_of_group)
        if self._shards is not None and not self._committed:
            self._shards.discard()

    def append(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Adds feasible executions with the columns and types of `engine.columns.headline_schema` for the cost
        model."""
        self._check_unfinished()
        table = _checked_rows(rows, self._schema)
        if not table.num_rows:
            return
        with self._giving_up_on_failure():
            self._rows += table.num_rows
            self._write(self._groups.full(table))

    def take(self, shard: Path, rows: int, checksum: int) -> None:
        """Adds feasible executions that `engine.store.shards.ShardFile` has written elsewhere, and which is taken away.

        rows, checksum: how many they are, and what its `close` has returned.
        """
        self._check_unfinished()
        with self._giving_up_on_failure():
            if not pq.read_schema(shard).equals(self._schema):
                raise StoreError(f"The shard {shard} to store does not have the columns of the register.")
            self._write(self._groups.rest())
            self._shard_writer().take(shard, rows, checksum)
            self._rows += rows

    def complete(
        self,
        *,
        infeasible_by_reason: Mapping[str, int],
        timings: Mapping[str, float],
        reductions: Mapping[str, pa.Table],
    ) -> Record:
        """Makes the exploration exist, with everything appended so far; returns its record.

        Raises StoreError when rows and reasons do not add up to the whole space, StoreWriteError when there is no room.
        """
        self._check_unfinished()
        infeasible = sum(infeasible_by_reason.values())
        if self._rows + infeasible != self._total:
            raise StoreError(
                f"Exploration {self._key} is not complete: {self._rows} rows and {infeasible} "
                f"infeasible executions are not the {self._total} of its space."
            )
        record: dict[str, Any] = {
            "key": self._key,
            "scenario": self._scenario,
            "engine_version": self._engine_version,
            "total": self._total,
            "feasible": self._rows,
            "infeasible_by_reason": _dump_json(
                "counts", {reason: int(n) for reason, n in infeasible_by_reason.items()}
            ),
            "timings": _dump_json("timings", {phase: float(seconds) for phase, seconds in timings.items()}),
            "created_at": datetime.datetime.now(datetime.UTC).replace(tzinfo=None),
        }
        streams = {name: _arrow_stream(name, table) for name, table in reductions.items()}
        with self._giving_up_on_failure():
            self._store_all(record, reductions, streams)
        self._committed = True
        (self.record,) = records_of(self._database, self._key)
        if self.record.damage is not None:
            raise StoreCorruptError(self.record.damage)
        return self.record

    def _store_all(
        self, record: dict[str, Any], reductions: Mapping[str, pa.Table], streams: Mapping[str, bytes]
    ) -> None:
        """Publish the shards, then insert everything else in one transaction, the record last."""
        self._write(self._groups.rest())
        shards = self._shard_writer()
        if not self._rows:  # columns can be asked for, though there are no rows
            shards.write(self._schema.empty_table())
        record["shards"] = store_shards.to_json(shards.publish())
        with self._database.transaction() as cursor:
            self._database.files.strike(cursor, shards.names())  # from now on the record has them
            for name, stream in streams.items():
                content = {"key": self._key, "name": name, "rows": reductions[name].num_rows, "content": stream}
                cursor.execute("INSERT INTO reduction VALUES ($key, $name, $rows, $content)", content)
            places = ", ".join(f"${name}" for name in record)
            cursor.execute(f"INSERT INTO exploration ({', '.join(record)}) VALUES ({places})", record)
        self._database.contents.add(self._key, record["created_at"].isoformat(), json.loads(self._scenario))

    @contextlib.contextmanager
    def _giving_up_on_failure(self) -> Iterator[None]:
        """Let nothing be added after a failure, which may have written some of the rows and not others."""
        try:
            yield
        except BaseException:
            self._failed = True
            raise

    def _shard_writer(self) -> ShardWriter:
        """Return what writes the shards, whose folder it makes first."""
        if self._shards is None:
            self._shards = ShardWriter(self._database.files, self._key)
        return self._shards

    def _write(self, groups: list[pa.Table]) -> None:
        for group in groups:
            self._shard_writer().write(group)

    def _check_unfinished(self) -> None:
        if self._failed:
            raise StoreError(f"Writing exploration {self._key} has failed: leave this writer and start again.")
        if self.record is not None or self._committed:
            raise StoreError(f"Exploration {self._key} is already complete: nothing can be added to it.")


def _checked_rows(rows: pa.Table | pa.RecordBatch, schema: pa.Schema) -> pa.Table:
    """Return rows as a table with exactly the stored schema; raises StoreError naming the column at fault."""
    table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
    if table.column_names != schema.names:
        differing = ", ".join(sorted(set(table.column_names) ^ set(schema.names))) or "their order"
        raise StoreError(f"Rows to store do not have the columns of the register: {differing} differs.")
    for field, column in zip(schema, table.columns, strict=True):
        if column.type != field.type:
            raise StoreError(f"The column {field.name} to store has type {column.type}: {field.type} is accepted.")
        if column.null_count:
            raise StoreError(f"The column {field.name} to store has missing values: none are accepted.")
    return pa.Table.from_arrays(table.columns, schema=schema)


def _dump_json(what: str, value: Mapping[str, Any]) -> str:
    """Return a mapping as JSON; raises StoreError when it holds something that JSON cannot."""
    try:
        return json.dumps(dict(value), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise StoreError(f"The {what} of an exploration cannot be stored as JSON: {error}.") from error


def _arrow_stream(name: str, table: pa.Table) -> bytes:
    """Return a reduction as a compressed Arrow stream, which keeps every type."""
    if not isinstance(table, pa.Table):
        raise StoreError(f"The reduction {name} is a {type(table).__name__}: a pyarrow.Table is accepted.")
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
        stream.write_table(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]

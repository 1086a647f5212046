"""Explorations in a store's database: their records, the place of their rows, their reductions, and their removal."""

import contextlib
import datetime
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import duckdb
import pyarrow as pa

from engine.columns import UnknownColumn, cost_model_in, fields_of
from engine.store import shards as store_shards
from engine.store import text as store_text
from engine.store.creation import IS_TABLE
from engine.store.database import Database, checked_key, rows_table
from engine.store.errors import ADVICE, StoreCorruptError, StoreError
from engine.store.names import KEY_PATTERN, describe_exploration
from engine.store.shards import Shard, Shards
from models.documents import shown


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
    """Seconds per phase, as measured by the explorer [s]."""
    created_at: datetime.datetime
    """When it was completed, UTC."""
    bytes: int
    """Room taken by rows and reductions [bytes]; for rows in a table of the database file, the blocks they occupy now,
    plus their values in its log."""
    damage: str | None = None
    """Sentence that describes damage to the stored data; None if it looks whole. Unreadable values are empty."""


@dataclass(frozen=True, slots=True)
class Catalogued:
    """Catalogue entry of one exploration, as far as it can be read."""

    record: Record
    """Without the room that it takes; `damage` is about the catalogue alone."""
    shards: list[Shard] | None
    """None if the rows are in a table of the database, where earlier versions stored small explorations."""

    @property
    def cost_model(self) -> str:
        """The one that its scenario names; a scenario that names none is of `calculon`."""
        return cost_model_in(self.record.scenario)


def records_of(database: Database, key: str | None, *active: set[duckdb.DuckDBPyConnection]) -> list[Record]:
    """Returns the records of one exploration or, with None, of all, newest first; damaged ones too.

    Args:
        database: the open database.
        key: of one exploration; None for all.
    """
    where, parameters = ("", {}) if key is None else ("WHERE r.key = $key", {"key": checked_key(key)})
    sizes = f"SELECT r.key, sum(octet_length(content)) FROM reduction r {where} GROUP BY r.key"
    with database.cursor(*active) as cursor:
        found = _read_catalogue(database, cursor, key)
        reductions = dict(cursor.execute(sizes, parameters).fetchall())
        inside = {one.record.key: _table_room(cursor, one.record.key) for one in found if _has_table(one)}
    records = []
    for one in found:
        shards, name = one.shards or [], one.record.key
        room = int(reductions.get(name) or 0) + sum(shard.bytes for shard in shards) + inside.get(name, 0)
        damage = one.record.damage or Shards(database.folder, shards, database.verified).damage()
        records.append(replace(one.record, bytes=room, damage=damage))
    return records


def catalogued(database: Database, key: str, *active: set[duckdb.DuckDBPyConnection]) -> Catalogued:
    """Return the catalogue entry of an exploration.

    Raises StoreError for an unknown key, and StoreCorruptError for an unreadable entry.

    Args:
        database: the open database.
        key: of the exploration.
    """
    with database.cursor(*active) as cursor:
        found = _read_catalogue(database, cursor, checked_key(key))
    if not found:
        raise no_exploration(database, key)
    if found[0].record.damage is not None:
        raise StoreCorruptError(found[0].record.damage)
    return found[0]


def all_catalogued(database: Database) -> dict[str, Catalogued]:
    """Return the catalogue entries of all explorations, by key.

    Args:
        database: the open database.
    """
    with database.cursor() as cursor:
        return {one.record.key: one for one in reversed(_read_catalogue(database, cursor, None))}


def _read_catalogue(database: Database, cursor: duckdb.DuckDBPyConnection, key: str | None) -> list[Catalogued]:
    """Return the catalogue entry of one exploration, or of all, newest first.

    Times are read as numbers, because Python does not have all of them.
    """
    chosen = "* REPLACE (epoch_us(created_at) AS created_at)"
    rest, parameters = "ORDER BY e.created_at DESC, e.key", {}
    if key is not None:  # which is one row, where nothing is damaged
        rest, parameters = "WHERE e.key = $key", {"key": key}
    result = cursor.execute(f"SELECT {chosen} FROM exploration e {rest}", parameters)
    names = [column[0] for column in result.description or ()]
    found = [dict(zip(names, row, strict=True)) for row in result.fetchall()]
    # Only stores of earlier versions have rows in tables.
    there = [row["shards"] is None and _is_there(cursor, row["key"]) for row in found]
    return [_parse_row(database, row | {"has_table": table}) for row, table in zip(found, there, strict=True)]


def _is_there(cursor: duckdb.DuckDBPyConnection, key: object) -> bool:
    """Return True if an exploration has a table of rows."""
    with contextlib.suppress(duckdb.CatalogException):
        if isinstance(key, str) and KEY_PATTERN.fullmatch(key):
            cursor.execute(IS_TABLE, {"table": f"rows_{key}"})
            return True
    return False


def _parse_row(database: Database, row: dict[str, Any]) -> Catalogued:
    """Return a row of the catalogue as values; unreadable ones are empty, and the damage describes them."""
    key = str(row["key"] or "")
    said: list[str] = []

    def value(name: str, read: Callable[[object], Any], otherwise: Any) -> Any:
        try:
            return read(row[name])
        except ValueError as problem:
            whose = describe_exploration(key, None).lower()
            said.append(f"What the store {database.path} keeps as {name} of {whose} {problem}")
            return otherwise

    value("key", _check_stored_key, None)
    shards = None if row["shards"] is None else value("shards", partial(store_shards.from_json, key), [])
    scenario = value("scenario", _parse_scenario, {})
    version = value("engine_version", store_text.text_of, "")
    total, feasible = (value(name, store_text.number_of, 0) for name in ("total", "feasible"))
    reasons = value("infeasible_by_reason", store_text.counts_of, {})
    timings = value("timings", store_text.seconds_of, {})
    created_at = value("created_at", store_text.time_of, store_text.time_of(0))
    if not said:
        where = f"{describe_exploration(key, None)} in the store {database.path}"
        if feasible + sum(reasons.values()) != total:
            said.append(f"{where} counts {feasible:,} and {sum(reasons.values()):,} executions of {total:,}")
        if shards is not None and sum(shard.rows for shard in shards) != feasible:
            said.append(f"{where} has shards for {sum(shard.rows for shard in shards):,} rows of {feasible:,}")
        if shards is None and not row["has_table"]:
            said.append(f"{where} has lost its rows")
    damage = f"{said[0]}: {ADVICE}" if said else None
    record = Record(key, scenario, version, total, feasible, reasons, timings, created_at, bytes=0, damage=damage)
    return Catalogued(record, shards)


def _has_table(found: Catalogued) -> bool:
    """Return True if rows are in the database, as far as the record shows."""
    return found.shards is None and found.record.damage is None


def _check_stored_key(key: object) -> str:
    try:
        return checked_key(key)  # type: ignore[arg-type]
    except StoreError:
        raise ValueError("is not a key") from None


def _parse_scenario(text: object) -> dict[str, Any]:
    found = store_text.object_of(text)
    try:
        fields_of(cost_model_in(found))
    except UnknownColumn:
        raise ValueError("names no cost model") from None
    return found


def reductions_of(database: Database, key: str, *active: set[duckdb.DuckDBPyConnection]) -> dict[str, pa.Table]:
    """Returns an exploration's reductions by name.

    Raises StoreError for an unknown key, and StoreCorruptError for a reduction that was altered.

    Args:
        database: the open database.
        key: of the exploration.
    """
    with database.cursor(*active) as cursor:  # in one query: it may be removed between two
        text = (
            "SELECT r.name, r.rows, r.content, r.key IS NOT NULL FROM exploration e "
            "LEFT JOIN reduction r ON r.key = e.key WHERE e.key = $key ORDER BY r.name"
        )
        found = cursor.execute(text, {"key": checked_key(key)}).fetchall()
    if not found:
        raise no_exploration(database, key)
    return {name: _read_reduction(database, key, name, rows, content) for name, rows, content, there in found if there}


def _read_reduction(database: Database, key: str, name: Any, rows: Any, content: Any) -> pa.Table:
    """Return a reduction as a validated table, so that readers meet no error of Arrow's."""
    with contextlib.suppress(pa.ArrowException, OSError, ValueError, MemoryError):
        table = pa.ipc.open_stream(content or b"").read_all()
        table.validate(full=True)
        if isinstance(name, str) and table.num_rows == rows:
            return table
    raise StoreCorruptError(
        f"What the store {database.path} keeps as the reduction {shown(name)} of "
        f"{describe_exploration(key, None).lower()} is not what was written: {ADVICE}"
    )


def no_exploration(database: Database, key: str) -> StoreError:
    """Return the error of a missing exploration.

    Args:
        database: the open database.
        key: that was asked for.
    """
    return StoreError(f"The store {database.path} has no exploration {key}: `records` lists those it has.")


def loss(database: Database, key: str, entry: dict[str, Any]) -> str:
    """Return the sentence on a lost exploration.

    Args:
        database: the open database.
        key: of the exploration.
        entry: its entry in the list of contents.
    """
    when = entry["created_at"][:16].replace("T", " ")
    return (
        f"{describe_exploration(key, entry['scenario'])}, stored at {when} UTC, is not in the store {database.path} "
        "any more, whose latest changes were cut off or whose database was replaced: `shardscape store check` with "
        "--repair explores it again, with --drop forgets it."
    )


def delete(database: Database, key: str) -> None:
    """Remove an exploration, however damaged: first its record, so that it stays removed if the process dies.

    Shards that its record no longer names stay, because their owner is unknown.

    Args:
        database: the open database.
        key: of the exploration.
    """
    database.contents.remove([key])
    remove_rows(database, key)


def remove_rows(database: Database, key: str) -> None:
    """Remove an exploration from the database, with its shards; its entry in the list of contents stays.

    Args:
        database: the open database.
        key: of the exploration.
    """
    with database.cursor() as cursor:
        found = _read_catalogue(database, cursor, key)
    names = [shard.name for one in found for shard in one.shards or []]
    with database.transaction() as cursor:
        for table in ("exploration", "reduction"):
            cursor.execute(f"DELETE FROM {table} WHERE coalesce(key, '') = $key", {"key": key})
        if KEY_PATTERN.fullmatch(key):
            cursor.execute(f"DROP TABLE IF EXISTS {rows_table(key)}")
        database.files.put_down(cursor, names)
    database.added.forget(key)
    database.files.remove(names)


def _table_room(cursor: duckdb.DuckDBPyConnection, key: str) -> int:
    """Return the room that a table of rows takes [bytes]: its blocks in the database file, and its values in the log.

    The log has values as they are, not compressed; tables of 168 to 4,104 rows took within 8 KiB and 5 % of this there.
    """
    text = (
        "SELECT count(DISTINCT block_id) FILTER (persistent) "
        "* (SELECT block_size FROM pragma_database_size() LIMIT 1) "
        "+ coalesce(sum(count * CASE segment_type WHEN 'BIGINT' THEN 8 WHEN 'DOUBLE' THEN 8 WHEN 'INTEGER' THEN 4 "
        "WHEN 'VARCHAR' THEN 16 WHEN 'VALIDITY' THEN 0.125 ELSE 1 END) FILTER (NOT persistent), 0) "
        "FROM pragma_storage_info($table)"
    )
    return int(cursor.execute(text, {"table": f"rows_{key}"}).fetchall()[0][0])

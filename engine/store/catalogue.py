"""What a store's database says about its explorations: records, where their rows are, reductions; and their removal."""

import datetime
import json
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from engine.columns import cost_model_in
from engine.store import shards as store_shards
from engine.store.database import Database, checked_key, rows_table
from engine.store.errors import StoreError
from engine.store.shards import Shard, Shards


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
    """Room taken by rows and reductions [bytes]; for rows inside the database file, the blocks they occupy by now, and
    what is in its log only."""
    damage: str | None = None
    """What is wrong with the stored rows; None when they look whole."""


def records_of(database: Database, key: str | None, *active: set[duckdb.DuckDBPyConnection]) -> list[Record]:
    """Return the records of one exploration or, with None, of all, newest first; damaged ones too."""
    where, parameters = ("", {}) if key is None else ("WHERE key = $key", {"key": checked_key(key)})
    names = "key, scenario, engine_version, total, feasible, infeasible_by_reason, timings, created_at, shards"
    sizes = "(SELECT coalesce(sum(octet_length(content)), 0) FROM reduction r WHERE r.key = e.key)"
    with database.cursor(*active) as cursor:
        text = f"SELECT {names}, {sizes} FROM exploration e {where} ORDER BY created_at DESC, key"
        found = cursor.execute(text, parameters).fetchall()
        inside = {row[0]: _room(cursor, row[0]) for row in found if row[8] is None}
    records = []
    for key, scenario, version, total, feasible, reasons, timings, created_at, shard_text, reduction_bytes in found:
        shards = [] if shard_text is None else store_shards.from_json(key, shard_text)
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
                damage=Shards(database.folder, shards, database.verified).damage(),
            )
        )
    return records


def shards_of(database: Database, key: str, *active: set[duckdb.DuckDBPyConnection]) -> list[Shard] | None:
    """Return an exploration's shards, None when its rows are in the database; raise StoreError if there is none."""
    with database.cursor(*active) as cursor:
        text = "SELECT shards FROM exploration WHERE key = $key"
        found = cursor.execute(text, {"key": checked_key(key)}).fetchall()
    if not found:
        raise no_exploration(database, key)
    return None if found[0][0] is None else store_shards.from_json(key, found[0][0])


def cost_model_of(database: Database, key: str, *active: set[duckdb.DuckDBPyConnection]) -> str:
    """Return the cost model of an exploration, which its scenario names; one that names none is the exact one's."""
    with database.cursor(*active) as cursor:
        text = "SELECT scenario FROM exploration WHERE key = $key"
        found = cursor.execute(text, {"key": checked_key(key)}).fetchall()
    scenario = json.loads(found[0][0]) if found else {}
    return cost_model_in(scenario)


def reductions_of(database: Database, key: str, *active: set[duckdb.DuckDBPyConnection]) -> dict[str, pa.Table]:
    """Return an exploration's reductions by name; raise StoreError when there is no such exploration."""
    with database.cursor(*active) as cursor:  # in one query: it may be removed between two
        text = (
            "SELECT r.name, r.content FROM exploration e LEFT JOIN reduction r ON r.key = e.key "
            "WHERE e.key = $key ORDER BY r.name"
        )
        found = cursor.execute(text, {"key": checked_key(key)}).fetchall()
    if not found:
        raise no_exploration(database, key)
    return {name: pa.ipc.open_stream(content).read_all() for name, content in found if name is not None}


def no_exploration(database: Database, key: str) -> StoreError:
    """Return the error that says that an exploration is not there."""
    return StoreError(f"The store {database.path} has no exploration {key}: `records` lists those it has.")


def loss(database: Database, key: str, entry: dict[str, Any]) -> str:
    """Return the sentence that says that an exploration was lost; `entry` is what the list of contents says of it."""
    when = str(entry.get("created_at", ""))[:16].replace("T", " ")
    return (
        f"{subject(key, entry.get('scenario', {}))}, stored at {when} UTC, is not in the store {database.path} any "
        "more, as its latest changes were cut off: `shardscape store check` with --repair explores it again, with "
        "--drop forgets it."
    )


def subject(key: str, scenario: Any) -> str:
    """Return what an exploration is called in a sentence, as far as its scenario says it."""
    names = [scenario.get(part) if isinstance(scenario, dict) else None for part in ("model", "system")]
    titles = [str(one.get("title") or one.get("name") or "") if isinstance(one, dict) else "" for one in names]
    if not all(titles):
        return f"The exploration {key}"
    return f"The exploration {key[:8]} of {titles[0]} on {scenario.get('num_procs')} x {titles[1]}"


def delete(database: Database, key: str) -> None:
    """Remove an exploration: first its record, so that it is gone whatever happens then."""
    shards = shards_of(database, key) or []
    names = [shard.name for shard in shards]
    database.contents.remove([key])
    with database.transaction() as cursor:
        cursor.execute("DELETE FROM exploration WHERE key = $key", {"key": key})
        cursor.execute("DELETE FROM reduction WHERE key = $key", {"key": key})
        cursor.execute(f"DROP TABLE IF EXISTS {rows_table(key)}")
        database.files.put_down(cursor, names)
    database.added.forget(key)
    database.files.remove(names)


def _room(cursor: duckdb.DuckDBPyConnection, key: str) -> int:
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

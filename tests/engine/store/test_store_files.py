import os
import re
import sqlite3
from pathlib import Path

import duckdb
import pytest

from engine.store import (
    Store,
    StoreAccessError,
    StoreCorruptError,
    StoreError,
    StoreVersionError,
)
from tests.engine.store_rows import MANY, assert_same, folder_of, make_rows, put

ROOT = Path(__file__).parents[3]


def test_shards_that_changed_are_named_and_not_offered(opened_store):
    rows = make_rows(MANY)

    def truncate(file):
        file.write_bytes(file.read_bytes()[:-100])

    def overwrite(file):
        file.write_bytes(b"\0" * file.stat().st_size)

    for harm, words in ((Path.unlink, "is missing"), (truncate, "bytes where"), (overwrite, "is not the Parquet file")):
        put(opened_store, "key", rows)
        access = opened_store.rows("key")
        shard = folder_of(opened_store) / "key" / "00001.parquet"
        harm(shard)
        assert opened_store.find("key") is None
        (record,) = opened_store.records()
        assert words in record.damage
        assert str(shard) in record.damage
        with pytest.raises(StoreCorruptError, match=f"{re.escape(str(shard))}.*{words}"):
            opened_store.rows("key")
        with pytest.raises(StoreError):
            access.table()
        put(opened_store, "key", rows)  # replaces what is damaged
        assert_same(opened_store.rows("key").table(), rows)
        opened_store.delete("key")


def spoil(path, start, length=16):
    content = bytearray(path.read_bytes())
    content[start : start + length] = b"\xff" * length
    path.write_bytes(content)


def make_text(path):
    path.write_text("not a database " * 1000)


def make_sqlite(path):
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE a (b)")
    connection.close()


def make_foreign(path, text="CREATE TABLE meta (b INTEGER)"):
    with duckdb.connect(path) as connection:
        connection.execute(text)


# What is asked of a view could be anything, and take any time.
LOOKS_LIKE_A_STORE = "CREATE VIEW meta AS SELECT 'application' AS name, 'shardscape' AS value"
A_VIEW_FOR_A_TABLE = "ALTER TABLE made RENAME TO others; CREATE VIEW made AS SELECT * FROM others"


def make_store_then(change):
    def make(path):
        Store(path).close()
        change(path)

    return make


def set_meta(name, value):
    def change(path):
        with duckdb.connect(path) as connection:
            connection.execute("UPDATE meta SET value = $value WHERE name = $name", {"name": name, "value": value})

    return change


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (Path.touch, StoreCorruptError, "is not a DuckDB database"),
        (make_text, StoreCorruptError, "is not a DuckDB database"),
        (make_sqlite, StoreCorruptError, "is not a DuckDB database"),
        (make_store_then(lambda path: os.truncate(path, 6000)), StoreCorruptError, "is damaged"),
        (make_store_then(lambda path: os.truncate(path, 200_000)), StoreCorruptError, "is damaged"),
        (make_store_then(lambda path: spoil(path, 4100)), StoreCorruptError, "is damaged"),
        (make_store_then(lambda path: spoil(path, 12300)), StoreCorruptError, "is damaged"),
        (make_foreign, StoreVersionError, "no result store"),
        (lambda path: make_foreign(path, "CREATE TABLE a (b INTEGER)"), StoreVersionError, "no result store"),
        (lambda path: make_foreign(path, LOOKS_LIKE_A_STORE), StoreVersionError, "no result store"),
        (make_store_then(lambda path: make_foreign(path, A_VIEW_FOR_A_TABLE)), StoreCorruptError, "table made has no"),
        (make_store_then(set_meta("layout", "99")), StoreVersionError, "has layout 99, this version writes 2"),
        (make_store_then(set_meta("columns", "0")), StoreVersionError, "has set of columns 0, this version writes"),
        (Path.mkdir, StoreAccessError, "is a folder"),
    ],
)
def test_what_is_no_store_of_this_version_is_refused_untouched(store_path, make, error, words):
    make(store_path)
    before = store_path.read_bytes() if store_path.is_file() else None
    for read_only in (False, True):
        with pytest.raises(error, match=words) as caught:
            Store(store_path, read_only=read_only)
        assert str(store_path) in str(caught.value)
        assert str(caught.value).count("\n") == 0
    if before is not None:
        assert store_path.read_bytes() == before


def test_paths_that_cannot_hold_a_store(tmp_path):
    ending = r"ending in \.duckdb"
    for name, words in (("results.db", ending), (".duckdb", ending), ("no/x.duckdb", "no for the store")):
        with pytest.raises(StoreAccessError, match=words):
            Store(tmp_path / name)
    with pytest.raises(StoreAccessError, match="no store at"):
        Store(tmp_path / "missing.duckdb", read_only=True)
    assert list(tmp_path.iterdir()) == []


def test_places_without_permission(tmp_path, store_path, monkeypatch):
    Store(store_path).close()
    refused = {str(store_path)}
    monkeypatch.setattr(os, "access", lambda place, mode: mode == os.R_OK or str(place) not in refused)  # root may
    with pytest.raises(StoreAccessError, match="is not writable: open it read-only"):
        Store(store_path)
    Store(store_path, read_only=True).close()
    refused.add(str(tmp_path))
    with pytest.raises(StoreAccessError, match="is not writable: put the store elsewhere"):
        Store(tmp_path / "new.duckdb")


def test_opening_twice_in_one_process_does_not_sweep_a_writer(opened_store):
    with opened_store.writer("key", {}, total=MANY, engine_version="1") as writer:
        writer.append(make_rows(MANY))
        with Store(opened_store.path) as second:
            assert second.find("key") is None
        writer.complete(infeasible_by_reason={}, timings={}, reductions={})
    assert opened_store.rows("key").count() == MANY

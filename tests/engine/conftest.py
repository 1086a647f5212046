"""Stores for the tests of the store."""

import pytest

from engine.store import Store, shards, writer
from tests.engine.store_rows import INSIDE, SHARDED, make_rows, put


@pytest.fixture
def store_path(tmp_path, monkeypatch):
    """The path of a store where a few thousand rows are a large exploration with several shards of several groups."""
    monkeypatch.setattr(writer, "ROWS_IN_DATABASE", 2000)
    monkeypatch.setattr(writer, "ROWS_PER_GROUP", 512)
    monkeypatch.setattr(shards, "ROWS_PER_GROUP", 512)
    monkeypatch.setattr(shards, "ROWS_PER_SHARD", 1024)
    return tmp_path / "results.duckdb"


@pytest.fixture
def opened_store(store_path):
    with Store(store_path) as opened:
        yield opened


@pytest.fixture(params=[INSIDE, SHARDED], ids=["in the database", "in shards"])
def stored(request, opened_store):
    """A store with one exploration, the rows that went in, and the access to them."""
    rows = make_rows(request.param)
    put(opened_store, "key", rows)
    return opened_store, rows, opened_store.rows("key")

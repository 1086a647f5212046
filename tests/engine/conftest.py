"""Stores for the tests of the store."""

from contextlib import nullcontext

import pytest

from engine.store import Store, shards, writer
from tests.engine.store_rows import FEW, MANY, make_rows, put, rows_in_tables


@pytest.fixture
def store_path(tmp_path, monkeypatch):
    """The path of a store where a few thousand rows are an exploration with several shards of several groups."""
    monkeypatch.setattr(writer, "ROWS_PER_GROUP", 512)
    monkeypatch.setattr(shards, "ROWS_PER_GROUP", 512)
    monkeypatch.setattr(shards, "ROWS_PER_SHARD", 1024)
    return tmp_path / "results.duckdb"


@pytest.fixture
def opened_store(store_path):
    with Store(store_path) as opened:
        yield opened


@pytest.fixture(params=["several shards", "a table of an earlier version"])
def stored(request, opened_store):
    """A store with one exploration, the rows that went in, and the access to them."""
    rows = make_rows(MANY if request.param == "several shards" else FEW)
    with rows_in_tables() if request.param.startswith("a table") else nullcontext():
        put(opened_store, "key", rows)
    return opened_store, rows, opened_store.rows("key")

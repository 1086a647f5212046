"""Stores for the tests of the store."""

from contextlib import nullcontext

import pytest

from engine import WorkSizes, working_in
from engine.store import Store
from tests.engine.store_rows import FEW, MANY, make_rows, put, rows_in_tables

SMALL_SHARDS = WorkSizes(rows_of_group=512, groups_of_shard=2)
"""Sizes with which a few thousand rows are an exploration with several shards of several groups."""


@pytest.fixture
def store_path(tmp_path):
    """The path of a store where a few thousand rows are an exploration with several shards of several groups."""
    with working_in(SMALL_SHARDS):
        yield tmp_path / "results.duckdb"


@pytest.fixture
def opened_store(store_path):
    with Store(store_path) as opened:
        yield opened


WAYS = ("several shards", "a table of an earlier version")


def filled(opened_store, way):
    """A store with one exploration, kept in one of the ways; the rows that went in, and the access to them."""
    rows = make_rows(MANY if way == "several shards" else FEW)
    with rows_in_tables() if way.startswith("a table") else nullcontext():
        put(opened_store, "key", rows)
    return opened_store, rows, opened_store.rows("key")


@pytest.fixture(params=WAYS)
def stored(request, opened_store):
    """A store with one exploration, the rows that went in, and the access to them."""
    return filled(opened_store, request.param)


@pytest.fixture(scope="module", params=WAYS)
def read_only(request, tmp_path_factory):
    """As `stored`, one for all tests of a module, which only read it."""
    with Store(tmp_path_factory.mktemp("stored") / "results.duckdb") as opened:
        with working_in(SMALL_SHARDS):
            found = filled(opened, request.param)
        yield found

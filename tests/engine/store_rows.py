"""Rows for tests of the store: arbitrary but repeatable values with the register's columns and types."""

import json
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from engine import WorkSizes, columns, working_in
from engine.store import Writer
from engine.store.database import rows_table

FEW, MANY = 1000, 4000
"""Row counts whose explorations the test stores keep in one shard, and in several."""

REDUCTIONS = {
    "best": pa.table({"tensor_par": pa.array([1, 2], pa.int32()), "value": [0.5, float("inf")]}),
    "reasons": pa.table({"reason": pa.array(["memory", "network"]).dictionary_encode()}),
    "empty": pa.table({"x": pa.array([], pa.float64())}),
}


def make_rows(count: int, seed: int = 0) -> pa.Table:
    """Return `count` rows in enumeration order; ties and infinities occur."""
    random = np.random.default_rng(seed)
    arrays = []
    for column in columns.stored_of("calculon"):
        if column.kind == "identifier":
            array = pa.array(np.arange(count, dtype=np.int64) * 3 + seed)
        elif column.dtype == "int64":
            array = pa.array((2 ** random.integers(0, 4, count)).astype(np.int32))
        elif column.dtype == "float64":
            values = np.round(random.random(count) * 1e3, 2)
            values[random.random(count) < 0.01] = np.inf if column.better != "higher" else 0.0
            array = pa.array(values)
        elif column.dtype == "bool":
            array = pa.array(random.random(count) < 0.5)
        else:
            choices = column.choices or ("float8", "float16")
            codes = random.integers(0, len(choices), count).astype(np.int8)
            array = pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(choices))
        arrays.append(array)
    return pa.Table.from_arrays(arrays, schema=columns.headline_schema("calculon"))


def decoded(table: pa.Table) -> pa.Table:
    """Return a table with its dictionaries written out, so that equal texts compare as equal."""
    arrays = [array.cast(pa.string()) if pa.types.is_dictionary(array.type) else array for array in table.columns]
    return pa.table(dict(zip(table.column_names, arrays, strict=True)))


def put(store, key, rows, *, infeasible=7, piece=1000):
    """Store an exploration made of `rows` and return its record."""
    total = rows.num_rows + infeasible
    with store.writer(key, {"model": "m", "key": key}, total=total, engine_version="1.0") as writing:
        for start in range(0, rows.num_rows, piece):
            writing.append(rows.slice(start, piece))
        return writing.complete(
            infeasible_by_reason={"memory": infeasible}, timings={"evaluate": 0.25}, reductions=REDUCTIONS
        )


@contextmanager
def rows_in_tables():
    """Have explorations stored as versions before did where they had few rows: in a table of the database."""

    def store_all(self, record, reductions, streams):
        cost_model = columns.cost_model_in(json.loads(self._scenario))
        with self._database.transaction() as cursor:
            cursor.execute(columns.ddl(f"rows_{self._key}", cost_model))
            for appended in self._groups.rest():
                cursor.register("appended", appended)
                cursor.execute(f"INSERT INTO {rows_table(self._key)} SELECT * FROM appended").fetchall()
                cursor.unregister("appended")
            for name, stream in streams.items():
                cursor.execute(
                    "INSERT INTO reduction VALUES (?, ?, ?, ?)", [self._key, name, reductions[name].num_rows, stream]
                )
            places = ", ".join(f"${name}" for name in record)
            cursor.execute(f"INSERT INTO exploration ({', '.join(record)}) VALUES ({places})", record)
        self._database.contents.add(self._key, record["created_at"].isoformat(), json.loads(self._scenario))

    with patch.object(Writer, "_store_all", store_all), working_in(WorkSizes(rows_of_group=10**9)):
        yield


def frame_of(rows):
    """Return rows as a data frame with plain texts."""
    return decoded(rows).to_pandas()


def folder_of(store):
    """Return where a test store keeps its shards."""
    return store.path.with_name("results.rows")


def assert_same(found, expected):
    """Assert that two tables have the same columns, types, units and values."""
    assert found.schema.equals(expected.schema, check_metadata=True)
    assert decoded(found).equals(decoded(expected))

import errno
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from engine import columns, working_in
from engine.store import (
    Store,
    StoreAccessError,
    StoreCondition,
    StoreError,
    StoreMemoryError,
)
from engine.store.errors import StoreWriteError
from tests.engine.conftest import SMALL_SHARDS
from tests.engine.store_rows import assert_same, folder_of, frame_of, make_rows, put

ROOT = Path(__file__).parents[3]


def test_count_and_conditions_agree_with_pandas(read_only):
    _, rows, access = read_only
    frame = frame_of(rows)
    cases = [
        ([], frame.id >= 0),
        ([("tensor_par", "in", [2, 8])], frame.tensor_par.isin([2, 8])),
        ([("tensor_par", "not in", np.array([2, 8]))], ~frame.tensor_par.isin([2, 8])),
        ([("tensor_par", "in", [])], frame.id < 0),
        ([("tensor_par", "not in", [])], frame.id >= 0),
        (
            [("activation_recompute", "!=", "full"), ("training", "=", True)],
            (frame.activation_recompute != "full") & frame.training,
        ),
        ([("datatype", "in", {"float16"})], frame.datatype == "float16"),
        (
            [("total_time", ">=", 100), ("total_time", "<", np.float64(300.5))],
            (frame.total_time >= 100) & (frame.total_time < 300.5),
        ),
        ([("offload_mem_bw_req", "<=", float("inf"))], frame.id >= 0),
        ([("offload_mem_bw_req", "=", float("inf"))], np.isinf(frame.offload_mem_bw_req)),
        ([StoreCondition("id", ">", 600)], frame.id > 600),
    ]
    for where, mask in cases:
        assert access.count(where) == mask.sum(), where
        assert access.table(["id"], where=where)["id"].to_pylist() == frame.id[mask].tolist()


@pytest.mark.parametrize(("by", "ascending"), [("sample_rate", False), ("total_time", True), ("tensor_par", False)])
def test_top_is_best_first_and_ties_are_in_enumeration_order(read_only, by, ascending):
    _, rows, access = read_only
    order = frame_of(rows).sort_values([by, "id"], ascending=[ascending, True]).index[:40]
    assert_same(access.top(40, by), rows.take(pa.array(order)))
    assert access.top(3, by, names=["id", by]).column_names == ["id", by]


def test_pages_cover_the_rows_once_in_order(read_only):
    _, rows, access = read_only
    order = [("activation_recompute", "descending"), ("total_time", "ascending")]
    where = [("tensor_par", "=", 4)]
    pages = [access.page(start, 100, order_by=order, where=where) for start in range(0, 1200, 100)]
    frame = frame_of(rows)
    frame = frame[frame.tensor_par == 4]
    choices = columns.by_name("activation_recompute").choices
    frame["rank"] = frame.activation_recompute.map(choices.index)  # texts sort by their place in the enumeration
    expected = frame.sort_values(["rank", "total_time", "id"], ascending=[False, True, True])
    assert pa.concat_tables(pages)["id"].to_pylist() == expected.id.tolist()


def test_not_a_number_comes_last_in_both_directions(opened_store):
    rows = make_rows(5)
    values = pa.array([1.0, float("nan"), 3.0, float("inf"), 2.0])
    position = rows.schema.get_field_index("total_time")
    put(opened_store, "key", rows.set_column(position, rows.schema.field(position), values))
    ids = rows["id"].to_pylist()
    page = opened_store.rows("key").page
    assert page(0, 5, order_by=[("total_time", "ascending")])["id"].to_pylist() == [ids[i] for i in (0, 4, 2, 3, 1)]
    assert page(0, 5, order_by=[("total_time", "descending")])["id"].to_pylist() == [ids[i] for i in (3, 2, 4, 0, 1)]
    assert opened_store.rows("key").value_range("total_time") == (1.0, 3.0)


def test_fetch_keeps_the_given_order_and_refuses_unknown_ids(read_only):
    _, rows, access = read_only
    picked = [700, 3, 700, 0, 999]
    assert_same(access.fetch(np.array(picked) * 3), rows.take(pa.array(picked)))
    with pytest.raises(StoreError, match="Execution 4 is not a stored row"):
        access.fetch([3, 4])


def test_best_by_group_agrees_with_pandas(read_only):
    _, rows, access = read_only
    frame = frame_of(rows)
    for metric, ascending in (("sample_rate", False), ("total_time", True)):
        found = access.best_by(["tensor_par", "pipeline_par"], metric, where=[("training", "=", True)]).to_pandas()
        chosen = frame[frame.training].sort_values([metric, "id"], ascending=[ascending, True])
        groups = chosen.groupby(["tensor_par", "pipeline_par"])
        expected = groups.agg(rows=("id", "size"), value=(metric, "first"), id=("id", "first")).reset_index()
        pd.testing.assert_frame_equal(found, expected, check_dtype=False)


def test_histogram_agrees_with_numpy(read_only):
    _, rows, access = read_only
    frame = frame_of(rows)
    x, y = frame.total_time.to_numpy(), frame.proc_mem_tier1_cap_req.to_numpy()
    finite = np.isfinite(x) & np.isfinite(y)
    whole = access.histogram("total_time", "proc_mem_tier1_cap_req", bins=(16, 8))
    assert np.array_equal(whole.counts, np.histogram2d(x[finite], y[finite], bins=(whole.x_edges, whole.y_edges))[0])
    assert whole.outside == (~finite).sum() > 0
    assert (whole.x_edges[0], whole.x_edges[-1]) == access.value_range("total_time")
    part = access.histogram("total_time", "tensor_par", bins=(4, 4), x_range=(100, 200), where=[("tensor_par", "=", 2)])
    two = frame[frame.tensor_par == 2].total_time
    assert part.counts.sum() == two.between(100, 200).sum()
    assert part.outside == (~two.between(100, 200)).sum()


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_export_writes_the_chosen_rows(read_only, tmp_path, ending):
    _, rows, access = read_only
    target = tmp_path / f"out{ending}"
    target.write_text("old")
    names = ["id", "tensor_par", "activation_recompute", "datatype", "training", "total_time"]
    where, order = [("tensor_par", "in", [1, 2])], [("total_time", "descending")]
    written = access.export(target, names=names, where=where, order_by=order)
    found = pd.read_csv(target) if ending == ".csv" else pq.read_table(target).to_pandas()
    frame = frame_of(rows)[names]
    expected = frame[frame.tensor_par < 3].sort_values(["total_time", "id"], ascending=[False, True])
    assert written == len(expected)
    pd.testing.assert_frame_equal(
        found.astype({"activation_recompute": str, "datatype": str}),
        expected.reset_index(drop=True).astype({"activation_recompute": str, "datatype": str}),
        check_dtype=False,
    )
    if ending == ".parquet":
        assert pq.read_schema(target).field("total_time").metadata == {b"unit": b"s", b"label": b"Step time"}
    assert sorted(file.name for file in tmp_path.iterdir() if file.name.startswith(".")) == []


def test_export_refuses_other_endings_and_missing_folders(read_only, tmp_path):
    _, _, access = read_only
    with pytest.raises(StoreError, match=r"\.csv or \.parquet"):
        access.export(tmp_path / "out.xlsx")
    with pytest.raises(StoreAccessError, match=r"^The folder \S+ for the export out\.csv is missing: create it\.$"):
        access.export(tmp_path / "missing" / "out.csv")


def test_a_full_disk_is_blamed_where_the_file_was_to_go(read_only, tmp_path, monkeypatch):
    def full(path, *_):
        path.write_bytes(b"some of it")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("engine.store.query._write_rows", full)
    _, _, access = read_only
    target = tmp_path / "out.parquet"
    with pytest.raises(StoreWriteError) as caught:
        access.export(target)
    assert str(caught.value) == (
        f"Writing to {target} failed because no space left on the device: make room and run it again."
    )
    assert not list(tmp_path.glob("*out*"))


HOSTILE = ['id"; DROP TABLE meta; --', "id) FROM meta --", "", "*", "block_fw_time", "no_such_column"]


def test_names_come_only_from_the_register(read_only, tmp_path):
    _, _, access = read_only
    attempts = [
        lambda name: access.count([(name, "=", 1)]),
        lambda name: access.top(1, name),
        lambda name: access.top(1, names=[name]),
        lambda name: access.page(0, 1, order_by=[(name, "ascending")]),
        lambda name: access.table([name]),
        lambda name: access.fetch([0], [name]),
        lambda name: access.best_by([name], "sample_rate"),
        lambda name: access.best_by(["tensor_par"], name),
        lambda name: access.value_range(name),
        lambda name: access.histogram(name, "total_time"),
        lambda name: access.export(tmp_path / "out.csv", names=[name]),
    ]
    for name in HOSTILE:
        for attempt in attempts:
            with pytest.raises(ValueError, match=r"no column|not stored"):
                attempt(name)


def test_values_and_directions_are_checked_or_bound(read_only):
    opened, rows, access = read_only
    assert access.count([("datatype", "=", "' OR 1=1 --")]) == 0
    refused = [
        lambda: access.count([("tensor_par", "=", "1 OR 1=1")]),
        lambda: access.count([("tensor_par", "= 1 OR", 1)]),
        lambda: access.count([("tensor_par", "=", True)]),
        lambda: access.count([("tensor_par", "=", [1])]),
        lambda: access.count([("tensor_par", ">", float("nan"))]),
        lambda: access.count([("tensor_par", ">", 2**70)]),
        lambda: access.count([("training", "=", 1)]),
        lambda: access.count([("training", "<", True)]),
        lambda: access.count([("datatype", "<", "float16")]),
        lambda: access.count([("datatype", "in", [None])]),
        lambda: access.page(0, 1, order_by=[("id", "DESC; DROP TABLE meta")]),
        lambda: access.page(-1, 1),
        lambda: access.page(0, "1"),
        lambda: access.top(1.5),
        lambda: access.table([]),
        lambda: access.table("id"),
        lambda: access.histogram("datatype", "total_time"),
        lambda: access.histogram("total_time", "sample_rate", bins=(0, 1)),
        lambda: access.histogram("total_time", "sample_rate", x_range=(1, float("inf"))),
        lambda: access.histogram("total_time", "sample_rate", x_range=(2, 1)),
    ]
    for attempt in refused:
        with pytest.raises(StoreError):
            attempt()
    assert opened.rows("key").count() == rows.num_rows


def test_keys_that_could_be_more_than_a_name_are_refused(opened_store):
    for key in ("", "A", "../x", "a/b", "a'b", 'a"b', "a;b", "é", "x" * 129, "key\n", None, 7):
        for attempt in (opened_store.find, opened_store.rows, opened_store.reductions, opened_store.delete):
            with pytest.raises(StoreError, match="exploration key"):
                attempt(key)
        with (
            pytest.raises(StoreError, match="exploration key"),
            opened_store.writer(key, {}, total=0, engine_version="1"),
        ):
            pass


def test_database_reaches_no_file_but_its_shards(read_only, tmp_path):
    opened, _, _ = read_only
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    attempts = [
        f"SELECT * FROM read_csv('{secret}')",
        f"SELECT * FROM sniff_csv('{secret}')",
        f"SELECT * FROM read_parquet('{folder_of(opened)}/../secret.csv')",
        f"COPY (SELECT 1) TO '{tmp_path / 'out.csv'}'",
        f"ATTACH '{tmp_path / 'other.duckdb'}'",
        "SET enable_external_access = true",
        "SET allowed_directories = ['/']",
    ]
    for text in attempts:
        with pytest.raises(StoreError), opened._database().cursor() as cursor:
            cursor.execute(text).fetchall()


def test_sorting_may_take_more_memory_for_as_long_as_it_lasts(store_path, tmp_path):
    order = [("total_time", "ascending")]
    sizes = replace(SMALL_SHARDS, database_mib=8)
    with working_in(sizes), Store(store_path) as opened:
        put(opened, "key", make_rows(30_000), piece=10_000)
        access = opened.rows("key")
        target = tmp_path / "out.parquet"
        with working_in(replace(sizes, sorting_mib=0)), pytest.raises(StoreMemoryError, match="more memory"):
            access.export(target, order_by=order)
        assert access.export(target, order_by=order) == 30_000
        times = pq.read_table(target)["total_time"].to_numpy()
        assert (times[:-1] <= times[1:]).all()
        groups = ["total_time", "tensor_par", "fw_time"]
        with working_in(replace(sizes, sorting_mib=0)), pytest.raises(StoreMemoryError, match="more memory"):
            access.best_by(groups, "sample_rate")
        assert pc.sum(access.best_by(groups, "sample_rate")["rows"]).as_py() == 30_000
        with opened._database().cursor() as cursor:
            assert cursor.execute("SELECT current_setting('memory_limit')").fetchall() == [("8.0 MiB",)]

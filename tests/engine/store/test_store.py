import datetime
import os
import shutil
import threading
import time
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine.store import (
    Store,
    StoreAccessError,
    StoreError,
    StoreInterruptedError,
    StoreLockedError,
    StoreWriteError,
)
from engine.store import writer as store_writer
from tests.engine.forked import finish, start
from tests.engine.store_rows import (
    FEW,
    MANY,
    REDUCTIONS,
    assert_same,
    folder_of,
    make_rows,
    put,
    rows_in_tables,
)


def test_everything_comes_back_as_it_went_in(stored):
    opened, rows, access = stored
    record = opened.find("key")
    assert record.scenario == {"model": "m", "key": "key"}
    assert (record.engine_version, record.total, record.feasible) == ("1.0", rows.num_rows + 7, rows.num_rows)
    assert (record.infeasible_by_reason, record.timings) == ({"memory": 7}, {"evaluate": 0.25})
    assert abs(datetime.datetime.now(datetime.UTC) - record.created_at) < datetime.timedelta(minutes=1)
    assert record.bytes > 0
    assert_same(access.table(), rows)
    found = opened.reductions("key")
    assert found.keys() == REDUCTIONS.keys()
    for name, table in REDUCTIONS.items():
        assert found[name].schema == table.schema
        assert found[name].equals(table)


def test_everything_is_there_after_reopening_and_for_readers(stored):
    opened, rows, _ = stored
    record = opened.find("key")
    opened.close()
    for read_only in (False, True):
        with Store(opened.path, read_only=read_only) as again:
            found = again.find("key")
            assert (found.scenario, found.created_at) == (record.scenario, record.created_at)
            assert_same(again.rows("key").table(), rows)
            assert again.reductions("key")["best"].equals(REDUCTIONS["best"])


@pytest.mark.parametrize(("count", "groups"), [(0, [1]), (10, [1]), (1024, [2]), (1025, [2, 1]), (2001, [2, 2])])
def test_rows_are_shards_however_many_they_are(opened_store, count, groups):
    put(opened_store, "key", make_rows(count))
    files = sorted((folder_of(opened_store) / "key").iterdir())
    assert [file.name for file in files] == [f"{number:05d}.parquet" for number in range(len(groups))]
    assert [pq.read_metadata(file).num_row_groups for file in files] == groups
    assert opened_store.find("key").bytes > sum(file.stat().st_size for file in files)


def test_rows_in_a_table_are_counted_as_what_they_take_in_the_log_and_in_the_file(opened_store):
    log = opened_store.path.with_name(opened_store.path.name + ".wal")
    with rows_in_tables():
        put(opened_store, "first", make_rows(1))
        before = log.stat().st_size
        put(opened_store, "second", make_rows(2000))
    grown = log.stat().st_size - before
    sizes = {record.key: record.bytes for record in opened_store.records()}
    assert sizes["second"] == pytest.approx(grown, rel=0.1, abs=8192)
    assert sizes["first"] < 16_384
    opened_store.close()  # which moves the log into the file, in blocks of 256 KiB
    with Store(opened_store.path) as again:
        assert not log.exists()
        assert again.find("second").bytes - sizes["first"] >= 2**18 - 16_384


def test_any_number_of_rows_in_any_pieces(opened_store):
    """Pieces of a group of rows, of no part of one, and larger than all."""
    pieces = {512: (1, 511, 512, 2048, 2049), 700: (511, 2047, 2048, 3072), 10_000: (512, 2049, 3072)}
    for piece, counts in pieces.items():
        for count in counts:
            rows, key = make_rows(count), f"key{count}-{piece}"
            assert put(opened_store, key, rows, piece=piece).feasible == count
            assert_same(opened_store.rows(key).table(), rows)


def test_store_and_its_folder_can_be_moved(stored, tmp_path):
    opened, rows, _ = stored
    opened.close()
    elsewhere = tmp_path / "it's elsewhere"
    elsewhere.mkdir()
    shutil.move(opened.path, elsewhere)
    if folder_of(opened).exists():
        shutil.move(folder_of(opened), elsewhere)
    with Store(elsewhere / opened.path.name) as moved:
        assert_same(moved.rows("key").table(), rows)


def test_exploration_without_feasible_executions(opened_store):
    record = put(opened_store, "none", make_rows(0), infeasible=3)
    access = opened_store.rows("none")
    assert (record.total, record.feasible) == (3, 0)
    assert (access.count(), access.top(5).num_rows, access.fetch([]).num_rows) == (0, 0, 0)
    assert access.value_range("total_time") is None
    assert access.histogram("total_time", "sample_rate", bins=(2, 2)).counts.sum() == 0
    assert access.best_by(["tensor_par"], "sample_rate").num_rows == 0


def test_records_come_newest_first(opened_store):
    for key in ("b", "a", "c"):
        put(opened_store, key, make_rows(10))
        time.sleep(0.002)
    assert [record.key for record in opened_store.records()] == ["c", "a", "b"]


def test_find_knows_only_complete_explorations(opened_store):
    with opened_store.writer("key", {}, total=10, engine_version="1") as writer:
        writer.append(make_rows(10))
        assert opened_store.find("key") is None
        assert opened_store.records() == []
    assert opened_store.find("key") is None
    with pytest.raises(StoreError, match="no exploration key"):
        opened_store.rows("key")


@pytest.mark.parametrize("count", [FEW, MANY])
def test_leaving_early_or_by_an_exception_leaves_no_trace(opened_store, count):
    with opened_store.writer("key", {}, total=count, engine_version="1") as writer:
        writer.append(make_rows(count))

    def cancelled():
        with opened_store.writer("key", {}, total=count, engine_version="1") as writer:
            writer.append(make_rows(count))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cancelled()
    assert not folder_of(opened_store).exists()
    with opened_store._database().cursor() as cursor:
        assert cursor.execute("SELECT count(*) FROM duckdb_tables() WHERE table_name LIKE 'rows%'").fetchall() == [(0,)]
    put(opened_store, "key", make_rows(count))
    assert opened_store.rows("key").count() == count


def test_same_key_is_reused_and_cannot_be_extended(stored):
    opened, rows, access = stored
    with opened.writer("key", {}, total=1, engine_version="1") as writer:
        assert writer.record == opened.find("key")
        with pytest.raises(StoreError, match="already complete"):
            writer.append(rows)
        with pytest.raises(StoreError, match="already complete"):
            writer.complete(infeasible_by_reason={}, timings={}, reductions={})
    assert access.count() == rows.num_rows


def test_counts_must_add_up_to_the_space(opened_store):
    with opened_store.writer("key", {}, total=100, engine_version="1") as writer:
        writer.append(make_rows(50))
        with pytest.raises(StoreError, match="50 rows and 49 infeasible executions are not the 100"):
            writer.complete(infeasible_by_reason={"memory": 49}, timings={}, reductions={})
    assert opened_store.find("key") is None


def test_rows_must_have_the_registered_columns(opened_store):
    rows = make_rows(5)
    nulls = rows.set_column(1, rows.schema.field(1), pa.array([1, None, 1, 1, 1], pa.int32()))
    with opened_store.writer("key", {}, total=5, engine_version="1") as writer:
        with pytest.raises(StoreError, match="training differs"):
            writer.append(rows.drop_columns(["training"]))
        with pytest.raises(StoreError, match="their order differs"):
            writer.append(rows.select(rows.column_names[::-1]))
        with pytest.raises(StoreError, match="num_procs to store has type int64: int32"):
            writer.append(rows.set_column(1, "num_procs", rows["num_procs"].cast(pa.int64())))
        with pytest.raises(StoreError, match="num_procs to store has missing values"):
            writer.append(nulls)
        writer.append(rows.to_batches()[0])
        writer.complete(infeasible_by_reason={}, timings={}, reductions={})
    assert_same(opened_store.rows("key").table(), rows)


def test_what_is_no_json_is_refused(opened_store):
    with (
        pytest.raises(StoreError, match="scenario"),
        opened_store.writer("key", {"model": object()}, total=0, engine_version="1"),
    ):
        pass
    with (
        opened_store.writer("key", {}, total=0, engine_version="1") as writer,
        pytest.raises(StoreError, match="timings"),
    ):
        writer.complete(infeasible_by_reason={}, timings={"all": float("nan")}, reductions={})
    assert opened_store.records() == []


def test_reductions_must_be_arrow_tables(opened_store):
    with opened_store.writer("key", {}, total=0, engine_version="1") as writer:
        with pytest.raises(StoreError, match="reduction best is a DataFrame"):
            writer.complete(infeasible_by_reason={}, timings={}, reductions={"best": pd.DataFrame({"a": [1]})})
        writer.complete(infeasible_by_reason={"memory": np.int64(0)}, timings={"all": np.float32(1)}, reductions={})
    assert opened_store.find("key").infeasible_by_reason == {"memory": 0}


def test_transaction_is_undone_by_any_failure(opened_store):
    database = opened_store._database()

    def fail():
        with database.transaction() as cursor:
            cursor.execute("INSERT INTO meta VALUES ('a', 'b')")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    with database.cursor() as cursor:
        assert cursor.execute("SELECT count(*) FROM meta WHERE name = 'a'").fetchall() == [(0,)]


@pytest.mark.parametrize("step", ["write", "publish"])
def test_nothing_can_be_added_after_a_failure(opened_store, monkeypatch, step):
    def refuse(*_, **__):
        raise StoreWriteError("a file", "there is no room")

    rows = make_rows(MANY)
    with opened_store.writer("key", {}, total=MANY, engine_version="1") as writer:
        if step == "publish":
            writer.append(rows)
        monkeypatch.setattr(store_writer.ShardWriter, step, refuse)
        attempts = {"write": lambda: writer.append(rows), "publish": lambda: complete(writer)}
        with pytest.raises(StoreWriteError, match="no room"):
            attempts[step]()
        for attempt in attempts.values():
            with pytest.raises(StoreError, match="has failed"):
                attempt()
    assert opened_store.records() == []
    assert not folder_of(opened_store).exists()


def complete(writer):
    return writer.complete(infeasible_by_reason={}, timings={}, reductions={})


def test_deleting_removes_rows_shards_and_reductions(stored):
    opened, rows, _ = stored
    put(opened, "other", rows)
    opened.delete("key")
    assert opened.find("key") is None
    assert [record.key for record in opened.records()] == ["other"]
    assert not (folder_of(opened) / "key").exists()
    with pytest.raises(StoreError, match="no exploration key"):
        opened.reductions("key")
    with pytest.raises(StoreError, match="no exploration key"):
        opened.delete("key")
    put(opened, "key", rows)
    assert opened.rows("key").count() == opened.rows("other").count() == rows.num_rows
    opened.delete("key")
    opened.delete("other")
    assert not folder_of(opened).exists()


def in_threads(count, work):
    """Run `work(number)` in threads and return what they returned or raised."""
    outcomes = [None] * count

    def run(number):
        try:
            outcomes[number] = work(number)
        except BaseException as error:
            outcomes[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return outcomes


def test_threads_read_while_another_writes(stored):
    opened, rows, access = stored
    best = access.top(5)["id"].to_pylist()

    def work(number):
        if number == 0:
            for turn in range(2):
                put(opened, f"new{turn}", make_rows((FEW, MANY)[turn % 2], seed=turn))
            return True
        for _ in range(5):
            assert access.count() == rows.num_rows
            assert access.top(5)["id"].to_pylist() == best
            assert opened.find("key").feasible == rows.num_rows
        return True

    assert in_threads(4, work) == [True] * 4
    assert len(opened.records()) == 3


@pytest.mark.parametrize("stores", [1, 2])
def test_two_writers_of_one_key_evaluate_it_once(store_path, stores):
    evaluated = []

    def work(number):
        mine = shared if stores == 1 else Store(store_path)
        with mine.writer("key", {}, total=MANY, engine_version="1") as writer:
            if writer.record is None:
                evaluated.append(number)
                writer.append(make_rows(MANY))
                time.sleep(0.1)
                writer.complete(infeasible_by_reason={}, timings={}, reductions={})
        return writer.record.key, mine.rows("key").count()

    with Store(store_path) as shared:
        assert in_threads(3, work) == [("key", MANY)] * 3
    assert len(evaluated) == 1


def test_second_writer_takes_over_when_the_first_gives_up(opened_store):
    started = threading.Event()

    def work(number):
        if number == 0:
            with opened_store.writer("key", {}, total=MANY, engine_version="1") as writer:
                writer.append(make_rows(MANY))
                started.set()
                time.sleep(0.1)
            return None
        assert started.wait(10)
        return put(opened_store, "key", make_rows(MANY, seed=1)).key

    assert in_threads(2, work) == [None, "key"]
    assert opened_store.rows("key").table(["id"])["id"][0].as_py() == 1


def test_waiting_for_a_writer_can_end(opened_store):
    with opened_store.writer("key", {}, total=0, engine_version="1"):
        with (
            pytest.raises(StoreLockedError, match="This thread is already writing"),
            opened_store.writer("key", {}, total=0, engine_version="1"),
        ):
            pass

        def work(_):
            with opened_store.writer("key", {}, total=0, engine_version="1", timeout=0.05):
                pass

        (outcome,) = in_threads(1, work)
        assert isinstance(outcome, StoreLockedError)
        assert "another thread" in str(outcome)


@pytest.mark.parametrize("by", ["store", "rows"])
def test_interrupt_cancels_running_queries(stored, by):
    opened, _, access = stored
    cancel = opened.interrupt if by == "store" else access.interrupt
    cancelled = threading.Event()
    deadline = time.monotonic() + 20

    def work(number):
        if number == 0:
            while not cancelled.is_set() and time.monotonic() < deadline:
                cancel()
                time.sleep(0.0005)
            return
        try:
            while time.monotonic() < deadline:
                access.histogram("total_time", "sample_rate")
        finally:
            cancelled.set()

    assert type(in_threads(2, work)[1]) is StoreInterruptedError
    assert access.count() > 0


def open_for_both(mouth, path):
    """Say what comes of opening a store that another process has, for writing and for reading."""
    warnings.simplefilter("error")
    for read_only in (False, True):
        try:
            Store(path, read_only=read_only)
        except StoreError as error:
            mouth.send(f"{type(error).__name__} {error}")


def test_second_process_is_told_who_holds_the_store(opened_store):
    said = finish(*start(open_for_both, opened_store.path))
    told = f"StoreLockedError The store {opened_store.path} is held by process {os.getpid()}: "
    assert [sentence.startswith(told) for sentence in said] == [True, True]


def test_readers_share_writers_do_not(stored):
    opened, rows, _ = stored
    with Store(opened.path, read_only=True) as reader:
        assert reader.rows("key").count() == rows.num_rows
        with pytest.raises(StoreAccessError, match="read"):
            reader.delete("key")
        with pytest.raises(StoreAccessError, match="read"), reader.writer("a", {}, total=0, engine_version="1"):
            pass
    opened.close()
    with Store(opened.path, read_only=True), pytest.raises(StoreLockedError, match="open for reading in this process"):
        Store(opened.path)


def test_store_may_be_closed_while_it_is_written_to(opened_store):
    rows = make_rows(MANY)
    with opened_store.writer("key", {}, total=MANY, engine_version="1") as writer:
        writer.append(rows)
        opened_store.close()
        assert complete(writer).feasible == MANY
    with Store(opened_store.path) as again:
        assert_same(again.rows("key").table(), rows)


def test_closed_store_says_so(opened_store):
    opened_store.close()
    opened_store.close()
    for attempt in (opened_store.records, lambda: opened_store.find("key"), lambda: opened_store.delete("key")):
        with pytest.raises(StoreError, match="closed"):
            attempt()

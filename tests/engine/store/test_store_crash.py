"""Whatever happens to a process that writes, the store opens and what it calls complete is complete.

Processes are forked from a server that has imported everything, so that dozens can be killed within seconds.
"""

import contextlib
import ctypes
import os
import random
import resource
import shutil
import signal
import subprocess
import time
import warnings

import pytest

from engine import WorkSizes, set_work_sizes, working_in
from engine.store import Store, StoreWriteError, shards, writer
from engine.store import database as store_database
from engine.store import files as store_files
from tests.engine.forked import finish, start
from tests.engine.store_rows import assert_same, folder_of, make_rows, put, rows_in_tables

FEW, MANY = 1000, 6000
"""Rows of explorations that have one shard, and of those that have several."""


def use_small_limits():
    """Let thousands of rows be a large exploration, in this process."""
    set_work_sizes(WorkSizes(rows_of_group=1024, groups_of_shard=2))


def size_of(key):
    """Return how many rows the exploration `key` has: every other one is large."""
    return (FEW, MANY)[int(key[3:]) % 2]


def assert_sound(path, promised=(), gone=()):
    """Assert that a store opens, holds what was reported as stored, and that all it lists is whole."""
    use_small_limits()
    with Store(path) as opened:
        records = opened.records()
        keys = {record.key for record in records}
        assert keys.issuperset(promised)
        assert keys.isdisjoint(gone)
        for record in records:
            assert record.damage is None
            assert record.feasible == size_of(record.key)
            assert_same(opened.rows(record.key).table(), make_rows(record.feasible, seed=int(record.key[3:])))
            assert len(opened.reductions(record.key)) == 3
        assert {entry.name for entry in folder_of(opened).glob("*")} == keys
        assert not list(path.parent.glob(".*"))
        with opened._database().cursor() as cursor:
            assert cursor.execute("SELECT count(DISTINCT key) FROM reduction").fetchall() == [(len(keys),)]
        return keys


@pytest.fixture(autouse=True)
def restored_limits():
    """Undo `use_small_limits` after each test."""
    with working_in(WorkSizes()):
        yield


def write_and_delete(mouth, path, first):
    """Store explorations without end, delete every third, and report each step when it is done."""
    use_small_limits()
    keys = [f"key{number}" for number in range(10)]
    rows = {key: make_rows(size_of(key), seed=int(key[3:])) for key in keys}
    mouth.send(("ready", None))
    with Store(path) as opened:
        for number in range(first, first + 200):
            key = keys[number % len(keys)]
            if opened.find(key) is None:
                put(opened, key, rows[key])
                mouth.send(("stored", key))
            elif number % 3 == 0:
                mouth.send(("deleting", key))
                opened.delete(key)
                mouth.send(("deleted", key))


def test_killed_at_random_moments(tmp_path):
    path = tmp_path / "results.duckdb"
    chance = random.Random(20261120)
    present, rounds, interrupted = set(), 0, 0
    while rounds < 6:
        process, reports = start(write_and_delete, path, rounds * 7)
        assert reports.poll(30)
        assert reports.recv() == ("ready", None)
        time.sleep(chance.uniform(0.0, 0.4))
        interrupted += process.is_alive()
        process.kill()
        doubtful = set()
        for step, key in finish(process, reports):
            if step == "stored":
                present.add(key)
            elif step == "deleting":
                present.discard(key)
                doubtful.add(key)
            else:
                doubtful.discard(key)
        if path.exists():
            found = assert_sound(path, promised=present)
            present = found  # one that was stored or deleted just before the kill may not have been reported
        else:
            assert not present
        rounds += 1
    assert interrupted >= 3
    assert_sound(path, promised=present)


def kill_self(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)


def after(function):
    """Return a function that does its work and then kills the process."""

    def work(*arguments, **named):
        function(*arguments, **named)
        kill_self()

    return work


def at_the_end_of(manager):
    """Return a context manager that does the same but kills the process when its block ends."""

    @contextlib.contextmanager
    def work(*arguments, **named):
        with manager(*arguments, **named) as given:
            yield given
            kill_self()

    return work


def only_at(ending, work, otherwise):
    """Return a function that does other work where its second argument, a path, ends so."""
    return lambda one, two, **named: (work if str(two).endswith(ending) else otherwise)(one, two, **named)


def die_linking(mouth, path, ending, when):
    """Make a store with the process killed before or after a file whose name ends so gets it."""
    os.link = only_at(ending, kill_self if when == "before" else after(os.link), os.link)
    with Store(path):
        mouth.send("survived")


def die_at(mouth, path, key, owner, name, when):
    """Store one exploration with the process killed before, after or at the end of a certain call."""
    use_small_limits()
    files, database = store_files.StoreFiles, store_database.Database
    owner = {"database": database, "files": files, "shards": shards, "writer": writer}[owner]
    ways = {"before": lambda _: kill_self, "after": after, "inside": at_the_end_of}
    setattr(owner, name, ways[when](getattr(owner, name)))
    with Store(path) as opened:
        put(opened, key, make_rows(size_of(key), seed=int(key[3:])))
    mouth.send("survived")


@pytest.mark.parametrize(
    ("owner", "name", "when", "complete"),
    [
        ("writer", "_checked_rows", "after", False),
        ("writer", "_arrow_stream", "after", False),
        ("shards", "flush_to_disk", "before", False),
        ("files", "make_folder", "after", False),
        ("files", "claim", "after", False),
        ("shards", "flush_to_disk", "after", False),
        ("database", "transaction", "before", False),
        ("database", "transaction", "inside", False),
        ("writer", "records_of", "before", True),
    ],
)
def test_killed_on_the_way(tmp_path, owner, name, when, complete):
    """First with one shard, then, in the store that this left behind, with several."""
    path = tmp_path / "results.duckdb"
    with Store(path):
        pass
    for keys in (["key0"], ["key0", "key1"]):
        process, reports = start(die_at, path, keys[-1], owner, name, when)
        assert finish(process, reports) == []
        assert process.exitcode == -signal.SIGKILL
        assert assert_sound(path) == (set(keys) if complete else set())


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("ending", [".lock", ".duckdb"])
def test_killed_while_the_store_is_made(tmp_path, ending, when):
    path = tmp_path / "my results.duckdb"
    process, reports = start(die_linking, path, ending, when)
    finish(process, reports)
    assert process.exitcode == -signal.SIGKILL
    assert path.exists() == (ending == ".duckdb" and when == "after")
    assert assert_sound(path) == set()
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_while_deleting(tmp_path, when):
    path = tmp_path / "results.duckdb"
    use_small_limits()
    with Store(path) as opened:
        put(opened, "key1", make_rows(MANY, seed=1))
    process, reports = start(die_deleting, path, when)
    finish(process, reports)
    assert process.exitcode == -signal.SIGKILL
    assert assert_sound(path) == set()


def die_deleting(mouth, path, when):
    remove = store_files.StoreFiles.remove
    store_files.StoreFiles.remove = kill_self if when == "before" else after(remove)
    with Store(path) as opened:
        opened.delete("key1")


# Full disks ----------------------------------------------------------------------------------------------------------


def overfill(path):
    """Store more than there is room for, in shards and in the database; then something small. Return what was said,
    and what is there."""
    use_small_limits()
    said = []
    with Store(path) as opened:
        put(opened, "key0", make_rows(FEW))
        set_work_sizes(WorkSizes(rows_of_group=1024, groups_of_shard=10**6))
        for way in (contextlib.nullcontext, rows_in_tables):
            try:
                with way():
                    put(opened, "big", make_rows(60_000), piece=10_000)
            except StoreWriteError as error:
                said.append(str(error))
            if opened.find("big") or (folder_of(opened) / "big").exists():
                said.append("something of it is left")
        use_small_limits()
        put(opened, "key2", make_rows(FEW, seed=2))
    return said


def overfill_with_a_limit(mouth, path, limit):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    mouth.send(overfill(path))


def test_file_size_limit(tmp_path):
    path = tmp_path / "results.duckdb"
    process, reports = start(overfill_with_a_limit, path, 3_500_000)
    said = finish(process, reports)
    assert process.exitcode == 0
    shard, database = said[0]
    assert shard.endswith(
        "00000.parquet failed because the file would exceed the size limit: make room and run it again."
    )
    assert "results.duckdb" in database
    assert "because the file would exceed the size limit" in database
    assert assert_sound(path) == {"key0", "key2"}


NEW_MOUNTS = 0x20000
"""Linux's CLONE_NEWNS."""


def overfill_a_disk(mouth, disk, kept):
    """As `overfill`, on a file system of 5 MB at a place that only this process sees; say what is in the way of that,
    and what was said."""
    warnings.simplefilter("error")
    if ctypes.CDLL(None).unshare(NEW_MOUNTS) != 0:
        mouth.send(("no mounts of one's own", []))
        return
    for arguments in (["--make-rprivate", "/"], ["-t", "tmpfs", "-o", "size=5m", "tmpfs", str(disk)]):
        done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            mouth.send((done.stderr.strip(), []))
            return
    said = overfill(disk / "results.duckdb")
    shutil.copytree(disk, kept)
    mouth.send(("", said))


def test_full_disk(tmp_path):
    """A real one: a file system of 5 MB in a mount namespace that only the writing process sees."""
    disk, kept = tmp_path / "disk", tmp_path / "kept"
    disk.mkdir()
    process, reports = start(overfill_a_disk, disk, kept)
    said = finish(process, reports)
    assert process.exitcode == 0
    (problem, sentences) = said[0]
    if problem:
        pytest.skip(f"a full disk cannot be made here: {problem}")
    assert len(sentences) == 2
    for sentence in sentences:
        assert sentence.endswith("because no space left on the device: make room and run it again.")
    assert assert_sound(kept / "results.duckdb") == {"key0", "key2"}

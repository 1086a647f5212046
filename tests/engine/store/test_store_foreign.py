"""A store removes what it has made itself, and nothing else: whatever others put beside it, or into its folders."""

import os
import random
import shutil
import signal
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from engine import set_work_sizes
from engine.store import Store, StoreAccessError, StoreError
from tests.engine.conftest import SMALL_SHARDS
from tests.engine.forked import ended
from tests.engine.store_rows import MANY, make_rows, put

NAMES = (
    "00000.parquet",
    "00007.parquet",
    "act_space.parquet",
    "partial-x",
    "dead",
    "dead.partial",
    "dead.added",
    "key",
    "key.partial",
    "key.added",
    "key.2",
    "cat",
    "duckdb_temp_storage-0.tmp",
    "duckdb_temp_block-1.block",
    "Notes",
)


def die_while_writing(_: Connection, path: Path) -> None:
    """Be killed when some of an exploration's shards are written and some are not."""
    set_work_sizes(SMALL_SHARDS)  # for good: it is a process of its own
    rows = make_rows(4000)
    with Store(path) as store, store.writer("dead", {}, total=4000, engine_version="1") as writer:
        for start in range(0, 4000, 500):
            writer.append(rows.slice(start, 500))
        os.kill(os.getpid(), signal.SIGKILL)


def put_there(folder: Path, outside: Path, chance: random.Random, depth: int = 0) -> None:
    """Put files, folders, and links to files and folders elsewhere where nothing is, with names that stores give."""
    for name in chance.sample(NAMES, 6):
        path = folder / name
        if os.path.lexists(path):
            if path.is_dir() and not path.is_symlink() and depth < 2:
                put_there(path, outside, chance, depth + 1)
            continue
        kind = chance.choice(("file", "file", "folder", "empty folder", "link", "link to folder"))
        if kind == "file":
            path.write_bytes(chance.choice((b"PAR1 a picture PAR1", b"")))
        elif kind == "link":
            path.symlink_to(outside / "00000.parquet")
        elif kind == "link to folder":
            path.symlink_to(outside)
        else:
            path.mkdir()
            if kind == "folder" and depth < 2:
                put_there(path, outside, chance, depth + 1)


def everything(folder: Path) -> dict[str, object]:
    """What is in a folder, all the way down, links as links."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = os.readlink(path)
        elif path.is_dir():
            found[name] = "folder"
        else:
            found[name] = path.read_bytes()
    return found


def foreign_beside(path: Path) -> None:
    """Files with names as of spilled sorts and stores half made."""
    (path.parent / f"{path.name}.tmp").mkdir()
    (path.parent / f"{path.name}.tmp" / "duckdb_temp_storage-0.tmp").write_bytes(b"mine")
    (path.parent / f".{path.name}.old.new.jpg").write_bytes(b"a picture")
    (path.parent / f".{path.name}.0123456789abcdef0123456789abcdef.new").write_bytes(b"mine too")
    (path.parent / f"{path.stem}.contents.new").write_bytes(b"mine again")


@pytest.mark.parametrize("seed", range(4))
def test_nothing_of_others_is_removed_or_changed(store_path: Path, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    rows_folder = tmp_path / "results.rows"
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "00000.parquet").write_bytes(b"far away")
    foreign_beside(store_path)
    if seed % 2:  # they were there before the store
        rows_folder.mkdir()
        put_there(rows_folder, outside, chance)
        (tmp_path / "results.contents").write_text("what is in the box")
    before = everything(tmp_path)
    if seed % 4 > 1:  # a process that has died left something behind
        assert ended(die_while_writing, store_path) == -signal.SIGKILL
        assert len(set(everything(rows_folder)) - {name[13:] for name in before}) >= 3
    with Store(store_path) as store:
        put(store, "key", make_rows(MANY))
        if not seed % 2:  # or came into its folders while it was there
            mine = everything(tmp_path)
            put_there(rows_folder, outside, chance)
            before = {name: now for name, now in everything(tmp_path).items() if name not in mine} | before
        assert store.rows("key").count() == MANY
    for read_only in (True, False):
        with Store(store_path, read_only=read_only) as store:
            assert store.find("key") is not None
    with Store(store_path) as store:
        put(store, "small", make_rows(10))
        for key in ("key", "small"):
            store.delete(key)
    after = everything(tmp_path)
    assert {name: after.get(name) for name in before} == before
    ours = {name for name in set(after) - set(before) if not name.startswith("results.rows/key")}
    assert ours <= {"results.duckdb", "results.contents", "results.rows"}


def test_what_was_replaced_by_a_link_is_not_removed_through_it(store_path: Path, tmp_path: Path) -> None:
    rows_folder = tmp_path / "results.rows"
    with Store(store_path) as store:
        for key in ("key", "other", "third"):
            put(store, key, make_rows(MANY))
        elsewhere = tmp_path / "elsewhere"
        shutil.move(rows_folder / "other", elsewhere)
        (rows_folder / "other").symlink_to(elsewhere)
        picture = tmp_path / "picture"
        shutil.move(rows_folder / "key" / "00001.parquet", picture)
        (rows_folder / "key" / "00001.parquet").symlink_to(picture)
        with pytest.raises(StoreError, match="it is a link, or no file"):
            store.rows("key")
        before = everything(elsewhere)
        for key in ("key", "other"):
            store.delete(key)
        assert everything(elsewhere) == before
        assert picture.exists()
        assert (rows_folder / "key" / "00001.parquet").is_symlink()
    shutil.move(rows_folder, tmp_path / "moved")
    rows_folder.symlink_to(tmp_path / "moved")
    with Store(store_path) as store:
        with pytest.raises(StoreAccessError, match="is a symbolic link"):
            put(store, "fourth", make_rows(MANY))
        before = everything(tmp_path / "moved")
        store.delete("third")
    assert everything(tmp_path / "moved") == before
    assert rows_folder.is_symlink()


@pytest.mark.parametrize("kind", ["text", "text before", "link", "pipe", "folder"])
def test_a_file_of_somebody_else_in_the_place_of_the_log_stays(store_path: Path, tmp_path: Path, kind: str) -> None:
    if kind != "text before":
        Store(store_path).close()
    log, diary = tmp_path / "results.duckdb.wal", tmp_path / "diary.txt"
    diary.write_text("dear diary")
    make = {"link": lambda: log.symlink_to(diary), "pipe": lambda: os.mkfifo(log), "folder": log.mkdir}
    make.get(kind, lambda: log.write_text("a log of my journeys"))()
    before = log.lstat().st_mode, log.read_text() if log.is_file() else ""
    for read_only in (False, True) if store_path.exists() else (False,):
        with pytest.raises(StoreAccessError, match="is where the log of the store results"):
            Store(store_path, read_only=read_only)
    assert (log.lstat().st_mode, log.read_text() if log.is_file() else "") == before
    assert store_path.exists() == (kind != "text before")


def test_a_list_of_names_that_lead_elsewhere_removes_nothing(store_path: Path, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"meow")
    with Store(store_path) as store:
        put(store, "key", make_rows(MANY))
        with store._database().transaction() as cursor:
            for name in (
                "../photos/cat.jpg",
                str(tmp_path / "photos" / "cat.jpg"),
                "../photos/",
                "key/../../photos/cat.jpg",
            ):
                cursor.execute("INSERT INTO made VALUES ($name)", {"name": name})
    with Store(store_path) as store:
        assert store.rows("key").count() == MANY
    assert (tmp_path / "photos" / "cat.jpg").read_bytes() == b"meow"

"""One process has a store, whatever happens in it: it opens it twice, copies it, forks, or is killed."""

import multiprocessing
import os
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

import engine
from engine.store import Store, StoreError, StoreLockedError
from engine.store.lock import StoreLock
from tests.engine.forked import finish, start
from tests.engine.store_rows import FEW, make_rows, put

Look = Callable[..., str]
ROOT = Path(__file__).parents[3]


def look_when_asked(ear: Connection) -> None:
    """How many explorations a store has, or why it cannot be opened: for each that is named."""
    warnings.simplefilter("error")
    with suppress(EOFError):
        while True:
            path, read_only = ear.recv()
            try:
                with Store(path, read_only=read_only) as store:
                    number = len(store.records())
                ear.send(str(number))
            except StoreError as error:
                ear.send(f"{type(error).__name__} {error}")


@pytest.fixture(scope="module")
def other_process() -> Iterator[Look]:
    """Asks another process about a store: how many explorations it has, or why it cannot be opened."""
    process, mouth = start(look_when_asked)

    def look(path: Path, *, read_only: bool = False) -> str:
        mouth.send((path, read_only))
        return str(mouth.recv())

    yield look
    mouth.close()
    process.join(30)
    assert process.exitcode == 0


def explored(path: Path, batch: int) -> engine.Exploration:
    return engine.explore(
        "megatron-126M", "a100_80g", num_procs=2, max_batch_size=batch, datatype="float16", store=path
    )


def test_the_lock_outlives_other_opens_of_the_file_in_the_process_that_has_it(
    tmp_path: Path, other_process: Look
) -> None:
    path = tmp_path / "results.duckdb"
    held = f"StoreLockedError The store {path} is held by process {os.getpid()}: "
    kept = [explored(path, 2)]
    (tmp_path / "link.duckdb").symlink_to(path)
    for harm in (
        lambda: kept.append(explored(path, 4)),
        lambda: Store(path).close(),
        lambda: Store(tmp_path / "link.duckdb", read_only=True).close(),
        lambda: shutil.copy(path, tmp_path / "copy"),
    ):
        harm()
        for read_only in (False, True):
            assert other_process(path, read_only=read_only).startswith(held)
    assert [found.rows.count() for found in kept] == [found.feasible for found in kept]
    kept.clear()  # the last to refer to the store closes it
    del harm
    assert other_process(path) == "2"
    assert sorted(tmp_path.glob("results.duckdb.*")) == []


def explore_four(ear: Connection, path: Path, odd: int) -> None:
    """Explore four scenarios into a store that others use as well, once told to; say their keys."""
    warnings.simplefilter("error")
    ear.send("ready")
    ear.recv()
    stored: list[str] = []
    kept: list[engine.Exploration] = []
    until = time.monotonic() + 240
    while len(stored) < 4 and time.monotonic() < until:
        try:
            kept.append(explored(path, 2 * (2 * len(stored) + odd + 1)))
            assert kept[-1].rows.count() == kept[-1].feasible
            stored.append(kept[-1].key)
        except StoreError as error:
            assert "is held by process" in str(error), error  # noqa: PT017 - nobody else sees it here
            time.sleep(0.005)
        if len(stored) % 2 == 0:
            kept.clear()
            time.sleep(0.02)
    ear.send(stored)


def both_at_once(work: Callable[..., None], *arguments: tuple[object, ...]) -> list[object]:
    """Have two processes do something at the same time; return what each said in the end."""
    both = [start(work, *each) for each in arguments]
    assert [ear.recv() for _, ear in both] == ["ready"] * 2
    for _, ear in both:
        ear.send("go")
    said = [finish(*each) for each in both]
    assert [process.exitcode for process, _ in both] == [0, 0]
    return [last for (last,) in said]


def test_two_processes_that_explore_into_one_store_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "results.duckdb"
    one, other = both_at_once(explore_four, (path, 0), (path, 1))
    stored = {*one, *other}
    with Store(path) as store:
        assert {record.key for record in store.records()} == stored
        assert len(stored) == 8
        assert all(store.rows(record.key).count() == record.feasible for record in store.records())
        assert store.losses == []


def take_in_turns(ear: Connection, path: Path, rounds: int) -> None:
    """Take and give back a lock so many times, once told to, while another does; say how many times it was had."""
    file = path.with_name(path.name + ".lock")
    ear.send("ready")
    ear.recv()
    taken = 0
    for number in range(10**6):
        if taken == rounds:
            break
        try:
            lock = StoreLock(path, read_only=False)
        except StoreLockedError as error:
            assert "is held by process" in str(error), error  # noqa: PT017 - nobody else sees it here
            continue
        for name in ("", f".{number}.new", ""):
            lock.making(name)
            assert file.read_text().startswith(f"Held by Shardscape, process {os.getpid()} on "), file.read_text()
        lock.release()
        taken += 1
    ear.send(taken)


def test_a_lock_says_whose_it_is_from_when_it_is_there(tmp_path: Path) -> None:
    """Two processes take one in turns: one has it at a time, whom the other can name, and nothing stays behind."""
    path = tmp_path / "results.duckdb"
    assert both_at_once(take_in_turns, (path, 120), (path, 120)) == [120, 120]
    assert list(tmp_path.iterdir()) == []


def test_one_file_under_two_names_is_opened_once(store_path: Path, other_process: Look) -> None:
    with Store(store_path):
        other = store_path.with_name("other.duckdb")
        os.link(store_path, other)
        with pytest.raises(StoreLockedError, match=f"is open in this process as {store_path}: use that name"):
            Store(other)
        assert other_process(other).startswith("StoreLockedError")
    with Store(other) as again:
        assert again.records() == []


def in_a_fork(path: Path, opened: Store, mouth: Connection) -> None:
    said = []
    for attempt in (opened.records, lambda: Store(path)):
        try:
            attempt()
        except StoreError as error:
            said.append(str(error))
    opened.close()
    mouth.send(said)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_neither_uses_nor_frees_what_it_inherited(
    opened_store: Store, store_path: Path, other_process: Look
) -> None:
    put(opened_store, "key", make_rows(FEW))
    forks = multiprocessing.get_context("fork")
    reports, mouth = forks.Pipe(duplex=False)
    process = forks.Process(target=in_a_fork, args=(store_path, opened_store, mouth))
    process.start()
    process.join(30)
    assert process.exitcode == 0
    used, opened_again = reports.recv()
    assert "was open when this process was forked" in used
    assert f"is held by process {os.getpid()}" in opened_again
    assert other_process(store_path).startswith("StoreLockedError")
    put(opened_store, "more", make_rows(FEW))
    assert opened_store.rows("more").count() == FEW


FORKS = """
import os, sys
from pathlib import Path
from engine.store import Store
from tests.engine.store_rows import make_rows, put
path = Path(sys.argv[1])
log = path.with_name(path.name + ".wal")
with Store(path) as store:
    put(store, "before", make_rows(1000))
    size = log.stat().st_size
    child = os.fork()
    if child == 0:
        sys.exit(0)  # which ends an interpreter, and closes all that it had open
    assert os.waitpid(child, 0)[1] == 0
    assert log.stat().st_size == size
    put(store, "after", make_rows(1000))
"""


def test_a_forked_process_that_ends_leaves_the_store_to_the_one_before(store_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FORKS, str(store_path)], cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    with Store(store_path) as store:
        assert {record.key for record in store.records()} == {"before", "after"}


def hold(ear: Connection, path: Path) -> None:
    """Have a store open for as long as the process lasts."""
    with Store(path):
        ear.send("held")
        ear.recv()


def test_what_a_killed_process_left_of_its_lock_holds_nothing_up(store_path: Path) -> None:
    holder, ear = start(hold, store_path)
    assert ear.recv() == "held"
    with pytest.raises(StoreLockedError, match=f"is held by process {holder.pid}: "):
        Store(store_path)
    holder.kill()
    holder.join(30)
    ear.close()
    lock = store_path.with_name(f"{store_path.name}.lock")
    assert lock.exists()
    Store(store_path).close()
    assert not lock.exists()


@pytest.mark.parametrize("kind", ["text", "empty", "folder", "link", "pipe"])
def test_a_file_of_somebody_else_in_the_place_of_the_lock_stays(
    store_path: Path, kind: str, other_process: Look
) -> None:
    lock, target = store_path.with_name(f"{store_path.name}.lock"), store_path.with_name("diary.txt")
    target.write_text("dear diary")
    make = {
        "text": lambda: lock.write_text("a picture of a lock"),
        "empty": lock.touch,
        "folder": lock.mkdir,
        "link": lambda: lock.symlink_to(target),
        "pipe": lambda: os.mkfifo(lock),
    }
    make[kind]()
    before = lock.lstat().st_mode, lock.read_text() if lock.is_file() else ""
    if kind in ("text", "empty"):
        with Store(store_path):
            assert other_process(store_path).startswith("StoreLockedError")
    else:
        with pytest.raises(StoreError, match="is not a file: move it away"):
            Store(store_path)
    assert (lock.lstat().st_mode, lock.read_text() if lock.is_file() else "") == before
    assert target.read_text() == "dear diary"

"""One process has a store, whatever happens in it: it opens it twice, copies it, forks, or is killed."""

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

import engine
from engine.store import Store, StoreError, StoreLockedError
from tests.engine.store_rows import FEW, make_rows, put

Look = Callable[..., str]
ROOT = Path(__file__).parents[3]
LOOKS = """
import sys
from engine.store import Store, StoreError
for line in sys.stdin:
    read_only, path = line.rstrip().split(" ", 1)
    try:
        with Store(path, read_only=read_only == "True") as store: number = len(store.records())
        print(number, flush=True)
    except StoreError as error: print(type(error).__name__, error, flush=True)
"""
EXPLORES = """
import json, sys, time
import engine
from engine.store import StoreError
path, odd = sys.argv[1], int(sys.argv[2])
stored, kept = [], []
print("ready", flush=True)
input()
until = time.monotonic() + 240
while len(stored) < 4 and time.monotonic() < until:
    batch = 2 * (2 * len(stored) + odd + 1)
    try:
        kept.append(engine.explore("megatron-126M", "a100_80g", num_procs=2, max_batch_size=batch, datatype="float16",
                                   store=path))
        assert kept[-1].rows.count() == kept[-1].feasible
        stored.append(kept[-1].key)
    except StoreError as error:
        assert "is held by process" in str(error), error
        time.sleep(0.005)
    if len(stored) % 2 == 0:
        kept.clear()
        time.sleep(0.02)
print(json.dumps(stored))
"""


@pytest.fixture(scope="module")
def other_process() -> Iterator[Look]:
    """Asks another process about a store: how many explorations it has, or why it cannot be opened."""
    command = [sys.executable, "-W", "error", "-c", LOOKS]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def look(path: Path, *, read_only: bool = False) -> str:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(f"{read_only} {path}\n")
            process.stdin.flush()
            return process.stdout.readline().strip()

        yield look
        assert process.stdin is not None
        process.stdin.close()


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


def test_two_processes_that_explore_into_one_store_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "results.duckdb"
    command = [sys.executable, "-W", "error", "-c", EXPLORES, str(path)]
    both = [
        subprocess.Popen(
            [*command, odd], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for odd in ("0", "1")
    ]
    stored: set[str] = set()
    for process in both:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in both:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in both:
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
        stored.update(json.loads(out))
    with Store(path) as store:
        assert {record.key for record in store.records()} == stored
        assert len(stored) == 8
        assert all(store.rows(record.key).count() == record.feasible for record in store.records())
        assert store.losses == []


TAKES = """
import os, sys
from pathlib import Path
from engine.store import StoreLockedError
from engine.store.lock import StoreLock
path, rounds = Path(sys.argv[1]), int(sys.argv[2])
file = path.with_name(path.name + ".lock")
taken = 0
print("ready", flush=True)
input()
for number in range(10**6):
    if taken == rounds: break
    try: lock = StoreLock(path, read_only=False)
    except StoreLockedError as error:
        assert "is held by process" in str(error), error
        continue
    for name in ("", f".{number}.new", ""):
        lock.making(name)
        assert file.read_text().startswith(f"Held by Shardscape, process {os.getpid()} on "), file.read_text()
    lock.release()
    taken += 1
print(taken)
"""


def test_a_lock_says_whose_it_is_from_when_it_is_there(tmp_path: Path) -> None:
    """Two processes take one in turns: one has it at a time, whom the other can name, and nothing stays behind."""
    path = tmp_path / "results.duckdb"
    command = [sys.executable, "-c", TAKES, str(path), "200"]
    both = [
        subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         text=True)
        for _ in range(2)
    ]  # fmt: skip
    for process in both:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in both:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    assert [process.communicate(timeout=60) for process in both] == [("200\n", "")] * 2
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


def test_what_a_killed_process_left_of_its_lock_holds_nothing_up(store_path: Path) -> None:
    text = "import sys; from engine.store import Store; s = Store(sys.argv[1]); print('held', flush=True); input()"
    command = [sys.executable, "-c", text, str(store_path)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(StoreLockedError, match=f"is held by process {holder.pid}: "):
            Store(store_path)
        holder.send_signal(signal.SIGKILL)
        holder.wait()
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

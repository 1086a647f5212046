"""Workers: explorations and statistics in another process give the engine's results, and nothing is lost or left when
it dies or is stopped."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest

import dashboard.jobs.exploration_rows as under_test
from dashboard.jobs.board import JobBoard
from dashboard.jobs.exploration_rows import _Relay, _Taker, explore_into_store
from dashboard.jobs.explorations import Explorations
from dashboard.jobs.job import Job, JobKind
from dashboard.jobs.server import Server
from dashboard.jobs.unstored_statistics import UnstoredStatistics
from dashboard.jobs.worker import Task, Worker, Workers
from dashboard.settings import Settings, settings_from
from engine import Exploration, ExplorationCancelled, Progress, Scenario, WorkSizes, explore_scenario, working_in
from engine.exploration.workers import WorkerError
from engine.store import Store, StoreWriteError
from tests.dashboard.jobs.tasks import counted, ended
from tests.engine.store_rows import make_rows


def scenario(batch: int = 8) -> Scenario:
    """A space of some thousand executions."""
    return Scenario.of("megatron-126M", "a100_80e", num_procs=4, max_batch_size=batch, datatype="float16")


def large() -> Scenario:
    """A space whose rows come over in several files."""
    return Scenario.of("gpt3-13B", "h100_80g_nvl8", num_procs=32, max_batch_size=64, datatype="float16")


def endless() -> Scenario:
    """A space that takes minutes."""
    return Scenario.of("gpt3-175B", "h100_80g_nvl8", num_procs=4096, max_batch_size=3072, datatype="float16")


def never() -> bool:
    """Does not stop anything."""
    return False


def ignore(progress: Progress) -> None:
    """Does not look at progress."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "results.duckdb") as opened:
        yield opened


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    """One for all tests: it goes on, or starts a new process, after whatever a test has it do."""
    made = Worker()
    yield made
    made.close()


@pytest.fixture
def workers(worker: Worker) -> Iterator[Workers]:
    """A server's, of which the one for small spaces is that of all tests."""
    made = Workers()
    made.small = worker
    yield made
    for each in (made.answers, made.large):
        each.close()


@pytest.fixture
def explorations(tmp_path: Path, workers: Workers) -> Iterator[Explorations]:
    made = Explorations(Settings(store=tmp_path / "results.duckdb"), workers=workers)
    yield made
    made.close()


def explored(
    worker: Worker,
    scenario: Scenario,
    store: Store,
    tell: Callable[[Progress], None] = ignore,
    stops: Callable[[], bool] = never,
) -> Exploration:
    """A scenario explored by a worker."""
    return explore_into_store(
        scenario, store, lambda function, *about, give: worker.run(function, *about, task=Task(tell, give, stops))
    )


def test_the_result_is_that_of_this_process_row_by_row(store: Store, worker: Worker, tmp_path: Path) -> None:
    told: list[Progress] = []
    found = explored(worker, large(), store, told.append)
    direct = explore_scenario(large(), store=tmp_path / "direct.duckdb", workers=1)
    assert found.feasible > WorkSizes().groups_of_transfer * WorkSizes().rows_of_group
    assert found.rows.table().equals(direct.rows.table())
    assert found.infeasible_by_reason == direct.infeasible_by_reason
    assert found.best == direct.best
    assert told[-1].done == direct.total


def test_one_process_explores_one_scenario_after_the_other_and_finds_those_that_are_stored(
    store: Store, worker: Worker
) -> None:
    first = explored(worker, scenario(8), store)
    number = worker.pid
    second = explored(worker, scenario(12), store)
    assert worker.pid == number
    assert (first.key, second.key) == (scenario(8).key, scenario(12).key)
    closed = Worker()
    closed.close()
    assert explored(closed, scenario(8), store).best == first.best


def test_stopping_leaves_no_trace_and_a_process_that_goes_on(store: Store, worker: Worker, tmp_path: Path) -> None:
    halt = threading.Event()
    seen: list[Progress] = []

    def tell(progress: Progress) -> None:
        seen.append(progress)
        halt.set()

    with pytest.raises(ExplorationCancelled):
        explored(worker, endless(), store, tell, halt.is_set)
    assert 0 < len(seen) < 20
    number = worker.pid
    assert store.records() == []
    assert not list(tmp_path.glob("*.rows/*"))
    assert explored(worker, scenario(), store).feasible > 0
    assert worker.pid == number


def test_a_process_that_dies_is_told_and_replaced(explorations: Explorations, workers: Workers) -> None:
    job = explorations.request(endless())
    deadline = time.monotonic() + 60
    while job.progress is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert workers.small.pid is not None
    os.kill(workers.small.pid, signal.SIGKILL)
    assert job.wait(30)
    assert job.state == "failed"
    assert job.problem.startswith("The process that was exploring has ended")
    after = explorations.request(scenario())
    assert after.wait(60)
    assert after.state == "done"
    assert after.exploration is not None
    assert after.exploration.best == explore_scenario(scenario()).best


def test_a_job_in_the_other_process_can_be_cancelled(explorations: Explorations) -> None:
    job = explorations.request(endless(), "me")
    deadline = time.monotonic() + 60
    while job.progress is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert explorations.board.cancel(job, "me")
    assert job.wait(30)
    assert job.state == "cancelled"


def test_a_server_that_ends_takes_the_process_with_it(tmp_path: Path) -> None:
    made = Server(Settings(store=tmp_path / "results.duckdb", process=True))
    process = made.workers.small._process
    assert process is not None
    job = made.explorations.request(endless())
    made.close()
    assert process.popen.poll() is not None
    assert job.state == "cancelled"
    made.close()


_KILLED = """
import sys, threading
from dashboard.jobs.exploration_rows import explore_into_store
from dashboard.jobs.worker import Task, Worker
from engine import Scenario
from engine.store import Store, Writer
taken = threading.Barrier(4, timeout=60)
Writer.append = Writer.take = lambda self, *rows: (taken.wait(), threading.Event().wait())

def explored(made, size):
    scenario = Scenario.of("gpt3-175B", "h100_80g_nvl8", num_procs=size, max_batch_size=3072, datatype="float16")
    explore_into_store(scenario, store, lambda function, *about, give: made.run(function, *about, task=Task(give=give)))

store = Store(sys.argv[1])
every = Worker(), Worker(), Worker()
for made, size in zip(every, (4096, 16, 4000)):
    threading.Thread(target=explored, args=(made, size), daemon=True).start()
taken.wait()
print(*(made.pid for made in every), flush=True)
threading.Event().wait()
"""
"""A server with three processes: two in the middle of an exploration, the second has computed all of its own."""


def test_of_a_server_that_is_killed_nothing_stays(
    tmp_path: Path, store: Store, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes end and clean up, in the middle or when all is computed. Where one was killed as well, nobody does
    so, and what it wrote goes with the next exploration; folders of servers that live stay, and those of others.
    """
    place = tmp_path / "temporary"
    place.mkdir()
    server = subprocess.Popen(
        [sys.executable, "-c", _KILLED, str(tmp_path / "killed.duckdb")],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[3],
        env={**os.environ, "TMPDIR": str(place)},
        text=True,
    )
    assert server.stdout is not None
    *ending, killed = (int(number) for number in server.stdout.readline().split())
    folders = set(place.iterdir())
    assert len(folders) == 3
    other_kind = place / "shardscape-of-somebody"
    other_kind.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))

    def explored_much_later(batch: int) -> None:
        for folder in place.iterdir():
            os.utime(folder, (0, 0))
        explored(worker, scenario(batch), store)

    explored_much_later(8)
    assert set(place.iterdir()) == {*folders, other_kind}
    os.kill(killed, signal.SIGKILL)
    server.kill()
    server.communicate()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and (_alive(ending) or len(set(place.iterdir())) > 2):
        time.sleep(0.02)
    assert not _alive(ending)
    left = set(place.iterdir()) - {other_kind}
    assert len(left) == 1
    assert left < folders
    explored_much_later(9)
    assert set(place.iterdir()) == {other_kind}


def _alive(processes: Iterable[int]) -> list[int]:
    """Those of some processes that have not ended, whether or not somebody has asked how they did."""
    alive = []
    for each in processes:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            alive += [each] if Path(f"/proc/{each}/stat").read_text().split()[2] != "Z" else []
    return alive


@pytest.fixture
def small_files() -> Iterator[None]:
    """Hand rows over in files of two groups of five."""
    with working_in(WorkSizes(rows_of_group=5, groups_of_transfer=2)):
        yield


@pytest.mark.parametrize("sizes", [[10, 10], [10, 3], [4, 4, 4], [5], [6], []])
@pytest.mark.usefixtures("small_files")
def test_every_row_is_passed_on_in_its_order(sizes: list[int], store: Store, tmp_path: Path) -> None:
    """However rows fall into files: as many as one takes, some that are left, or none."""
    rows, at = make_rows(sum(sizes)), 0
    record = {"key": "key", "scenario": {}, "total": sum(sizes), "engine_version": "1"}
    told: list[tuple[str, object]] = [("open", record)]
    with _Relay(Task(give=told.append), tmp_path) as relay:
        for size in sizes:
            relay.append(rows.slice(at, size))
            at += size
        relay.complete(reductions={}, infeasible_by_reason={}, timings={})
    with contextlib.ExitStack() as stack:
        take = _Taker(store, tmp_path, stack)
        for part in told:
            take(part)
    assert store.rows("key").table(["id"])["id"].equals(rows["id"])
    assert list(tmp_path.glob("*.parquet")) == []


@pytest.mark.usefixtures("small_files")
@pytest.mark.parametrize("step", ["append", "close"])
def test_what_cannot_be_written_ends_the_exploration(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are written in a thread of their own, and what goes wrong there is raised where they come from."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on the device")

    monkeypatch.setattr(under_test.ShardFile, step, full)
    told: list[object] = []

    def passed_on() -> None:
        with _Relay(Task(give=told.append), tmp_path) as relay:
            relay.append(make_rows(13))
            relay.complete(reductions={}, infeasible_by_reason={}, timings={})

    with pytest.raises(OSError, match="no space left"):
        passed_on()
    assert told == []


def test_without_room_in_the_store_the_result_is_kept_in_memory(
    explorations: Explorations, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise StoreWriteError("x", "no space left on the device")

    monkeypatch.setattr(Store, "writer", full)
    job = explorations.request(scenario())
    assert job.wait(60)
    assert job.state == "done"
    assert job.in_memory
    assert any("No space left" in warning for warning in explorations.warnings)


def test_what_a_function_raises_is_raised_in_its_words_and_leaves_a_process_that_goes_on(worker: Worker) -> None:
    number, parts = worker.run(ended, "well"), list[str]()
    assert number == worker.pid != os.getpid()
    for how, kind in (
        ("refused", ValueError),
        ("memory", MemoryError),
        ("cancelled", ExplorationCancelled),
        ("failed", RuntimeError),
    ):
        with pytest.raises(kind, match="in its words"):
            worker.run(ended, how, task=Task(give=parts.append))
    assert parts == ["refused", "memory", "cancelled", "failed"]
    assert worker.run(ended, "well") == number
    with pytest.raises(WorkerError, match="The process that was planning has ended"):
        worker.run(ended, "dies", doing="planning")
    assert worker.run(ended, "well") != number


class Counting(Job):
    """A job of a new kind, as `dashboard.jobs` describes it."""

    def __init__(self, kind: JobKind, most: int) -> None:
        super().__init__(kind, str(most), "Counting")
        self.most, self.result = most, 0

    def work(self) -> bool:
        self.result = self.run(counted, self.most, give=self.found.append)
        return False


@pytest.mark.parametrize("apart", [True, False])
def test_a_new_kind_of_job_is_a_function_and_a_job(apart: bool, worker: Worker) -> None:
    board = JobBoard()
    kind = JobKind(name="count", doing="Counting", workers={"": worker} if apart else {})
    try:
        job = board.post(Counting(kind, 5))
        assert job.wait(60)
        assert (job.state, job.result, job.found) == ("done", 5, [0, 1, 2, 3, 4])
        endless = board.post(Counting(kind, 10**9))
        while endless.progress is None or endless.progress.done < 3:
            endless.wait(0.01)
        board.cancel(endless)
        assert endless.state == "cancelled"
        again = board.post(Counting(kind, 4))  # the lane is free again
        assert again.wait(60)
        assert again.result == 4
    finally:
        board.close()


def test_a_closed_worker_runs_nothing_more() -> None:
    worker = Worker()
    worker.close()
    with pytest.raises(ExplorationCancelled):
        worker.run(ended, "well")


def test_statistics_are_evaluated_in_the_process(store: Store, worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of stored rows and of rows in memory; nothing is evaluated here meanwhile."""
    names = ["act_space", "weight_space", "block_fw_flops"]
    made = UnstoredStatistics(worker=worker)
    for found in (explore_scenario(scenario(), store=store), explore_scenario(scenario(9))):
        ids = found.rows.table(["id"])["id"].to_numpy()
        expected = found.evaluate_ids(ids)
        with monkeypatch.context() as patch:
            patch.setattr(Scenario, "evaluate", None)
            job = made.request(found, names, "me")
            assert job is not None
            assert job.wait(60)
            assert job.problem == ""
        table = found.rows.table(names)
        assert all(np.array_equal(table[name].to_numpy(), expected[name]) for name in names)
        assert job.progress is not None
        assert job.progress.done == len(ids)
    made.close()


def test_the_process_can_be_switched_off() -> None:
    assert settings_from({"SHARDSCAPE_STORE": "off"}).process
    assert not settings_from({"SHARDSCAPE_PROCESS": " OFF "}).process
    odd = settings_from({"SHARDSCAPE_PROCESS": "maybe"})
    assert odd.process
    assert odd.problems == ("SHARDSCAPE_PROCESS is 'maybe'; it must be on or off. Using on.",)


def test_results_in_memory_need_no_process() -> None:
    workers = Workers()
    made = Explorations(Settings(store=None), workers=workers)
    try:
        job = made.request(scenario())
        assert job.wait(30)
        assert (job.state, workers.small.pid) == ("done", None)
    finally:
        made.close()


def test_without_processes_everything_is_computed_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(subprocess, "Popen", refused)
    made = Workers()
    made.start()
    assert made.large.run(ended, "well") == os.getpid()

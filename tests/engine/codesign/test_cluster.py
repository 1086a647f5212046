"""Runs on other processes: the same rows to the last bit, and nothing lost or counted twice when any of them dies."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from contextlib import nullcontext
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from engine import WorkSizes, codesign, working_in
from engine.cli.commands.codesign import _Line
from engine.codesign.executors import HereExecutor
from tests.engine import forked
from tests.engine.codesign.small_study import study

distributed = pytest.importorskip("distributed")
ROOT = Path(__file__).parents[3]

MANY = {
    "edits": [
        {"parameter": "net0_size", "values": [4, 8]},
        {"parameter": "hbm_capacity", "values": [20, 40, 60, 80, 100]},
    ],
    "models": ["megatron-126M"],
    "sizes": [4, 8],
}
"""40 points, each a hundredth of a second."""
POINTS = 40


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    place = tmp_path_factory.mktemp("one process")
    codesign.run(study(**MANY), place, workers=1)
    return codesign.results(place).rows


@pytest.fixture(autouse=True)
def told_at_once() -> Iterator[None]:
    """Progress is told after every task: what ends a process then ends it in the midst of a study, however quick that
    is. Tasks of the first pace are 8 points, and 4 of them are under way, so that 8 of 40 points are still to be given
    out when the first are done."""
    with working_in(WorkSizes(seconds_between_reports=0.001)):
        yield


class Cluster:
    """A cluster in processes of its own."""

    def __init__(self, workers: int) -> None:
        command = [sys.executable, str(Path(__file__).with_name("cluster_process.py")), str(workers)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT, start_new_session=True
        )
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()
        assert self.address.startswith("tcp://")

    def end(self) -> None:
        """Kills the scheduler, and with it all workers."""
        if self.process.returncode is not None:
            return
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    found = Cluster(2)
    yield found
    found.end()


def same(place: Path, expected: pd.DataFrame) -> None:
    """Rows are those of one process, and no part holds what another one holds."""
    found = codesign.results(place)
    assert found.complete
    pd.testing.assert_frame_equal(found.rows, expected, check_exact=True)
    (kept,) = (path.name for path in (place / "parts").iterdir())
    assert kept == f"{0:012d}-{study(**MANY).places:06d}.parquet", "no drafts are left, and small parts are one"


def killing(pids: list[int], after: int) -> Any:
    """Kills the first of some processes once so many tasks are done."""

    def told(progress: codesign.Progress) -> None:
        if progress.tasks >= after and pids:
            os.kill(pids.pop(0), signal.SIGKILL)

    return told


def test_a_killed_worker_loses_and_repeats_nothing(cluster: Cluster, expected: pd.DataFrame, tmp_path: Path) -> None:
    with distributed.Client(cluster.address) as client:
        pids = list(client.run(os.getpid).values())[:1]
        done = codesign.run(study(**MANY), tmp_path, client=client, progress=killing(pids, 2), task_seconds=0.05)
    assert not pids, "the worker was killed"
    assert (done.done, done.total) == (POINTS, POINTS)
    same(tmp_path, expected)


def _client(mouth: Connection, words: list[str]) -> None:
    """Runs a command to its end."""
    from engine.cli.main import main

    main(words)


def test_a_killed_client_goes_on_where_it_was(cluster: Cluster, expected: pd.DataFrame, tmp_path: Path) -> None:
    file = tmp_path / "study.json"
    file.write_text(json.dumps(study(**MANY).to_document()), encoding="utf-8")
    place = tmp_path / "results"
    words = ["codesign", str(file), "--folder", str(place), "--cluster", cluster.address, "--task-seconds", "0.05"]
    client, ear = forked.start(_client, words)
    for _ in range(600):
        if (place / "parts").exists() and len(list((place / "parts").iterdir())) > 3:
            break
        threading.Event().wait(0.05)
    client.kill()
    forked.finish(client, ear)
    again = codesign.run(study(**MANY), place, client=cluster.address, task_seconds=0.05)
    assert again.before > 0
    assert again.done == again.total == POINTS
    same(place, expected)


def test_a_cluster_without_workers_is_told_and_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They do the first two tasks, and are gone; the scheduler, which is asked seldom, lives on."""
    asked: list[int] = []

    class Lonely(Executor):
        _client = SimpleNamespace(nthreads=lambda: asked.append(0) or ({"worker": 1} if len(asked) < 2 else {}))
        given = 0

        def submit(self, function: Any, /, *arguments: Any, **named: Any) -> Future[Any]:
            self.given += 1
            return HereExecutor().submit(function, *arguments) if self.given < 3 else Future()

    monkeypatch.setattr("engine.codesign.running.of_client", lambda client: nullcontext(Lonely()))
    monkeypatch.setattr("engine.codesign.running.ASKED_AGAIN", 0.02)
    monkeypatch.setattr("engine.codesign.running.GONE_SECONDS", 0.2)
    seen: list[codesign.Progress] = []
    line = _Line()

    def told(progress: codesign.Progress) -> None:
        line(progress)
        seen.append(progress)

    with pytest.raises(codesign.ClusterError, match=r"All workers of the cluster have been gone for .* 16 of 40 point"):
        codesign.run(study(**MANY), tmp_path, client="anywhere", progress=told)
    assert seen[0].waiting == 0 < seen[-1].waiting
    assert capsys.readouterr().err.count("All workers of the cluster are gone") == 1
    turns = len(seen)
    assert len(asked) < 0.5 * turns, "not at every turn"
    assert len(codesign.results(tmp_path).rows) == 16


def test_a_worker_of_another_version_is_refused(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.codesign.running.version", lambda: "0.0.9")
    with pytest.raises(codesign.ClusterError, match=r"A worker runs Shardscape .*, and the caller 0\.0\.9: fig"):
        codesign.run(study(**MANY), tmp_path, client=cluster.address)
    assert not (tmp_path / "parts").exists()


def test_nobody_at_the_address_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.codesign.executors.CONNECT_SECONDS", 0.5)
    with pytest.raises(codesign.ClusterError, match=r"No scheduler answers at tcp://127\.0\.0\.1:9 .*; give"):
        codesign.run(study(), tmp_path, client="tcp://127.0.0.1:9")


def test_a_killed_process_of_this_machine_is_replaced(
    expected: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine.codesign import executors

    pids: list[int] = []
    begin = executors.Interpreter.__init__

    def noted(self: Any, *arguments: Any) -> None:
        begin(self, *arguments)
        pids.append(self.pid)

    monkeypatch.setattr(executors.Interpreter, "__init__", noted)
    killed: list[int] = []

    def told(progress: codesign.Progress) -> None:
        if progress.tasks >= 2 and not killed:
            killed.append(pids[0])
            os.kill(pids[0], signal.SIGKILL)

    codesign.run(study(**MANY), tmp_path, workers=2, progress=told, task_seconds=0.05)
    assert len(pids) == 3
    same(tmp_path, expected)


def test_a_full_disk_is_told_and_leaves_what_is_written(
    expected: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = os.fsync, []

    def full(number: int) -> None:
        calls.append(number)
        if len(calls) > 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(number)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(codesign.FolderError, match=r"There is no room left at .*: make room and run the study"):
        codesign.run(study(**MANY), tmp_path, workers=1, task_seconds=0.05)
    monkeypatch.setattr(os, "fsync", real)
    (tmp_path / "parts" / "000000000000-000008.parquet").write_bytes(b"PAR1 cut off")  # and the power went
    again = codesign.run(study(**MANY), tmp_path, workers=1)
    assert 0 < again.before < POINTS
    same(tmp_path, expected)


def test_results_go_to_an_object_store_too(expected: pd.DataFrame) -> None:
    codesign.run(study(**MANY), "memory://study", workers=1)
    found = codesign.results("memory://study")
    pd.testing.assert_frame_equal(found.rows, expected, check_exact=True)
    with pytest.raises(codesign.FolderError, match=r"holds the results of another study \('small'\); give another"):
        codesign.run(study(), "memory://study", workers=1)
    with pytest.raises(codesign.FolderError, match=r"cannot be opened"):
        codesign.run(study(), "nowhere://study", workers=1)


def test_stopping_keeps_what_is_there(expected: pd.DataFrame, tmp_path: Path) -> None:
    seen: list[int] = []

    def stop() -> bool:
        seen.append(0)
        return len(seen) > 3

    with pytest.raises(codesign.StudyCancelled):
        codesign.run(study(**MANY), tmp_path, workers=1, cancel=stop, task_seconds=0.05)
    early = codesign.results(tmp_path)
    assert 0 < len(early.rows) < POINTS
    assert len(early.front())
    codesign.run(study(**MANY), tmp_path, workers=1)
    same(tmp_path, expected)


def test_a_lost_scheduler_is_told_and_the_rest_runs_elsewhere(
    cluster: Cluster, expected: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last one that uses the cluster."""
    monkeypatch.setattr("engine.codesign.executors.CONNECT_SECONDS", 2.0)
    ended = []

    def told(progress: codesign.Progress) -> None:
        if progress.tasks and not ended:
            ended.append(progress.done)
            cluster.end()

    with pytest.raises(codesign.ClusterError, match=r"are written and stay good: run the study again to go on\.$"):
        codesign.run(study(**MANY), tmp_path, client=cluster.address, progress=told, task_seconds=0.05)
    again = codesign.run(study(**MANY), tmp_path, workers=1)
    assert again.before >= ended[0] > 0
    same(tmp_path, expected)

"""Explorations: each scenario once, in order, within bounds, whatever goes wrong."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dashboard.jobs.board import BoardFull
from dashboard.jobs.explorations import PER_SESSION, ExplorationJob, Explorations
from dashboard.settings import Settings, settings_from
from engine import Exploration, ExplorationCancelled, Scenario, explore_scenario
from engine.store import Store
from engine.store.errors import explain


def scenario(batch: int = 8, **limits: Any) -> Scenario:
    """A space of some thousand executions."""
    return Scenario.of(
        "megatron-126M", "a100_80e", num_procs=4, max_batch_size=batch, datatype="float16", limits=limits
    )


@pytest.fixture
def explorations() -> Iterator[Explorations]:
    made = Explorations(Settings(store=None, queue=2, kept=3))
    yield made
    made.close()


class Gate:
    """Stands in for exploring: waits until it is opened or the job is stopped."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.started = threading.Event()
        self.calls: list[str] = []
        self.hold: set[str] = set()
        """Keys of those for which it stays shut."""

    def __call__(self, scenario: Scenario, *, cancel: Any, **more: Any) -> Exploration:
        self.calls.append(scenario.key)
        self.started.set()
        while not self.open.wait(0.01) or scenario.key in self.hold:
            if cancel():
                raise ExplorationCancelled
        return explore_scenario(scenario, **more)


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def gated(gate: Gate) -> Iterator[Explorations]:
    made = Explorations(Settings(store=None, queue=2, kept=3), explore=gate)
    yield made
    made.close()


def test_the_result_is_the_engine_s(explorations: Explorations) -> None:
    job = explorations.request(scenario())
    assert job.wait(30)
    assert job.state == "done"
    direct = explore_scenario(scenario())
    assert job.exploration is not None
    assert (job.exploration.total, job.exploration.feasible) == (direct.total, direct.feasible)
    assert job.exploration.best == direct.best
    assert job.progress is not None
    assert job.progress.done == direct.total


def test_equal_scenarios_share_one_job(gated: Explorations, gate: Gate) -> None:
    first = gated.request(scenario(), "one")
    second = gated.request(scenario(), "two")
    gate.open.set()
    assert first is second
    assert first.wait(30)
    assert gated.request(scenario(), "three") is first
    assert gate.calls == [first.key]


def test_the_queue_is_bounded(gated: Explorations, gate: Gate) -> None:
    gated.request(scenario(8))
    assert gate.started.wait(10)
    waiting = [gated.request(scenario(batch), str(batch)) for batch in (12, 16)]
    assert [gated.board.position(job) for job in waiting] == [1, 2]
    with pytest.raises(BoardFull, match="2 explorations are waiting already"):
        gated.request(scenario(20))
    gate.open.set()
    assert all(job.wait(30) and job.state == "done" for job in waiting)


def test_what_a_session_no_longer_looks_at_is_given_up_unless_another_one_waits(
    gated: Explorations, gate: Gate
) -> None:
    first = gated.look_at(scenario(8), "one")
    assert gate.started.wait(10)
    shared = gated.look_at(scenario(9), "two")
    assert gated.look_at(scenario(9), "one") is shared
    assert first.wait(10)  # it ran: its turn is free
    assert gated.find(first.key) is None
    last = gated.look_at(scenario(10), "one")
    gate.open.set()
    assert shared.wait(30)
    assert last.wait(30)
    assert [job.state for job in (shared, last)] == ["done", "done"]
    assert gated.look_at(scenario(8), "one").wait(30)


def test_nobody_waits_for_all_that_one_session_asks_for(gate: Gate) -> None:
    """What each session asked for last comes first; of very many the first are given up, and nobody else's."""
    made = Explorations(Settings(store=None, queue=20), explore=gate)
    try:
        made.request(scenario(8), "somebody")
        assert gate.started.wait(10)
        shared = made.request(scenario(11), "greedy")
        made.request(scenario(11), "modest")
        greedy = [made.request(scenario(batch), "greedy") for batch in range(12, 12 + PER_SESSION + 2)]
        modest = made.request(scenario(9), "modest")
        assert [made.board.position(job) for job in (greedy[-1], modest)] == [1, 2]
        gone = [job for job in greedy if made.find(job.key) is None]
        assert gone == greedy[:2]
        assert made.find(shared.key) is shared
        gate.open.set()
        assert all(job.wait(60) for job in (shared, modest, *greedy[2:]))
        order = [job.key for job in (greedy[-1], modest, greedy[-2])]
        assert gate.calls[1:4] == order
        assert made.request(scenario(12), "greedy").wait(30)
    finally:
        made.close()


def test_a_large_space_holds_up_no_small_one(gate: Gate) -> None:
    gated = Explorations(Settings(store=None, queue=2, kept=3), explore=gate, large=scenario(16).space.total)
    large = gated.request(scenario(16))
    assert gate.started.wait(10)
    another = gated.request(scenario(24))
    assert gated.board.position(another) == 1
    gate.hold = {large.key}
    gate.open.set()
    small = gated.request(scenario(8))
    assert small.wait(30)
    assert (small.state, large.state, another.state) == ("done", "running", "queued")
    gate.hold.clear()
    assert another.wait(30)


def test_cancelling_stops_a_job_only_when_nobody_else_wants_it(gated: Explorations, gate: Gate) -> None:
    job = gated.request(scenario(), "one")
    assert gated.request(scenario(), "two") is job
    assert gate.started.wait(10)
    assert not gated.board.cancel(job, "one")
    assert not job.wait(0.1)
    assert gated.board.cancel(job, "two")
    assert job.wait(10)
    assert job.state == "cancelled"
    assert gated.request(scenario(), "one") is job
    gate.open.set()
    gated.forget(job.key)
    again = gated.request(scenario(), "one")
    assert again is not job
    assert again.wait(30)
    assert again.state == "done"


def test_who_has_gone_keeps_no_job_running(gated: Explorations, gate: Gate) -> None:
    job = gated.request(scenario(), "before the page was loaded again")
    assert gated.request(scenario(), "now") is job
    assert gate.started.wait(10)
    assert gated.board.cancel(job, "now", here=lambda watcher: watcher == "now")
    assert job.wait(20)
    assert job.state == "cancelled"
    assert gated.request(scenario(), "now") is job
    gate.open.set()
    assert gated.request(scenario(), "somebody else").wait(30)


def test_that_a_result_could_not_be_stored_is_said_once_and_taken_back(tmp_path: Path) -> None:
    explorations = Explorations(Settings(store=tmp_path / "results.duckdb"))
    try:
        explorations.say_unstored("No space left at a.")
        explorations.say_unstored("No space left at b.")
        (warning,) = explorations.warnings
        assert warning.endswith("kept in memory. No space left at b.")
        assert explorations.request(scenario()).wait(60)
        assert explorations.warnings == []
    finally:
        explorations.close()


def test_a_waiting_job_can_be_cancelled(gated: Explorations, gate: Gate) -> None:
    gated.request(scenario(8))
    assert gate.started.wait(10)
    waiting = gated.request(scenario(12))
    assert gated.board.cancel(waiting)
    assert waiting.state == "cancelled"
    gate.open.set()


def test_failures_become_one_sentence_and_do_not_end_the_runner() -> None:
    failures: list[Exception] = [ValueError("The space is odd."), MemoryError(), RuntimeError("internal words")]

    def fail(scenario: Scenario, **more: Any) -> Exploration:
        if failures:
            raise failures.pop(0)
        return explore_scenario(scenario, **more)

    explorations = Explorations(Settings(store=None), explore=fail)
    jobs: list[ExplorationJob] = []
    for batch in (8, 12, 16):
        jobs.append(explorations.request(scenario(batch)))
        assert jobs[-1].wait(10)
    assert [job.state for job in jobs] == ["failed"] * 3
    assert jobs[0].problem == "The space is odd."
    assert "not have enough memory" in jobs[1].problem
    assert "internal words" not in jobs[2].problem
    after = explorations.request(scenario(20))
    assert after.wait(30)
    assert after.state == "done"


def test_spaces_beyond_the_bound_are_refused_at_once() -> None:
    small = Explorations(Settings(store=None, largest_space=100))
    try:
        job = small.request(scenario())
        assert job.state == "failed"
        assert "this server explores up to 100" in job.problem
    finally:
        small.close()


def test_exploring_ends_at_the_time_limit(gate: Gate) -> None:
    hasty = Explorations(Settings(store=None, longest_seconds=0.1), explore=gate)
    try:
        job = hasty.request(scenario())
        assert job.wait(10)
        assert job.state == "failed"
        assert "the limit of this server" in job.problem
    finally:
        hasty.close()


def test_old_explorations_make_room(explorations: Explorations) -> None:
    jobs = [explorations.request(scenario(batch)) for batch in (8,)]
    assert jobs[0].wait(30)
    for batch in (12, 16, 20):
        assert explorations.request(scenario(batch)).wait(30)
    explorations.request(scenario(24)).wait(30)
    assert explorations.find(jobs[0].key) is None
    assert explorations.find(scenario(24).key) is not None


def test_results_come_back_from_the_store(tmp_path: Path, gate: Gate) -> None:
    path = tmp_path / "results.duckdb"
    first = Explorations(Settings(store=path))
    job = first.request(scenario())
    assert job.wait(30)
    first.close()
    second = Explorations(Settings(store=path), explore=gate)
    try:
        again = second.request(scenario())
        assert again.state == "done"
        assert again.exploration is not None
        assert again.exploration.rows.count() == again.exploration.feasible > 0
        assert gate.calls == []
    finally:
        second.close()


@pytest.mark.parametrize("damage", ["corrupt", "folder", "other"])
def test_a_store_that_cannot_be_opened_leaves_a_warning_and_a_working_runner(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "results.duckdb"
    if damage == "corrupt":
        path.write_bytes(b"not a database" * 1000)
    elif damage == "folder":
        path.mkdir()
    else:
        path = tmp_path / "results.txt"
    made = Explorations(Settings(store=path))
    try:
        assert made.store is None
        assert len(made.warnings) == 1
        assert made.warnings[0].startswith("Results are kept in memory only")
        assert str(path) in made.warnings[0]
        job = made.request(scenario())
        assert job.wait(30)
        assert job.state == "done"
    finally:
        made.close()


def test_a_store_that_another_process_holds_is_named_with_its_holder(tmp_path: Path) -> None:
    path = tmp_path / "results.duckdb"
    Store(path).close()
    hold = f"import duckdb, sys; c = duckdb.connect({str(path)!r}); print('held', flush=True); sys.stdin.read()"
    other = subprocess.Popen([sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert other.stdout is not None
        assert other.stdout.readline().strip() == b"held"
        made = Explorations(Settings(store=path))
        made.close()
        assert made.store is None
        assert f"held by process {other.pid}" in made.warnings[0]
    finally:
        other.communicate()


def test_a_full_disk_falls_back_to_memory(tmp_path: Path) -> None:
    def explore(scenario: Scenario, *, store: Store | None = None, **more: Any) -> Exploration:
        if store is not None:
            raise explain(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), tmp_path / "secret" / "00000.parquet")
        return explore_scenario(scenario, **more)

    made = Explorations(Settings(store=tmp_path / "results.duckdb"), explore=explore)
    try:
        job = made.request(scenario())
        assert job.wait(30)
        assert job.state == "done"
        assert job.in_memory
        assert made.warnings == [
            "The result could not be stored and is kept in memory. No space left on the device; the next result is "
            "stored again once there is room."
        ]
    finally:
        made.close()


def test_settings_name_the_variable_at_fault() -> None:
    found = settings_from({"SHARDSCAPE_STORE": "off", "SHARDSCAPE_QUEUE": "many", "SHARDSCAPE_KEPT": "5"})
    assert found.store is None
    assert (found.queue, found.kept) == (64, 5)
    assert len(found.problems) == 1
    assert found.problems[0].startswith("SHARDSCAPE_QUEUE is 'many'")


def test_the_store_goes_where_it_can_be_written(tmp_path: Path) -> None:
    assert settings_from({}, tmp_path).store == tmp_path / ".shardscape" / "results.duckdb"
    given = settings_from({"SHARDSCAPE_STORE": str(tmp_path / "mine.duckdb")}, tmp_path)
    assert given.store == tmp_path / "mine.duckdb"
    blocked = tmp_path / "file"
    blocked.write_text("")
    elsewhere = settings_from({"XDG_DATA_HOME": str(tmp_path / "data")}, blocked)
    assert elsewhere.store == tmp_path / "data" / "shardscape" / "results.duckdb"

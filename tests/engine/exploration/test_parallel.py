"""Several processes against one: the same reductions, whoever starts them and however they end."""

from __future__ import annotations

import pickle
import subprocess
import sys
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

import pandas as pd
import pytest

import engine
from engine import ExplorationCancelled
from engine.columns import HEADLINE
from engine.exploration import run
from engine.exploration import workers as parallel
from engine.exploration.interpreters import START
from engine.exploration.workers import WorkerError

EXPLORE: Any = run
SMALL: dict[str, Any] = {"num_procs": 8, "max_batch_size": 8, "datatype": "float16"}
NARROW: dict[str, Any] = {**SMALL, "limits": {"tensor_par_overlap": "none", "tensor_par": [1, 2], "data_par": [1, 2]}}


def test_several_processes_of_a_script_without_a_guard_say_what_one_says(tmp_path: Path) -> None:
    """Python's own process pools would run the script again in every process, or look for its file in vain."""
    asked = {"num_procs": 16, "max_batch_size": 16, "datatype": "float16", "limits": {"tensor_par_overlap": "none"}}
    metrics = [column.name for column in HEADLINE]
    file = tmp_path / "found.pickle"
    script = f"""
import pickle
import engine
told = []
with engine.working_in(engine.WorkSizes(points_explored=40)):
    found = engine.explore("megatron-5B", "a100_80g", **{asked!r}, workers=2, progress=told.append)
cells = [found.by_cell(metric) for metric in {metrics!r}]
with open({str(file)!r}, "wb") as file:
    pickle.dump((found.infeasible_by_reason, cells, found.reductions.step_times(), told[-1]), file)
print(found.total, found.best["id"])
"""
    with engine.working_in(engine.WorkSizes(points_explored=40)):
        one = engine.explore("megatron-5B", "a100_80g", **asked)
    assert one.best is not None
    ran = subprocess.run(
        [sys.executable, "-"],
        input=script,
        cwd=Path(engine.__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (ran.stdout, ran.stderr) == (f"{one.total} {one.best['id']}\n", "")
    infeasible, cells, step_times, told = pickle.loads(file.read_bytes())
    assert infeasible == one.infeasible_by_reason
    for metric, table in zip(metrics, cells, strict=True):
        pd.testing.assert_frame_equal(one.by_cell(metric), table, check_exact=True)
    pd.testing.assert_frame_equal(one.reductions.step_times(), step_times, check_exact=True)
    assert (told.done, told.feasible) == (one.total, one.feasible)


@pytest.mark.parametrize("fault", ["dies", "is stopped"])
def test_several_processes_end_together(fault: str) -> None:
    """Whether one of them dies or the caller has had enough: no process stays, and the caller hears why."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(process := Popen(*arguments, **options))
        if fault == "dies":
            process.kill()
        return process

    Popen = subprocess.Popen  # noqa: N806 - it is a class
    turn = count()
    expected = WorkerError if fault == "dies" else ExplorationCancelled
    with (
        mock.patch.object(subprocess, "Popen", start),
        engine.working_in(engine.WorkSizes(points_explored=4)),
        pytest.raises(expected, match=r"^[A-Z].*\.$"),
    ):
        engine.explore("megatron-126M", "a100_80g", **SMALL, workers=2, cancel=lambda: next(turn) >= 2)
    assert len(started) == 2
    assert all(process.returncode is not None for process in started)


@pytest.mark.parametrize("workers", [0, -1, 1.0, True, "2"])
def test_impossible_numbers_of_processes_are_refused(workers: Any) -> None:
    with pytest.raises(ValueError, match=r"^workers is .*; it must be a whole number of at least 1\.$"):
        engine.explore("megatron-126M", "a100_80g", **NARROW, workers=workers)


def test_a_process_whose_caller_was_killed_ends_without_a_word() -> None:
    """Else its traceback would come out on the terminal of the caller."""
    scenario = engine.Scenario.of("gpt3-13B", "a100_80g", **NARROW)
    started = subprocess.Popen(
        [sys.executable, "-c", START], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert started.stdin is not None
    assert started.stdout is not None
    assert started.stderr is not None
    started.stdout.close()
    for message in (sys.path, f"{parallel.__name__}:serve", (), scenario, range(1)):
        pickle.dump(message, started.stdin)
    started.stdin.close()
    told = started.stderr.read()
    started.stderr.close()
    assert (started.wait(60), told) == (0, b"")

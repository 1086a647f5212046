"""The schedule keeps the rules of a pipeline and adds up to what the cost model charges."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pandas as pd
import pytest

import engine
from engine.cost_models.chunk_times import chunk_times
from engine.simulate.schedule import LARGEST, Schedule, schedule
from engine.store import StoreCondition
from tests.engine.explored_with_rows import explored_with_rows

BLOCKS = 40
"""Of GPT-3 13B."""


@functools.cache
def runs(**limits: Any) -> pd.DataFrame:
    """Forty executions that run, all over a space."""
    found = explored_with_rows(
        engine.Scenario.of(
            "gpt3-13B", "h100_80g_nvl8", num_procs=32, max_batch_size=96, datatype="float16", limits=limits or None
        )
    )
    table = found.rows.table(["id"], where=[StoreCondition("pipeline_par", ">", 1)])["id"].to_numpy()
    chosen = np.random.default_rng(4).choice(table, min(40, len(table)), replace=False)
    return found.evaluate_ids(np.sort(chosen))


@functools.cache
def rows() -> list[dict[Any, Any]]:
    return runs().to_dict("records")


@functools.cache
def scheduled() -> list[tuple[dict[Any, Any], Schedule]]:
    """All of them with their schedules, which every law below is about."""
    return [(row, schedule(row, BLOCKS)) for row in rows()]


def test_stages_do_one_thing_at_a_time() -> None:
    for _, found in scheduled()[::3]:
        for _, tasks in found.tasks.groupby("stage"):
            starts, ends = tasks["start"].to_numpy(), tasks["end"].to_numpy()
            assert (starts[1:] >= ends[:-1] - 1e-12).all()


def test_durations_add_up_to_the_step_on_every_stage() -> None:
    for row, found in scheduled():
        assert found.skipped == 0
        tasks = found.tasks.assign(length=found.tasks["end"] - found.tasks["start"])
        busy = tasks.groupby("stage")["length"].sum().to_numpy()
        assert busy + row["bubble_time"] == pytest.approx(row["total_time"], rel=1e-9)
        idle = found.idle()
        assert found.causes is not None
        assert found.causes[["start", "end"]].to_numpy().tolist() == idle[["start", "end"]].to_numpy().tolist()
        assert set(found.causes["cause"]) <= {"fill", "forward", "gradient", "drain", "empty"}
        gaps = (idle["end"] - idle["start"]).groupby(idle["stage"]).sum().reindex(range(found.stages), fill_value=0.0)
        assert gaps.to_numpy() == pytest.approx(row["bubble_time"], rel=1e-6, abs=1e-6 * row["total_time"])


def test_the_last_stage_to_finish_does_so_at_the_step_time() -> None:
    for row, found in scheduled():
        assert found.tasks["end"].max() == pytest.approx(row["total_time"], rel=1e-9)
        assert found.end == row["total_time"]


def test_every_chunk_of_every_microbatch_is_done_once_on_every_stage() -> None:
    for _, found in scheduled()[::2]:
        work = found.tasks[found.tasks["kind"].isin(["forward", "backward"])]
        assert len(work) == 2 * found.stages * found.chunks * found.microbatches
        assert not work.duplicated(["stage", "kind", "chunk", "microbatch"]).any()


def test_nothing_starts_before_its_input_is_there() -> None:
    for _, found in scheduled()[::4]:
        work = found.tasks[found.tasks["kind"].isin(["forward", "backward"])]
        ends = work.set_index(["kind", "chunk", "microbatch", "stage"])["end"].to_dict()
        for task in work.to_dict("records"):
            kind, chunk, batch, stage = task["kind"], task["chunk"], task["microbatch"], task["stage"]
            if kind == "forward":
                before = (kind, chunk, batch, stage - 1) if stage else (kind, chunk - 1, batch, found.stages - 1)
            else:
                last = stage == found.stages - 1
                before = (kind, chunk + 1, batch, 0) if last else (kind, chunk, batch, stage + 1)
            if before in ends:
                assert task["start"] >= ends[before] - 1e-12
            if kind == "backward":
                assert task["start"] >= ends["forward", chunk, batch, stage] - 1e-12


def test_a_stage_holds_no_more_microbatches_than_the_cost_model_says() -> None:
    """1F1B keeps at most as many microbatches alive on a stage as there are stages behind it, itself included."""
    plain = [found for row, found in scheduled() if row["pipeline_interleaving"] == 1]
    assert plain
    for found in plain[::3]:
        for stage, tasks in found.tasks.groupby("stage"):
            alive = np.cumsum(tasks["kind"].map({"forward": 1, "backward": -1}).fillna(0))
            assert alive.max() <= found.stages - int(str(stage))


def test_long_schedules_leave_out_only_repetitions() -> None:
    long = [row for row in rows() if row["batch_size"] // row["data_par"] // row["microbatch_size"] >= 48]
    assert long
    seen = 0
    for row in long:
        short = schedule(row, BLOCKS, most_tasks=100)
        seen += short.skipped_microbatches > 0
        assert short.end == pytest.approx(short.tasks["end"].max(), rel=1e-9)
        assert short.skipped + short.end == pytest.approx(row["total_time"])
        if short.skipped_microbatches:
            assert 0 < short.cut < short.end
    assert seen


def test_large_schedules_stay_small() -> None:
    found = engine.explore(
        "gpt3-175B",
        "h100_80g_nvl8",
        num_procs=64,
        max_batch_size=3072,
        datatype="float16",
        limits={"tensor_par": 2, "pipeline_par": 32, "microbatch_size": 1},
    )
    assert found.best is not None
    drawn = schedule(found.best, 96)
    assert drawn.microbatches == 3072
    assert len(drawn.tasks) < LARGEST
    assert drawn.end == pytest.approx(drawn.tasks["end"].max(), rel=1e-9)


def test_inference_has_no_backward_pass() -> None:
    for row in runs(training=False, batch_size=(96,)).to_dict("records")[::8]:
        found = schedule(row, BLOCKS)
        assert set(found.tasks["kind"]) == {"forward"}
        assert found.tasks["end"].max() <= row["total_time"] * (1 + 1e-9)


def test_uneven_pipelines_have_shorter_last_stages() -> None:
    table = runs(uneven_pipelines=True, pipeline_par=(16, 32))
    assert len(table)
    for row in table.to_dict("records")[::2]:
        found = schedule(row, BLOCKS)
        work = found.tasks[found.tasks["kind"] == "forward"]
        length = (work["end"] - work["start"]).groupby(work["stage"]).mean()
        assert length.iloc[-1] < length.iloc[0]
        assert 0.8 * row["total_time"] < found.tasks["end"].max() <= row["total_time"] * (1 + 1e-9)


def test_an_execution_that_does_not_run_has_no_schedule() -> None:
    with pytest.raises(ValueError, match="does not run"):
        chunk_times({"total_time": float("nan")}, BLOCKS)


def test_an_execution_runs_the_schedule_that_it_names() -> None:
    plain = next(row for row in rows() if row["pipeline_par"] >= 4 and row["pipeline_interleaving"] == 1)
    own = schedule(plain, BLOCKS)
    split = schedule(plain | {"schedule": "zb_h1"}, BLOCKS)
    assert split.title == "ZB-H1"
    assert {"forward", "input gradient", "weight gradient"} <= set(split.tasks["kind"])
    assert split.tasks["end"].max() < own.tasks["end"].max()
    two = next(row for row in rows() if row["pipeline_par"] >= 4 and row["pipeline_interleaving"] == 2)
    folded = schedule(two | {"schedule": "zb_v"}, BLOCKS, most_tasks=200)
    assert folded.title == "ZB-V"
    assert (folded.tasks["end"] <= two["total_time"] * (1 + 1e-9)).all()

"""Where an execution stands among all of its kind, and what leads to the best."""

from __future__ import annotations

import sys

import pytest

import engine
from engine import launch
from tests.engine.explored_with_rows import explored_with_rows
from tests.engine.launch.test_megatron import DENSE

EXECUTION = {
    **DENSE,
    "num_procs": 16,
    "data_par": 1,
    "batch_size": 64,
    "attention_kernel": None,
    "tensor_par_overlap": "none",
    "activation_recompute": "full",
    "optimizer_sharding": False,
    "zero_stage": 0,
    "data_par_overlap": False,
    "pipeline_interleaving": 2,
}


def test_the_way_to_the_best_is_a_chain_of_gains(monkeypatch: pytest.MonkeyPatch) -> None:
    execution = {**EXECUTION, "pipeline_interleaving": 1, "datatype": "bfloat16"}
    found = launch.standing(execution, "llama-3-8B", "h100_80g_sxm")
    assert found.runs
    assert found.best is not None
    asked = engine.Scenario.of("llama-3-8B", "h100_80g_sxm", num_procs=16, max_batch_size=64, datatype="bfloat16")
    space = explored_with_rows(asked)
    assert found.best["sample_rate"] == space.best["sample_rate"]
    rates = space.rows.page(0, 10**7, names=["sample_rate"])["sample_rate"].to_numpy()
    assert found.faster == int((rates > found.row["sample_rate"]).sum())
    assert found.id is not None
    (row,) = space.evaluate_ids([found.id]).to_dict("records")
    assert row["sample_rate"] == found.row["sample_rate"]
    monkeypatch.setattr(sys.modules["engine.launch.standing"], "LARGEST_RANKED", 0)
    proven = launch.standing(execution, "llama-3-8B", "h100_80g_sxm")  # as of a space too large to evaluate all
    assert (proven.id, proven.faster) == (found.id, None)
    assert found.distance == pytest.approx(found.best["sample_rate"] / found.row["sample_rate"] - 1)
    rate, fields = float(found.row["sample_rate"]), {name: found.row[name] for name in launch.evaluable(execution)}
    for step in found.steps:
        assert step.gain > 0
        assert step.rate == pytest.approx(rate * (1 + step.gain))
        for change in step.changes:
            assert fields[change.field] == change.old
            fields[change.field] = change.new
        rate = step.rate
    assert rate == pytest.approx(found.best["sample_rate"], rel=1e-3)
    assert len(found.steps) > 2  # what can be told apart is


def test_what_a_flag_or_two_bring_comes_first_with_the_flags_of_the_framework() -> None:
    found = launch.standing({**EXECUTION, "pipeline_interleaving": 1}, "llama-3-8B", "h100_80g_sxm")
    first, *_, last = found.steps
    assert {change.field for change in first.changes} == {"activation_recompute", "selective_recompute"}
    assert first.gain == pytest.approx(0.284, abs=0.0005)
    flags = launch.flag_changes(found, framework="megatron")
    assert [len(each) > 0 for each in flags] == [True] * len(found.steps)
    assert [str(each) for each in flags[0]] == [
        "--recompute-granularity selective",
        "without --recompute-method",
        "without --recompute-num-layers",
        "--recompute-modules layernorm",
    ]
    assert [str(each) for each in flags[-1]] == ["--overlap-grad-reduce", "--overlap-param-gather"]
    # A configuration with the flags of all steps reads as the execution that the last one leads to.
    written = launch.write(found.row, "llama-3-8B", framework="megatron").flags
    for step in flags:
        for change in step:
            assert written.get(change.flag) == change.old
            written = {**written, change.flag: change.new}
    given = {name: value for name, value in written.items() if value is not None}
    read = launch.read_flags("megatron", given, gpus=16).execution
    told = ("tensor_par", "pipeline_par", "data_par", "microbatch_size", "zero_stage", "activation_recompute")
    assert {name: read[name] for name in told} == {name: last.execution[name] for name in told}


def test_an_execution_that_does_not_run_is_told_why_and_what_makes_it_run() -> None:
    found = launch.standing(
        {**EXECUTION, "num_procs": 8, "pipeline_par": 2, "pipeline_interleaving": 1},
        "llama-3-70B",
        "h100_80g_sxm",
        limits={"weight_offload": False},
    )
    assert not found.runs
    assert "GiB too much" in found.row["reason_text"]
    assert found.distance is None
    assert found.faster is None


def test_software_that_was_chosen_stays_as_it_is() -> None:
    execution = {**EXECUTION, "pipeline_interleaving": 1, "launch": "graphs", "gradient_datatype": "bfloat16"}
    found = launch.standing(execution, "llama-3-8B", "h100_80g_sxm", limits={"tensor_par": 4})
    assert found.best is not None
    assert (found.best["launch"], found.best["gradient_datatype"], found.best["tensor_par"]) == (
        "graphs",
        "bfloat16",
        4,
    )
